"""Packing a user's own labelled curves."""

import pathlib

import numpy as np
import pytest

from tfmat.data.dataset import PackedDataset
from tfmat.data.imported import import_dataset, repair_dataset
from tfmat.errors import InputError
from tfmat.materials.law import Parameter
from tfmat.records.laboratory import Laboratory
from tfmat_tests.data.own_curves import hahn_tsai_curves, line_curves, save_curves


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
    assert (
        dataset.parameters == law.identified
    )  # the law's order, scales and descriptions; ranges of the data
    assert dataset.parameters[0].low == arrays["parameters"][:, 1].min()
    strain, stress, _ = np.moveaxis(dataset.features.astype(float), 2, 0)
    again = law.stress(strain, law.from_labels(dataset.labels))
    assert 0.9 < np.std(again - stress) < 1.1  # the noise of 1 MPa
    ends = arrays["strain"].max(axis=1)
    assert dataset.settings.max_strain == (float(ends.min()), float(ends.max()))


def test_a_parameter_of_the_law_may_be_fixed(tmp_path: pathlib.Path) -> None:
    arrays = hahn_tsai_curves()
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
