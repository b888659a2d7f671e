"""`tfmat doctor`: the table at 80 columns, JSON; what it finds is tested in launch/."""

import json

from tfmat.cli.train import doctor
from tfmat.launch.machine import Finding

FINDINGS = [
    Finding("Keras", "ok", "3.15.1"),
    Finding("DTensor", "ok", "on two virtual devices, 0.59 ms", milliseconds=0.59),
    Finding("Horovod", "missing", "not installed [here]", "./tools/setup horovod"),
]


def _run(capsys, monkeypatch, *arguments):
    monkeypatch.setattr("tfmat.launch.machine.examine", lambda: FINDINGS)
    flag_values = doctor.define()
    status = doctor.run(flag_values, flag_values(["doctor", *arguments])[1:])
    return status, capsys.readouterr().out


def test_table_says_how_to_get_what_is_missing(capsys, monkeypatch):
    status, text = _run(capsys, monkeypatch)
    assert status == 0  # missing parts are no failure
    lines = [line.split() for line in text.splitlines()]
    assert ["Keras", "ok", "3.15.1"] in lines
    missing = lines.index(["Horovod", "missing", "not", "installed", "[here]"])
    assert lines[missing + 1] == ["get", "it:", "./tools/setup", "horovod"]
    assert "\x1b" not in text


def test_json(capsys, monkeypatch):
    content = json.loads(_run(capsys, monkeypatch, "--json")[1])
    assert content["findings"][1] == {
        "part": "DTensor",
        "state": "ok",
        "detail": "on two virtual devices, 0.59 ms",
        "remedy": None,
        "milliseconds": 0.59,
    }
    assert content["findings"][2]["remedy"] == "./tools/setup horovod"
