"""The examples in docs/ run as they stand there."""

import json
import pathlib
import re

from tfmat.cli.main import main

DOCS = pathlib.Path(__file__).resolve().parents[1] / "docs"


def test_your_own_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (DOCS / "your_own_model.md").read_text("utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    namespace: dict = {}
    exec(compile(program, "your_own_model.md", "exec"), namespace)
    # The variance of sin(x) y on this square is 1.6: the model has learnt it.
    assert namespace["trainer"].evaluate(namespace["x"], namespace["y"])["loss"] < 0.02
    status = json.loads((tmp_path / "runs" / "sine" / "status.json").read_text())
    assert status["state"] == "done"


def test_dtensor(tmp_path, monkeypatch, capsys):
    text = (DOCS / "dtensor.md").read_text("utf-8")
    monkeypatch.chdir(DOCS.parent)
    assert main(["layouts", "--config=configs/wide.py", "--config.mesh=model:2"]) == 0
    shown = [line.strip() for line in text.splitlines()]
    printed = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert [line for line in printed if line not in shown] == []

    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "quickstart").mkdir(parents=True)
    held = {"mesh": "batch:2", "bytes_per_device": {"weights": [8, 8]}, "notices": []}
    (tmp_path / "runs" / "quickstart" / "devices.json").write_text(json.dumps(held))
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(program, "dtensor.md", "exec"), {})
    assert capsys.readouterr().out == "weights [8, 8]\n"
