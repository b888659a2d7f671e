"""The site file: its keys, its types, its mistakes."""

import pathlib
import re

import pytest

from tfmat.errors import InputError
from tfmat.launch.slurm import Site, read_site

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs" / "slurm.md"


def test_without_a_file_a_site_wants_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert read_site() == Site()


def test_the_users_own_file_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "tfmat").mkdir()
    (tmp_path / "tfmat" / "site.toml").write_text(
        'account = "mechanics"\n[environment]\nTHREADS = 4\n'
    )
    assert read_site() == Site(account="mechanics", environment={"THREADS": "4"})


def test_the_example_in_the_docs_has_all_keys(tmp_path):
    (example,) = re.findall(r"```toml\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)
    (tmp_path / "site.toml").write_text(example)
    site = read_site(tmp_path / "site.toml")
    untold = {name for name, value in vars(Site()).items() if f"{name} = " not in example}
    assert untold == {"environment"} and site.environment
    assert site.modules == ("gcc/13", "openmpi/4.1") and site.gpus_per_node == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("module = []", "unknown key 'module'; did you mean 'modules'?"),
        ('modules = "gcc"', "modules is 'gcc'; give a list of texts"),
        ("offline = 1", "offline is 1; give true or false"),
        ("gpus_per_node = 0", "gpus_per_node is 0; give a whole number from 1"),
        ("gpus_per_node = true", "gpus_per_node is True; give a whole number from 1"),
        ("memory = 16", "memory is 16; give a text"),
        ("environment = 3", "environment is 3; give a table"),
        ('environment = {"A B" = 1}', "give a table of NAME = VALUE"),
        ('launcher = "ssh"', "launcher is 'ssh'; valid: srun, mpirun"),
        ("local_disk = '\"; rm'", "give a plain path"),
        ("modules = [", "is not valid TOML"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, text, message):
    (tmp_path / "site.toml").write_text(text)
    with pytest.raises(InputError) as caught:
        read_site(tmp_path / "site.toml")
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="No such file or directory; docs/slurm.md has one"):
        read_site(tmp_path / "site.toml")
