"""`tfmat train --launcher=mpirun` under the machine's real mpirun, whose ranks and hosts are killed."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Mapping

import pytest

from tfmat_tests.end_to_end.runs import assert_same_weights, metrics, status
from tfmat_tests.mpi import is_running, need_mpirun
from tfmat_tests.processes import FORK, forked_python, rank_environment, wait_for

PATIENCE = 180.0  # seconds; two cores may be shared
STEPS = 120
RUN = (
    "train",
    "--launcher=mpirun",
    "--config.data.num_curves=2010",
    "--config.data.num_test=100",
    "--config.data.num_validation=400",
    "--config.data.num_points=32",
    # What these tests look at is not in the network.
    "--config.model.conv_filters=2",
    "--config.model.kernel_sizes=3",
    "--config.model.hidden_units=6",
    f"--config.train_for={STEPS}steps",
    "--config.steps_per_call=4",
    "--config.checkpoint.every=20steps",
    "--noreport",
)
# The config of each run. However fast the machine is, no run ends before its test has done what it is about: rank 0
# waits after each checkpoint while a file says so.
CONFIG = """
import pathlib
import time
from tfmat.config import load_config
from tfmat.training.run_folder import RunFolder

save, set_status = RunFolder.save_checkpoint, RunFolder.set_status


def save_and_wait(*arguments):
    save(*arguments)
    while pathlib.Path({hold!r}).exists():
        time.sleep(0.01)


def set_status_late(folder, state, *arguments, **values):
    # mpirun kills other ranks a second after one has ended with a status.
    time.sleep(2.0 if state == "interrupted" else 0.0)
    set_status(folder, state, *arguments, **values)


RunFolder.save_checkpoint, RunFolder.set_status = save_and_wait, set_status_late


def get_config():
    return load_config("configs/smoke.py")
"""
# In place of ssh: another "host" is this machine, until a file says that it is down.
AGENT = """#!/bin/sh
host=$1; shift
[ ! -e {folder}/$host-is-down ] || exit 255
exec sh -c "$*"
"""


# The same, but it falls silent, as a host without power, when the second daemon is to be started on it: the first is
# that of a probe.
SILENT_AGENT = """#!/bin/sh
host=$1; shift
[ ! -e {folder}/silent ] || exec sleep 1000
case "$*" in *orted*)
    [ ! -e {folder}/probed ] || {{ touch {folder}/silent; exec sleep 1000; }}
    touch {folder}/probed
