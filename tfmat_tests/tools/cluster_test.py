"""tools/cluster: what it refuses, and the command of docs/horovod.md on its nodes."""

import importlib.util
import json
import os
import pathlib
import pwd
import shutil
import subprocess
import sys

import pytest

from tfmat.scaling.study import read_measurements
from tfmat_tests import graphs, mpi
from tfmat_tests.cluster import PATIENCE, SCRIPT, assert_refused, program
from tfmat_tests.processes import wait_for

# The tests' network has many weights in few operations, whose graph is made quickly:
# 7 × 3 × 2 at 200 points, 2 × 100 numbers into 800 units, two answers; each layer with a bias.
WEIGHTS = (42 + 2) + (2 * 100 * 800 + 800) + (800 * 2 + 2)
# Twenty steps.
TRAIN = (
    "tfmat", "train", "--backend=horovod", "--config=configs/smoke.py", "--config.data.num_curves=1600",
    "--config.data.num_test=8", "--config.data.num_validation=100", "--config.global_batch_size=70",
    "--config.train_for=1epochs", "--config.model.conv_filters=2", "--config.model.kernel_sizes=7",
    "--config.model.hidden_units=800",
)  # fmt: skip
# The same path is another folder on each node.
FORKS = pathlib.Path("/dev/shm/forks")


def environment(programs=pathlib.Path(sys.executable).parent):
    """That of a user who has activated .venv, or has `tfmat` in another folder."""
    return {
        **mpi.rank_environment(),
        # mpirun sends another node no variable that it is not told to, and graphs must be the same on all of them.
        graphs.PLAIN: "",
        "TF_ENABLE_ONEDNN_OPTS": "1",
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(mpi.PROJECT),
    }


@pytest.fixture(scope="module")
def forks(nodes, tmp_path_factory):
    """A folder with a `tfmat` that starts at once: each node has a process with TensorFlow loaded, which is forked."""
    folder = tmp_path_factory.mktemp("forks")
    stub = (mpi.PROJECT / "tfmat_tests" / "forked_python.py").read_text("utf-8")
    program(folder, "tfmat", f'exec {FORKS}/python -P -m tfmat "$@"')
    (folder / "python").write_text(f"#!{sys.executable} -IS\n{stub}", "utf-8")
    (folder / "python").chmod(0o755)
    # A fork's command line stands in the place of the server's, whose last word leaves room for it.
    serve = f"{sys.executable} -m tfmat_tests.fork_server {FORKS}/socket {'-' * 4096}"
    start = f"cp -r {folder} {FORKS} && exec {serve}"
    servers = [
        subprocess.Popen(
            nodes.command("run", f"--node={node}", "--", "sh", "-c", start),
            cwd=mpi.PROJECT, env=environment(), stdin=subprocess.PIPE,
        )
        for node in nodes.status()
    ]  # fmt: skip
    wait_for(
        lambda: all("socket" in nodes.run(node, "find", "/dev/shm") for node in nodes.status())
    )
    yield FORKS
    for server in servers:
        server.communicate(timeout=PATIENCE)  # ends with its standard input


@pytest.mark.skipif(importlib.util.find_spec("horovod") is None, reason="./tools/setup horovod")
def test_mpirun_trains_on_two_nodes_as_it_is_written(nodes, forks, tmp_path):
    mpi.need_mpirun()
    before = nodes.status()
    done = nodes.call(
        "run", "--", "mpirun", "-np", 3, "-H", "server1:2,server2:1", "-x", "PYTHONPATH", "-x", "LD_PRELOAD",
        *TRAIN,
        f"--workdir={tmp_path / 'run'}", f"--data_dir={tmp_path / 'data'}",
        cwd=mpi.PROJECT, env=environment(forks),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    assert "3 workers" in done.stdout + done.stderr
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "done"
    steps = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])["step"]
    after = nodes.status()
    # Whatever the algorithm, each node has to hear a sum over the other's examples: 4 bytes a weight and step.
    gradients = 4 * WEIGHTS * steps
    for node in after:
        heard = after[node]["received_bytes"] - before[node]["received_bytes"]
        assert gradients < heard < 3 * gradients + 5_000_000
        assert after[node]["processes"] == before[node]["processes"]


