"""The nodes of tools/cluster: what runs on them, and what is left of them."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

from tfmat_tests.cluster import PATIENCE, assert_refused, cluster, program, start
from tfmat_tests.slurm import need_slurm


def test_killing_a_node_spares_the_others(nodes):
    sleepers = [
        subprocess.Popen(
            nodes.command("run", f"--node={node}", "--", "sh", "-c", "sleep 300 & echo; wait"),
            stdout=subprocess.PIPE,
        )
        for node in nodes.status()
    ]
    for sleeper in sleepers:
        sleeper.stdout.readline()
    assert [node["processes"] for node in nodes.status().values()] == [2, 2]
    assert nodes.check("kill", "server2") == "server2: 2 processes killed\n"
    assert sleepers[1].wait(PATIENCE) == 128 + signal.SIGKILL
    assert [node["processes"] for node in nodes.status().values()] == [2, 0]
    assert sleepers[0].poll() is None
    nodes.check("kill", "server1")
    for sleeper in sleepers:
        sleeper.communicate(timeout=PATIENCE)
    assert nodes.run("server2", "hostname") == "server2\n"


def test_a_command_runs_as_if_at_home_on_its_node(nodes, tmp_path):
    program = "import os, socket; print(socket.gethostname(), os.getcwd(), os.environ['A'])"
    environment = {**os.environ, "A": "a b"}
    said = nodes.run("server2", sys.executable, "-c", program, cwd=tmp_path, env=environment)
    assert said == f"server2 {tmp_path} a b\n"
    assert nodes.call("run", "--", "sh", "-c", "exit 7").returncode == 7
    assert nodes.call("run", "--", "sh", "-c", "kill -KILL $$").returncode == 128 + 9
    missing = nodes.call("run", "--", "no-such-program")
    assert (missing.returncode, missing.stderr.count("\n")) == (127, 1)
    # Memory is shared within a node, and not between nodes.
    nodes.run("server1", "touch", "/dev/shm/here")
    assert nodes.run("server1", "ls", "/dev/shm") == "here\n"
    assert nodes.run("server2", "ls", "/dev/shm") == ""
    nodes.run("server1", "rm", "/dev/shm/here")


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_signals_reach_the_command(nodes, tmp_path, sent):
    program = "trap 'echo TERM; exit 3' TERM; trap 'echo INT; exit 3' INT; echo; while :; do sleep 0.05; done"
    process = subprocess.Popen(
        nodes.command("run", "--", "sh", "-c", program), stdout=subprocess.PIPE, text=True
    )
    process.stdout.readline()
    process.send_signal(sent)
    said, _ = process.communicate(timeout=PATIENCE)
    assert said == ("INT\n" if sent == signal.SIGINT else "TERM\n")
    assert process.returncode == (-9 if sent == signal.SIGKILL else 3)
    assert nodes.status()["server1"]["processes"] == 0


def machine():
    """What a cluster could leave: network devices, and processes with their command lines."""
    commands = {}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            commands[process.name] = (process / "cmdline").read_bytes()
        except OSError:
            continue
    return sorted(os.listdir("/sys/class/net")), commands


def assert_nothing_left(nodes, before):
    devices, commands = machine()
    assert not nodes.folder.exists()
    assert devices == before[0]
    assert [words for words in commands.values() if bytes(nodes.folder) in words] == []
    mounts = pathlib.Path("/proc/self/mounts").read_text()
    assert str(nodes.folder) not in mounts


def test_down_leaves_nothing_of_busy_nodes(no_nodes):
    before = machine()
    start(no_nodes, "--nodes=3", "--rate=1gbit")
    assert list(no_nodes.status()) == ["server1", "server2", "server3"]
    stubborn = [
        subprocess.Popen(
            no_nodes.command("run", f"--node={node}", "--", "sh", "-c", "trap '' TERM; echo; sleep 300; :"),
            stdout=subprocess.PIPE,
        )
        for node in ("server1", "server3")
    ]  # fmt: skip
    for process in stubborn:
        process.stdout.readline()
    no_nodes.check("down")
    for process in stubborn:
        assert process.wait(PATIENCE) == 128 + signal.SIGKILL
        process.stdout.close()
    assert_nothing_left(no_nodes, before)
    again = no_nodes.call("down")
    assert (again.returncode, again.stderr) == (0, "tools/cluster: no cluster is up\n")


def test_slurm_runs_on_the_nodes(no_nodes):
    need_slurm()
    before = machine()
    start(no_nodes, "--slurm", "--rate=1gbit")
    assert (
        no_nodes.run("server1", "sinfo", "--noheader", "--format=%D %T %N")
        == "2 idle server[1-2]\n"
    )
    said = no_nodes.run("server2", "srun", "--nodes=2", "--label", "hostname")
    assert sorted(said.splitlines()) == ["0: server1", "1: server2"]
    assert no_nodes.status()["server2"]["received_bytes"] > 1000
    no_nodes.check("down")
    assert_nothing_left(no_nodes, before)


def test_nothing_is_left_of_a_killed_wire(no_nodes):
    before = machine()
    start(no_nodes)
    program = str(no_nodes.folder / "wire").encode()
    (wire,) = [pid for pid, words in machine()[1].items() if words.startswith(program)]
    sleeper = subprocess.Popen(
        no_nodes.command("run", "--", "sh", "-c", "echo; sleep 300"), stdout=subprocess.PIPE
    )
    sleeper.stdout.readline()
    os.kill(int(wire), signal.SIGKILL)
    # All nodes end with it.
    assert sleeper.wait(PATIENCE) == 128 + signal.SIGKILL
    sleeper.stdout.close()
    told = no_nodes.call("status")
    assert (told.returncode, told.stdout, told.stderr.count("\n")) == (1, "", 1)
    assert "its wire did; tools/cluster down clears what is left" in told.stderr
    start(no_nodes)
    no_nodes.check("down")
    assert_nothing_left(no_nodes, before)


def test_nothing_is_left_of_a_failed_start(no_nodes, tmp_path):
    with cluster() as other:  # where none can be started, this test is skipped
        before = machine()
        program(tmp_path, "tc", "echo no such queue >&2; exit 1")
        path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        failed = no_nodes.call("up", "--rate=1mbit", env=path)
        assert (failed.returncode, failed.stdout) == (1, "")
        assert failed.stderr == "tools/cluster: error: tc failed: no such queue\n"
        assert_nothing_left(no_nodes, before)
        # Another folder's cluster is another one.
        assert list(other.status()) == ["server1", "server2"]
        (no_nodes.folder).mkdir()
        (no_nodes.folder / "thesis.tex").write_text("")
        assert_refused(no_nodes.call("up"), "holds other things; choose an empty or a new one")
        assert [file.name for file in no_nodes.folder.iterdir()] == ["thesis.tex"]
        shutil.rmtree(no_nodes.folder)
