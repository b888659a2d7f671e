"""tools/slurm: starts, stops, leaves nothing, in all the ways in which it is called."""

import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile

import pytest

from tfmat_tests.processes import wait_for
from tfmat_tests.slurm import PATIENCE, SCRIPT, call, need_slurm


@pytest.fixture
def folder():
    """A folder with a short name, since a socket lies in it; whatever was started there is stopped."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="tfmat-slurm-test-", dir="/tmp"))
    yield path
    if shutil.which("sbatch"):
        for each in path.glob("*/slurm.conf"):
            call("stop", f"--folder={each.parent}")
    shutil.rmtree(path)


def processes(folder):
    """Numbers and names of those that carry the folder in their environment, without pytest's own."""
    found = {}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes().split(b"\0")
            name = (process / "comm").read_text().strip()
        except OSError:
            continue
        if any(name in environment for name in marks(folder)):
            found[int(process.name)] = name
    return found


def marks(folder):
    return f"TFMAT_TRIAL_SLURM={folder}".encode(), f"SLURM_CONF={folder}/slurm.conf".encode()


def client(folder, *command):
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )


def test_from_start_to_stop(folder):
    need_slurm()
    one = folder / "one"
    started = call("start", f"--folder={one}", "--nodes=3", "--cpus=8", "--gpus=2")
    assert started.returncode == 0, started.stderr
    assert started.stdout.splitlines()[0] == f"export SLURM_CONF={one}/slurm.conf"
    assert call("env", f"--folder={one}").stdout == started.stdout
    said = client(one, "sinfo", "--noheader", "--format=%D %c %G %T").stdout
    assert said == "3 8 gpu:2 idle\n"
    status = call("status", f"--folder={one}")
    assert status.returncode == 0 and "n3" in status.stdout

    again = call("start", f"--folder={one}")
    assert (again.returncode, again.stdout) == (0, started.stdout)
    assert "runs already" in again.stderr

    assert call("stop", f"--folder={one}").returncode == 0
    assert processes(one) == {}
    assert call("stop", f"--folder={one}").returncode == 0
    for command in ("env", "status"):
        asked = call(command, f"--folder={one}")
        assert (asked.returncode, asked.stdout) == (1, "")
        assert (
            asked.stderr
            == f"tfmat slurm: error: there is none in {one}; tools/slurm start makes one\n"
        )


def test_a_folder_with_other_things_is_left_alone(folder):
    need_slurm()
    (folder / "thesis.tex").write_text("")
    done = call("start", f"--folder={folder}")
    assert (done.returncode, done.stdout) == (2, "")
    assert "holds other things; choose an empty or a new one" in done.stderr
    assert [path.name for path in folder.iterdir()] == ["thesis.tex"]


def test_two_clusters_at_once(folder):
    need_slurm()
    pair = [folder / "one", folder / "two"]
    calls = [
        subprocess.Popen([SCRIPT, "start", f"--folder={each}"], stdout=subprocess.DEVNULL)
        for each in pair
    ]
    assert [each.wait(PATIENCE) for each in calls] == [0, 0]
    for each in pair:
        assert (
            client(each, "srun", "--nodes=2", "printenv", "SLURM_CONF").stdout
            == f"{each}/slurm.conf\n" * 2
        )
    assert call("stop", f"--folder={pair[0]}").returncode == 0
    assert processes(pair[0]) == {}
    assert client(pair[1], "srun", "echo", "alive").stdout == "alive\n"


def test_nothing_is_left_of_a_crashed_one_and_of_stubborn_jobs(folder):
    need_slurm()
    one = folder / "one"
    assert call("start", f"--folder={one}").returncode == 0
    script = folder / "job.sh"
    script.write_text(
        f"#!/bin/bash\n#SBATCH --output={folder}/out\ntrap '' TERM\ntouch {folder}/runs\nsleep 300\nsleep 300\n"
    )
    assert client(one, "sbatch", str(script)).returncode == 0
    wait_for((folder / "runs").exists)
    # The user's own shell has SLURM_CONF too, and must live.
    shell = subprocess.Popen(
        ["sleep", "300"], env={**os.environ, "SLURM_CONF": f"{one}/slurm.conf"}
    )
    try:
        (controller,) = (pid for pid, name in processes(one).items() if name == "slurmctld")
        os.kill(controller, signal.SIGKILL)
        wait_for(lambda: "slurmctld" not in processes(one).values())
        assert call("stop", f"--folder={one}").returncode == 0
        assert list(processes(one)) == [shell.pid] and shell.poll() is None
    finally:
        shell.kill()
        shell.wait()
    assert call("start", f"--folder={one}").returncode == 0
    assert client(one, "squeue", "--noheader").stdout == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="every other test runs as an ordinary user then")
def test_as_an_ordinary_user(folder):
    need_slurm()
    os.chmod(folder, 0o777)
    script = shutil.copy(SCRIPT, folder / "slurm")  # the checkout may be where nobody else can read
    nobody = pwd.getpwnam("nobody")
    environment = {"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(folder)}

    def as_nobody(command):
        return subprocess.run(
            ["bash", "-c", command], user=nobody.pw_uid, group=nobody.pw_gid, extra_groups=[], cwd=folder,
            env=environment, capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip

    done = as_nobody(f'eval "$({script} start)" && srun --nodes=2 id --user --name; {script} stop')
    assert (done.returncode, done.stdout) == (0, "nobody\n" * 2), done.stderr
    assert processes(folder / "tfmat-slurm") == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--node=2"], "unknown option '--node=2'"),
        (["--nodes=x"], "--nodes=x: give a whole number below 1000"),
        (["--nodes=0"], "--nodes and --cpus are at least 1"),
        ([f"--folder=/tmp/{'a' * 100}"], "is too long; at most 90 characters"),
        (["--folder=/tmp/a b"], "letters, digits"),
        (["--folder=/proc/x"], "cannot be made"),
    ],
)
def test_wrong_options_are_one_line(arguments, message):
    need_slurm()
    done = call("start", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr and done.stderr.count("\n") == 1


def test_where_slurm_is_not_installed(folder):
    programs = folder / "bin"
    programs.mkdir()
    for name in ("realpath", "mkdir"):
        (programs / name).symlink_to(shutil.which(name))
    # An installed SLURM would be found in /usr/sbin.
    text = SCRIPT.read_text().replace("PATH=$PATH:/usr/sbin:/sbin\n", "")
    (folder / "slurm").write_text(text)
    done = subprocess.run(
        ["/bin/bash", folder / "slurm", "start", f"--folder={folder}/one"],
        env={"PATH": str(programs)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 3
    assert done.stderr.endswith(
        "SLURM is not installed; as root on Debian or Ubuntu: tools/system_packages slurm\n"
    )
