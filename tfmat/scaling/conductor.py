"""Conducts a study: round after round, every launch once a round; each result is on disk before the next one begins."""

import contextlib
import dataclasses
import datetime
import fcntl
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tfmat.config import Config
from tfmat.errors import InputError
from tfmat.files import check_json, make_folder, read_json, write_error, write_json
from tfmat.scaling.answers import allreduces_of, read_answers, repetitions_of
from tfmat.scaling.describe import model_of
from tfmat.scaling.launches import transport_of
from tfmat.scaling.local_launches import Finished, end_of_log
from tfmat.scaling.matrix import Matrix, config_of_model
from tfmat.scaling.measurement_files import (
    Entry,
    add_measurements,
    is_study,
    read_measurements,
    write_measurements,
)
from tfmat.scaling.measurements import LeftOut, Measurements, Session
from tfmat.scaling.planning import (
    Planned,
    Study,
    available_launches,
    rounds,
    tasks_in_order,
    write_spec,
)
from tfmat.scaling.study_progress import StudyProgress

CONFIG, LAUNCHES = "config.json", "launches"
_DESCRIBE_SECONDS = 300.0
# A launch that failed as often is not tried again before the command is given again.
_TRIALS = 2

Run = Callable[[Sequence[Planned], Finished], None]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a study's run came to.

    Attributes:
      measured: launches that ran and answered.
      failed, skipped: what failed; what cannot be had here.
    """

    measured: int
    failed: tuple[LeftOut, ...]
    skipped: tuple[LeftOut, ...]


@contextlib.contextmanager
def only_one(workdir: pathlib.Path) -> Iterator[None]:
    """Holds a study's folder; InputError where another process does."""
    path = make_folder(workdir) / ".lock"
    try:
        file = path.open("a")
    except OSError as error:
        raise write_error(path, error) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(
                f"another tfmat scale works in {workdir}; wait for it, or use another --workdir"
            ) from error
        except OSError:
            pass  # a file system without locks
        yield


def check_same_study(workdir: pathlib.Path, config: Config) -> None:
    """InputError where the folder was measured with another config: its numbers would not compare."""
    path, content = workdir / CONFIG, _as_json(config.to_dict())
    if not path.exists():
        write_json(path, content)
        return
    before = _flat(check_json(read_json(path), dict[str, Any], path))
    for name, value in _flat(content).items():
        old = before.get(name)
        if (
            old != value and name != "data.num_curves"
        ):  # the first ones are the same in every number
            raise InputError(
                f"{workdir} was measured with {name}={old}, now it is {value}; use another --workdir"
            )


def describe(config: Config, matrix: Matrix, num_outputs: int, folder: pathlib.Path) -> Any:
    """What describe.py finds; a moment of TensorFlow in a process of its own.

    Raises:
      InputError: TensorFlow cannot be loaded, or a model cannot be built.
    """
    asked, answer = folder / "describe.json", folder / "described.json"
    models = {
        name: _as_json(config_of_model(config, matrix, name).to_dict())
        for name in ("default", *matrix.models)
    }
    write_json(asked, {"models": models, "num_outputs": num_outputs})
    command = [sys.executable, "-P", "-m", "tfmat.scaling.describe", str(asked), str(answer)]
    log = folder / "describe.txt"
    with log.open("wb") as file:
        status = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, timeout=_DESCRIBE_SECONDS
        ).returncode
    if status:
        last = end_of_log(log).splitlines()[-1:] or ["no word"]
        raise InputError(f"the networks of the study cannot be built: {last[0]}; see {log}")
    found = read_json(answer)
    found["models"] = {name: model_of(name, each) for name, each in found["models"].items()}
    return found


def measure_study(
    study: Study,
    *,
    workdir: pathlib.Path,
    session: dict[str, Any],
    run: Run,
    say: Callable[[str], None],
) -> Outcome:
    """Measures what is still missing in the folder.

    Args:
      study: what.
      workdir: of the study; held by this process.
      session: of `tfmat.launch.provenance.describe_session`.
      run: runs launches, see local_launches.py and slurm_launches.py.
      say: takes lines.

    Raises:
      Interrupted, KeyboardInterrupt: what was measured until then is on disk.
    """
    launches, skipped = available_launches(study)
    for left in skipped:
        say(f"left out: {left.what}: {left.reason}")
    recorder = _Recorder(study, workdir, session, skipped)
    folder = make_folder(workdir / LAUNCHES).resolve()
    planned = rounds(study, launches, recorder.done, folder)
    total = sum(map(len, planned))
    if not total:
        say("everything is measured already")
        return Outcome(0, (), tuple(skipped))
    with StudyProgress([each for of_round in planned for each in of_round], study, say) as progress:
        for of_round in planned:
            ready = [each for each in of_round if recorder.may_run(each)]
            for each in of_round:
                if each not in ready:
                    progress.drop(each)
            _run_round(study, ready, run, recorder, progress)
    return Outcome(total - len(recorder.failed), tuple(recorder.failed), tuple(skipped))


