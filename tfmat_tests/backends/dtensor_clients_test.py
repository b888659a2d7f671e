"""Several processes share one mesh, under real mpirun: the weights of a plain Keras loop, and all around it."""

import json
import os

import numpy as np
import pytest

from tfmat.launch.port_guard import Neighbour
from tfmat.training.run_folder import RunFolder
from tfmat_tests.mpi import mpirun

OPTIMIZERS = ("nesterov", "adam", "adamw", "lars", "larc", "novograd", "lamb")
RUN = "tfmat_tests.training.rank_of_run"
CLIENTS = {"backend": "dtensor", "mesh": "batch:2,model:2"}
STEPS = 35
PATIENCE = 240


@pytest.mark.parametrize(
    ("stage", "optimizers"),
    [
        pytest.param(3, ["adam"], id="3-adam"),
        *(
            pytest.param(stage, OPTIMIZERS, id=f"stage{stage}", marks=pytest.mark.large)
            for stage in range(4)
        ),
    ],
)
def test_two_clients_with_two_devices_each(stage, optimizers, plain_ends):
    program = ("-m", "tfmat_tests.backends.mesh_process", str(plain_ends))
    cases = [f"{stage}-{optimizer}" for optimizer in optimizers]
    done = mpirun(2, *program, "batch:2,model:2", "float64", *cases)
    assert done.returncode == 0, done.stderr[-3000:]
    held = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("HELD")]
    assert [case for case, _, _ in held] == cases
    for _, weights, _ in held:
        assert float(weights) < (0.45 if stage == 3 else 0.75)


def _train(ranks, workdir, *earlier, **settings):
    """A run in `workdir`, after others in the same processes; each of those is its settings."""
    runs = [*earlier, {"workdir": str(workdir), **settings}]
    common = {"hidden_units": 24, "total_steps": STEPS, "validation": False}
    arguments = [json.dumps({**common, **run}) for run in runs]
    return mpirun(ranks, "-m", RUN, *arguments, timeout=PATIENCE)


def _weights(workdir, step):
    arrays = RunFolder(workdir).load_checkpoint(step).arrays
    return [np.asarray(arrays[name]) for name in sorted(arrays) if name.startswith("weights/")]


def _kill(rank, workdir):
    """A run of two clients that loses this one before step 15, and with it the other."""
    ended = _train(2, workdir, **CLIENTS, fault="SIGKILL", rank=rank, phase="training")
    assert ended.returncode not in (0, 75), ended.stderr
    lines = [line for line in ended.stderr.splitlines() if line.startswith("tfmat: ")]
    assert len(lines) == 1 and f"rank {rank} of 2" in lines[0] and "step" in lines[0], ended.stderr


@pytest.mark.large
def test_a_killed_first_client_ends_the_other(tmp_path):
    _kill(0, tmp_path / "run")
    ended = _train(2, tmp_path / "run", **CLIENTS)
    assert ended.returncode == 0, ended.stderr[-3000:]


def test_a_killed_client_ends_the_other_and_checkpoints_go_anywhere(tmp_path):
    """2 clients x 2 devices, 2 ranks of Horovod, one process, 2 clients: the same weights as alone."""
    run = tmp_path / "run"
    _kill(1, run)
    status = json.loads((run / "status.json").read_text())
    assert (status["state"], "rank 1 of 2" in status["reason"]) == ("failed", True)
    alone = {"workdir": str(tmp_path / "alone"), "backend": "single"}
    for ranks, earlier, settings in (
        (2, [], {"backend": "horovod", "signal_at": 25}),
        (1, [alone], {"backend": "single", "signal_at": 30}),
        (2, [], CLIENTS),  # the command whose client was killed
    ):
        ended = _train(ranks, run, *earlier, **settings)
        assert ended.returncode == (0 if settings is CLIENTS else 75), ended.stderr[-3000:]
    status = json.loads((run / "status.json").read_text())
    first, *others = status["resumed_from_steps"]
    assert status["state"] == "done" and first in (10, 15) and others == [25, 30]
    assert (tmp_path / "alone.ended").read_text() == "0"
    for mine, reference in zip(
        _weights(run, STEPS), _weights(tmp_path / "alone", STEPS), strict=True
    ):
        assert np.linalg.norm(mine - reference) < 1e-9 * np.linalg.norm(reference)


