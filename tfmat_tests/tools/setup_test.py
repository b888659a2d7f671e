"""tools/setup and tools/tfmat, on a real project that needs nothing from the network."""

import configparser
import hashlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import packaging.requirements
import packaging.utils
import pytest

from tfmat_tests.processes import wait_for
from tfmat_tests.tools.scratch_project import TOOLS, builds, make_project, make_wheel, setup, start


@pytest.fixture(scope="module")
def first_calls(tmp_path_factory):
    """A project whose path has a space, what its second call said while the first one built, and how both ended."""
    folder = make_project(tmp_path_factory.mktemp("setup") / "a project")
    (folder / "hold").touch()
    first = start(folder)
    wait_for(lambda: builds(folder))
    second = start(folder)
    assert second.stderr is not None
    said = second.stderr.readline()
    (folder / "hold").unlink()
    ends = [(each.communicate(timeout=120)[1], each.returncode) for each in (first, second)]
    return folder, said, ends


@pytest.fixture(scope="module")
def project(first_calls):
    """A project whose environment exists; its path has a space."""
    folder, _, ends = first_calls
    assert [status for _, status in ends] == [0, 0], ends
    return folder


def change(folder, name="setup.cfg"):
    """So that the project is installed again."""
    with (folder / name).open("a") as file:
        file.write("# changed\n")


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


def test_two_first_calls_wait_for_each_other(first_calls):
    folder, said, ends = first_calls
    assert said == ("tfmat setup: another set-up of this environment is running; waiting for it\n")
    assert [status for _, status in ends] == [0, 0]
    assert builds(folder) == 1


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


@pytest.mark.parametrize(("name", "shown"), [("setup.cfg", True), ("pyproject.toml", False)])
def test_changed_metadata_installs_again_and_says_how_to_call_tfmat(project, tmp_path, name, shown):
    """Once, and not where `tfmat` is a command already."""
    (tmp_path / "tfmat").symlink_to(project / "tools" / "tfmat")
    path = os.environ["PATH"] if shown else f"{tmp_path}:{os.environ['PATH']}"
    before = builds(project)
    change(project, name)
    done = setup(project, PATH=path)
    assert done.returncode == 0
    activate = str(project / ".venv" / "bin" / "activate").replace(" ", "\\ ")
    assert (f"`. {activate}` makes `tfmat` a command of this shell" in done.stderr) == shown
    assert ("/tools/tfmat ~/.local/bin/`" in done.stderr) == shown
    assert setup(project, PATH=path).returncode == 0
    assert builds(project) == before + 1


def test_uv_installs_where_the_environment_has_it(project, tmp_path):
    uv = pathlib.Path(sys.executable).with_name("uv")
    if not uv.exists():
        pytest.skip("this environment has no uv")
    own = project / ".venv" / "bin" / "uv"
    own.symlink_to(uv)
    before = builds(project)
    change(project)
    try:
        done = setup(project, UV_CACHE_DIR=str(tmp_path))
    finally:
        own.unlink()
    log = (project / ".venv" / "setup.log").read_text()
    assert (done.returncode, builds(project)) == (0, before + 1), log
    assert "Resolved 1 package" in log and "Collecting" not in log and "Obtaining" not in log


def test_copied_project_gets_an_environment_of_its_own(project, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(project, copy, symlinks=True)
    assert setup(copy).returncode == 0
    assert f"{project}/" not in (copy / ".venv" / "bin" / "pip").read_text()


def test_killed_call_leaves_nothing_that_looks_finished(project):
    change(project)
    (project / "hold").touch()
    before = builds(project)
    process = start(project)
    wait_for(lambda: builds(project) > before)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=300)
    (project / "hold").unlink()
    assert not (project / ".venv" / ".tfmat" / "core").exists()
    leftover = project / ".venv" / "leftover"
    leftover.touch()
    assert setup(project).returncode == 0
    assert not leftover.exists()
    assert (project / ".venv" / ".tfmat" / "core").exists()


def test_failed_install_says_why_and_keeps_what_worked(project):
    backend = (project / "backend.py").read_text()
    (project / "backend.py").write_text("raise OSError(28, 'No space left on device')\n")
    change(project)
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


@pytest.fixture
def two_things(project, tmp_path):
    """The project requires `thing`, of which there are versions 1 and 2; the hash of the first."""
    backend, lock = project / "backend.py", project / "tools" / "requirements.lock"
    text = backend.read_text()
    backend.write_text(text.replace("Name: tfmat\\n", "Name: tfmat\\nRequires-Dist: thing\\n"))
    first, _ = (
        make_wheel(tmp_path, "thing", number, {"thing.py": ""}) for number in ("1.0", "2.0")
    )
    yield hashlib.sha256(first.read_bytes()).hexdigest()
    backend.write_text(text)
    lock.unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("installer", "version", "hashes", "status", "installed", "said"),
    [
        ("uv", "1.0", "right", 0, "1.0", ""),
        ("uv", "1.0", "wrong", 2, None, "ash mismatch for `thing==1.0`, which tools/requirements"),
        ("uv", "1.5", "right", 0, "2.0", "going on without the lock"),
        ("pip", "1.0", "wrong", 0, "1.0", ""),
    ],
)
def test_lock_decides_versions_and_files(
    project, two_things, tmp_path, installer, version, hashes, status, installed, said
):
    venv, environment = project / ".venv", {"PIP_FIND_LINKS": str(tmp_path)}
    site = venv / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    for path in site.glob("thing-*"):
        shutil.rmtree(path)
    uv, own = pathlib.Path(sys.executable).with_name("uv"), venv / "bin" / "uv"
    if installer == "uv":
        if not uv.exists():
            pytest.skip("this environment has no uv")
        own.symlink_to(uv)
        environment["UV_CACHE_DIR"] = str(tmp_path / "cache")
    digest = two_things if hashes == "right" else "0" * 64
    (project / "tools" / "requirements.lock").write_text(
        f"thing=={version} \\\n    --hash=sha256:{digest}\n"
    )
    try:
        done = setup(project, **environment)
    finally:
        own.unlink(missing_ok=True)
    log = (venv / "setup.log").read_text()
    assert done.returncode == status, log
    assert said in done.stderr + log
    expected = [f"thing-{installed}.dist-info"] if installed else []
    assert [path.name for path in site.glob("thing-*")] == expected, log


def test_lock_holds_a_version_in_range_for_each_requirement():
    """`tools/lock` was run after the last change of setup.cfg."""
    settings = configparser.ConfigParser()
    settings.read(TOOLS.parent / "setup.cfg")
    lines = settings["options"]["install_requires"] + settings["options.extras_require"]["test"]
    requirements = [
        packaging.requirements.Requirement(line)
        for line in lines.splitlines()
        if line and not line.startswith(("#", "tfmat["))
    ]
    lock = re.findall(r"^([^\s=]+)==([^\s;]+)", (TOOLS / "requirements.lock").read_text(), re.M)
    normal = packaging.utils.canonicalize_name
    assert len(requirements) > 20
    for requirement in requirements:
        versions = [version for name, version in lock if name == normal(requirement.name)]
        assert versions and all(map(requirement.specifier.contains, versions)), requirement
