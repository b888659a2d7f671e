"""A run on a mesh as a user sees it: what its devices hold is told at its beginning, and another backend goes on."""

import json
import os
import signal
import subprocess
import time

from tfmat_tests.processes import PROJECT, forked_python

COMMAND = (
    "-P", "-m", "tfmat", "train", "--config=configs/smoke.py", "--config.model.hidden_units=124",
    "--config.mesh=batch:2,model:2", "--config.zero_stage=1", "--config.train_for=40epochs",
)  # fmt: skip
PATIENCE = 200.0  # seconds


def start(folder, *flags):
    return subprocess.Popen(
        [forked_python(), *COMMAND, f"--workdir={folder / 'run'}", f"--data_dir={folder / 'data'}", *flags],
        cwd=PROJECT, env={**os.environ, "PYTHONPATH": str(PROJECT)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def test_devices_are_told_before_the_end_and_another_backend_goes_on(tmp_path):
    path, deadline = tmp_path / "run" / "devices.json", time.monotonic() + PATIENCE
    process = start(tmp_path, "--backend=dtensor")
    # The devices are told just before the run says that it has begun; only after that there is something to go on with.
    while not (path.exists() and (path.parent / "status.json").exists()):
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 75, said
    held = json.loads(path.read_text())
    assert held["mesh"] == "batch:2,model:2"
    # By arithmetic: 4 bytes a number; of 1200 × 124 + 124 and 124 × 2 a half on each of two, the rest whole.
    convolutions = 7 * 3 * 16 + 16 + 7 * 16 * 24 + 24
    assert held["bytes_per_device"]["weights"] == [
        4 * (convolutions + (1200 * 124 + 124 + 124 * 2) // 2 + 2)
    ] * 4  # fmt: skip
    process = start(tmp_path)
    deadline = time.monotonic() + PATIENCE
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "going on from step" in line or time.monotonic() > deadline:
            break
    process.send_signal(signal.SIGTERM)
    said = "".join(lines) + process.communicate(timeout=PATIENCE)[0]
    assert process.returncode in (0, 75), said
    assert "note: mesh=batch:2,model:2 is for --backend=dtensor; single does not use it" in said
    assert "going on from step" in said
