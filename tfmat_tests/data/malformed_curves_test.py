"""Files of labelled curves that cannot be packed: the one line that each of them gets."""

import pathlib
from typing import Any

import numpy as np
import pytest

from tfmat.data.imported import import_dataset
from tfmat.errors import InputError
from tfmat_tests.data.own_curves import hahn_tsai_curves, line_curves, save_curves


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        ({"names": np.array(["a", "G1"])}, {}, "law hahn_tsai has no parameter 'G1'"),
        ({"units": np.array(["MPa^-3", "GPa"])}, {}, "G0 is in GPa, law hahn_tsai has it in MPa"),
        (
            {"scale": np.array(["linear", "linear"])},
            {},
            "scale of a is linear, law hahn_tsai has log",
        ),
        ({}, {"fixed": {"G0": 5000.0}}, "holds values of G0, which --fix gives too"),
        ({}, {"law": "voce"}, "law voce has no parameter 'a'"),
        ({}, {"law": "hahn_tsay"}, "did you mean 'hahn_tsai'"),
        ({}, {"law": None, "fixed": {"G0": 5000.0}}, "say with --law which law"),
    ],
)
def test_what_does_not_fit_the_law(
    tmp_path: pathlib.Path, change: dict[str, Any], arguments: dict[str, Any], message: str
) -> None:
    path = save_curves(tmp_path, hahn_tsai_curves() | change)
    with pytest.raises(InputError, match=message):
        import_dataset(path, data_dir=tmp_path, **{"law": "hahn_tsai", **arguments})


def _set(name: str, index: tuple[int, ...], value: float) -> Any:
    def change(arrays: dict[str, Any]) -> None:
        arrays[name][index] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda a: a.pop("units"),
            r"no array 'units' \(it has: names, parameters, strain, stress\)",
        ),
        (
            lambda a: a.update(strain=a["strain"][:, :-1]),
            r"strain is \[40, 199\] and stress is \[40, 200\]",
        ),
        (lambda a: a.update(stress=a["stress"][0]), r"stress is \[200\]; give \[curves, points\]"),
        (lambda a: a.update(parameters=a["parameters"][:-1]), "40 curves but parameters for 39"),
        (
            lambda a: a.update(names=np.array(["E"])),
            r"names is <U1 \[1\]; give one string for each of the 2",
        ),
        (lambda a: a.update(names=np.array(["E", "E"])), "names must differ"),
        (lambda a: a.update(names=np.array([1.0, 2.0])), "names is float64"),
        (lambda a: a.update(stress=a["stress"].astype(str)), "stress holds <U.*, not numbers"),
        (lambda a: a.update(low=np.array([1.0])), "low has 1 entries for 2 parameters"),
        (
            lambda a: a.update(low=np.array([1500.0, 0.0])),
            "E goes from 1000 to 2000 MPa, outside its range low = 1500",
        ),
        (
            lambda a: a.update(scale=np.array(["log", "ln"])),
            "scale of offset is 'ln'; give linear or log",
        ),
        (
            lambda a: a.update(low=np.array([0.0, 0.0]), scale=np.array(["log", "log"])),
            "a log scale needs positive",
        ),
        (
            lambda a: a.update({name: a[name][:9] for name in ("strain", "stress", "parameters")}),
            "holds 9 curves",
        ),
        (lambda a: a.update(parameters=np.ones((40, 2))), "E is 1 MPa in every curve"),
        (_set("parameters", (7, 1), np.nan), "offset of curve 7 is not a finite number"),
        (_set("stress", (7, 100), np.nan), "curve 7 has NaN at point 100, before its end"),
        (_set("stress", (7, 100), np.inf), "stress of curve 7 is infinite at point 100"),
        (_set("strain", (7, 100), 0.0), "strain of curve 7 does not rise from point 99 to 100"),
        (
            lambda a: a["stress"].__setitem__((7, slice(1, None)), np.nan),
            "curve 7 has fewer than two points",
        ),
    ],
)
def test_malformed_arrays(tmp_path: pathlib.Path, change: Any, message: str) -> None:
    arrays = line_curves()
    change(arrays)
    with pytest.raises(InputError, match=message) as caught:
        import_dataset(save_curves(tmp_path, arrays), data_dir=tmp_path / "data")
    assert "\n" not in str(caught.value) and "curves.npz" in str(caught.value)
    assert not (tmp_path / "data").exists()


def test_files_that_are_no_curves(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        import_dataset(tmp_path / "none.npz", data_dir=tmp_path)
    for name, message in [
        ("curves.csv", "neither .npz nor .parquet"),
        ("curves.npz", r"cannot read .*curves.npz as .npz"),
    ]:
        (tmp_path / name).write_text("strain,stress\n")
        with pytest.raises(InputError, match=message) as caught:
            import_dataset(tmp_path / name, data_dir=tmp_path)
        assert "\n" not in str(caught.value)
    arrays = line_curves() | {"names": np.array(["E", None], dtype=object)}
    with pytest.raises(InputError, match="cannot read"):
        import_dataset(save_curves(tmp_path, arrays), data_dir=tmp_path)
