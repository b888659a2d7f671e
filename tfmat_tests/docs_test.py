"""The examples in docs/ run as they stand there."""

import json
import pathlib
import re

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
