"""What less on the wires costs in accuracy, and what it gains in time: ways against a slow network, side by side.

    .venv/bin/python tools/slow_networks_study.py --ranks=4 --out=FOLDER
    .venv/bin/python tools/slow_networks_study.py --hosts=server1:2,server2:2 --out=FOLDER --link="100 Mbit/s, 5 ms"

`--ways local-16@7e-3` trains a way at another learning rate than 5e-3. With `--slow=5` the last rank runs one fifth of
the time, and the table tells when each way came within 5 % of the loss at which exact sums ended:

    .venv/bin/python tools/slow_networks_study.py --ranks=3 --slow=5 --epochs=10 --out=FOLDER --ways local-16 quorum

Each way trains the default network on the same examples with the same seeds, under mpirun. Told are the validation
loss after equal examples against that of exact sums in every step, the bytes that a worker sends in a step, and the
steps per second. Runs that are done are not done again, so the same command goes on where it was stopped.

Written down before the first run: with PowerSGD of rank 4, or 16 or 50 local steps, the validation loss is at most 5 %
above that of exact sums (means of three seeds); PowerSGD sends at most a tenth of the bytes; on two nodes of two ranks
at 100 Mbit/s and 5 ms each of them does ten times as many steps a second, and both together twenty times. Where one of
three workers runs a fifth of the time, the best way comes to its loss in half the seconds of exact sums.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import psutil

from tfmat.files import write_json

# MPI's collectives leave the processor to the steps meanwhile.
OVERLAP = {"backend": "mpi", "local_steps": 16, "overlap_meetings": True}
WAYS: dict[str, dict[str, Any]] = {
    "none": {},
    "hierarchical": {"reduction": "hierarchical"},
    "fp16": {"compression": "fp16"},
    "bf16": {"compression": "bf16"},
    "int8": {"compression": "int8"},
    "powersgd-8": {"compression": "powersgd", "compression_rank": 8},
    "powersgd-4": {"compression": "powersgd"},
    "powersgd-2": {"compression": "powersgd", "compression_rank": 2},
    "topk-1%": {"compression": "topk"},
    "topk-10%": {"compression": "topk", "compression_fraction": 0.1},
    "sign": {"compression": "sign"},
    "local-16": {"local_steps": 16},
    "local-50": {"local_steps": 50},
    "local-16-outer-1-0.5": {
        "local_steps": 16,
        "outer_learning_rate": 1.0,
        "outer_momentum": 0.5,
    },
    "local-16-averaged": {"local_steps": 16, "outer_momentum": 0.0},
    "local-16-powersgd-4": {"local_steps": 16, "compression": "powersgd"},
    "local-16-powersgd-16": {
        "local_steps": 16,
        "compression": "powersgd",
        "compression_rank": 16,
    },
    "local-50-fp16": {"local_steps": 50, "compression": "fp16"},
    "local-16-overlap": OVERLAP,
    "local-16-overlap-fp16": {**OVERLAP, "compression": "fp16"},
    "local-16-overlap-powersgd-16": {
        **OVERLAP,
        "compression": "powersgd",
        "compression_rank": 16,
    },
    "local-50-overlap-fp16": {**OVERLAP, "local_steps": 50, "compression": "fp16"},
    # Gradients of all workers but one make a step.
    "quorum": {"backend": "asynchronous", "quorum": -1},
    "asynchronous": {"backend": "asynchronous", "staleness_scaling": "sqrt"},
    "averaging": {"backend": "asynchronous", "averaging": True},
}
# Seconds in which a slow rank runs once.
_PERIOD = 0.05
# The validation loss that a way has to reach, against that at which exact sums ended.
_TARGET = 1.05


def settings_of(text: str) -> dict[str, Any]:
    """The keys of `WAY` or `WAY@RATE`; ArgumentTypeError where there is none of that name."""
    way, at, rate = text.partition("@")
    if way not in WAYS:
        raise argparse.ArgumentTypeError(f"'{way}' is none of {', '.join(WAYS)}")
    try:
        return {**WAYS[way], **({"optimizer.learning_rate": float(rate)} if at else {})}
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: write a rate as {way}@7e-3") from None


def _way(text: str) -> str:
    settings_of(text)
    return text


def command(args: argparse.Namespace, way: str, seed: int, workdir: pathlib.Path) -> list[str]:
    """The command line of one run."""
    where = ["--oversubscribe", "--bind-to", "none"]
    if args.hosts:
        where = ["-H", args.hosts, "--bind-to", "none", "--map-by", args.placement]
    settings = {
        "global_batch_size": args.batch * args.ranks,
        "train_for": f"{args.steps}steps",
        "steps_per_call": 50,  # the first call compiles, and its time does not count
        "data.num_curves": -(-args.batch * args.ranks * args.steps * 4 // (3 * args.epochs)),
        "data.num_test": 100,  # the table has validation losses only
        "data.seed": 0,
        "seed": seed,
        "optimizer.name": "lamb",
        "optimizer.learning_rate": 5e-3,
        "optimizer.scaling": "sqrt",
        "optimizer.warmup": f"{args.steps // 20}steps",
        **settings_of(way),
    }
    backend = settings.pop("backend", "horovod")
    if settings.get("quorum"):
        settings["quorum"] += args.ranks
    return [
        *("mpirun", "-np", str(args.ranks), *where),
        *(sys.executable, "-m", "tfmat", "train", f"--backend={backend}", f"--workdir={workdir}"),
        f"--data_dir={args.data_dir or args.out / 'data'}",
        *(f"--config.{key}={value}" for key, value in settings.items()),
    ]


def run(args: argparse.Namespace, way: str, seed: int) -> dict[str, Any]:
    """val_loss, bytes and steps per second of one run, which is done unless it is there; SystemExit where it fails."""
    name = f"{way}-{seed}-{args.steps}"
    if args.epochs > 1 or args.slow > 1:
        name += f"-{args.epochs}-{args.slow:g}"
    workdir = args.out / "runs" / name
    status = workdir / "status.json"
    if not status.exists() or json.loads(status.read_text())["state"] != "done":
        line = command(args, way, seed, workdir)
        print(shlex.join(line), flush=True)
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        with (
            subprocess.Popen(line, text=True, env=environment, **pipes) as mpirun,
            _slowed(mpirun.pid, args, workdir),
        ):
            _, said = mpirun.communicate()
        state = json.loads(status.read_text()) if status.exists() else {}
        if mpirun.returncode and state.get("state") != "diverged":
            raise SystemExit(f"{way}, seed {seed}, failed:\n{said}")
    if json.loads(status.read_text())["state"] == "diverged":
        return {"val_loss": float("inf")}
    records = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    profile = json.loads((workdir / "profile.json").read_text())
    return {
        "val_loss": records[-1]["val_loss"],
        "bytes": records[-1]["use"].get("bytes_sent_per_step", 0),
        "step_seconds": profile["ranks"][0].get("step_seconds"),
        # Since the first epoch, in which graphs are compiled and no rank is slow yet.
        "curve": [(r["seconds"] - records[0]["seconds"], r["val_loss"]) for r in records],
    }


@contextlib.contextmanager
def _slowed(mpirun: int, args: argparse.Namespace, workdir: pathlib.Path) -> Iterator[None]:
    """Stops the last rank again and again, from its first epoch's end until the block's."""
    ended = threading.Event()

    def slow() -> None:
        name, last = "OMPI_COMM_WORLD_RANK", str(args.ranks - 1)
        with contextlib.suppress(psutil.NoSuchProcess):
            ranks: list[psutil.Process] = []
            # A run that goes on has an epoch before it has ranks.
            while not (ranks and (workdir / "metrics.jsonl").exists()):
                if ended.wait(0.02):
                    return
                children = psutil.Process(mpirun).children()
                ranks = [each for each in children if each.environ().get(name) == last]
            (rank,) = ranks
            while not ended.wait(_PERIOD / args.slow):
                rank.suspend()
                ended.wait(_PERIOD * (1 - 1 / args.slow))
                rank.resume()

    thread = threading.Thread(target=slow, daemon=True)
    if args.slow > 1:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if thread.ident:
            thread.join()


def seconds_to(curve: list[tuple[float, float]], loss: float) -> float | None:
    """When a run came to a validation loss, of (seconds, loss) by epochs; None where it did not."""
    return next((seconds for seconds, reached in curve if reached <= loss), None)


def row(way: str, found: list[dict[str, Any]], exact: list[dict[str, Any]]) -> dict[str, Any]:
    """One line of the table: means over the seeds, and the ratios to exact sums in every step."""

    def mean(name: str, runs: list[dict[str, Any]]) -> float:
        return statistics.mean(each[name] for each in runs)

    def seconds(runs: list[dict[str, Any]]) -> list[float | None]:
        goals = [_TARGET * each["curve"][-1][1] for each in exact]
        return [seconds_to(e["curve"], goal) for e, goal in zip(runs, goals, strict=True)]

    if any("bytes" not in each for each in found):
        return {"way": way, "val_loss": [each["val_loss"] for each in found], "diverged": True}
    return {
        "way": way,
        "val_loss": [each["val_loss"] for each in found],
        "loss_ratio": mean("val_loss", found) / mean("val_loss", exact),
        "bytes": mean("bytes", found),
        "fewer_bytes": mean("bytes", exact) / mean("bytes", found),
        "steps_per_second": 1 / mean("step_seconds", found),
        "times_faster": mean("step_seconds", exact) / mean("step_seconds", found),
        "seconds_to_loss": seconds(found),
    }


def main() -> None:
    """Runs what is missing, prints the table as Markdown, and writes OUT/study.json."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder of all files")
    parser.add_argument("--data_dir", type=pathlib.Path, help="of the curves (OUT/data)")
    parser.add_argument("--hosts", help="as mpirun's -H; without, all ranks are on this machine")
    parser.add_argument(
        "--placement", choices=("slot", "node"), default="slot", help="of ranks on hosts"
    )
    parser.add_argument("--link", default="memory", help="what the network is, for the title")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--batch", type=int, default=75, help="examples a rank and step")
    parser.add_argument("--steps", type=int, default=1250, help="at least 150")
    parser.add_argument("--epochs", type=int, default=1, help="over which the steps go")
    parser.add_argument(
        "--slow", type=float, default=1, help="so many times is the last rank slower"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--ways", nargs="*", type=_way, default=list(WAYS), metavar="WAY[@RATE]",
        help="none, fp16, powersgd-4, local-50 …, also at another learning rate: local-50@7e-3 [all]",
    )  # fmt: skip
    args = parser.parse_args()
    args.out = args.out.resolve()
    ways = ["none", *(way for way in args.ways if way != "none")]
    found: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    for seed in range(args.seeds):
        for way in ways:  # in turns, so that a busy hour of the machine meets all of them
            found[way].append(run(args, way, seed))
    rows = [row(way, found[way], found["none"]) for way in ways]
    content = {"link": args.link, "ranks": args.ranks, "batch": args.batch, "steps": args.steps}
    write_json(args.out / "study.json", {**content, "rows": rows})
    print(f"\n{args.link}: {args.ranks} workers, {args.batch} examples each, {args.steps} steps\n")
    print(
        "| way | bytes a step | fewer | validation loss × 1e-4 | against none | steps/s | faster | s to its loss |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for each in rows:
        losses = ", ".join(f"{1e4 * loss:.1f}" for loss in each["val_loss"])
        if each.get("diverged"):
            print(f"| {each['way']} | | | {losses} | diverged | | | |")
            continue
        print(
            f"| {each['way']} | {each['bytes']:,.0f} | {each['fewer_bytes']:.1f} | {losses} | "
            f"{each['loss_ratio']:.2f} | {each['steps_per_second']:.1f} | {each['times_faster']:.1f} | "
            f"{', '.join('never' if s is None else f'{s:.1f}' for s in each['seconds_to_loss'])} |"
        )


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on with what is missing")
