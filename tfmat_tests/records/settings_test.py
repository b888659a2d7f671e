"""Curve settings: what is checked, and that their JSON form is the same for the same curves."""

import json
import pickle

import numpy as np
import pytest

from tfmat.data.dataset import dataset_folder
from tfmat.errors import InputError
from tfmat.records.simulation import CurveSettings, Simulator

_REST = {
    "strength_mpa": None,
    "strength_cut_off": False,
    "noise_mpa": 1.0,
    "noise_relative": 0.0,
    "num_points": 200,
}
# What the metals' settings were before their ranges grew and went onto log scales: as stored then, the name of a data
# set of 1,000 curves, and points 1, 100 and 199 of curve 123,456 of seed 0. Recorded from the code of that time.
OLD = [
    (
        {
            "law": "ramberg_osgood",
            "ranges": {"E": [60e3, 220e3], "sigma02": [100.0, 1000.0], "n": [3.0, 30.0]},
            "fixed": {},
            "max_strain": [0.01, 0.3],
            **_REST,
        },
        "ramberg_osgood-1000-34df35e7",
        [[0.52539098, 0.50409687, 0.80398017]],
        [[4.2603333e-06, 1.1671172], [0.042603333, 647.16101], [0.16871345, 699.2373]],
    ),
    (
        {
            "law": "voce",
            "ranges": {
                "E": [60e3, 220e3],
                "sigma0": [50.0, 1000.0],
                "Q": [20.0, 1600.0],
                "b": [1.0, 50.0],
            },
            "fixed": {},
            "max_strain": [0.02, 0.6],
            **_REST,
        },
        "voce-1000-16001bb9",
        [[0.17749612, 0.43956473, 0.79790789, 0.065098867]],
        [[8.5206666e-06, 1.3065844], [0.085206665, 532.77655], [0.3374269, 698.06287]],
    ),
    (
        {
            "law": "swift",
            "ranges": {
                "E": [60e3, 220e3],
                "K": [150.0, 2000.0],
                "epsilon0": [1e-4, 0.1],
                "n": [0.05, 0.7],
            },
            "fixed": {},
            "max_strain": [0.02, 0.6],
            **_REST,
        },
        "swift-1000-d669d872",
        [[0.17749612, 0.43956473, 0.79790789, 0.065098867]],
        [[8.5206666e-06, 1.3065844], [0.085206665, 780.67041], [0.3374269, 876.67456]],
    ),
]


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


@pytest.mark.parametrize(("content", "folder", "labels", "points"), OLD)
def test_old_settings_of_metals_mean_what_they_meant(content, folder, labels, points):
    settings = CurveSettings.from_json(content)
    assert settings.to_json() == content
    assert dataset_folder("", settings, 0, 1000, 10).name == folder
    curve = Simulator(settings, 0).curves(123_456, 123_457)
    np.testing.assert_allclose(curve.labels, labels, rtol=1e-6)
    np.testing.assert_allclose(curve.features[0, [1, 100, 199], :2], points, rtol=1e-5)
    with_fixed = {**content, "fixed": {"E": 70e3}, "ranges": dict(content["ranges"])}
    del with_fixed["ranges"]["E"]
    assert CurveSettings.from_json(with_fixed).to_json() == with_fixed


def test_new_settings_of_metals_say_their_scales():
    content = CurveSettings("voce").to_json()
    assert content["scales"] == {"E": "log", "sigma0": "log", "max_strain": "log"}
    assert CurveSettings.from_json(content) == CurveSettings("voce").resolved()
    ends = Simulator(CurveSettings("voce"), 0).curves(0, 4096).features[:, -1, 0]
    low, high = content["max_strain"]
    share = np.log(ends / low) / np.log(high / low)
    # Five standard errors of 4,096 uniform numbers.
    assert share.mean() == pytest.approx(0.5, abs=0.023)
    assert share.std() == pytest.approx(12**-0.5, abs=0.012)
    assert "scales" not in CurveSettings().to_json()
    linear = CurveSettings("voce", scales={"E": "linear"})
    assert linear.build_law().parameters[0].scale == "linear"
    assert linear.to_json()["scales"] == {"sigma0": "log", "max_strain": "log"}


def test_the_observation_model_is_stored_where_it_is_used():
    options = {
        "noise_of_maximum": (0.001, 0.01),
        "measured_points": (15, 400),
        "strain_offset": (1e-5, 1e-4),
        "misfit": (0.001, 0.02),
        "yield_spread": (0.1, 0.7),
    }
    assert not set(options) & set(CurveSettings("voce").to_json())
    assert not CurveSettings("voce").is_observed
    for name, limits in options.items():
        settings = CurveSettings("voce", **{name: limits})
        content = json.loads(json.dumps(settings.to_json()))
        assert content[name] == list(limits) and settings.is_observed
        assert CurveSettings.from_json(content) == settings.resolved()


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
        ({"noise_of_maximum": (0.0, 0.1)}, "--config.data.noise_of_maximum"),
        ({"noise_of_maximum": (0.1, 0.6)}, "noise_of_maximum is (0.1, 0.6); give 0.5 at most"),
        ({"misfit": 0.01}, "--config.data.misfit is 0.01; give two numbers"),
        ({"measured_points": (4, 100)}, "--config.data.measured_points is (4, 100); give whole"),
        ({"measured_points": (15.5, 100)}, "--config.data.measured_points"),
        ({"yield_spread": (0.5, 3)}, "--config.data.yield_spread"),
        ({"strain_offset": (1e-5, 0.1)}, "--config.data.strain_offset"),
        ({"scales": {"a": "cubic"}}, "scale of a is 'cubic'; give linear or log"),
        ({"scales": {"b": "log"}}, "no parameter 'b'"),
    ],
)
def test_wrong_values_name_the_flag(arguments, expected):
    with pytest.raises(InputError) as caught:
        CurveSettings(**arguments)
    assert expected in str(caught.value)


def test_another_version_of_a_user_law_has_another_json(tmp_path):
    path = tmp_path / "my_law.py"
    text = "from tfmat.materials.cyclic import TanhShear\n\n\nclass Mine(TanhShear):\n    name = 'mine'\n"
    path.write_text(text)
    settings = CurveSettings(law=f"{path}:Mine")
    first = settings.to_json()
    assert CurveSettings.from_json(first).to_json() == first
    path.write_text(
        text + "    noise_mpa = 1.0  # the same curves for all we know, but who can tell\n"
    )
    assert settings.to_json() != first
