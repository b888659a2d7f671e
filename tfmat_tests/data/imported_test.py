"""Packing a user's own labelled curves, and the one line for each file that cannot be packed."""

import pathlib
from typing import Any

import numpy as np
import pytest

from tfmat.data.dataset import PackedDataset
from tfmat.data.imported import import_dataset, repair_dataset
from tfmat.errors import InputError
from tfmat.materials.law import Parameter
from tfmat.records.laboratory import Laboratory
from tfmat_tests.data.own_curves import hahn_tsai_curves, line_curves, save_curves

# Packing a user's own labelled curves.


def _values(dataset: PackedDataset) -> np.ndarray:
    columns = [
        parameter.from_unit_interval(dataset.labels[:, i])
        for i, parameter in enumerate(dataset.parameters)
    ]
    return np.stack(columns, axis=1)


def test_every_curve_keeps_its_labels(tmp_path: pathlib.Path) -> None:
    dataset = import_dataset(save_curves(tmp_path, line_curves()), data_dir=tmp_path / "data")
    assert dataset.folder.name.startswith("curves-36-")
    assert (dataset.num_train, dataset.num_validation, dataset.num_test) == (27, 9, 4)
    assert dataset.settings is None and dataset.features.shape == (40, 200, 3)
    assert dataset.parameters[0] == Parameter("E", "MPa", 1000.0, 2000.0, "linear")
    values = _values(dataset)
    strain, stress, flag = np.moveaxis(dataset.features, 2, 0)
    np.testing.assert_allclose(stress, values[:, :1] * strain + values[:, 1:], rtol=1e-5)
    assert not flag.any()
    # All curves are there, and shuffled: the file was sorted by E.
    np.testing.assert_allclose(np.sort(values[:, 0]), np.linspace(1000.0, 2000.0, 40), rtol=1e-6)
    assert (np.diff(values[:, 0]) < 0).sum() > 10
    assert dataset.input_scale == (strain.max(), stress.max(), 1.0)
    PackedDataset.open(dataset.folder)


def test_nan_at_the_end_is_padding(tmp_path: pathlib.Path) -> None:
    arrays = line_curves()
    arrays["stress"][5, 150:] = np.nan
    dataset = import_dataset(save_curves(tmp_path, arrays), data_dir=tmp_path)
    flag = dataset.features[:, :, 2]
    (row,) = np.flatnonzero(flag.any(axis=1))
    np.testing.assert_array_equal(flag[row], np.arange(200) >= 150)
    assert not dataset.features[row, 150:, :2].any()
    assert np.isfinite(dataset.features).all()


def test_other_numbers_of_points_are_resampled(tmp_path: pathlib.Path) -> None:
    arrays = line_curves(points=57)
    arrays["stress"][3, 30:] = np.nan
    dataset = import_dataset(save_curves(tmp_path, arrays), data_dir=tmp_path)
    values = _values(dataset)
    strain, stress, flag = np.moveaxis(dataset.features, 2, 0)
    # Straight lines stay what they are, and each ends where its own points ended.
    np.testing.assert_allclose(stress, values[:, :1] * strain + values[:, 1:], rtol=1e-5)
    assert not flag.any()
    ends = np.nanmax(np.where(np.isnan(arrays["stress"]), np.nan, arrays["strain"]), axis=1)
    np.testing.assert_allclose(np.sort(strain[:, -1]), np.sort(ends), rtol=1e-6)


def test_one_strain_for_all_and_given_ranges(tmp_path: pathlib.Path) -> None:
    arrays = line_curves()
    arrays["strain"] = arrays["strain"][0]
    arrays |= {
        "low": np.array([500.0, 1.0]),
        "high": np.array([4000.0, 100.0]),
        "scale": np.array(["log", "linear"]),
    }
    dataset = import_dataset(save_curves(tmp_path, arrays), data_dir=tmp_path)
    assert (dataset.parameters[0].low, dataset.parameters[0].high, dataset.parameters[0].scale) == (
        500,
        4000,
        "log",
    )
    np.testing.assert_allclose(
        np.sort(_values(dataset)[:, 0]), np.linspace(1000, 2000, 40), rtol=1e-5
    )


