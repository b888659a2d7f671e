"""Packed data sets: the right rows, the same in every set, in a folder that stands for all settings."""

import pathlib

import numpy as np
import pytest

from tfmat.data.dataset import (
    TEST_START,
    PackedDataset,
    dataset_folder,
    find_dataset,
    generate_dataset,
    is_dataset,
)
from tfmat.errors import InputError
from tfmat.files import write_json
from tfmat.records.simulation import CurveSettings, Simulator
from tfmat_tests.data.small_dataset import SETTINGS, generate, shard_bytes


def test_rows_are_the_simulated_curves(tmp_path: pathlib.Path) -> None:
    dataset = generate(tmp_path)
    assert len(list(dataset.folder.glob("shard-*-of-00005.features"))) == 5
    simulator = Simulator(SETTINGS, 3)
    train, test = simulator.curves(0, 8200), simulator.curves(TEST_START, TEST_START + 300)
    assert dataset.features.shape == (8500, 16, 3) and dataset.labels.shape == (8500, 2)
    np.testing.assert_array_equal(dataset.features[:8200], train.features)
    np.testing.assert_array_equal(dataset.labels[:8200], train.labels)
    np.testing.assert_array_equal(dataset.features[8200:], test.features)
    np.testing.assert_array_equal(dataset.labels[8200:], test.labels)
    assert (dataset.num_train, dataset.num_validation, dataset.num_test) == (6150, 2050, 300)
    assert dataset.parameters == SETTINGS.build_law().identified
    assert dataset.settings is not None and dataset.settings.to_json() == SETTINGS.to_json()
    first = train.features[:1024]
    assert dataset.input_scale == (first[..., 0].max(), np.abs(first[..., 1]).max(), 1.0)


def test_a_small_set_is_one_small_shard(tmp_path: pathlib.Path) -> None:
    dataset = generate_dataset(SETTINGS, seed=0, num_curves=4, num_test=0, data_dir=tmp_path)
    assert [path.name for path in sorted(dataset.folder.glob("shard-*"))] == [
        "shard-00000-of-00001.features",
        "shard-00000-of-00001.labels",
    ]
    assert (dataset.num_train, dataset.num_validation, dataset.num_test) == (3, 1, 0)


def test_threads_change_nothing(tmp_path: pathlib.Path) -> None:
    one = generate(tmp_path / "one", num_threads=1)
    three = generate(tmp_path / "three", num_threads=3)
    assert shard_bytes(one.folder) == shard_bytes(three.folder)
    assert one.manifest["shards"] == three.manifest["shards"]


def test_curve_123456_is_the_same_in_every_set(tmp_path: pathlib.Path) -> None:
    settings = CurveSettings(num_points=8)
    sets = [
        generate_dataset(settings, seed=0, num_curves=count, num_test=100, data_dir=tmp_path)
        for count in (123_457, 140_000)
    ]
    np.testing.assert_array_equal(sets[0].features[123_456], sets[1].features[123_456])
    np.testing.assert_array_equal(sets[0].labels[123_456], sets[1].labels[123_456])
    # The test curves too are the same ones, and none of them trains in the larger set.
    np.testing.assert_array_equal(sets[0].features[-100:], sets[1].features[-100:])
    trained = {row.tobytes() for row in sets[1].labels[:140_000]}
    assert not any(row.tobytes() in trained for row in sets[1].labels[-100:])


def test_a_complete_set_is_only_checked(tmp_path: pathlib.Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in generate(tmp_path).folder.iterdir()}
    calls: list[tuple[int, int]] = []
    dataset = generate(tmp_path, progress=lambda done, total: calls.append((done, total)))
    assert not calls
    assert {path: path.stat().st_mtime_ns for path in dataset.folder.iterdir()} == before


def test_progress_counts_rows(tmp_path: pathlib.Path) -> None:
    calls: list[tuple[int, int]] = []
    folder = generate(tmp_path, progress=lambda done, total: calls.append((done, total))).folder
    assert calls[0] == (0, 8500) and calls[-1] == (8500, 8500)
    assert calls == sorted(calls)
    (folder / "shard-00004-of-00005.labels").unlink()
    calls.clear()
    generate(tmp_path, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(8192, 8500), (8500, 8500)]


def test_the_folder_stands_for_all_settings(tmp_path: pathlib.Path) -> None:
    def folder(
        settings: CurveSettings = SETTINGS, seed: int = 0, curves: int = 10, test: int = 1
    ) -> str:
        return dataset_folder(tmp_path, settings, seed, curves, test).name

    others = [
        folder(),
        folder(seed=1),
        folder(curves=11),
        folder(test=2),
        *(
            folder(CurveSettings(num_points=16, **change))
            for change in (
                {"law": "voce"},
                {"noise_mpa": 2.0},
                {"noise_relative": 0.01},
                {"ranges": {"G0": (1000, 2000)}},
                {"fixed": {"a": 1e-8}},
                {"max_strain": (0.01, 0.02)},
                {"strength_cut_off": False},
            )
        ),
    ]
    assert len(set(others)) == len(others)
    assert folder().startswith("hahn_tsai-10-") and folder(CurveSettings("voce")).startswith(
        "voce-10-"
    )
    # What is written out is what the law says anyway.
    assert (
        folder(CurveSettings(num_points=16, noise_mpa=1, ranges={"G0": (2000, 8000)})) == folder()
    )


def test_find_dataset(tmp_path: pathlib.Path) -> None:
    arguments = (SETTINGS, 3, 10, 0)
    assert find_dataset(tmp_path, *arguments) == dataset_folder(tmp_path, *arguments)
    folder = generate(tmp_path).folder
    assert is_dataset(folder) and not is_dataset(tmp_path)
    assert find_dataset(folder, *arguments) == folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_curves": 3}, "num_curves is 3"),
        ({"num_test": -1}, "num_test is -1"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_impossible_numbers(tmp_path: pathlib.Path, change: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        generate(tmp_path, **change)
    assert not list(tmp_path.iterdir())


def test_a_scale_that_hides_the_curves_is_refused(tmp_path: pathlib.Path) -> None:
    """Divided by 4.6e18, every stress is zero for a network."""
    dataset = generate_dataset(SETTINGS, seed=0, num_curves=4, num_test=0, data_dir=tmp_path)
    for channel, value in ((0, 4.6e18), (1, 4.6e18), (1, 1e-9)):
        scale = list(dataset.input_scale)
        scale[channel] = value
        write_json(dataset.folder / "manifest.json", {**dataset.manifest, "input_scale": scale})
        with pytest.raises(InputError, match="is damaged: input_scale is"):
            PackedDataset.open(dataset.folder)
