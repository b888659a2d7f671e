"""A data set's copy on a node's own disk, where a SLURM job has put one."""

import shutil

import numpy as np
import pytest

from tfmat.data.dataset import PackedDataset, generate_dataset
from tfmat.errors import InputError
from tfmat.records.simulation import CurveSettings


@pytest.fixture
def dataset(tmp_path):
    return generate_dataset(
        CurveSettings(), data_dir=tmp_path / "data", seed=0, num_curves=400, num_test=10
    )


def test_the_copy_is_read_and_the_data_set_keeps_its_name(dataset, tmp_path, monkeypatch):
    local = tmp_path / "local"
    shutil.copytree(dataset.folder, local / dataset.folder.name)
    monkeypatch.setenv("TFMAT_LOCAL_DATA", str(local))
    # Only the copy has shards any more.
    for shard in dataset.folder.glob("shard-*"):
        shard.unlink()
    opened = PackedDataset.open(dataset.folder)
    assert opened.folder == dataset.folder
    assert np.array_equal(opened.features, dataset.features)

    damaged = next((local / dataset.folder.name).glob("shard-*"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(InputError, match=str(local)):
        PackedDataset.open(dataset.folder)


def test_another_data_set_there_is_left_alone(dataset, tmp_path, monkeypatch):
    monkeypatch.setenv("TFMAT_LOCAL_DATA", str(tmp_path / "nothing"))
    assert np.array_equal(PackedDataset.open(dataset.folder).labels, dataset.labels)
    local = tmp_path / "local"
    other = generate_dataset(CurveSettings(), data_dir=local, seed=1, num_curves=400, num_test=10)
    other.folder.rename(local / dataset.folder.name)
    monkeypatch.setenv("TFMAT_LOCAL_DATA", str(local))
    assert np.array_equal(PackedDataset.open(dataset.folder).labels, dataset.labels)
