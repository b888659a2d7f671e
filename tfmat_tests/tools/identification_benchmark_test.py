"""tools/benchmark --part=identify and cold: what they measure; how fast it is, is not asserted."""

import resource
import subprocess

import pytest


def test_the_rate_is_that_of_the_public_function(part, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = part("identification").measure_rate(200, 1, None)
    assert content["num_curves"] == 200
    assert set(content["samples"]) == {"float32", "float64", "records"}
    assert all(entry["value"] > 0 for entry in content["quantities"])


def test_a_cold_command_is_measured_by_itself(part, tmp_path, monkeypatch):
    """The memory is that of the command and not that of this process, which is larger."""
    cold = part("cold")
    commands = {"--help": ["--help"], "laws, 1 files": ["laws"]}
    monkeypatch.setattr(cold, "_commands", lambda folder, num_files: commands)
    content = cold.measure_cold(tmp_path, 2)
    assert [len(found) for found in content["samples"].values()] == [2, 2]
    seconds, megabytes, files = (entry["value"] for entry in content["quantities"])
    assert seconds > 0.0 and files > 0.0
    assert 5.0 < megabytes < resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2000.0
    commands["--help"] = ["no_such_command"]
    with pytest.raises(subprocess.CalledProcessError):
        cold.measure_cold(tmp_path, 1)
