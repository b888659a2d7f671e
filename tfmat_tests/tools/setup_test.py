"""tools/setup and tools/tfmat, on a real project that needs nothing from the network."""

import os
import shutil
import signal
import subprocess
import sys

import pytest

from tfmat_tests.tools.scratch_project import builds, make_project, setup, start, wait_for_build


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project whose environment exists; its path has a space."""
    folder = make_project(tmp_path_factory.mktemp("setup") / "a project")
    done = setup(folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("cor", "did you mean 'core'?"),
        ("tests", "did you mean 'test'?"),
        ("xyz", "valid: core docs test mpi horovod"),
    ],
)
def test_unknown_part_is_refused_with_the_nearest(tmp_path, part, said):
    done = setup(make_project(tmp_path / "project"), part)
    assert (done.returncode, done.stderr) == (
        2,
        f"tfmat setup: error: there is no part '{part}'; {said}\n",
    )


def test_wrong_python_is_refused_in_one_line(tmp_path):
    folder = make_project(tmp_path / "project")
    done = setup(folder, TFMAT_PYTHON="/bin/false")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "TFMAT_PYTHON=/bin/false is not a Python 3.11" in done.stderr
    assert not (folder / ".venv").exists()


def test_second_call_does_nothing_and_says_nothing(project):
    before = builds(project)
    done = setup(project)
    assert (done.returncode, done.stderr, builds(project)) == (0, "", before)


def test_test_part_holds_the_core(project):
    before = builds(project)
    assert setup(project, "test").returncode == 0
    assert builds(project) == before + 1
    assert setup(project, "core").stderr == ""
    assert builds(project) == before + 1


@pytest.mark.parametrize("name", ["setup.cfg", "pyproject.toml"])
def test_changed_metadata_installs_again(project, name):
    before = builds(project)
    with (project / name).open("a") as file:
        file.write("# changed\n")
    assert setup(project).returncode == 0
    assert setup(project).returncode == 0
    assert builds(project) == before + 1


def test_it_says_how_to_call_tfmat_until_one_can(project, tmp_path):
    (tmp_path / "tfmat").symlink_to(project / "tools" / "tfmat")
    path = os.environ["PATH"]
    for found, shown in ((path, True), (f"{tmp_path}:{path}", False)):
        with (project / "setup.cfg").open("a") as file:
            file.write("# so that it is installed again\n")
        done = setup(project, PATH=found)
        assert done.returncode == 0
        activate = str(project / ".venv" / "bin" / "activate").replace(" ", "\\ ")
        assert (f"`. {activate}` makes `tfmat` a command of this shell" in done.stderr) == shown
        assert ("/tools/tfmat ~/.local/bin/`" in done.stderr) == shown


def test_copied_project_gets_an_environment_of_its_own(project, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(project, copy, symlinks=True)
    assert setup(copy).returncode == 0
    assert f"{project}/" not in (copy / ".venv" / "bin" / "pip").read_text()


def test_two_first_calls_wait_for_each_other(tmp_path):
    folder = make_project(tmp_path / "project")
    (folder / "hold").touch()
    first = start(folder)
    wait_for_build(folder, 1)
    second = start(folder)
    assert second.stderr is not None
    assert second.stderr.readline() == (
        "tfmat setup: another set-up of this environment is running; waiting for it\n"
    )
    (folder / "hold").unlink()
    for process in (first, second):
        process.communicate(timeout=120)
        assert process.returncode == 0
    assert builds(folder) == 1


def test_killed_call_leaves_nothing_that_looks_finished(tmp_path):
    folder = make_project(tmp_path / "project")
    (folder / "hold").touch()
    process = start(folder)
    wait_for_build(folder, 1)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=300)
    assert not (folder / ".venv" / ".tfmat" / "core").exists()
    (folder / "hold").unlink()
    leftover = folder / ".venv" / "leftover"
    leftover.touch()
    assert setup(folder).returncode == 0
    assert not leftover.exists()
    assert (folder / ".venv" / ".tfmat" / "core").exists()


def test_failed_install_says_why_and_keeps_what_worked(project):
    backend = (project / "backend.py").read_text()
    (project / "backend.py").write_text("raise OSError(28, 'No space left on device')\n")
    with (project / "setup.cfg").open("a") as file:
        file.write("# so that it is installed again\n")
    try:
        done = setup(project)
    finally:
        (project / "backend.py").write_text(backend)
    assert done.returncode == 2
    assert "the disk is full" in done.stderr.splitlines()[-1]
    before = (project / ".venv" / "pyvenv.cfg").stat().st_mtime_ns
    assert setup(project).returncode == 0
    assert (project / ".venv" / "pyvenv.cfg").stat().st_mtime_ns == before


def test_tfmat_runs_in_the_environment_from_anywhere(project, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(project / "tools" / "tfmat")
    # A clone in the working directory is not the program.
    (tmp_path / "tfmat").mkdir()
    environment = {**os.environ, "TFMAT_PYTHON": sys.executable}
    command = [str(link), "identify", "my curve.csv", "--json=*"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout == f"{project}/.venv|identify|my curve.csv|--json=*\n"
