"""Runs of several workers that stop, go on elsewhere, or lose a worker; under real mpirun."""

import itertools
import json
import os
import pathlib
import shutil

import numpy as np
import pytest

from tfmat.training.run_folder import RunFolder
from tfmat_tests.mpi import mpirun
from tfmat_tests.processes import wait_for

MODULE = "tfmat_tests.training.rank_of_run"
# Seconds in which everything must have ended, TensorFlow's start on shared processors included.
PATIENCE = 60 + 120

BACKENDS = ("horovod", "mpi", "asynchronous", "averaging")
FAULTS = ("exception", "SIGKILL", "SIGSTOP")
PHASES = ("start", "training", "validation", "checkpoint")
# The one of three workers that the others ask to average with.
ASKED = ("averaging", "SIGKILL", 1, "training")
# Any three of backend, fault, rank and phase meet.
MATRIX = {
    (backend, fault, (0, 2)[(BACKENDS.index(backend) + FAULTS.index(fault) + i) % 2], phase)
    for backend, fault, (i, phase) in itertools.product(BACKENDS, FAULTS, enumerate(PHASES))
}
# Each backend, fault, rank and phase; how all of three hear of it from rank 0 is in launch/star_test.py.
DEFAULT = {
    ("horovod", "SIGKILL", 0, "validation"),
    ("mpi", "SIGKILL", 1, "training"),
    ("asynchronous", "exception", 0, "start"),
    ASKED,
    ("horovod", "SIGSTOP", 1, "checkpoint"),
}


def _run(ranks, *runs, environment=(), **how):
    """These runs, one after the other; without mpirun where `ranks` is 0."""
    arguments = ("-m", MODULE, *(json.dumps(run, default=str) for run in runs))
    return mpirun(ranks, *arguments, timeout=PATIENCE, environment=environment, **how)


def _weights(workdir, step):
    arrays = RunFolder(workdir).load_checkpoint(step).arrays
    return [np.asarray(arrays[name]) for name in sorted(arrays) if name.startswith("weights/")]


def _processes_of(workdir):
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if str(workdir).encode() in text and int(folder.name) != os.getpid():
            found.append(folder.name)
    return found


def _nothing_is_left(workdir):
    wait_for(lambda: not _processes_of(workdir), lambda: _processes_of(workdir))


def test_goes_on_with_other_workers(tmp_path, run_all):
    """4 ranks, then 2 without Horovod, then the single backend: the same batches, so the same weights as alone.

    The signal comes to the last rank, and stops all of them after the same step. In run c each rank has a part of the
    slots, until one has all; in run e they are on disk, and each rank has a part of the network. Run a is a plain one.
    """
    names = "cea" if run_all else "ce"
    on_disk = {"offload": "slots", "offload_dir": str(tmp_path / "slots")}
    options = {
        "a": {},
        "c": {"zero_stage": 2},
        "e": {**on_disk, "micro_batches": 2, "recompute": "every:1"},
    }
    runs = [
        {"workdir": tmp_path / run, "options": options[run], "validation": False} for run in names
    ]
    runs[1]["mesh"] = "batch:2,stage:2"
    # The first run starts Horovod for all of them.
    sets = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}
    ended = _run(4, *({**run, "signal_at": 10} for run in runs), environment=sets)
    assert ended.returncode == 75, ended.stderr
    assert ended.stderr.count("SIGUSR1 received; saved at step 10 of 30") == len(names)
    assert not list((tmp_path / "slots").iterdir())
    assert json.loads((tmp_path / "c/status.json").read_text())["state"] == "interrupted"
    runs[1]["mesh"] = "stage:2"
    by_mpi = [{**run, "signal_at": 20, "backend": "mpi"} for run in runs]
    assert _run(2, *by_mpi).returncode == 75
    # The last one finds a run that is done, which says so, whoever asks.
    alone = [
        {"workdir": tmp_path / run, "backend": "single", "validation": False}
        for run in (*names, "b", "c")
    ]
    ended = _run(0, *alone)
    assert ended.returncode == 0, ended.stderr
    reference = _weights(tmp_path / "b", 30)
    for run in names:
        status = json.loads((tmp_path / run / "status.json").read_text())
        assert status["resumed_from_steps"] == [10, 20]
        for mine, weight in zip(_weights(tmp_path / run, 30), reference, strict=True):
            assert np.linalg.norm(mine - weight) < 1e-9 * np.linalg.norm(weight)
        losses = [
            [json.loads(line)["loss"] for line in (tmp_path / name / "metrics.jsonl").open()]
            for name in (run, "b")
        ]
        np.testing.assert_allclose(*losses, rtol=1e-9)


KEPT = {
    "topk": {"compression": "topk", "compression_fraction": 0.1, "offload": "slots"},
    "overlapped": {"compression": "powersgd", "local_steps": 4, "overlap_meetings": True},
    "half": {"compression": "fp16", "local_steps": 4, "overlap_meetings": True},
    "local": {"compression": "powersgd", "local_steps": 4},
    "parts": {"zero_stage": 2},  # of slots, which are whole in a checkpoint
    "disk": {"offload": "slots"},
}


