"""A real project for tools/setup that needs nothing from the network."""

import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"

# A build backend in 20 lines: pip installs the project without fetching anything, and as slowly as the test likes.
BACKEND = """
import os, pathlib, time, zipfile

ROOT = pathlib.Path(__file__).parent

def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    (ROOT / "builds").open("a").write("x")
    while (ROOT / "hold").exists():
        time.sleep(0.02)
    name, info = "tfmat-1.0-py3-none-any.whl", "tfmat-1.0.dist-info/"
    metadata = "Metadata-Version: 2.1\\nName: tfmat\\nVersion: 1.0\\nProvides-Extra: test\\n"
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / name, "w") as wheel:
        wheel.writestr("tfmat.pth", str(ROOT))
        wheel.writestr(info + "METADATA", metadata)
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(info + "RECORD", "")
    return name
"""
PYPROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


def make_project(folder: pathlib.Path) -> pathlib.Path:
    (folder / "tools").mkdir(parents=True)
    (folder / "tfmat").mkdir()
    for name in ["install.py", "setup", "tfmat"]:
        shutil.copy2(TOOLS / name, folder / "tools")
    (folder / "setup.cfg").write_text("[metadata]\nname = tfmat\n")
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "backend.py").write_text(BACKEND)
    (folder / "tfmat" / "__main__.py").write_text(
        "import sys; print(sys.prefix, *sys.argv[1:], sep='|')\n"
    )
    (folder / "tfmat" / "__init__.py").write_text("")
    return folder


def make_wheel(
    folder: pathlib.Path, name: str, version: str, files: dict[str, str]
) -> pathlib.Path:
    """A package of these files that needs nothing."""
    path, info = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    files = files | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in files.items():
            wheel.writestr(file, text)
    return path


def start(folder: pathlib.Path, *arguments: str, **environment: str) -> subprocess.Popen:
    command = [str(folder / "tools" / "setup"), *arguments]
    # The Python that runs this test; a session of its own, so that all of it can be killed together.
    # Without an index nothing fetches uv, and pip installs.
    environment = {**os.environ, "TFMAT_PYTHON": sys.executable, "PIP_NO_INDEX": "1", **environment}
    return subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def setup(folder: pathlib.Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    process = start(folder, *arguments, **environment)
    _, errors = process.communicate(timeout=120)
    return subprocess.CompletedProcess(process.args, process.returncode, "", errors)


def builds(folder: pathlib.Path) -> int:
    return len((folder / "builds").read_text()) if (folder / "builds").exists() else 0
