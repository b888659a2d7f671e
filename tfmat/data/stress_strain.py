"""The simulated curves as a TensorFlow dataset (TFDS), one config a law.

    import tensorflow_datasets as tfds
    import tfmat.data.stress_strain

    train = tfds.load("stress_strain/hahn_tsai", split="train")

The curves are the same as from `tfmat generate` with the same settings, seed and counts, curve by curve. A number of
curves or settings of one's own are a config of one's own:

    config = tfmat.data.stress_strain.StressStrainConfig(law="voce", num_curves=100_000, seed=1)
    train = tfds.load("stress_strain", split="train", builder_kwargs={"config": config})

TFDS writes one example at a time, about 7,000 a second: good to exchange data, slow to start a training from.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from tfmat.data.dataset import curve_numbers, dataset_folder
from tfmat.errors import InputError
from tfmat.materials.registry import MONOTONIC_LAWS
from tfmat.records.simulation import BLOCK, CurveSettings, Simulator

# NUM_CURVES, NUM_TEST: curves of a data set made in Python, unless others are asked for.
NUM_CURVES = 20_000
NUM_TEST = 2_000


@dataclasses.dataclass(kw_only=True)
class StressStrainConfig(tfds.core.BuilderConfig):
    """A set of simulated curves.

    Attributes:
      name: left empty, it is the name that the packed data set would have, so different curves never share a folder.
      description: left empty, it is made from the rest.
      law: registered name or `path/to/file.py:ClassName`; not needed with `settings`.
      settings: everything about the curves; default: the law with its own ranges and noise.
      num_curves: training (75 %) and validation (25 %) curves.
      num_test: test curves.
      seed: of all random numbers.
    """

    name: str = ""
    description: str | None = None
    law: str = "hahn_tsai"
    settings: CurveSettings | None = None
    num_curves: int = NUM_CURVES
    num_test: int = NUM_TEST
    seed: int = 0

    def __post_init__(self) -> None:
        if self.settings is None:
            self.settings = CurveSettings(law=self.law)
        self.law = self.settings.law
        if self.num_curves < 4 or self.num_test < 1:
            raise InputError(
                f"num_curves is {self.num_curves} and num_test {self.num_test}; give at least 4 and 1"
            )
        if not self.name:
            self.name = dataset_folder(
                "", self.settings, self.seed, self.num_curves, self.num_test
            ).name
        if not self.description:
            title = self.settings.build_law().title
            self.description = f"{self.num_curves} curves of {title}, and {self.num_test} to test"


class StressStrain(tfds.core.GeneratorBasedBuilder):
    """Simulated stress-strain curves with the parameters of the material law that made them."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "Curves of simulation version 1."}
    BUILDER_CONFIGS = [StressStrainConfig(name=law, law=law) for law in MONOTONIC_LAWS]

    def _info(self) -> tfds.core.DatasetInfo:
        settings = self._settings()
        law = settings.build_law()
        parameters = [f"{parameter.name} ({parameter.unit})" for parameter in law.parameters]
        identified = [parameter.name for parameter in law.identified]
        return self.dataset_info_from_configs(
            description=(
                f"Simulated stress-strain curves of {law.title}: {law.formula}. `features` are {settings.num_points} "
                "points of strain (-), noisy stress (MPa) and a flag that is 1 where a point is padding; `labels` are "
                f"{', '.join(identified)} scaled to 0-1; `parameters` are {', '.join(parameters)}."
            ),
            features=tfds.features.FeaturesDict(
                {
                    "features": tfds.features.Tensor(
                        shape=(settings.num_points, 3), dtype=np.float32
                    ),
                    "labels": tfds.features.Tensor(shape=(len(identified),), dtype=np.float32),
                    "parameters": tfds.features.Tensor(shape=(len(parameters),), dtype=np.float64),
                }
            ),
            supervised_keys=("features", "labels"),
            citation=law.source,
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Any]:
        del dl_manager  # nothing is downloaded
        config = self.builder_config
        num_validation = config.num_curves // 4
        num_train = config.num_curves - num_validation
        num_rows = config.num_curves + config.num_test
        return {
            "train": self._generate_examples(0, num_train),
            "validation": self._generate_examples(num_train, config.num_curves),
            "test": self._generate_examples(config.num_curves, num_rows),
        }

    def _generate_examples(self, start: int, stop: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """Rows `start` to `stop` of the packed data set; the key is the row."""
        config = self.builder_config
        simulator = Simulator(self._settings(), config.seed)
        for first in range(start, stop, BLOCK):
            for row, last, number in curve_numbers(
                first, min(first + BLOCK, stop), config.num_curves
            ):
                curves = simulator.curves(number, number + last - row)
                for i in range(last - row):
                    yield (
                        row + i,
                        {
                            "features": curves.features[i],
                            "labels": curves.labels[i],
                            "parameters": curves.parameters[i],
                        },
                    )

    def _settings(self) -> CurveSettings:
        settings = self.builder_config.settings
        assert settings is not None  # set by StressStrainConfig.__post_init__
        return settings
