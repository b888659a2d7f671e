"""`tools/setup horovod`: what is there is used, a kept wheel is installed, nothing unknown is run.

The real build takes minutes: --all.
"""

import io
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

from tfmat.launch import horovod_build
from tfmat_tests.processes import real_python
from tfmat_tests.tools.scratch_project import builds, make_project, make_wheel, setup

pytestmark = pytest.mark.skipif(not shutil.which("mpirun"), reason="there is no mpirun")

# What the set-up asks of Horovod, without Horovod.
PACKAGE = {
    "horovod/__init__.py": "__version__ = '0.28.1'\n",
    "horovod/tensorflow.py": "mpi_built = gloo_built = lambda: 1\nnccl_built = lambda: 0\n",
}
STUB = "#!/bin/sh\necho 'tfmat system packages: missing for mpi' >&2\nexit 3\n"


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture
def project(tmp_path):
    """A project whose environment needs nothing from the network; its root is on the path of its .venv."""
    folder = make_project(tmp_path / "project")
    (folder / "tfmat" / "launch").mkdir()
    shutil.copy2(horovod_build.__file__, folder / "tfmat" / "launch")
    write(folder, {"tools/system_packages": STUB})
    (folder / "tools" / "system_packages").chmod(0o755)
    write(folder, {"tensorflow-2.21.0.dist-info/METADATA": "Name: tensorflow\nVersion: 2.21.0\n"})
    return folder


def in_venv(project, program, **environment):
    return subprocess.run(
        [project / ".venv" / "bin" / "python", "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def test_horovod_that_is_there_is_used(project):
    write(project, PACKAGE)
    done = setup(project, "horovod")
    assert done.returncode == 0
    said = f"tfmat setup: Horovod 0.28.1 with MPI, Gloo from {project}/horovod: used as it is"
    assert said in done.stderr.splitlines()
    assert builds(project) == 1  # the core came with it
    again = setup(project, "test", "horovod")
    # The project's own path, which the hint on the command names, holds the name of this test.
    assert "orovod" not in again.stderr.replace(str(project), "")


def test_the_command_says_what_can_be_written(refused):
    assert "write `tfmat horovod install`" in refused("horovod", "instal")


def test_kept_wheel_is_installed_without_an_index(project, tmp_path):
    assert setup(project).returncode == 0
    key = "import horovod_build; print(horovod_build.wheel_key({}))"
    cache = tmp_path / "cache"
    name = in_venv(project, key, PYTHONPATH=str(project / "tfmat" / "launch"))
    kept = cache / "tfmat" / "wheels" / name
    kept.mkdir(parents=True)
    make_wheel(kept, "horovod", "0.28.1", PACKAGE)
    done = setup(project, "horovod", XDG_CACHE_HOME=str(cache), PIP_NO_INDEX="1")
    assert done.returncode == 0, done.stderr
    assert "installing the Horovod that was built before" in done.stderr
    installed = "import horovod; print(horovod.__path__[0])"
    assert in_venv(project, installed).startswith(f"{project}/.venv/")
    assert setup(project, "horovod", XDG_CACHE_HOME=str(cache)).stderr == ""

    # Half a package, as a killed call leaves it: installed again.
    (project / ".venv" / ".tfmat" / "horovod").unlink()
    for file in (project / ".venv").rglob("horovod/tensorflow.py"):
        file.unlink()
    assert setup(project, "horovod", XDG_CACHE_HOME=str(cache)).returncode == 0
    assert in_venv(project, "import horovod.tensorflow") == ""

    # Settings of its own make it another wheel, which is not there and cannot be built here.
    bare = tmp_path / "bin"
    bare.mkdir()
    for command in (
        "bash",
        "sh",
        "env",
        "cat",
        "sha256sum",
        "flock",
        "cp",
        "mv",
        "rm",
        "mkdir",
        "grep",
    ):
        (bare / command).symlink_to(str(shutil.which(command)))
    (bare / "mpirun").symlink_to(str(shutil.which("mpirun")))
    done = setup(
        project, "horovod", XDG_CACHE_HOME=str(cache), HOROVOD_GPU_OPERATIONS="NCCL", PATH=str(bare)
    )
    assert done.returncode == 3
    assert "Horovod needs mpicxx, cmake, g++, make; on a cluster load" in done.stderr
    assert "tfmat system packages: missing for mpi" in done.stderr
    assert in_venv(project, "import horovod.tensorflow") == ""


def test_horovod_of_the_python_below_is_linked_and_never_removed(tmp_path, monkeypatch):
    base, own = tmp_path / "base", tmp_path / "own"
    write(base, PACKAGE | {"horovod-0.28.1.dist-info/METADATA": ""})
    own.mkdir()
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho {base}/horovod; echo {base}/horovod-0.28.1.dist-info\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "_base_executable", str(python))
    monkeypatch.setattr(horovod_build, "site_packages", own)
    monkeypatch.setattr(
        horovod_build, "importable", lambda: "Horovod" if (own / "horovod").exists() else ""
    )
    assert horovod_build.link_to_base() == "Horovod"
    assert (own / "horovod").resolve() == base / "horovod"
    # It does not go with this TensorFlow.
    monkeypatch.setattr(horovod_build, "importable", lambda: "")
    assert horovod_build.link_to_base() == ""
    assert list(own.iterdir()) == []
    assert (base / "horovod" / "tensorflow.py").exists()


def make_archive(folder):
    """An archive with Horovod's name that would leave a file behind if any of it were run."""
    folder.mkdir()
    program = (
        f"open({str(folder / 'run')!r}, 'w')\nimport setuptools\nsetuptools.setup(name='horovod')\n"
    )
    files = {
        "setup.py": program,
        "PKG-INFO": "Metadata-Version: 2.1\nName: horovod\nVersion: 0.28.1\n",
    }
    with tarfile.open(folder / "horovod-0.28.1.tar.gz", "w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"horovod-0.28.1/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))


