"""What pip installs: every room, the configs and the examples, and every package that the code imports."""

import ast
import configparser
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import jinja2
import pytest
import yaml

import tfmat
from tfmat_tests.processes import real_python

PROJECT = pathlib.Path(__file__).resolve().parents[1]
# Where the name on the index differs from the name in an import.
DISTRIBUTIONS = {
    "arviz_base": "arviz-base",
    "absl": "absl-py",
    "arviz_stats": "arviz-stats",
    "keras_tuner": "keras-tuner",
    "pynvml": "nvidia-ml-py",
    "sklearn": "scikit-learn",
    "tensorflow_datasets": "tensorflow-datasets",
}
RECIPE = PROJECT / "tools" / "conda" / "meta.yaml"
# Names on conda-forge, where they are others.
CONDA_NAMES = {"matplotlib": "matplotlib-base", "ml_collections": "ml-collections"}
LOADED_ON_REQUEST = {"tfmat/data/stress_strain.py"}
# Built by a later part of tools/setup, not by pip.
NOT_FROM_THE_INDEX = {"horovod"}


@pytest.fixture(scope="module")
def setup_cfg() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(PROJECT / "setup.cfg", "utf-8")
    return parser


def names(requirements: str) -> set[str]:
    """`tensorflow[and-cuda]>=2.21` -> `tensorflow`."""
    found = (re.match(r"[A-Za-z0-9_.-]+", line.strip()) for line in requirements.splitlines())
    return {match.group() for match in found if match}


def test_every_room_is_installed(setup_cfg):
    folders = {path.parent for path in (PROJECT / "tfmat").rglob("*.py")}
    rooms = {".".join(folder.relative_to(PROJECT).parts) for folder in folders}
    assert set(setup_cfg["options"]["packages"].split()) == rooms | {"tfmat.configs"}


def test_version_is_that_of_the_changelog_and_of_the_citation():
    (newest, *_) = re.findall(r"^## \[(.+?)\]", (PROJECT / "CHANGELOG.md").read_text("utf-8"), re.M)
    citation = (PROJECT / "CITATION.cff").read_text("utf-8")
    assert tfmat.__version__ == newest and f"\nversion: {newest}\n" in citation


def test_conda_recipe_requires_what_pip_does(setup_cfg):
    def version_in(load_file, regex_pattern, from_recipe_dir):
        assert from_recipe_dir
        return re.search(regex_pattern, (RECIPE.parent / load_file).read_text("utf-8"))

    text = jinja2.Template(RECIPE.read_text("utf-8")).render(load_file_regex=version_in, PYTHON="")
    recipe = yaml.safe_load(text)
    assert recipe["package"] == {"name": "tfmat", "version": tfmat.__version__}
    wanted = [f"python {setup_cfg['options']['python_requires']}"]
    for line in setup_cfg["options"]["install_requires"].split("\n"):
        if line and not line.startswith("#"):
            name, limits = re.fullmatch(r"([\w-]+)(.*)", line).groups()
            wanted.append(f"{CONDA_NAMES.get(name, name)} {limits}")
    assert recipe["requirements"]["run"] == wanted


def imports_at(path: pathlib.Path, only_top_level: bool) -> set[str]:
    tree = ast.parse(path.read_text("utf-8"))
    found = set()
    for node in tree.body if only_top_level else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").split(".")[0])
    return found - sys.stdlib_module_names - {"tfmat"} - NOT_FROM_THE_INDEX


def test_every_import_is_required(setup_cfg):
    required = names(setup_cfg["options"]["install_requires"])
    extras = set().union(*(names(text) for text in setup_cfg["options.extras_require"].values()))
    for path in sorted([*(PROJECT / "tfmat").rglob("*.py"), *(PROJECT / "configs").glob("*.py")]):
        # A file may import at its top what only an extra brings, where it is itself loaded only on request.
        optional = path.relative_to(PROJECT).as_posix() in LOADED_ON_REQUEST
        for only_top_level in (True, False):
            known = required | extras if optional or not only_top_level else required
            used = {DISTRIBUTIONS.get(name, name) for name in imports_at(path, only_top_level)}
            assert used <= known, f"{path} imports what setup.cfg does not require"


def test_excel_files_are_read_without_an_extra(setup_cfg):
    """pandas reads them with openpyxl, which no file of ours imports."""
    assert "openpyxl" in names(setup_cfg["options"]["install_requires"])
    assert names(setup_cfg["options.extras_require"]["excel"]) == set()


def build(what: str, source: pathlib.Path, out: pathlib.Path) -> pathlib.Path:
    """Calls the build backend as pip does; `what` is `sdist` or `wheel`."""
    out.mkdir()
    program = f"import setuptools.build_meta as backend; backend.build_{what}({str(out)!r})"
    done = real_python("-c", program, cwd=source)
    assert done.returncode == 0, done.stderr[-2000:]
    (built,) = out.iterdir()
    return built


def test_wheel_made_from_sdist_holds_configs_and_examples(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for name in ["setup.cfg", "pyproject.toml", "README.md", "LICENSE"]:
        shutil.copy(PROJECT / name, source)
    for name in ["tfmat", "configs"]:
        shutil.copytree(PROJECT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))

    parts = tmp_path / "unpacked"
    parts.mkdir()
    sdist = build("sdist", source, tmp_path / "sdist")
    subprocess.run(["tar", "-xf", sdist, "-C", parts], check=True)
    (unpacked,) = parts.iterdir()
    with zipfile.ZipFile(build("wheel", unpacked, tmp_path / "wheel")) as wheel:
        files = set(wheel.namelist())
        (entry_points,) = (wheel.read(name) for name in files if name.endswith("entry_points.txt"))

    expected = {path.relative_to(PROJECT) for path in (PROJECT / "tfmat").rglob("*.py")}
    expected |= {path.relative_to(PROJECT) for path in (PROJECT / "tfmat" / "examples").iterdir()}
    for files_of in ("pretrained/*/*", "pretrained/*/*/*", "report/templates/*"):
        found = (PROJECT / "tfmat").glob(files_of)
        expected |= {path.relative_to(PROJECT) for path in found if path.is_file()}
    expected |= {
        pathlib.Path("tfmat", "configs", path.name) for path in (PROJECT / "configs").glob("*.py")
    }
    expected |= {pathlib.Path("tfmat", "py.typed")}
    assert {path.as_posix() for path in expected} == {
        name for name in files if ".dist-info/" not in name
    }
    assert any(name.endswith("/LICENSE") for name in files)
    assert b"tfmat = tfmat.cli.main:console_main" in entry_points
