"""The TFDS builder, with TFDS's own builder test case and against the packed data set. Offline."""

import pathlib

import numpy as np
import pytest

from tfmat.data.dataset import generate_dataset
from tfmat.errors import InputError
from tfmat.records.simulation import CurveSettings

tfds = pytest.importorskip("tensorflow_datasets", reason="needs tensorflow-datasets")

from tfmat.data import stress_strain  # noqa: E402 - only where TFDS is installed
from tfmat.materials.registry import MONOTONIC_LAWS  # noqa: E402

SMALL = stress_strain.StressStrainConfig(num_curves=60, num_test=7, seed=5)


class StressStrainTest(tfds.testing.DatasetBuilderTestCase):  # type: ignore[name-defined]
    """TFDS's own checks: registered, described, prepared, read back, no network."""

    DATASET_CLASS = stress_strain.StressStrain
    # Nothing is downloaded, so no file of it is read.
    EXAMPLE_DIR = str(pathlib.Path(__file__).parent)
    BUILDER_CONFIG_NAMES_TO_TEST = [SMALL]
    SPLITS = {"train": 45, "validation": 15, "test": 7}


def test_there_is_a_config_for_each_law() -> None:
    assert set(stress_strain.StressStrain.builder_configs) == set(MONOTONIC_LAWS)


def test_the_curves_are_those_of_the_packed_data_set(tmp_path: pathlib.Path) -> None:
    builder = stress_strain.StressStrain(config=SMALL, data_dir=str(tmp_path))
    builder.download_and_prepare()
    packed = generate_dataset(CurveSettings(), seed=5, num_curves=60, num_test=7, data_dir=tmp_path)
    assert builder.info.config_name == packed.folder.name
    rows = {"train": (0, 45), "validation": (45, 60), "test": (60, 67)}
    law = CurveSettings().build_law()
    for split, (start, stop) in rows.items():
        examples = list(tfds.as_numpy(builder.as_dataset(split=split)))
        labels = np.stack([example["labels"] for example in examples])
        features = np.stack([example["features"] for example in examples])
        # TFDS shuffles what it writes: put both into the order of the first label.
        ours, theirs = np.argsort(packed.labels[start:stop, 0]), np.argsort(labels[:, 0])
        np.testing.assert_array_equal(labels[theirs], packed.labels[start:stop][ours])
        np.testing.assert_array_equal(features[theirs], packed.features[start:stop][ours])
        parameters = np.stack([example["parameters"] for example in examples])
        np.testing.assert_allclose(law.to_labels(parameters), labels, atol=1e-6)


def test_load_by_name(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = stress_strain.StressStrain.builder_configs["hahn_tsai"]
    monkeypatch.setattr(config, "num_curves", 40)
    monkeypatch.setattr(config, "num_test", 4)
    sets = tfds.load("stress_strain/hahn_tsai", data_dir=str(tmp_path), as_supervised=True)
    features, labels = next(iter(tfds.as_numpy(sets["train"])))
    assert features.shape == (200, 3) and labels.shape == (2,)
    assert {name: len(split) for name, split in sets.items()} == {
        "train": 30,
        "validation": 10,
        "test": 4,
    }


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(InputError, match="num_curves is 3"):
        stress_strain.StressStrainConfig(num_curves=3)
