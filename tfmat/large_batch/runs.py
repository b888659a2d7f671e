"""The runs of a study, one after the other: each is an ordinary run in a folder of its own.

One that is done is not repeated, one that was stopped goes on.
"""

import dataclasses
import pathlib
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tfmat.config import Config, Settings, goes_in_pieces
from tfmat.console import clock_text, log
from tfmat.errors import DivergedError, InputError
from tfmat.files import make_folder, read_json
from tfmat.training.run_folder import ENDED

if TYPE_CHECKING:
    from tfmat.data.dataset import PackedDataset
    from tfmat.workflow.job import Job


@dataclasses.dataclass(frozen=True)
class StudyRun:
    """One run of a study.

    Attributes:
      name: of its folder.
      about: what it is, in a few words.
      config: its own; where `data_dir` is a data set, `run_all` makes it say what that is.
      key: of the study's table, as column -> value.
      work: how long it takes beside the others, for the time that is left.
    """

    name: str
    about: str
    config: Config
    key: dict[str, Any]
    work: float = 1.0


def run_all(
    runs: Sequence[StudyRun], workdir: str, data_dir: str
) -> Iterator[tuple[StudyRun, "Job", pathlib.Path]]:
    """Trains what has not ended yet, and yields each run, as it was planned, and its folder as soon as it has.

    Raises:
      InputError: before the first begins, where one of them cannot be trained, or its folder holds a run with other
        settings or data.
      Interrupted.
    """
    from tfmat.workflow import plan_job

    folder = make_folder(workdir)
    jobs = [
        plan_job(run.config, workdir=str(folder / run.name), data_dir=data_dir, backend="single")
        for run in runs
    ]
    dataset, opened, done, seconds = None, None, 0.0, 0.0
    waiting = [state_of(folder / run.name) not in ENDED for run in runs]
    for i, (run, job) in enumerate(zip(runs, jobs, strict=True)):
        path = folder / run.name
        if waiting[i]:  # else TensorFlow is not even loaded
            ahead = sum(
                other.work for other, waits in zip(runs[i:], waiting[i:], strict=True) if waits
            )
            left = f", about {clock_text(ahead / done * seconds)} left" if done else ""
            log(f"{i + 1} of {len(runs)}: {run.about}{left}")
            if job.data != opened:
                dataset = prepare_data(run.config, data_dir, run.config.global_batch_size)
                opened = job.data
            assert dataset is not None
            started = time.monotonic()
            run_once(run.config, dataset, path)
            yield run, job, path
            done, seconds = done + run.work, seconds + time.monotonic() - started
        else:
            yield run, job, path


def prepare_data(config: Config, data_dir: str, largest_batch: int) -> "PackedDataset":
    """The data set of the config, made if it is not there; TensorFlow is loaded and set up as `tfmat train` does.

    Raises:
      InputError: also where the largest batch is larger than the training set.
    """
    from tfmat.launch.runtime import prepare_tensorflow
    from tfmat.workflow import curve_settings, make_dataset
    from tfmat.workflow.job import curves_to_train, named_dataset

    dataset = named_dataset(config, data_dir)
    if dataset is None:
        dataset = make_dataset(config, curve_settings(config), data_dir)
    num_train = curves_to_train(config, dataset.num_train)
    if largest_batch > num_train:
        raise InputError(
            f"batch {largest_batch} is larger than the {num_train} training curves; leave it out"
        )
    prepare_tensorflow(one_thread_an_operation=goes_in_pieces(config.model), own_program=True)
    return dataset


def run_once(config: Config, dataset: "PackedDataset", path: pathlib.Path) -> None:
    """Trains into `path`, from its last checkpoint if there is one; a run that diverges has ended too."""
    import keras

    from tfmat.backends import BackendOptions, make_backend
    from tfmat.workflow.job import train

    keras.backend.clear_session()
    make_folder(path)
    options = BackendOptions.of_settings(Settings.of(config), folder=str(path))
    with make_backend("single", options) as backend:
        try:
            train(config, dataset, workdir=str(path), backend=backend)
        except DivergedError:
            return  # the folder says so


def state_of(path: pathlib.Path) -> str:
    """The run's state; empty where there is none."""
    status = path / "status.json"
    return str(read_json(status)["state"]) if status.exists() else ""