def _as_it_was(run, step, workdir):
    """A copy of a run as it was at a checkpoint, in `workdir`."""
    shutil.copytree(run, workdir)
    saved = RunFolder(workdir)
    for each in saved.saved_steps():
        if each > step:
            saved.checkpoint_file(each).unlink()
    status = json.loads((workdir / "status.json").read_text())
    (workdir / "status.json").write_text(json.dumps({**status, "state": "interrupted"}))


@pytest.mark.parametrize(
    "names",
    [
        ("topk", "overlapped"),
        # What these keep is in the two before, and parts in the test before.
        pytest.param(("half", "local", "parts", "disk"), marks=pytest.mark.large),
    ],
)
def test_what_each_worker_keeps_goes_on_bit_for_bit(tmp_path, names):
    """Residuals of compressed gradients and slots between meetings; then three workers share what two kept."""
    runs = [
        {
            "workdir": tmp_path / name,
            "hidden_units": 100,
            "options": {**KEPT[name]},
            "total_steps": 20,
            "validation": False,
        }
        for name in names
    ]
    for run in runs:
        if "offload" in run["options"]:
            run["options"]["offload_dir"] = str(tmp_path)
    ended = _run(2, *runs)
    assert ended.returncode == 0, ended.stderr
    # As they were after calls of five steps, or where workers had met after four.
    stopped = {name: 8 if "local_steps" in KEPT[name] else 10 for name in names}
    resumed = [
        {**run, "workdir": tmp_path / f"{name} again"}
        for name, run in zip(names, runs, strict=True)
    ]
    for name, run in zip(names, resumed, strict=True):
        _as_it_was(tmp_path / name, stopped[name], run["workdir"])
    shared = [
        {**run, "workdir": shutil.copytree(run["workdir"], tmp_path / "shared")}
        for name, run in zip(names, resumed, strict=True)
        if name == "overlapped"
    ]
    ended = _run(2, *resumed)
    assert ended.returncode == 0, ended.stderr
    for name in names:
        status = json.loads((tmp_path / f"{name} again/status.json").read_text())
        assert status["resumed_from_steps"] == [stopped[name]], name
        mine, reference = (
            RunFolder(tmp_path / run).load_checkpoint(20).arrays for run in (f"{name} again", name)
        )
        # Also of the epoch within which it had stopped.
        losses = [
            [json.loads(line)["loss"] for line in (tmp_path / run / "metrics.jsonl").open()]
            for run in (f"{name} again", name)
        ]
        assert losses[0] == losses[1]
        assert mine.keys() == reference.keys()
        for key, array in mine.items():
            np.testing.assert_array_equal(array, reference[key], err_msg=f"{name} {key}")
        own = [
            np.asarray(mine[key]) for key in mine if "residual" in key or "exchange/slots" in key
        ]
        assert bool(own) == (name in ("topk", "local", "overlapped", "half")) and all(
            len(array) == 2 and (array[0] != array[1]).any() for array in own
        )
    if not shared:
        return
    ended = _run(3, *shared)
    assert ended.returncode == 0, ended.stderr
    for run in shared:
        losses = [
            json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])["loss"]
            for folder in (run["workdir"], tmp_path / "overlapped")
        ]
        np.testing.assert_allclose(*losses, rtol=0.2)


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    """The folder of runs of two ranks, as on two machines with own hashes, and what the last of them ended in."""
    folder = tmp_path_factory.mktemp("two")
    steps = {"total_steps": 10, "validation": False}
    draws = {"record_batches": True, **steps}
    ended = _run(
        2,
        {"workdir": folder / "partition", "sharding": "partition", **draws},
        {"workdir": folder / "independent", "sharding": "independent", **draws},
        {"workdir": folder / "mpi", "backend": "mpi", "options": {"zero_stage": 2}, **steps},
        {"workdir": folder / "skipped", "skip_reduce": True, "validation": False},
        hosts=f"localhost:1,{os.uname().nodename}:1",
        own_hashes=True,
    )
    return folder, ended


def test_a_skipped_reduction_is_found_within_an_epoch(two_ranks):
    """The last rank does one step, between 10 and 20, with its own gradients only."""
    folder, ended = two_ranks
    assert ended.returncode == 4, ended.stderr
    assert "the weights of rank 1 differ from those of rank 0" in ended.stderr
    assert (
        "between step 10 and step 20, in weights/0 (curve_to_parameters/hidden/kernel), "
        in ended.stderr
    )
    set_apart = "Ranks differ in the environment: OMP_DYNAMIC (not set on rank 0, false on rank 1)."
    assert set_apart in ended.stderr
    assert not (folder / "skipped/checkpoints/step-0000000020.npz").exists()


