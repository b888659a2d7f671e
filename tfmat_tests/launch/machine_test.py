"""What the doctor finds here and on broken machines, and what a run was made with."""

import datetime
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys

import numpy as np
import pytest

import tfmat
from tfmat.files import plain, read_json, write_json
from tfmat.launch import machine
from tfmat.launch.machine import (
    HOROVOD_PROBE,
    Git,
    describe_session,
    git_state,
    record_session,
    recorded_onednn,
)
from tfmat.launch.processes import uses_onednn
from tfmat_tests.mpi import is_running
from tfmat_tests.processes import forked_python, wait_for


def command(folder, name, text):
    """An executable in `folder`."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """PATH holds nothing but this folder."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def here():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", forked_python())
        return {finding.part: finding for finding in machine.examine()}


def test_this_machine(here):
    parts = "Python processors TensorFlow Keras GPUs MPI Horovod mpi4py DTensor SLURM CalculiX"
    assert [*here] == parts.split()
    for part in ("TensorFlow", "Keras"):
        assert here[part] == machine.Finding(part, "ok", importlib.metadata.version(part.lower()))
    assert here["DTensor"].state == "ok", here["DTensor"]
    assert here["DTensor"].milliseconds > 0
    assert here["processors"].detail.startswith(str(len(os.sched_getaffinity(0))))


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun")
@pytest.mark.parametrize(("part", "built"), [("Horovod", "MPI, Gloo"), ("mpi4py", "")])
def test_two_ranks_add_up(here, part, built):
    if not importlib.util.find_spec(part.lower()):
        pytest.skip(f"there is no {part}: ./tools/setup horovod, ./tools/setup mpi")
    found = here[part]
    assert found.state == "ok", found
    version = importlib.metadata.version(part.lower())
    assert found.detail.startswith(f"{version} with {built}")
    assert found.milliseconds > 0
    version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
    assert here["MPI"].detail.split(",")[0].split()[-1] in version


