"""What less on the wires costs in accuracy, and what it gains in time: ways against a slow network, side by side.

    .venv/bin/python tools/slow_networks_study.py --ranks=4 --out=FOLDER
    .venv/bin/python tools/slow_networks_study.py --hosts=server1:2,server2:2 --out=FOLDER --link="100 Mbit/s, 5 ms"

`--ways local-16@7e-3` trains a way at another learning rate than 5e-3.

Each way trains the default network on the same examples with the same seeds, under mpirun. Told are the validation
loss after equal examples against that of exact sums in every step, the bytes that a worker sends in a step, and the
steps per second. Runs that are done are not done again, so the same command goes on where it was stopped.

Written down before the first run: with PowerSGD of rank 4, or 16 or 50 local steps, the validation loss is at most 5 %
above that of exact sums (means of three seeds); PowerSGD sends at most a tenth of the bytes; on two nodes of two ranks
at 100 Mbit/s and 5 ms each of them does ten times as many steps a second, and both together twenty times.
"""

import argparse
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
from typing import Any

from tfmat.files import write_json

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
}


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
        "data.num_curves": -(-args.batch * args.ranks * args.steps * 4 // 3),
        "data.seed": 0,
        "seed": seed,
        "optimizer.name": "lamb",
        "optimizer.learning_rate": 5e-3,
        "optimizer.scaling": "sqrt",
        "optimizer.warmup": f"{args.steps // 20}steps",
        **settings_of(way),
    }
    return [
        *("mpirun", "-np", str(args.ranks), *where),
        *(sys.executable, "-m", "tfmat", "train", "--backend=horovod", f"--workdir={workdir}"),
        f"--data_dir={args.data_dir or args.out / 'data'}",
        *(f"--config.{key}={value}" for key, value in settings.items()),
    ]


def run(args: argparse.Namespace, way: str, seed: int) -> dict[str, Any]:
    """val_loss, bytes and steps per second of one run, which is done unless it is there; SystemExit where it fails."""
    workdir = args.out / "runs" / f"{way}-{seed}-{args.steps}"
    status = workdir / "status.json"
    if not status.exists() or json.loads(status.read_text())["state"] != "done":
        line = command(args, way, seed, workdir)
        print(shlex.join(line), flush=True)
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        ended = subprocess.run(line, capture_output=True, text=True, env=environment)
        state = json.loads(status.read_text()) if status.exists() else {}
        if ended.returncode and state.get("state") != "diverged":
            raise SystemExit(f"{way}, seed {seed}, failed:\n{ended.stderr}")
    if json.loads(status.read_text())["state"] == "diverged":
        return {"val_loss": float("inf")}
    records = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    profile = json.loads((workdir / "profile.json").read_text())
    return {
        "val_loss": records[-1]["val_loss"],
        "bytes": records[-1]["use"].get("bytes_sent_per_step", 0),
        "step_seconds": profile["ranks"][0].get("step_seconds"),
    }


def row(way: str, found: list[dict[str, Any]], exact: list[dict[str, Any]]) -> dict[str, Any]:
    """One line of the table: means over the seeds, and the ratios to exact sums in every step."""

    def mean(name: str, runs: list[dict[str, Any]]) -> float:
        return statistics.mean(each[name] for each in runs)

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
        "| way | bytes a step | fewer | validation loss × 1e-4 | against none | steps/s | faster |"
    )
    print("|---|---|---|---|---|---|---|")
    for each in rows:
        losses = ", ".join(f"{1e4 * loss:.1f}" for loss in each["val_loss"])
        if each.get("diverged"):
            print(f"| {each['way']} | | | {losses} | diverged | | |")
            continue
        print(
            f"| {each['way']} | {each['bytes']:,.0f} | {each['fewer_bytes']:.1f} | {losses} | "
            f"{each['loss_ratio']:.2f} | {each['steps_per_second']:.1f} | {each['times_faster']:.1f} |"
        )


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on with what is missing")