# Two workers on a node each: exact sums, local steps that overlap with meetings over MPI, averaging, and what a message
# takes.
STUDY = """
from tfmat.config import default_config
from tfmat.scaling.study import AllReduces, Matrix, Runs


def get_config():
    config = default_config()
    config.model.update(conv_filters=(2,), kernel_sizes=(7,), hidden_units=(800,))
    return config


def get_scaling():
    where = dict(workers=2, placement="spread", batch_a_worker=75)
    exact = Runs("horovod", **where)
    overlap = Runs("mpi", exchange="local_steps=10,overlap_meetings=true", **where)
    averaging = Runs("asynchronous", exchange="averaging=true", **where)
    sums = AllReduces("mpi", workers=2, placement="spread", sizes=[1024, 1 << 20])
    runs = [exact, overlap, averaging]
    return Matrix(rounds=1, seconds=0.2, split_rounds=0, dataset_size=1500, runs=runs, allreduces=[sums])
"""


@pytest.mark.skipif(importlib.util.find_spec("horovod") is None, reason="./tools/setup horovod")
def test_a_scaling_study_measures_over_two_nodes(nodes, forks, tmp_path):
    mpi.need_mpirun()
    (tmp_path / "study.py").write_text(STUDY)
    before = nodes.status()
    done = nodes.call(
        "run", "--", "tfmat", "scale", f"--config={tmp_path / 'study.py'}", "--hosts=server1:1,server2:1",
        f"--workdir={tmp_path / 'study'}", f"--data_dir={tmp_path / 'data'}",
        cwd=mpi.PROJECT, env=environment(forks),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    found = read_measurements(tmp_path / "study")
    points = [each.point for each in found.repetitions]
    assert {(each.backend, each.workers, each.nodes, each.exchange) for each in points} == {
        ("single", 1, 1, ""),
        ("horovod", 2, 2, ""),
        ("mpi", 2, 2, "local_steps=10,overlap_meetings=true"),
        ("asynchronous", 2, 2, "averaging=true"),
    }
    assert {(line.nodes, line.ranks_per_node) for line in found.allreduces} == {(2, 1)}
    # Of two workers each sends its gradients once: 4 bytes a number and step, or a tenth of that, and sums of losses.
    sent = {
        each.point.exchange: {rank.bytes_sent_per_step for rank in each.ranks}
        for each in found.repetitions
        if each.point.workers == 2
    }
    assert sent[""] == {4 * WEIGHTS + 4}
    assert sent["local_steps=10,overlap_meetings=true"] == {round(4 * WEIGHTS / 10)}
    assert min(sent["averaging=true"]) > 0
    # The kernel counted at least those of the timed steps.
    (exact,) = (e for e in found.repetitions if e.point.workers == 2 and not e.point.exchange)
    for node, after in nodes.status().items():
        assert after["sent_bytes"] - before[node]["sent_bytes"] > 4 * WEIGHTS * exact.steps
    page = (tmp_path / "study" / "scaling_report.html").read_text("utf-8")
    assert "What pays on this network" in page and "averaging=true by asynchronous" in page


# With these mpirun does not wait for its daemon on a node that is silent; without them the ranks end alone.
KEEPALIVE = [
    word
    for name, value in (("time", 5), ("intvl", 2), ("probes", 3))
    for word in ("-mca", f"oob_tcp_keepalive_{name}", value)
]


@pytest.mark.large
@pytest.mark.skipif(importlib.util.find_spec("horovod") is None, reason="./tools/setup horovod")
@pytest.mark.parametrize(
    ("loss", "options", "line"),
    [
        (["kill", "server2"], [], "rank 1 of 2 was lost (host server2, its process ended)"),
        (["link", "server2", "down"], KEEPALIVE, "ORTE has lost communication with a remote daemon"),
    ],
)  # fmt: skip
def test_a_run_ends_when_a_node_is_lost(nodes, tmp_path, loss, options, line):
    mpi.need_mpirun()
    process = subprocess.Popen(
        nodes.command(
            "run", "--", "mpirun", "-np", 2, "-H", "server1:1,server2:1", "-x", "PYTHONPATH", "-x", "LD_PRELOAD",
            *options, *TRAIN, "--config.train_for=900epochs", "--config.callbacks.early_stopping_patience=900",
            f"--workdir={tmp_path / 'run'}", f"--data_dir={tmp_path / 'data'}",
        ),
        cwd=mpi.PROJECT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        wait_for(
            lambda: (tmp_path / "run" / "metrics.jsonl").exists() or process.poll() is not None
        )
        nodes.check(*loss)
        said, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode not in (0, None)
        assert line in said
    finally:
        nodes.check("link", "server2", "up")
        for node in nodes.status():
            nodes.check("kill", node)
        process.communicate(timeout=PATIENCE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["up"], "a cluster of 2 nodes is up already; tools/cluster down ends it"),
        (["link", "server2"], "nothing to change"),
        (["link", "server3", "down"], "there is no node 'server3'; there are server1, server2"),
        (["kill", "server3"], "there is no node 'server3'"),
        (["run", "--node=server3", "--", "true"], "there is no node 'server3'"),
        (["run"], "no command; tools/cluster run [--node=server1] -- COMMAND"),
    ],
)
def test_what_a_cluster_refuses(nodes, arguments, message):
    assert_refused(nodes.call(*arguments), message)


