"""`tfmat doctor`: the table at 80 columns, JSON; what it finds is tested in launch/."""

import json

import pytest

from tfmat.launch.machine import Finding

FINDINGS = [
    Finding("Keras", "ok", "3.15.1"),
    Finding("DTensor", "ok", "on two virtual devices, 0.59 ms", milliseconds=0.59),
    Finding("Horovod", "missing", "not installed [here]", "./tools/setup horovod"),
]


@pytest.fixture(autouse=True)
def found(monkeypatch):
    monkeypatch.setattr("tfmat.launch.machine.examine", lambda: FINDINGS)


def test_table_says_how_to_get_what_is_missing(done):
    text = done("doctor")  # missing parts are no failure
    lines = [line.split() for line in text.splitlines()]
    assert ["Keras", "ok", "3.15.1"] in lines
    missing = lines.index(["Horovod", "missing", "not", "installed", "[here]"])
    assert lines[missing + 1] == ["get", "it:", "./tools/setup", "horovod"]
    assert "\x1b" not in text


def test_json(done):
    content = json.loads(done("doctor", "--json"))
    assert content["findings"][1] == {
        "part": "DTensor",
        "state": "ok",
        "detail": "on two virtual devices, 0.59 ms",
        "remedy": None,
        "milliseconds": 0.59,
    }
    assert content["findings"][2]["remedy"] == "./tools/setup horovod"
