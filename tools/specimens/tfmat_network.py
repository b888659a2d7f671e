"""tfmat: a network trained on noisy copies of the runs by its own commands.

Directly (configs/specimen.py), or by way of a forward network that stands in for the program (configs/forward.py).
"""

import pathlib
import resource
import subprocess
import sys
import time

import numpy as np

from specimens.frozen import SAMPLES, Records, Runs, answer_path, keep
from tfmat.curves.cleaning import MeasuredCurve
from tfmat.curves.laboratory import Laboratory
from tfmat.curves.records import features_of
from tfmat.curves.resampling import resample
from tfmat.data.imported import import_dataset
from tfmat.errors import InputError
from tfmat.files import make_folder
from tfmat.identification.identifier import Identifier
from tfmat.identification.identify import identify
from tfmat.specimens.campaign import COPIES, Campaign, parts_of
from tfmat.specimens.description import Description
from tfmat.specimens.runs import Outcome
from tfmat.workflow.emulate import emulate

_CONFIGS = pathlib.Path(__file__).resolve().parents[2] / "configs"
CONFIG, LAW_CONFIG = _CONFIGS / "specimen.py", _CONFIGS / "forward.py"
_RUN = "run"
_FEW = 10


def train(
    description: Description, runs: Runs, folder: pathlib.Path, flags: list[str], seed: int
) -> None:
    """Trains on the runs, unless that was done.

    Args:
      folder: for the data set, the network and the processor seconds of both.
      flags: further ones for `tfmat train`.
      seed: of the copies' noise and of the network.
    """
    if (folder / "trained.npz").is_file():
        return
    names = description.parameters
    values = [p.from_unit_interval(runs.drawn[:, i]) for i, p in enumerate(names)]
    # The records judge; a few runs are enough for the report at the end of the training.
    parts = np.array(parts_of(len(runs.drawn), seed))
    parts[np.flatnonzero(parts == "test")[_FEW:]] = "train"
    source = folder / "runs.npz"
    np.savez(
        source,
        strain=runs.strain,
        stress=runs.curves,
        parameters=np.stack(values, axis=1),
        names=np.array([p.name for p in names]),
        units=np.array([p.unit for p in names]),
        scale=np.array([p.scale for p in names]),
        low=np.array([p.low for p in names]),
        high=np.array([p.high for p in names]),
        part=parts,
    )
    start = time.process_time()
    laboratory = Laboratory.of(runs.laboratory)
    dataset = import_dataset(
        source,
        data_dir=folder / "data",
        copies=COPIES,
        laboratory=laboratory,
        seed=seed,
        num_threads=1,
    )
    made = time.process_time() - start
    _fit(CONFIG, [f"--data_dir={dataset.folder}", *flags], folder, made, seed)


def train_by_law(
    description: Description, runs: Runs, folder: pathlib.Path, flags: list[str], seed: int
) -> None:
    """The same by way of a forward network, `tfmat emulate`, and as many curves of it as configs/forward.py says."""
    if (folder / "trained.npz").is_file():
        return
    columns = [p.from_unit_interval(runs.drawn[:, i]) for i, p in enumerate(description.drawn)]
    outcomes = tuple(Outcome(0.0, runs.strain, curve) for curve in runs.curves)
    campaign = Campaign(description, np.stack(columns, axis=1), outcomes, 0)
    start = time.process_time()
    found = emulate(campaign, make_folder(folder / "data"), seed=seed, quiet=True)
    made = time.process_time() - start
    source = [f"--law={found.law}", f"--data_dir={folder / 'data'}", *flags]
    _fit(LAW_CONFIG, source, folder, made, seed)


def answer(records: Records, folder: pathlib.Path, told: int, seed: int) -> None:
    """Answers all records at once by the network trained in `folder`: the first `told` of its parameters."""
    identifier = Identifier.open(folder / _RUN)
    features = np.stack([_features(identifier, *records.one(i)) for i in range(len(records))])
    mean, _, limits = identifier.answers(features)
    if limits is None:
        raise InputError("the network tells no intervals; train it with model.uncertainty=flow")
    draws = identifier.draws(features, SAMPLES, seed=seed).labels
    # Timed when everything is compiled: all records at once, and one alone.
    start = time.process_time()
    identifier.answers(features)
    seconds = (time.process_time() - start) / len(records)
    start = time.perf_counter()
    for i in range(10):
        identifier.answers(features[i % len(records)][None])
    alone = (time.perf_counter() - start) / 10
    for i in range(len(records)):
        interval = {"low": limits[0, i, :told, 0], "high": limits[0, i, :told, 1]}
        keep(
            answer_path(folder, i),
            mean=mean[i, :told],
            draws=draws[i, :, :told],
            seconds=seconds,
            alone=alone,
            **interval,
        )


def answer_corrected(
    records: Records, trained: pathlib.Path, folder: pathlib.Path, told: int, count: int
) -> None:
    """Answers as `tfmat identify` does, with the forward network's likelihood: the network is that in `trained`."""
    identifier = Identifier.open(trained / _RUN)
    for i in range(min(count, len(records))):
        if answer_path(folder, i).is_file():
            continue
        start = time.process_time()
        curve = MeasuredCurve(f"record {i}", *records.one(i))
        (found,) = identify(identifier, [curve], samples=SAMPLES)
        seconds = time.process_time() - start
        assert found.posterior is not None
        draws, interval = found.posterior.samples.labels, found.posterior.interval
        keep(
            answer_path(folder, i),
            mean=found.posterior.mean[:told],
            draws=draws[:, :told],
            seconds=seconds,
            low=interval[:told, 0],
            high=interval[:told, 1],
            exact=found.posterior.certificate.is_exact,
        )


def _fit(
    config: pathlib.Path, arguments: list[str], folder: pathlib.Path, made: float, seed: int
) -> None:
    """Trains by tfmat's command, and stores its processor seconds and those of what was made before."""
    command = [sys.executable, "-m", "tfmat", "train", f"--config={config}", *arguments]
    command += [f"--workdir={folder / _RUN}", f"--config.seed={seed}"]
    before = _of_children()
    with open(folder / "train.log", "a", encoding="utf-8") as log:
        status = subprocess.run(command, stdout=log, stderr=log, check=False).returncode
    if status:
        raise InputError(f"the training ended with status {status}; see {folder / 'train.log'}")
    keep(
        folder / "trained.npz",
        training_seconds=made + _of_children() - before,
        told=config.name,
    )


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _features(identifier: Identifier, strain: np.ndarray, stress: np.ndarray) -> np.ndarray:
    """A record on the network's points, as `tfmat identify` puts it there: [points, 3]."""
    at, answer, valid = resample(strain, stress, identifier.target)
    return np.asarray(features_of(at[None], answer[None], valid[None])[0])
