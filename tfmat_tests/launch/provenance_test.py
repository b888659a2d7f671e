"""What a run was made with, compared with what git, the shell and the packages say themselves."""

import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys

import numpy as np
import pytest

from tfmat.files import read_json, write_json
from tfmat.launch.machine import describe_session, git_state, record_session, recorded_onednn
from tfmat.launch.runtime import uses_onednn


def git(folder: pathlib.Path, *arguments: str) -> str:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    done = subprocess.run(
        ["git", *identity, *arguments],
        cwd=folder,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def test_a_session_says_program_machine_command_and_time() -> None:
    session = json.loads(json.dumps(describe_session(), allow_nan=False))
    assert session["versions"]["Python"] == platform.python_version()
    assert session["versions"]["numpy"] == np.__version__
    assert {"tfmat", "tensorflow", "keras"} <= set(session["versions"])
    assert session["machine"]["usable_processors"] == len(os.sched_getaffinity(0))
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert session["machine"]["memory_gib"] == pytest.approx(pages / 2**30, abs=0.2)
    assert session["machine"]["processor"]
    age = datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(session["started"])
    assert abs(age.total_seconds()) < 600


def test_the_command_can_be_typed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/x/tfmat/__main__.py", "train", "--workdir=my runs/a"])
    assert describe_session()["command"] == "tfmat train '--workdir=my runs/a'"


def test_the_revision_is_that_of_the_checkout_and_changes_are_seen(tmp_path: pathlib.Path) -> None:
    assert git_state(tmp_path) is None
    git(tmp_path, "init", "-q")
    assert git_state(tmp_path) is None  # nothing committed yet
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-q", "-m", "one")
    state = git_state(tmp_path)
    assert state == {"revision": git(tmp_path, "rev-parse", "HEAD"), "changed": False}
    (tmp_path / "a").write_text("2")
    assert git_state(tmp_path) == {**state, "changed": True}
    # A folder inside of a checkout is not the checkout.
    (tmp_path / "inside").mkdir()
    assert git_state(tmp_path / "inside") is None


def test_without_git_there_is_no_revision(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state(tmp_path) is None


def test_every_start_is_added(tmp_path: pathlib.Path) -> None:
    record_session(tmp_path)
    record_session(tmp_path)
    content = json.loads((tmp_path / "provenance.json").read_text())
    assert content["format"] == 1 and len(content["sessions"]) == 2
    (tmp_path / "provenance.json").write_text("{damaged")
    record_session(tmp_path)
    assert len(json.loads((tmp_path / "provenance.json").read_text())["sessions"]) == 1


def test_nothing_heavy_is_loaded_for_it() -> None:
    program = (
        "import sys\nfrom tfmat.launch.machine import describe_session\ndescribe_session()\n"
        "assert not {'tensorflow', 'keras', 'numpy', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_run_that_goes_on_keeps_its_kernels(tmp_path: pathlib.Path, monkeypatch) -> None:
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")
    assert recorded_onednn(tmp_path) is None
    record_session(tmp_path)
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    assert recorded_onednn(tmp_path) is True
    record_session(tmp_path)
    assert recorded_onednn(tmp_path) is False
    # An older version's session: TensorFlow chose by itself.
    content = read_json(tmp_path / "provenance.json")
    del content["sessions"][-1]["onednn"]
    write_json(tmp_path / "provenance.json", content)
    assert recorded_onednn(tmp_path) is uses_onednn({})
    (tmp_path / "provenance.json").write_text("damaged")
    assert recorded_onednn(tmp_path) is None
