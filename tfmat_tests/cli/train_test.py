"""Flags of `tfmat train`; whole runs are in end_to_end/."""

from typing import Any

import pytest

from tfmat import workflow
from tfmat.cli.flags import rewrite
from tfmat.cli.main import main
from tfmat.errors import InputError

Calls = list[dict[str, Any]]


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """What the main job would have been called with."""
    seen: Calls = []

    def main_job(config: Any, **arguments: Any) -> None:
        seen.append({"config": config, **arguments})

    monkeypatch.setattr(workflow, "main_job", main_job)
    monkeypatch.chdir(tmp_path)
    return seen


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["--config.seed=5"], ["--config_override=seed=5"]),
        (["--config.seed", "5"], ["--config_override=seed=5"]),
        (["--config.law=a=b"], ["--config_override=law=a=b"]),
        (["--config=x.py", "--workdir", "w"], ["--config=x.py", "--workdir", "w"]),
        (["--config.x", "-1", "--law=v"], ["--config_override=x=-1", "--law=v"]),
    ],
)
def test_overrides_are_rewritten(before, after):
    assert rewrite(before) == after


@pytest.mark.parametrize("arguments", [["--config.seed"], ["--config.seed", "--law=voce"]])
def test_an_override_without_a_value(arguments):
    with pytest.raises(InputError, match="--config.seed has no value; write --config.seed=VALUE"):
        rewrite(arguments)


def test_the_defaults(calls):
    assert main(["train"]) == 0
    (call,) = calls
    assert (call["workdir"], call["data_dir"], call["backend"]) == (
        "runs/quickstart",
        "data",
        "single",
    )
    assert call["config"].train_for == "12epochs"


def test_flags_reach_the_job(calls):
    assert main(
        ["train", "--config=configs/smoke.py", "--config.seed=5", "--law=voce", "--data_dir=d",
         "--config.fixed.E", "193000", "--config.seed=6", "--config.ranges.Q=50,1600"]
    ) == 0  # fmt: skip
    (call,) = calls
    config = call["config"]
    assert (call["workdir"], call["data_dir"]) == ("runs/smoke", "d")
    assert config.law == "voce" and config.seed == 6  # the last one wins
    assert dict(config.fixed) == {"E": 193_000.0} and dict(config.ranges) == {"Q": (50.0, 1600.0)}


def test_a_config_of_ones_own_names_the_run(calls, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from tfmat.config import default_config\n\n\ndef get_config():\n    return default_config()\n"
    )
    assert main(["train", "--config=mine.py"]) == 0
    assert main(["train", "--config=mine.py", "--workdir=elsewhere"]) == 0
    assert [call["workdir"] for call in calls] == ["runs/mine", "elsewhere"]
