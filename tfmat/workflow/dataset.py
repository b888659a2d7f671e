"""The data set that a config asks for: how its curves are simulated, and where it lies."""

import time

from tfmat.config import Config, default_config
from tfmat.console import log, progress_bar
from tfmat.data.dataset import (
    PackedDataset,
    dataset_folder,
    generate_dataset,
    is_complete,
    is_dataset,
)
from tfmat.errors import InputError
from tfmat.records.laboratory import OBSERVATION
from tfmat.records.simulation import CurveSettings

# Keys of the config's `data` section that are called the same in CurveSettings; beside them the number of points.
_OF_CURVES = (
    "max_strain",
    "strength_mpa",
    "noise_mpa",
    "noise_relative",
    "strength_cut_off",
    "missing_tests",
    "noise_strain",
    "noise_told",
    "laboratory",
    *OBSERVATION,
)


def curve_settings(config: Config) -> CurveSettings:
    """What the config says about curves."""
    return CurveSettings(
        law=config.law,
        ranges=dict(config.ranges),
        fixed=dict(config.fixed),
        num_points=config.data.num_points,
        tests=tuple(config.tests or ()),
        test_ranges=dict(config.test_ranges),
        **{name: config.data[name] for name in _OF_CURVES},
    )


def named_dataset(config: Config, data_dir: str) -> PackedDataset | None:
    """The data set that `data_dir` is, whose settings then replace the config's; None for a folder of data sets."""
    if not is_dataset(data_dir):
        return None
    dataset = PackedDataset.open(data_dir)
    _adopt(config, dataset)
    return dataset


def make_dataset(config: Config, settings: CurveSettings, data_dir: str) -> PackedDataset:
    """The verified data set that the config asks for, made if it is not there or not finished."""
    counts = seed_and_counts(config)
    folder = dataset_folder(data_dir, settings, **counts)
    if is_complete(folder):
        # Not `generate_dataset`, which would mend a damaged shard without a word: the user must hear of it.
        return PackedDataset.open(folder)
    started = time.monotonic()
    with progress_bar("simulating", "curves") as show:
        dataset = generate_dataset(settings, data_dir=data_dir, progress=show, **counts)
    log(f"simulated in {time.monotonic() - started:.1f} s")
    return dataset


def seed_and_counts(config: Config) -> dict[str, int]:
    data = config.data
    seed = config.seed if data.seed is None else data.seed
    return {"seed": seed, "num_curves": data.num_curves, "num_test": data.num_test}


def _adopt(config: Config, dataset: PackedDataset) -> None:
    """Makes the config say what the data set is."""
    settings = dataset.settings
    law = settings.law if settings else "imported"
    if config.law not in (law, default_config().law):
        raise InputError(
            f"the data set {dataset.folder} is of law {law}, --law is {config.law}; leave --law out"
        )
    config.law = law
    config.data.num_curves = dataset.num_train + dataset.num_validation
    config.data.num_test = dataset.num_test
    config.data.num_points = dataset.form.points
    if settings is None:
        return
    for name in _OF_CURVES:
        with config.data.ignore_type():
            config.data[name] = getattr(settings, name)
    with config.ignore_type():
        config.tests = settings.tests or None
    for name in ("ranges", "fixed", "test_ranges"):
        values = getattr(settings, name)
        config[name] = Config(dict(values))