@pytest.mark.parametrize(
    ("arguments", "message", "status"),
    [
        (["up", "--nodes=1"], "argument --nodes: 1 is not between 2 and 16", 2),
        (["up", "--rate=100"], "'100' is not understood; say --rate=100mbit", 2),
        (["up", "--rate=1kbit"], "from 100kbit to 100gbit, or none", 2),
        (["up", "--delay=5"], "'5' is not understood; say --delay=5ms, at most 10s, or none", 2),
        (["up", "--folder=/tmp/a b"], "letters, digits", 2),
        (["up", "--folder=/proc/x"], "cannot be made", 2),
        (["run", "--", "true"], "no cluster is up; tools/cluster up starts one", 2),
        (["link", "server1", "down"], "no cluster is up", 2),
        (["kill", "server1"], "no cluster is up", 2),
        (["status"], "no cluster is up; tools/cluster up starts one", 1),
    ],
)
def test_what_is_refused_without_a_cluster(no_nodes, arguments, message, status):
    if os.geteuid() != 0 and arguments[0] == "up":
        pytest.skip("an ordinary user is refused for that")
    assert_refused(no_nodes.call(*arguments), message, status)


def copy_of_the_tool(folder, path):
    """Its files, with only this PATH, where everybody may read them."""
    folder.mkdir()
    folder.parent.chmod(0o755)
    for file in SCRIPT.parent.glob("cluster*"):
        text = file.read_text().replace("PATH=$PATH:/usr/sbin:/sbin", f"PATH={path}")
        (folder / file.name).write_text(text)
    (folder / "cluster").chmod(0o755)
    return folder / "cluster"


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user is refused for that")
def test_what_is_missing_is_named_with_the_way_to_get_it(no_nodes, tmp_path):
    for name in ("bash", "readlink", "ip", "unshare", "nsenter"):
        if found := shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin"):
            (tmp_path / name).symlink_to(found)
    program(tmp_path, "python3", f'exec {sys.executable} "$@"')
    script = copy_of_the_tool(no_nodes.folder.parent / "tools", tmp_path)
    done = subprocess.run(
        [script, "up", f"--folder={no_nodes.folder}"], capture_output=True, text=True
    )
    assert_refused(
        done, "no tc, cc here; as root on Debian or Ubuntu: tools/system_packages cluster"
    )
    assert not no_nodes.folder.exists()


@pytest.mark.skipif(not os.access("/usr/bin/python3", os.X_OK), reason="no Python for everybody")
def test_an_ordinary_user_is_told_what_it_needs(no_nodes):
    script = copy_of_the_tool(no_nodes.folder.parent / "tools", "/usr/bin:/bin")
    nobody = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None
    done = subprocess.run(
        [script, "up", f"--folder={no_nodes.folder}"], user=nobody, capture_output=True, text=True
    )
    assert_refused(done, "it needs root; sudo tools/cluster up")