def _run_round(
    study: Study, ready: Sequence[Planned], run: Run, recorder: "_Recorder", progress: StudyProgress
) -> None:
    for each in ready:
        shutil.rmtree(each.folder, ignore_errors=True)
        write_spec(study, each)

    def finished(planned: Planned, failure: tuple[str, str] | None) -> None:
        line = recorder.record(planned, failure)
        progress.finished(planned, line)

    if ready:
        progress.begin()
        run(ready, finished)


class _Recorder:
    """Puts into measurements.jsonl what launches say."""

    def __init__(
        self,
        study: Study,
        workdir: pathlib.Path,
        session: dict[str, Any],
        skipped: Sequence[LeftOut],
    ):
        self._study, self._workdir = study, workdir
        old = read_measurements(workdir) if is_study(workdir) else Measurements()
        self._session = len(old.sessions)
        # What cannot be had is said once, for the machine as it is now; what failed may be tried again.
        said = tuple(dataclasses.replace(each, session=self._session) for each in skipped)
        self.done = dataclasses.replace(
            old,
            sessions=(*old.sessions, Session(self._session, session)),
            left_out=(*(each for each in old.left_out if each.round is not None), *said),
        )
        write_measurements(workdir, self.done)
        self.failed: list[LeftOut] = []

    def may_run(self, planned: Planned) -> bool:
        """Whether it has not failed too often."""
        name = str(planned.launch.way)
        return sum(each.what.startswith(name) for each in self.failed) < _TRIALS

    def record(self, planned: Planned, failure: tuple[str, str] | None) -> str:
        """Writes down what a launch came to; returns it in a line. Its folder stays where it failed."""
        entries: list[Entry] = []
        if failure is None:
            try:
                entries = self._entries(planned)
            except (InputError, KeyError, TypeError, ValueError, IndexError) as error:
                failure = f"its answer cannot be used: {error}", ""
        if failure is not None:
            reason, log = failure
            left = LeftOut(str(planned.launch), reason, planned.round, log, self._session)
            self.failed.append(left)
            add_measurements(self._workdir, [left])
            return f"failed: {reason}; {planned.folder}"
        self._forget_failures(planned)
        add_measurements(self._workdir, entries)
        shutil.rmtree(planned.folder, ignore_errors=True)
        return _in_words(entries)

    def _entries(self, planned: Planned) -> list[Entry]:
        answers = read_answers(planned.folder, planned.num_processes)
        if answers is None:
            raise InputError("not every process answered")
        way, study = planned.launch.way, self._study
        started = datetime.datetime.fromtimestamp(
            (planned.folder / "spec.json").stat().st_mtime, datetime.UTC
        ).isoformat(timespec="seconds")
        if planned.launch.sizes:
            nodes = study.machine.nodes_of(way)
            return list(
                allreduces_of(
                    answers,
                    library=way.collectives,
                    workers=way.workers,
                    hardware=study.machine.hardware,
                    transport=transport_of(way),
                    nodes=nodes,
                    ranks_per_node=-(-way.workers // nodes),
                    oversubscribed=study.machine.is_oversubscribed(way),
                    round=planned.round,
                    session=self._session,
                )
            )
        points = [study.point(way, task) for task in tasks_in_order(planned)]
        return list(repetitions_of(answers, points, planned.round, self._session, started))

    def _forget_failures(self, planned: Planned) -> None:
        """Of this launch and round in an earlier session: now it is measured."""
        found = read_measurements(self._workdir)
        what = str(planned.launch)
        left = tuple(e for e in found.left_out if (e.what, e.round) != (what, planned.round))
        if len(left) < len(found.left_out):
            write_measurements(self._workdir, dataclasses.replace(found, left_out=left))


def _in_words(entries: Sequence[Any]) -> str:
    """`75: 2.76 ms, 750: 19.9 ms a step`, by examples a worker."""
    steps = [
        f"{each.point.batch_a_worker:,}: {1e3 * each.step_seconds:.3g} ms"
        for each in entries
        if hasattr(each, "step_seconds")
    ]
    if steps:
        return ", ".join(steps) + " a step"
    first, last = entries[0], entries[-1]
    rate = last.bytes / last.median_seconds / 1e6
    return f"{1e6 * first.median_seconds:.3g} µs for {first.bytes:,} bytes, {rate:,.0f} MB/s for {last.bytes:,}"


def _flat(content: Any, prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def _as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _as_json(each) for name, each in value.items()}
    return list(value) if isinstance(value, tuple) else value
