"""tools/system_packages, with stand-ins for the package manager: nothing is installed here."""

import os
import pathlib
import subprocess

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools" / "system_packages"


def call(path: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs it with only these programs on PATH."""
    environment = {**os.environ, "PATH": str(path)}
    return subprocess.run(
        ["/bin/bash", str(SCRIPT), *arguments], env=environment, capture_output=True, text=True
    )


def program(folder: pathlib.Path, name: str, text: str = "") -> None:
    (folder / name).write_text(f"#!/bin/bash\n{text}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    for name in ("cat", "tail"):
        (tmp_path / name).symlink_to(
            f"/usr/bin/{name}" if os.path.exists(f"/usr/bin/{name}") else f"/bin/{name}"
        )
    return tmp_path


def test_what_is_there_is_left_alone(path):
    program(path, "chromium-browser")
    program(path, "apt-get", "exit 9")
    done = call(path, "browser")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "tfmat system packages: nothing to do for: browser\n"


def test_only_what_is_missing_is_installed(path):
    program(path, "chromium")
    program(path, "apt-get", f'echo "$@" >>{path}/calls')
    done = call(path, "browser", "mpi")
    if os.geteuid() != 0:
        assert done.returncode == 3 and "apt-get install openmpi-bin" in done.stderr
        return
    assert done.returncode == 0
    update, install = (path / "calls").read_text().splitlines()
    assert "update" in update
    assert install.endswith("openmpi-bin libopenmpi-dev cmake g++ make")


def test_where_nothing_can_be_installed_one_line_says_what_to_do(path):
    done = call(path, "browser")
    assert done.returncode == 3
    expected = "missing for browser; as root on Debian or Ubuntu: apt-get install chromium"
    assert done.stderr == f"tfmat system packages: {expected}\n"


def test_a_failure_shows_why(path):
    program(path, "apt-get", "echo no network; exit 100")
    done = call(path, "slurm")
    if os.geteuid() == 0:
        assert done.returncode == 1
        assert "no network" in done.stderr and "failed: apt-get" in done.stderr


def test_an_unknown_group_is_refused(path):
    done = call(path, "brwser")
    assert done.returncode == 2
    assert "valid: bazel browser calculix cluster jemalloc mpi slurm" in done.stderr
    assert call(path, "--help").returncode == 0