def test_parquet_is_the_same_as_npz(tmp_path: pathlib.Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    arrays = line_curves()
    table = pyarrow.table(
        {
            "strain": list(arrays["strain"]),
            "E [MPa]": arrays["parameters"][:, 0],
            "stress": list(arrays["stress"]),
            "offset [MPa]": arrays["parameters"][:, 1],
        }
    )
    parquet.write_table(table, tmp_path / "curves.parquet")
    one = import_dataset(tmp_path / "curves.parquet", data_dir=tmp_path)
    other = import_dataset(save_curves(tmp_path, arrays), data_dir=tmp_path)
    np.testing.assert_array_equal(one.features, other.features)
    np.testing.assert_array_equal(one.labels, other.labels)
    assert one.parameters == other.parameters


def test_parquet_lists_may_differ_in_length(tmp_path: pathlib.Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    arrays = line_curves(count=20)
    lengths = [200, 150, 10, *[200] * 17]
    columns = {
        name: [row[:length] for row, length in zip(arrays[name], lengths, strict=True)]
        for name in ("strain", "stress")
    }
    columns |= {"E [MPa]": arrays["parameters"][:, 0], "offset [MPa]": arrays["parameters"][:, 1]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "c.parquet")
    dataset = import_dataset(tmp_path / "c.parquet", data_dir=tmp_path)
    values = _values(dataset)
    strain, stress, flag = np.moveaxis(dataset.features, 2, 0)
    np.testing.assert_allclose(stress, values[:, :1] * strain + values[:, 1:], rtol=1e-5)
    assert not flag.any()
    for change, message in [
        ({"E": arrays["parameters"][:, 0]}, "column 'E' says no unit"),
        ({"n [-]": ["a"] * 20}, "column 'n .-.' does not hold numbers"),
        ({"strain": [1.0] * 20}, "column 'strain' does not hold a list"),
        ({"strain": columns["stress"][::-1]}, "curve 1 has 200 strains and 150 stresses"),
    ]:
        parquet.write_table(pyarrow.table(columns | change), tmp_path / "bad.parquet")
        with pytest.raises(InputError, match=message):
            import_dataset(tmp_path / "bad.parquet", data_dir=tmp_path)
    parquet.write_table(pyarrow.table({"strain": columns["strain"]}), tmp_path / "bad.parquet")
    with pytest.raises(InputError, match="no column 'stress'"):
        import_dataset(tmp_path / "bad.parquet", data_dir=tmp_path)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(InputError, match=r"cannot read .*bad.parquet as .parquet"):
        import_dataset(tmp_path / "bad.parquet", data_dir=tmp_path)


def test_curves_of_a_law_can_be_simulated_again(tmp_path: pathlib.Path) -> None:
    arrays = hahn_tsai_curves()
    dataset = import_dataset(save_curves(tmp_path, arrays), data_dir=tmp_path, law="hahn_tsai")
    assert dataset.settings is not None
    law = dataset.settings.build_law()
    # The law's order, scales and descriptions; ranges of the data.
    assert dataset.parameters == law.identified
    assert dataset.parameters[0].low == arrays["parameters"][:, 1].min()
    strain, stress, _ = np.moveaxis(dataset.features.astype(float), 2, 0)
    again = law.stress(strain, law.from_labels(dataset.labels))
    assert 0.9 < np.std(again - stress) < 1.1  # the noise of 1 MPa
    ends = arrays["strain"].max(axis=1)
    assert dataset.settings.max_strain == (float(ends.min()), float(ends.max()))


def test_a_parameter_of_the_law_may_be_fixed(tmp_path: pathlib.Path) -> None:
    arrays = hahn_tsai_curves(fixed={"G0": 5000.0})
    arrays |= {
        "parameters": arrays["parameters"][:, :1],
        "names": arrays["names"][:1],
        "units": arrays["units"][:1],
    }
    dataset = import_dataset(
        save_curves(tmp_path, arrays), data_dir=tmp_path, law="hahn_tsai", fixed={"G0": 5000.0}
    )
    assert [parameter.name for parameter in dataset.parameters] == ["a"]
    assert dataset.settings is not None and dataset.settings.fixed == {"G0": 5000.0}


@pytest.mark.parametrize(
    "change",
    [
        lambda arrays: {"stress": 1e3 * arrays["stress"]},  # kPa
        lambda arrays: {"strain": 100.0 * arrays["strain"]},  # %
        lambda arrays: {"strain": arrays["strain"] / 2},  # tensor's shear
        lambda arrays: {"parameters": np.roll(arrays["parameters"], 1, axis=0)},
        lambda arrays: {"stress": 0.0 * arrays["stress"]},
    ],
)
def test_curves_that_are_not_the_law_s_are_refused(tmp_path: pathlib.Path, change: Any) -> None:
    """They were packed as the law's, and a network learned them."""
    arrays = hahn_tsai_curves()
    source = save_curves(tmp_path, arrays | change(arrays))
    with pytest.raises(InputError, match="a typical curve is .* away from law hahn_tsai"):
        import_dataset(source, data_dir=tmp_path, law="hahn_tsai")


def test_curves_of_the_same_parameters_in_several_parts_are_told(tmp_path, capsys):
    arrays = line_curves()
    import_dataset(save_curves(tmp_path, arrays), data_dir=tmp_path)
    assert "warning" not in capsys.readouterr().err
    twice = {
        name: np.concatenate([arrays[name]] * 2) for name in ("strain", "stress", "parameters")
    }
    import_dataset(save_curves(tmp_path, arrays | twice), data_dir=tmp_path)
    assert "warning: 40 of 80 curves have the same parameters" in capsys.readouterr().err
    part = {"part": np.repeat(["train", "validation"], 40)}
    import_dataset(save_curves(tmp_path, arrays | twice | part), data_dir=tmp_path)
    assert "warning" not in capsys.readouterr().err


def test_repaired_from_the_same_file_only(tmp_path: pathlib.Path) -> None:
    source = save_curves(tmp_path, line_curves())
    folder = import_dataset(source, data_dir=tmp_path, seed=4).folder
    shard = folder / "shard-00000-of-00001.features"
    whole = shard.read_bytes()
    shard.unlink()
    with pytest.raises(InputError, match="shard-00000-of-00001.features is missing"):
        PackedDataset.open(folder)
    moved = folder.rename(tmp_path / "renamed")
    repair_dataset(moved)
    assert (moved / shard.name).read_bytes() == whole
    (moved / shard.name).unlink()
    arrays = line_curves()
    arrays["stress"] += 1.0
    save_curves(tmp_path, arrays)
    with pytest.raises(InputError, match="has changed since"):
        repair_dataset(moved)
    source.unlink()
    with pytest.raises(InputError, match="is not there any more"):
        repair_dataset(moved)


def test_the_example_of_the_guide(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (pathlib.Path(__file__).parents[2] / "docs" / "finite_elements.md").read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    exec(guide.split("```python\n")[1].split("```")[0], {})
    dataset = import_dataset("curves.npz", data_dir=tmp_path / "data")
    assert (dataset.num_train, dataset.num_validation, dataset.num_test) == (675, 225, 100)
    assert [(parameter.name, parameter.scale) for parameter in dataset.parameters] == [
        ("sigma_y", "linear"),
        ("H", "log"),
    ]


def test_copies_are_parted_by_curve(tmp_path: pathlib.Path) -> None:
    arrays = line_curves()
    part = np.array(["train"] * 20 + ["validation"] * 12 + ["test"] * 8)
    path = save_curves(tmp_path, arrays | {"part": part})
    laboratory = Laboratory(noise_mpa=0.01)
    dataset = import_dataset(path, data_dir=tmp_path, copies=5, laboratory=laboratory, seed=3)
    assert (dataset.num_train, dataset.num_validation, dataset.num_test) == (100, 60, 8)
    modulus = _values(dataset)[:, 0]
    found = np.rint((modulus - 1000.0) / 1000.0 * 39).astype(int)
    np.testing.assert_allclose(np.linspace(1000.0, 2000.0, 40)[found], modulus, rtol=1e-5)
    for name, rows, copies in (
        ("train", found[:100], 5),
        ("validation", found[100:160], 5),
        ("test", found[160:], 1),
    ):
        numbers, times = np.unique(rows, return_counts=True)
        assert set(part[numbers]) == {name} and set(times) == {copies}
    # Copies differ by their noise alone.
    same = np.flatnonzero(found == found[0])
    stress = dataset.features[same, :, 1]
    assert 0.003 < (stress - stress[0])[1:].std() < 0.05
    # Lost, the rows come back as they were.
    (shard,) = dataset.folder.glob("*.features")
    whole = shard.read_bytes()
    shard.unlink()
    repair_dataset(dataset.folder)
    assert shard.read_bytes() == whole
    other = import_dataset(path, data_dir=tmp_path, laboratory=laboratory, seed=3)
    assert other.folder != dataset.folder and other.num_train == 20


def test_what_copies_refuse(tmp_path: pathlib.Path) -> None:
    path = save_curves(tmp_path, line_curves())
    with pytest.raises(InputError, match="copies of a curve are alike"):
        import_dataset(path, data_dir=tmp_path, copies=3)
    with pytest.raises(InputError, match="for curves of no law; leave --law out"):
        import_dataset(path, data_dir=tmp_path, law="voce", laboratory=Laboratory(noise_mpa=1.0))
    for part in (["train"] * 40, ["train", "validation", "trial", "test"] * 10):
        path = save_curves(tmp_path, line_curves() | {"part": np.array(part)}, "other.npz")
        with pytest.raises(InputError, match="give each curve one of train, validation, test"):
            import_dataset(path, data_dir=tmp_path)


# Files of labelled curves that cannot be packed: the one line that each of them gets.


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        ({"names": np.array(["a", "G1"])}, {}, "law hahn_tsai has no parameter 'G1'"),
        ({"units": np.array(["MPa^-3", "GPa"])}, {}, "G0 is in GPa, law hahn_tsai has it in MPa"),
        ({"scale": np.array(["linear", "linear"])}, {}, "scale of a is linear, law hahn_tsai has log"),
        ({}, {"fixed": {"G0": 5000.0}}, "holds values of G0, which --fix gives too"),
        ({}, {"law": "voce"}, "law voce has no parameter 'a'"),
        ({}, {"law": "hahn_tsay"}, "did you mean 'hahn_tsai'"),
        ({}, {"law": None, "fixed": {"G0": 5000.0}}, "say with --law which law"),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_law(tmp_path, change, arguments, message):
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
        (lambda a: a.pop("units"), r"no array 'units' \(it has: names, parameters, strain, stress\)"),
        (lambda a: a.update(strain=a["strain"][:, :-1]), r"strain is \[40, 199\] and stress is \[40, 200\]"),
        (lambda a: a.update(stress=a["stress"][0]), r"stress is \[200\]; give \[curves, points\]"),
        (lambda a: a.update(parameters=a["parameters"][:-1]), "40 curves but parameters for 39"),
        (lambda a: a.update(names=np.array(["E"])), r"names is <U1 \[1\]; give one string for each of the 2"),
        (lambda a: a.update(names=np.array(["E", "E"])), "names must differ"),
        (lambda a: a.update(names=np.array([1.0, 2.0])), "names is float64"),
        (lambda a: a.update(stress=a["stress"].astype(str)), "stress holds <U.*, not numbers"),
        (lambda a: a.update(low=np.array([1.0])), "low has 1 entries for 2 parameters"),
        (
            lambda a: a.update(low=np.array([1500.0, 0.0])),
            "E goes from 1000 to 2000 MPa, outside its range low = 1500",
        ),
        (lambda a: a.update(scale=np.array(["log", "ln"])), "scale of offset is 'ln'; give linear or log"),
        (
            lambda a: a.update(low=np.array([0.0, 0.0]), scale=np.array(["log", "log"])),
            "a log scale needs positive",
        ),
        (lambda a: a.update({name: a[name][:9] for name in ("strain", "stress", "parameters")}), "holds 9 curves"),
        (lambda a: a.update(parameters=np.ones((40, 2))), "E is 1 MPa in every curve"),
        (_set("parameters", (7, 1), np.nan), "offset of curve 7 is not a finite number"),
        (_set("stress", (7, 100), np.nan), "curve 7 has NaN at point 100, before its end"),
        (_set("stress", (7, 100), np.inf), "stress of curve 7 is infinite at point 100"),
        (lambda a: a.update({name: a[name][[5] * 40] for name in ("strain", "stress")}), "all curves are the same"),
        (_set("strain", (7, 100), 0.0), "strain of curve 7 does not rise from point 99 to 100"),
        (lambda a: a["stress"].__setitem__((7, slice(1, None)), np.nan), "curve 7 has fewer than two points"),
    ],
)  # fmt: skip
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