def test_a_mesh_that_processes_cannot_share_is_refused():
    command = ("-m", "tfmat", "train", "--backend=dtensor", "--config.mesh=batch:3")
    ended = mpirun(2, *command, timeout=PATIENCE)
    assert ended.returncode == 2
    assert "mesh batch:3 has 3 devices for 2 processes, which get unequal parts" in ended.stderr


STRANGER = """
from tfmat_tests import lean_keras
import os, sys
import tensorflow as tf
from tensorflow.experimental import dtensor
from tfmat.backends import make_backend
from tfmat.backends.dtensor import make_mesh
from tfmat.config import MeshShape
from tfmat_tests.launch.port_guard_test import knock
workers = make_backend("dtensor", mesh="batch:2")
workers.start()
found = {}
if workers.rank == 0:
    places = [place.rsplit(":", 1) for place in os.environ["DTENSOR_JOBS"].split(",")]
    found = {host + port: knock(int(port), 65534, host) for _, port in places for host in sys.argv[1:]}
workers.collectives.barrier()
mesh = make_mesh(MeshShape.parse("batch:2"), 2)
mine = dtensor.pack([tf.ones((2, 3))], dtensor.Layout(["batch", "unsharded"], mesh))
assert int(tf.reduce_sum(mine)) == 12
if workers.rank == 0:
    print("FOUND", len(found), *sorted(set(found.values())), flush=True)
workers.collectives.barrier()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can knock as another user")
def test_a_stranger_knocks_in_vain_and_the_processes_still_talk():
    """From loopback and from the machine's own address, as TensorFlow's servers listen on every one."""
    outside = [a for a in Neighbour.here().addresses if ":" not in a][:1]
    ended = mpirun(2, "-c", STRANGER, "127.0.0.1", *outside, timeout=PATIENCE)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert f"FOUND {2 + 2 * len(outside)} dropped\n" in ended.stdout
    lines = [line for line in ended.stderr.splitlines() if "TensorFlow's servers" in line]
    assert len(lines) == 1 and "of user 0 on this machine, and nobody else" in lines[0]


def test_ports_that_the_user_does_not_want_are_not_opened():
    command = ("-m", "tfmat", "train", "--backend=dtensor", "--config.mesh=batch:2")
    environment = {"TFMAT_TENSOR_PORTS": "refused"}
    ended = mpirun(2, *command, timeout=PATIENCE, environment=environment)
    assert ended.returncode == 2
    assert "TFMAT_TENSOR_PORTS is refused; use --backend=horovod" in ended.stderr


MEETING = """
import sys, time
from tfmat.launch.processes import find_processes
from tfmat.launch.watchdog import ByNote, meet
processes = find_processes()
star = meet(processes, ByNote(processes, sys.argv[1]), time.monotonic() + 250)
assert star.broadcast({"rank": processes.rank}) == {"rank": 0}
assert star.gather("x" * (1 + 1_000_000 * processes.rank)) == ["x" * (1 + 1_000_000 * i) for i in range(3)]
sys.stdout.write(f"ADDRESSES {star.addresses()}\\n")  # whole: other ranks write too
star.close()
"""


@pytest.mark.parametrize("hosts", [None, f"localhost:1,{os.uname().nodename}:2"])
def test_processes_of_mpirun_meet(hosts, tmp_path):
    ended = mpirun(3, "-c", MEETING, str(tmp_path), hosts=hosts, timeout=300)
    assert ended.returncode == 0, ended.stderr
    lines = [line for line in ended.stdout.splitlines() if line.startswith("ADDRESSES")]
    assert len(lines) == 3 and len(set(lines)) == 1 and lines[0].count(",") == 2
    assert list(tmp_path.iterdir()) == []  # the note is gone
