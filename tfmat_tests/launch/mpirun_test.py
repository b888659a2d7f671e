"""Hosts as mpirun takes them, the agent that reaches them, and what a run records of its losses."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from tfmat.errors import InputError
from tfmat.launch.mpirun import (
    FILE,
    History,
    Host,
    agent_command,
    count_ranks,
    missing_hosts,
    mpirun_command,
    parse_hosts,
)
from tfmat_tests.mpi import is_running, need_mpirun
from tfmat_tests.processes import wait_for


def test_hosts_are_read_as_mpirun_reads_them():
    hosts = parse_hosts("server1:4, server-2.example.org,10.0.0.3:12")
    assert hosts == (Host("server1", 4), Host("server-2.example.org", 1), Host("10.0.0.3", 12))
    assert count_ranks(hosts) == 17


@pytest.mark.parametrize("text", ["", "a:", "a:0", "a:x", "a b:2", "a:2,,b:2", "-x:2", "a:2;b:2"])
def test_what_is_no_host(text):
    with pytest.raises(InputError, match="is no host with its number of ranks; write server1:4"):
        parse_hosts(text)


def test_a_host_that_is_named_twice():
    with pytest.raises(InputError, match="names a twice; give the sum"):
        parse_hosts("a:1,b:1,a:2")


def test_the_agent_is_the_one_that_mpirun_takes(tmp_path):
    program = tmp_path / "agent"
    shutil.copy("/bin/true", program)
    setting = f"no-such-program -x : {program} -v"
    assert agent_command({"OMPI_MCA_plm_rsh_agent": setting}) == [str(program), "-v"]
    assert agent_command({"OMPI_MCA_plm_rsh_agent": "no-such-program"}) == []


def test_hosts_that_answer_and_hosts_that_do_not(tmp_path, monkeypatch):
    need_mpirun()
    agent = tmp_path / "agent"
    # In place of ssh: another "host" is this machine, one without the folder, and one without Open MPI's daemon.
    agent.write_text(
        '#!/bin/sh\nhost=$1; shift\ncase "$host $*" in gone*) exit 255;; no_mpi*orted*) exit 127;; esac\n'
        '[ $host != bare ] || set -- "test -d /no/such/folder"\nexec sh -c "$*"\n'
    )
    agent.chmod(0o755)
    monkeypatch.setenv("OMPI_MCA_plm_rsh_agent", str(agent))
    there, gone, bare, no_mpi = Host("there"), Host("gone", 2), Host("bare"), Host("no_mpi", 2)
    missing = missing_hosts((Host("localhost", 2), there, gone, bare, no_mpi))
    assert missing == {
        gone: f"{agent} ended with status 255",
        bare: f"it has no folder {os.getcwd()} or no {sys.executable}",
        # It would end every start, so that the others never went on.
        no_mpi: "it answers, but mpirun starts nothing on it",
    }
    monkeypatch.setenv("OMPI_MCA_plm_rsh_agent", "no-such-program")
    assert missing_hosts((there,)) == {there: "there is no no-such-program to reach it by"}


def test_the_command_line_of_mpirun():
    environment = {
        "PATH": "/bin",
        "TFMAT_WORKER_TIMEOUT": "9",
        "HOME": "/root",
        "NCCL_DEBUG": "INFO",
    }
    command = mpirun_command(parse_hosts("a:2,b"), ["tfmat", "train"], environment)
    assert " ".join(command) == (
        "mpirun -np 3 -H a:2,b:1 --bind-to none --map-by slot "
        "-x NCCL_DEBUG -x PATH -x TFMAT_WORKER_TIMEOUT tfmat train"
    )


def test_a_host_that_never_answers_leaves_no_process(tmp_path, monkeypatch):
    agent = tmp_path / "agent"
    agent.write_text(f"#!/bin/sh\nsleep 1000 & echo $! > {tmp_path}/pid\nwait\n")
    agent.chmod(0o755)
    monkeypatch.setenv("OMPI_MCA_plm_rsh_agent", str(agent))
    monkeypatch.setattr("tfmat.launch.mpirun.PATIENCE", 1.0)
    assert missing_hosts((Host("silent"),)) == {Host("silent"): "no answer within 1 s"}
    assert not is_running((tmp_path / "pid").read_text().strip())


_SUPERVISOR = """
import pathlib, sys, time
from tfmat.launch.mpirun import parse_hosts
from tfmat.launch.mpirun import Launch
launch = Launch(parse_hosts("localhost:2"), ["sh", sys.argv[1]])
pathlib.Path(sys.argv[2]).write_text(str(launch._process.pid))
time.sleep(600)
"""
# Asked to save, a rank talks more than mpirun bears where nobody listens, and saves then.
_RANK = """
save() {{
    for line in $(seq 40); do echo line $line >&2; sleep 0.02; done
    touch {folder}/saved-$OMPI_COMM_WORLD_RANK
    exit 75
}}
trap save USR1
touch {folder}/ready-$OMPI_COMM_WORLD_RANK
while true; do sleep 0.02; done
"""


def test_ranks_save_where_their_supervisor_was_killed(tmp_path):
    need_mpirun()
    script, number = tmp_path / "rank.sh", tmp_path / "mpirun"
    script.write_text(_RANK.format(folder=tmp_path))
    supervisor = subprocess.Popen([sys.executable, "-c", _SUPERVISOR, script, number])

    try:
        wait_for(lambda: number.exists() and len([*tmp_path.glob("ready-*")]) == 2)
    finally:
        supervisor.kill()
        supervisor.wait()
    wait_for(lambda: not is_running(number.read_text()))
    assert sorted(path.name for path in tmp_path.glob("saved-*")) == ["saved-0", "saved-1"]


def test_the_line_and_the_file_say_the_same_ratio(tmp_path: pathlib.Path) -> None:
    """Rounded twice, 0.64752 would be 0.6475 and then 0.647 in the one, and 0.648 in the other."""
    history = History(tmp_path)
    history.count(100_000.0, 64_752.0)
    written = json.loads((tmp_path / FILE).read_text("utf-8"))
    assert written["ettr"] == 0.6475
    assert f"effective training time ratio (ETTR) {written['ettr']:.3f};" in history.summary()
