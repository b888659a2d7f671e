"""Curve settings: what is checked, and that their JSON form is the same for the same curves."""

import json
import pickle

import pytest

from tfmat.curves.settings import CurveSettings
from tfmat.errors import InputError


def test_json_resolves_what_the_law_decides():
    content = CurveSettings().to_json()
    assert content == {
        "law": "hahn_tsai",
        "ranges": {"G0": [2000.0, 8000.0], "a": [1e-9, 1e-7]},
        "fixed": {},
        "max_strain": [0.01, 0.05],
        "strength_mpa": [60.0, 140.0],
        "strength_cut_off": True,
        "noise_mpa": 1.0,
        "noise_relative": 0.0,
        "num_points": 200,
    }


def test_json_round_trip_survives_json_itself():
    settings = CurveSettings(
        law="voce",
        ranges={"Q": (100, 800)},
        fixed={"E": 193e3},
        noise_relative=0.01,
        strength_mpa=(300, 400),
        num_points=64,
    )
    content = settings.to_json()
    assert "E" not in content["ranges"]
    again = CurveSettings.from_json(json.loads(json.dumps(content)))
    assert again.to_json() == content
    assert again == settings.resolved()
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_equal_curves_have_equal_json():
    written_out = CurveSettings(ranges={"a": (1e-9, 1e-7)}, max_strain=(0.01, 0.05), noise_mpa=1)
    assert written_out.to_json() == CurveSettings().to_json()
    no_cut = CurveSettings(law="voce", strength_cut_off=False)
    assert no_cut.to_json() == CurveSettings(law="voce").to_json()
    assert CurveSettings(strength_cut_off=False).to_json()["strength_mpa"] is None


def test_unknown_json_key_is_refused():
    with pytest.raises(InputError, match="no 'noise'; did you mean 'noise_mpa'"):
        CurveSettings.from_json({"noise": 1})


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"law": "voze"}, "no law 'voze'; did you mean 'voce'"),
        ({"ranges": {"Q": (1, 2)}}, "no parameter 'Q'"),
        ({"ranges": {"G0": 3}}, "--config.ranges.G0 is 3; give two numbers"),
        ({"fixed": {"G0": "x"}}, "--config.fixed.G0 is 'x'; give a number"),
        ({"fixed": {"G0": float("nan")}}, "--config.fixed.G0 is nan"),
        ({"fixed": {"G0": 5000, "a": 1e-8}}, "every parameter"),
        ({"max_strain": (0.0, 0.1)}, "--config.data.max_strain"),
        ({"max_strain": (0.2, 0.1)}, "--config.data.max_strain"),
        ({"strength_mpa": (1,)}, "--config.data.strength_mpa"),
        ({"noise_mpa": -1}, "--config.data.noise_mpa is -1; give 0"),
        ({"noise_mpa": float("inf")}, "--config.data.noise_mpa"),
        ({"noise_relative": 5}, "--config.data.noise_relative is 5; give a fraction below 1"),
        ({"num_points": 3}, "--config.data.num_points is 3"),
        ({"num_points": 20.5}, "--config.data.num_points"),
        ({"strength_cut_off": 1}, "--config.data.strength_cut_off"),
    ],
)
def test_wrong_values_name_the_flag(arguments, expected):
    with pytest.raises(InputError) as caught:
        CurveSettings(**arguments)
    assert expected in str(caught.value)


def test_another_version_of_a_user_law_has_another_json(tmp_path):
    path = tmp_path / "my_law.py"
    text = "from tfmat.materials.tanh_shear import TanhShear\n\n\nclass Mine(TanhShear):\n    name = 'mine'\n"
    path.write_text(text)
    settings = CurveSettings(law=f"{path}:Mine")
    first = settings.to_json()
    assert CurveSettings.from_json(first).to_json() == first
    path.write_text(
        text + "    noise_mpa = 1.0  # the same curves for all we know, but who can tell\n"
    )
    assert settings.to_json() != first