def test_what_is_missing_comes_with_the_line_that_gets_it(bare, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert machine._examine_mpi().remedy == machine.GET_MPI
    assert machine._examine_slurm().remedy == machine.GET_SLURM
    assert machine._examine_calculix().remedy == machine.GET_CALCULIX
    assert machine._examine_ranks(
        "Horovod", HOROVOD_PROBE, machine.SETUP_HOROVOD
    ) == machine.Finding("Horovod", "missing", "not installed", "tfmat horovod install")
    assert {finding.remedy for finding in machine._examine_tensorflow()} == {"./tools/setup"}


def test_without_a_clone_pip_completes_what_is_there(tmp_path, monkeypatch):
    assert machine.how_to_install("mpi") == "./tools/setup mpi"
    monkeypatch.setattr(tfmat, "__file__", str(tmp_path / "site-packages/tfmat/__init__.py"))
    monkeypatch.setattr(sys, "executable", "/my env/bin/python")
    assert machine.how_to_install("mpi") == "'/my env/bin/python' -m pip install 'tfmat[mpi]'"
    assert machine.how_to_install() == "'/my env/bin/python' -m pip install 'tfmat'"


def test_broken_horovod_is_told_with_its_own_complaint(bare, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    command(
        bare,
        "mpirun",
        'if [ "$1" = --version ]; then echo "mpirun (Open MPI) 4.1.4"; exit; fi\n'
        "echo 'Traceback (most recent call last):' >&2\n"
        "echo 'ImportError: mpi_lib.so: undefined symbol: _ZN10tensorflow' >&2\n"
        "echo '-----' >&2; echo 'mpirun: one process ended' >&2; exit 1",
    )
    found = machine._examine_ranks("Horovod", HOROVOD_PROBE, machine.SETUP_HOROVOD)
    assert (found.state, found.remedy) == ("failed", machine.SETUP_HOROVOD)
    assert found.detail == "ImportError: mpi_lib.so: undefined symbol: _ZN10tensorflow"
    assert machine._examine_mpi().detail == f"Open MPI 4.1.4, {bare}/mpirun"


def test_ranks_that_do_not_see_each_other_are_told(bare, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    answer = '{"version": "0.28.1", "built": ["Gloo"], "size": 1, "right": true, "milliseconds": 1}'
    command(bare, "mpirun", f"echo '{answer}'; echo '{answer}'")
    found = machine._examine_ranks("Horovod", HOROVOD_PROBE, machine.SETUP_HOROVOD)
    assert found.state == "failed"
    assert "with Gloo: two ranks of mpirun do not see each other" in found.detail


def test_mpich_is_recognised(bare):
    # From `mpiexec --version` of MPICH 4.0.2.
    text = "HYDRA build details:\n    Version:                                 4.0.2\n    Release Date: 2022"
    command(bare, "mpirun", f"echo '{text}'")
    assert machine._examine_mpi().detail.startswith("HYDRA 4.0.2, ")


def test_slurm_is_asked_and_not_waited_for(bare, monkeypatch):
    command(
        bare,
        "sinfo",
        'if [ "$1" = --version ]; then echo "slurm-wlm 22.05.8"; else echo "2 idle"; echo "1 down"; fi',
    )
    assert machine._examine_slurm() == machine.Finding(
        "SLURM", "ok", "22.05.8; nodes: 2 idle, 1 down"
    )
    monkeypatch.setattr(machine, "SLURM_PATIENCE", 0.3)
    command(
        bare,
        "sinfo",
        'if [ "$1" = --version ]; then echo "slurm-wlm 22.05.8"; else /bin/sleep 60; fi',
    )
    found = machine._examine_slurm()
    assert found.state == "failed"
    assert "no controller answers (no answer within" in found.detail


def test_calculix_says_its_version(bare):
    command(bare, "ccx", "echo; echo 'This is Version 2.20'; exit 201")
    assert machine._examine_calculix() == machine.Finding("CalculiX", "ok", f"2.20, {bare}/ccx")
    command(bare, "ccx", "echo broken >&2; exit 3")
    assert machine._examine_calculix().state == "failed"


def test_a_probe_that_hangs_is_killed_with_its_children():
    program = (
        "import subprocess, time; child = subprocess.Popen(['sleep', '600']); "
        "print(child.pid, flush=True); time.sleep(600)"
    )
    # Python itself may take seconds to start on a busy machine.
    said, complaint = machine._output([sys.executable, "-c", program], 5.0)
    assert complaint == "no answer within 5 s"
    wait_for(lambda: not is_running(said))


def git(folder: pathlib.Path, *arguments: str) -> str:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    done = subprocess.run(
        ["git", *identity, *arguments],
        cwd=folder,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def test_a_session_says_program_machine_command_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/x/tfmat/__main__.py", "train", "--workdir=my runs/a"])
    session = plain(describe_session())
    assert session["versions"]["Python"] == platform.python_version()
    assert session["versions"]["numpy"] == np.__version__
    assert {"tfmat", "tensorflow", "keras"} <= set(session["versions"])
    assert session["machine"]["usable_processors"] == len(os.sched_getaffinity(0))
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert session["machine"]["memory_gib"] == pytest.approx(pages / 2**30, abs=0.2)
    assert session["machine"]["processor"]
    assert session["command"] == "tfmat train '--workdir=my runs/a'"
    age = datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(session["started"])
    assert abs(age.total_seconds()) < 600


def test_the_revision_is_that_of_the_checkout_and_changes_are_seen(tmp_path, monkeypatch):
    assert git_state(tmp_path) is None
    git(tmp_path, "init", "-q")
    assert git_state(tmp_path) is None  # nothing committed yet
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-q", "-m", "one")
    state = git_state(tmp_path)
    assert state is not None
    assert state == Git(git(tmp_path, "rev-parse", "HEAD"), changed=False)
    (tmp_path / "a").write_text("2")
    assert git_state(tmp_path) == Git(state.revision, changed=True)
    # A folder inside of a checkout is not the checkout.
    (tmp_path / "inside").mkdir()
    assert git_state(tmp_path / "inside") is None
    monkeypatch.setenv("PATH", str(tmp_path))  # without git
    assert git_state(tmp_path) is None


def test_every_start_is_added(tmp_path: pathlib.Path) -> None:
    record_session(tmp_path)
    record_session(tmp_path)
    content = json.loads((tmp_path / "provenance.json").read_text())
    assert content["format"] == 1 and len(content["sessions"]) == 2
    (tmp_path / "provenance.json").write_text("{damaged")
    record_session(tmp_path)
    assert len(json.loads((tmp_path / "provenance.json").read_text())["sessions"]) == 1


def test_nothing_heavy_is_loaded_for_it() -> None:
    program = (
        "import sys\nfrom tfmat.launch.machine import describe_session\ndescribe_session()\n"
        "assert not {'tensorflow', 'keras', 'numpy', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_run_that_goes_on_keeps_its_kernels(tmp_path: pathlib.Path, monkeypatch) -> None:
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")
    assert recorded_onednn(tmp_path) is None
    record_session(tmp_path)
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    assert recorded_onednn(tmp_path) is True
    record_session(tmp_path)
    assert recorded_onednn(tmp_path) is False
    # An older version's session: TensorFlow chose by itself.
    content = read_json(tmp_path / "provenance.json")
    del content["sessions"][-1]["onednn"]
    write_json(tmp_path / "provenance.json", content)
    assert recorded_onednn(tmp_path) is uses_onednn({})
    (tmp_path / "provenance.json").write_text("damaged")
    assert recorded_onednn(tmp_path) is None