def test_archive_with_another_checksum_is_not_used(tmp_path, monkeypatch):
    make_archive(tmp_path / "index")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    log = tmp_path / "log"
    with pytest.raises(horovod_build.Failed, match="sha256 differs") as failure:
        horovod_build.fetch(tmp_path, {}, log)
    assert failure.value.status == 2
    assert not (tmp_path / "index" / "run").exists()
    assert not (tmp_path / "horovod-0.28.1.tar.gz").exists()


def write_source(folder):
    """A source tree that holds just what is to be changed."""
    for name, replacements in horovod_build.CHANGES.items():
        text = "".join(old + "\n" for old, _ in replacements if old != "protected:\n")
        write(folder, {name: text if "tensor_queue.h" not in name else text + "protected:\n"})
    return folder


def test_the_source_is_changed_whole_or_not_at_all(tmp_path):
    source = write_source(tmp_path)
    horovod_build.change(source)
    assert '"-O2 -g" "-O3"' in (source / "CMakeLists.txt").read_text()
    assert "xla_mpi_ops" not in (source / "horovod/tensorflow/CMakeLists.txt").read_text()
    assert "WaitForTensor" in (source / "horovod/common/operations.cc").read_text()
    assert horovod_build.MARKED_VERSION in (source / "horovod/__init__.py").read_text()
    before = {path: path.read_text() for path in source.rglob("*") if path.is_file()}
    with pytest.raises(
        horovod_build.UnexpectedSource, match=r"CMAKE_CXX_FLAGS_\w+' 0 times, not once"
    ):
        horovod_build.change(source)  # a second time nothing fits
    assert before == {path: path.read_text() for path in source.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"HOROVOD_CYCLE_TIME": "0.5", "HOROVOD_RANK": "3"}, True),  # how to run it
        ({"HOROVOD_WITH_GLOO": "1"}, True),  # what is built anyway
        ({"HOROVOD_GPU_OPERATIONS": "NCCL"}, False),
        ({"HOROVOD_NCCL_HOME": "/opt/nccl"}, False),
    ],
)
def test_key_of_a_wheel_follows_how_it_is_built(change, same):
    settings = {
        name: value for name, value in change.items() if horovod_build.BUILD_SETTING.fullmatch(name)
    }
    assert (horovod_build.wheel_key(settings) == horovod_build.wheel_key({})) is same


@pytest.mark.large
@pytest.mark.timeout(1800)
def test_real_build(tmp_path):
    folder, log = tmp_path / "wheels", tmp_path / "log"
    folder.mkdir()
    horovod_build.build(folder, {}, log)
    version = horovod_build.MARKED_VERSION
    (wheel,) = folder.glob(f"horovod-{version}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "unpacked")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "unpacked")}
    done = real_python("-c", horovod_build.PROBE, env=environment)
    assert done.stdout.startswith(f"Horovod {version} with MPI, Gloo"), done.stderr
