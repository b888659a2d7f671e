"""A small study with real processes: killed in the middle, gone on with, and what it measured."""

import contextlib
import pathlib
import signal

import psutil
import pytest

from tfmat.scaling.model import Analysis
from tfmat.scaling.report import judge
from tfmat.scaling.study import FILE, Assumptions, Measurements, is_study, read_measurements
from tfmat_tests import mpi
from tfmat_tests.processes import ForkServer, Program, wait_for
from tfmat_tests.scaling.studies import write_config

PATIENCE = 600.0  # seconds; two cores may be shared
# 7 × 3 × 4 at 200 points, 4 × 100 numbers into 40 units, two answers; each layer with a bias.
WEIGHTS = (84 + 4) + (16_000 + 40) + (80 + 2)


def start(programs: ForkServer, folder: pathlib.Path, *flags: str) -> Program:
    """`tfmat scale`, whose processes are forks, too."""
    environment = {**mpi.rank_environment(), "PYTHONPATH": str(mpi.PROJECT)}
    config = write_config(folder)
    return programs.start(
        "scale",
        f"--config={config}",
        *flags,
        "--workdir=study",
        cwd=folder,
        environment=environment,
    )


def results(study: pathlib.Path) -> int:
    """Lines that hold a measurement."""
    if not is_study(study):
        return 0
    found = read_measurements(study)
    return len(found.repetitions) + len(found.allreduces)


def workers_of(study: pathlib.Path) -> list[psutil.Process]:
    """Processes that measure for it."""
    mark, found = str(study), []
    for process in psutil.process_iter(["cmdline"]):
        if mark in " ".join(process.info["cmdline"] or []):
            found.append(process)
    return found


def parent(process: psutil.Process) -> int | None:
    """None where it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.ppid()
    return None


@pytest.fixture(scope="module")
def study(programs, tmp_path_factory):
    """The folder of a study that was killed, interrupted, and gone on with."""
    mpi.need_mpirun()
    folder = tmp_path_factory.mktemp("scale")
    path = folder / "study"
    first = start(programs, folder)
    first.wait_for(lambda: results(path) and workers_of(path / "launches"))
    first.kill()
    first.wait()
    (folder / "before.jsonl").write_bytes((path / FILE).read_bytes())
    wait_for(lambda: not workers_of(path / "launches"))  # they notice by themselves
    second = start(programs, folder)
    # One of its own: what the first had just begun when it was killed may show only now, and end by itself.
    second.wait_for(lambda: second.pid in map(parent, workers_of(path / "launches")))
    second.kill(signal.SIGINT)
    ended = second.wait(PATIENCE)
    assert ended.status == 75, ended
    assert not workers_of(path / "launches")
    ended = start(programs, folder, "--price_per_hour=2").wait(PATIENCE)
    assert ended.status == 0, ended
    (folder / "said.txt").write_text(ended.out)
    return path


def lines(path: pathlib.Path) -> list[str]:
    kinds = ('{"kind": "repetition"', '{"kind": "allreduce"')
    return [line for line in path.read_text().splitlines() if line.startswith(kinds)]


def test_nothing_is_lost_and_nothing_is_repeated(study):
    before, after = lines(study.parent / "before.jsonl"), lines(study / FILE)
    assert before
    assert set(before) <= set(after)
    found = read_measurements(study)
    keys = [(each.point.backend, each.round) for each in found.repetitions]
    assert sorted(keys) == [("horovod", 0), ("single", 0), ("single", 1)]
    # Four sizes and the gradient's, in one round, of two libraries.
    sizes = [(each.library, each.bytes) for each in found.allreduces]
    assert len(sizes) == len(set(sizes)) == 10
    assert [session.number for session in found.sessions] == [0, 1, 2]
    assert not any((study / "launches").iterdir())


def test_another_run_has_nothing_to_do(programs, study):
    before = lines(study / FILE)
    ended = start(programs, study.parent).wait(PATIENCE)
    assert ended.status == 0, ended
    assert "everything is measured already" in ended.out + ended.err
    assert lines(study / FILE) == before


def test_another_config_is_refused(programs, study):
    ended = start(programs, study.parent, "--config.optimizer.learning_rate=0.5").wait(PATIENCE)
    assert ended.status == 2
    assert "optimizer.learning_rate=0.001, now it is 0.5" in ended.err


def test_the_report_is_written_with_its_verdict(study):
    said = (study.parent / "said.txt").read_text()
    # Whatever it is: beside a busy machine it is that nothing can be said.
    verdict = judge(Analysis(read_measurements(study), Assumptions(price_per_hour=2.0))).text
    assert said.splitlines()[-2] == verdict
    assert (study / "scaling_report.html").exists()
    assert '"price_per_hour": 2.0' in (study / "assumptions.json").read_text()


def test_what_was_measured_can_be_true(study):
    found: Measurements = read_measurements(study)
    for each in found.repetitions:
        assert each.point.model.parameters == WEIGHTS
        assert each.point.model.gradient_bytes == 4 * WEIGHTS
        assert each.steps >= 3
        assert len(each.ranks) == each.point.workers
        # Two forward and backward passes of so many weights cannot be faster than that.
        assert 1e-5 < each.step_seconds < PATIENCE
        memory = [rank.memory_bytes or 0 for rank in each.ranks]
        assert each.peak_memory_bytes == sum(memory) > 1e8 * each.point.workers
    split = [each for each in found.repetitions if each.ranks[0].forward_backward is not None]
    assert {each.round for each in split} == {0}
    for each in split:
        for rank in each.ranks:
            parts = [rank.input, rank.forward_backward, rank.optimizer, rank.waiting, rank.moving]
            known = [part for part in parts if part is not None]
            assert len(known) == len(parts) and min(known) >= -1e-4
            assert known[1] > known[2]  # forward and backward take longer than the optimizer
        moving = [rank.moving or 0.0 for rank in each.ranks]
        assert all(value > 0 for value in moving) == (each.point.backend == "horovod")


@pytest.mark.parametrize(("library", "transport"), [("mpi", ""), ("tensorflow", "")])
def test_larger_messages_take_longer(study, library, transport):
    of_library = [e for e in read_measurements(study).allreduces if e.library == library]
    ordered = sorted(of_library, key=lambda each: each.bytes)
    assert [each.bytes for each in ordered] == [2**10, 4 * WEIGHTS, 2**16, 2**20, 2**24]
    small, large = ordered[0], ordered[-1]
    assert large.median_seconds > small.median_seconds
    for each in of_library:
        assert 0 < each.low_seconds <= each.median_seconds <= each.high_seconds
        assert (each.workers, each.transport, each.oversubscribed) == (2, transport, False)
    # Nothing in this machine moves 16 MB in less: 200 GB/s.
    assert large.median_seconds > large.bytes / 200e9