esac
exec sh -c "$*"
"""

# In place of `python -m tfmat`: the launcher looks at the training once in ten minutes.
SLOW_LOOKS = """#!/bin/sh
shift 2
exec {python} -c '
import tfmat.launch.mpirun
from tfmat.cli.main import console_main
tfmat.launch.mpirun._LOOK = 600.0
console_main()
' "$@"
"""


class Supervised:
    """A running `tfmat train --launcher=mpirun`, and its ranks."""

    def __init__(
        self,
        folder: pathlib.Path,
        *arguments: str,
        python: str | None = None,
        held: bool = False,
        environment: Mapping[str, str] | None = None,
    ):
        need_mpirun()
        self.folder, self.run = folder, folder / "run"
        folder.mkdir(exist_ok=True)
        self._err, self._hold = folder / "err.txt", folder / "hold"
        if held:
            self._hold.touch()
        config = folder / "config.py"
        config.write_text(CONFIG.format(hold=str(self._hold)))
        with open(self._err, "wb") as err:
            self.process = subprocess.Popen(
                [python or forked_python(), "-m", "tfmat", *RUN, f"--config={config}", *arguments,
                 f"--workdir={self.run}", f"--data_dir={folder.parent / 'data'}"],
                stdout=subprocess.DEVNULL, stderr=err, env={**rank_environment(), **(environment or {})},
            )  # fmt: skip

    def let_go(self) -> None:
        """Ends what `held` began."""
        self._hold.unlink()

    def said(self) -> str:
        """Standard error so far."""
        return self._err.read_text(errors="replace")

    def wait_for(self, condition) -> None:
        """Returns as soon as `condition()` is true; fails where the program ends before."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert self.process.poll() is None, f"ended too early: {self.said()[-3000:]}"
            assert time.monotonic() < deadline, f"never came: {self.said()[-3000:]}"
            time.sleep(0.01)

    def wait(self) -> int:
        """The exit status; nothing that it began is left then."""
        ended = self.process.wait(PATIENCE)
        assert not self.processes(), self.said()[-3000:]
        return ended

    def processes(self) -> dict[str, dict[str, str]]:
        """What lives of this run but the supervisor: number -> environment.

        A fork is not counted: it ends with the process that stands for it.
        """
        found = {}
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes()
                ours = str(self.run).encode() in line and not line.startswith(FORK)
                if ours and int(entry.name) != self.process.pid and is_running(entry.name):
                    words = (entry / "environ").read_text(errors="replace").split("\0")
                    found[entry.name] = dict(word.partition("=")[::2] for word in words)
        return found

    def ranks(self) -> dict[int, int]:
        """Rank -> its process."""
        name = "OMPI_COMM_WORLD_RANK"
        return {int(env[name]): int(pid) for pid, env in self.processes().items() if name in env}

    def has_saved(self) -> bool:
        """Whether there is a checkpoint."""
        return any(self.run.glob("checkpoints/step-*.npz"))

    def history(self) -> dict:
        """restarts.json."""
        return json.loads((self.run / "restarts.json").read_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Where runs share their data."""
    return tmp_path_factory.mktemp("restarts")


@pytest.fixture(scope="module")
def undisturbed(folder: pathlib.Path) -> Supervised:
    """A run of two ranks that lost nobody."""
    run = Supervised(folder / "undisturbed", "--ranks=2")
    assert run.wait() == 0, run.said()
    assert run.history()["incidents"] == [] and 0 < run.history()["ettr"] < 1
    assert "lost" not in run.said()
    return run


def test_a_killed_rank_changes_nothing_but_the_time(folder, undisturbed):
    run = Supervised(folder / "killed", "--ranks=2", held=True)
    run.wait_for(run.has_saved)
    os.kill(run.ranks()[1], signal.SIGKILL)
    run.let_go()
    assert run.wait() == 0, run.said()
    (incident,) = run.history()["incidents"]
    assert incident["kind"] == "loss" and "rank 1 of 2 was lost" in incident["cause"]
    assert incident["step"] > 0 and incident["step"] in status(run.run)["resumed_from_steps"]
    assert incident["ranks"] == 2 and incident["hosts_lost"] == [] and incident["seconds"] > 0
    said = run.said()
    assert "training goes on after " in said and "lost: rank 1 of 2 was lost" in said
    history = run.history()
    assert history["ettr"] == pytest.approx(
        history["productive_seconds"] / history["wall_seconds"], abs=1e-4
    )
    summary = f"effective training time ratio (ETTR) {history['ettr']:.3f}"
    assert summary in said and summary in (run.run / "log.txt").read_text()
    assert_same_weights(run.run / "final.keras", undisturbed.run / "final.keras")
    assert metrics(run.run) == metrics(undisturbed.run)


def test_a_host_that_is_lost_and_comes_back(folder: pathlib.Path, undisturbed: Supervised) -> None:
    environment = make_agent(folder / "agent", AGENT)
    down = folder / "agent" / "otherhost-is-down"
    hosts = "--hosts=localhost:1,otherhost:1"
    run = Supervised(
        folder / "hosts", hosts, "--probe_every=1s", held=True, environment=environment
    )
    run.wait_for(run.has_saved)
    down.touch()
    rank = run.ranks()[1]
    daemon = int(pathlib.Path(f"/proc/{rank}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(daemon, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(rank, signal.SIGKILL)
    # From then on it is asked again once training goes on.
    run.wait_for(lambda: "starting again from step" in run.said())
    down.unlink()
    run.wait_for(lambda: "otherhost answers again: saving" in run.said())
    run.let_go()
    assert run.wait() == 0, run.said()
    lost, back = run.history()["incidents"]
    assert lost["hosts_lost"] == ["otherhost"] and lost["ranks"] == 1
    assert back["kind"] == "hosts back" and back["ranks"] == 2 and back["step"] >= lost["step"]
    assert "lost: host otherhost with rank 1" in run.said()
    # The same examples in the same batches, whoever took part: equal up to what rounding does in so many steps.
    ours, theirs = (metrics(each.run)[-1] for each in (run, undisturbed))
    assert ours["step"] == theirs["step"] == STEPS
    assert ours["val_loss"] == pytest.approx(theirs["val_loss"], rel=0.1)


def test_ctrl_c_saves_and_leaves_nothing(folder: pathlib.Path) -> None:
    # Between two looks at the training, whose first one after the start would come much later.
    slow = folder / "python_with_slow_looks"
    slow.write_text(SLOW_LOOKS.format(python=forked_python()))
    slow.chmod(0o755)
    run = Supervised(folder / "interrupted", "--ranks=2", python=str(slow), held=True)
    run.wait_for(run.has_saved)
    run.process.send_signal(signal.SIGINT)
    run.let_go()
    assert run.wait() == 75, run.said()
    assert "SIGUSR1 received; saved at step " in run.said()
    assert run.said().endswith("tfmat: interrupted; start the same command again to go on\n")
    assert status(run.run)["state"] == "interrupted"
    assert run.history()["incidents"] == [] and run.history()["productive_seconds"] > 0


def test_killed_the_supervisor_leaves_nothing(folder: pathlib.Path) -> None:
    run = Supervised(folder / "orphans", "--ranks=2", held=True)
    run.wait_for(run.has_saved)
    run.process.kill()
    run.process.wait()
    run.let_go()
    wait_for(lambda: not run.processes(), lambda: run.processes().keys())
    assert status(run.run)["state"] == "interrupted"


def test_losses_without_progress_come_to_an_end(folder: pathlib.Path) -> None:
    run = Supervised(folder / "hopeless", "--ranks=2", "--restarts=1")
    killed: set[int] = set()

    def kill_the_next() -> bool:
        for rank in set(run.ranks().values()) - killed:
            killed.add(rank)
            os.kill(rank, signal.SIGKILL)
            return True
        return False

    run.wait_for(kill_the_next)
    run.wait_for(
        lambda: (
            "starting again from step 0" in run.said() and not set(run.ranks().values()) & killed
        )
    )
    run.wait_for(kill_the_next)
    assert run.wait() == 4, run.said()
    last = run.said().splitlines()[-1]
    assert last.startswith(
        "tfmat: 2 losses without progress beyond step 0, more than --restarts=1; the last: "
    )
    assert len(run.history()["incidents"]) == 2


def test_what_the_ranks_refuse_is_not_tried_again(folder: pathlib.Path) -> None:
    """That another process trains in the folder only the ranks find out."""
    run = folder / "refused" / "run"
    run.mkdir(parents=True)
    with open(run / ".lock", "w") as lock:
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_EX)
        refused = Supervised(folder / "refused", "--ranks=2")
        assert refused.wait() == 2
    assert refused.said().count("another process is training in") == 1
    assert "starting again" not in refused.said()


def make_agent(folder: pathlib.Path, text: str) -> dict[str, str]:
    """A program in place of ssh -> the environment in which mpirun takes it."""
    folder.mkdir()
    agent = folder / "agent"
    agent.write_text(text.format(folder=folder))
    agent.chmod(0o755)
    return {"OMPI_MCA_plm_rsh_agent": str(agent)}


def test_ctrl_c_does_not_wait_for_a_silent_host(folder: pathlib.Path) -> None:
    environment = make_agent(folder / "agent_of_silent", AGENT)
    # Ranks that are no forks, which would go on while the processes that stand for them are silent.
    hosts = "--hosts=localhost:1,otherhost:1"
    run = Supervised(
        folder / "silent", hosts, python=sys.executable, held=True, environment=environment
    )
    run.wait_for(run.has_saved)
    rank = run.ranks()[1]
    daemon = int(pathlib.Path(f"/proc/{rank}/stat").read_text().rpartition(")")[2].split()[1])
    for process in (daemon, rank):
        os.kill(process, signal.SIGSTOP)
    run.process.send_signal(signal.SIGINT)
    run.let_go()
    # Ranks that can save would have 120 s.
    assert run.process.wait(100) == 75, run.said()
    assert not run.processes()


def test_a_host_that_falls_silent_before_the_ranks_start(folder: pathlib.Path) -> None:
    environment = make_agent(folder / "agent_of_start", SILENT_AGENT)
    run = Supervised(
        folder / "start",
        "--hosts=localhost:1,otherhost:1",
        "--probe_every=1s",
        "--config.train_for=40steps",
        environment=environment,
    )
    assert run.wait() == 0, run.said()
    (incident,) = run.history()["incidents"]
    assert incident["cause"] == "a host fell silent before the ranks met"
    assert incident["hosts_lost"] == ["otherhost"] and incident["ranks"] == 1
    assert "lost: host otherhost with rank 1: no answer within 5 s" in run.said()