def test_ranks_whose_hashes_differ_exchange_in_one_order(two_ranks):
    """MPI's collectives have no names: by Horovod, which has them, the weights are the same."""
    folder, ended = two_ranks
    assert (folder / "mpi.ended").read_text() == "0", ended.stderr
    for mine, named in zip(
        _weights(folder / "mpi", 10), _weights(folder / "partition", 10), strict=True
    ):
        assert np.linalg.norm(mine - named) < 1e-9 * np.linalg.norm(named)


def test_ranks_with_different_data_are_refused(tmp_path):
    ended = _run(2, {"workdir": tmp_path / "run", "fewer_examples": True})
    assert ended.returncode == 2, ended.stderr
    lines = [line for line in ended.stderr.splitlines() if line.startswith("tfmat: ")]
    assert (
        len(lines) == 1 and "rank 1 has num_examples=999, rank 0 has num_examples=1000" in lines[0]
    )
    assert not (tmp_path / "run/config.json").exists()


@pytest.mark.parametrize("sharding", ["partition", "independent"])
def test_what_each_rank_draws(sharding, two_ranks):
    """Shared: each example once an epoch over all ranks. Independent: once in each rank's own whole order."""
    folder, ended = two_ranks
    assert (folder / f"{sharding}.ended").read_text() == "0", ended.stderr
    assert json.loads((folder / sharding / "status.json").read_text())["state"] == "done"
    first, second = (np.load(f"{folder}/{sharding}-{rank}.npy") for rank in (0, 1))
    assert first.shape == second.shape == (500, 2)
    for drawn in (first, second):
        assert len(np.unique(drawn, axis=0)) == 500
    both = len(np.unique(np.concatenate([first, second]), axis=0))
    assert both == 1000 if sharding == "partition" else 600 < both < 900  # 750 expected


@pytest.mark.large
def test_eight_ranks_on_one_host(tmp_path):
    arguments = json.dumps({"workdir": str(tmp_path / "run"), "total_steps": 10})
    ended = mpirun(8, "-m", MODULE, arguments, timeout=300, hosts="localhost:8")
    assert ended.returncode == 0, ended.stderr


@pytest.fixture(scope="module")
def lost_runs(tmp_path_factory):
    """The folder of all runs that lose a worker; each is named after what happens in it."""
    return tmp_path_factory.mktemp("lost")


@pytest.mark.parametrize(
    ("backend", "fault", "rank", "phase"),
    [
        pytest.param(*case, marks=[] if case in DEFAULT else [pytest.mark.large])
        for case in sorted(MATRIX | DEFAULT)
    ],
)
def test_a_lost_worker_ends_all(backend, fault, rank, phase, lost_runs):
    workdir = lost_runs / f"{backend}-{fault}-{rank}-{phase}"
    run = {"workdir": workdir, "backend": backend, "fault": fault, "rank": rank, "phase": phase}
    if backend == "averaging":
        run |= {"backend": "asynchronous", "options": {"averaging": True}}
    # That is awaited where a rank is silent, and no shorter than what a busy machine may keep one waiting.
    environment = {"TFMAT_WORKER_TIMEOUT": "12"}
    ranks = 2 if (backend, fault, rank, phase) in DEFAULT - {ASKED} else 3
    ended = _run(ranks, run, environment=environment)
    assert ended.returncode not in (0, 75), ended.stderr
    lines = [line for line in ended.stderr.splitlines() if line.startswith("tfmat: ")]
    assert len(lines) == 1, ended.stderr
    assert f"rank {rank} of {ranks}" in lines[0] and "phase" in lines[0], lines
    if phase != "start":
        assert "step" in lines[0], lines
    _nothing_is_left(workdir)
    # Rank 0, killed or stopped before its first step, has not come to write it.
    if (phase, rank) != ("start", 0) or fault == "exception":
        status = json.loads((workdir / "status.json").read_text())
        assert status["state"] in (("running", "failed") if fault != "exception" else ("failed",))


def test_runs_that_lost_a_worker_go_on_with_the_same_command(lost_runs, run_all):
    """Two ranks go through them, whatever they had lost: what was killed and what was stopped first of all, or all."""
    left = [path for path in sorted(lost_runs.iterdir()) if path.is_dir()]
    if not run_all:
        left = [path for path in left if path.name.endswith(("checkpoint", "validation"))]
    assert left, "none of the tests before ran"
    ended = _run(2, *({"workdir": path} for path in left))
    assert ended.returncode == 0, ended.stderr
    for path in left:
        assert pathlib.Path(f"{path}.ended").read_text() == "0", (path, ended.stderr)
        assert json.loads((path / "status.json").read_text())["state"] == "done"


def test_a_full_disk_on_rank_0_ends_all(tmp_path):
    """Named hosts: both ranks where one name says two."""
    full = {"workdir": tmp_path / "run", "fault": "disk", "rank": 0, "phase": "checkpoint"}
    ended = _run(2, full, hosts="localhost:2")
    assert ended.returncode == 2, ended.stderr
    _nothing_is_left(tmp_path / "run")
