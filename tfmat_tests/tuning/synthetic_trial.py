"""A trial that sleeps instead of training: `python synthetic_trial.py CONFIG WORKDIR SECONDS_AN_EPOCH`.

It leaves what `tfmat train` leaves (config.json, metrics.jsonl, status.json), stops as that does on SIGTERM (exit
status 75) and goes on after the last epoch that it had finished. While there is a file `hold` in the search's folder it
ends its first epoch and no further one, unless its number is at most the file's. `epochs.log` gets one line an epoch
begun and one an epoch finished, from which tests read that nothing was done twice. Only the standard library: it starts
in no time.
"""

import json
import math
import pathlib
import re
import signal
import statistics
import sys
import time
import zlib


def known_function(values: dict[str, float]) -> float:
    """A bowl over log10 of the learning rate and dropout; 0.01 at its bottom, at 10^-2.5 and 0.2."""
    rate, dropout = math.log10(values["optimizer.learning_rate"]), values["model.dropout"]
    return 0.01 + 0.05 * (rate + 2.5) ** 2 + (dropout - 0.2) ** 2


def spread(text: str) -> float:
    """A factor around 1 that depends on the text alone: log-normal, sigma 0.35, so 0.5 to 2 for 19 of 20."""
    uniform = (zlib.crc32(text.encode()) + 0.5) / 2**32
    return math.exp(0.35 * statistics.NormalDist().inv_cdf(uniform))


def is_held(trial: pathlib.Path) -> bool:
    """Whether the trial of this folder has to wait."""
    try:
        return trial.name > (trial.parents[1] / "hold").read_text()
    except FileNotFoundError:
        return False


def main(config: str, workdir: str, seconds_an_epoch: str) -> int:
    """Runs the epochs that are left."""
    text = pathlib.Path(config).read_text()
    values = {
        k: float(v) for k, v in re.findall(r"config\.(\S+) = ([-\d.e]+)$", text, re.MULTILINE)
    }
    folder = pathlib.Path(workdir)
    folder.mkdir(parents=True, exist_ok=True)
    epochs = int(re.findall(r"train_for = '(\d+)epochs'", text)[0])
    if values.get("optimizer.clip_norm") == 0.123:
        raise RuntimeError("this trial always fails")
    (folder / "config.json").write_text(json.dumps({"total_steps": 10 * epochs}))
    metrics, log = folder / "metrics.jsonl", folder / "epochs.log"
    done = len(metrics.read_text().splitlines()) if metrics.exists() else 0
    for epoch in range(done + 1, epochs + 1):
        with open(log, "a") as file:
            file.write(f"begin {epoch}\n")
        seconds = float(seconds_an_epoch) * spread(text.partition("# Found")[2])
        deadline = time.monotonic() + seconds
        while not stopped and (
            time.monotonic() < deadline or (epoch > 1 and is_held(folder.parent))
        ):
            time.sleep(min(0.05, max(0.01, deadline - time.monotonic())))
        if stopped:
            return 75
        value = known_function(values) * (1 + math.exp(-epoch))
        line = {"step": 10 * epoch, "epoch": float(epoch), "seconds": epoch * seconds}
        with open(metrics, "a") as file:
            file.write(json.dumps({**line, "val_loss": value}) + "\n")
        with open(log, "a") as file:
            file.write(f"end {epoch}\n")
    (folder / "status.json").write_text(json.dumps({"state": "done"}))
    return 0


stopped: list[int] = []
if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    sys.exit(main(*sys.argv[1:]))
