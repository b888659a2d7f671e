"""From the config to the data set that it asks for."""

import time

from tfmat.config import Config, default_config
from tfmat.console import log, progress_bar
from tfmat.curves.settings import CurveSettings
from tfmat.data.packed import PackedDataset, dataset_folder, generate_dataset, is_complete
from tfmat.errors import InputError


def curve_settings(config: Config) -> CurveSettings:
    """What the config says about curves."""
    data = config.data
    return CurveSettings(
        law=config.law,
        ranges=dict(config.ranges),
        fixed=dict(config.fixed),
        max_strain=data.max_strain,
        strength_mpa=data.strength_mpa,
        strength_cut_off=data.strength_cut_off,
        noise_mpa=data.noise_mpa,
        noise_relative=data.noise_relative,
        num_points=data.num_points,
        noise_of_maximum=data.noise_of_maximum,
        measured_points=data.measured_points,
        strain_offset=data.strain_offset,
        misfit=data.misfit,
        yield_spread=data.yield_spread,
    )


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


def adopt(config: Config, dataset: PackedDataset) -> None:
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
    config.data.num_points = int(dataset.features.shape[1])
    if settings is None:
        return
    for name in (
        "max_strain",
        "strength_mpa",
        "noise_mpa",
        "noise_relative",
        "strength_cut_off",
        "noise_of_maximum",
        "measured_points",
        "strain_offset",
        "misfit",
        "yield_spread",
    ):
        with config.data.ignore_type():
            config.data[name] = getattr(settings, name)
    for name, values in (("ranges", settings.ranges), ("fixed", settings.fixed)):
        config[name] = Config(dict(values))
