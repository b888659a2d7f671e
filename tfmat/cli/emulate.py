"""Trains a network in place of a specimen's program: parameters -> the curve, as a law that every command takes.

The runs are those of `tfmat generate --simulator`: stored ones are taken, missing ones are made. The law stands in a
Python file, DATA_DIR/NAME_RUNS.py, which needs NumPy and tfmat alone. It has the parameters and the nuisances of the
simulation, and the machine's stiffness and the strain's zero where the description gives ranges of them; any number of
curves is simulated with it in seconds, measured records have a likelihood, and posteriors are corrected and certified.

Examples:
  tfmat emulate --simulator=docs/examples/notched_bar --num_runs=1000 --num_threads=2
  tfmat laws data/notched_bar_1000.py:NotchedBar
  tfmat train --law=data/notched_bar_1000.py:NotchedBar --config=configs/forward.py --workdir=runs/notch
  tfmat identify specimen.csv --workdir=runs/notch --simulator=docs/examples/notched_bar --verify=8 --card=abaqus
"""

import pathlib
import time
from typing import TYPE_CHECKING

from absl.flags import FlagValues

from tfmat.cli.flags import switch, text, whole
from tfmat.config import seconds_of
from tfmat.errors import InputError, Interrupted

if TYPE_CHECKING:
    from tfmat.specimens.campaign import Campaign

FLAGS = (
    text("simulator", None, "folder with simulator.toml: a specimen that a program simulates"),
    whole("num_runs", None, "runs of the simulation (default 1000); those that are missing are made", 50),
    switch("retry_failed", False, "run again what failed before"),
    text("data_dir", "data", "folder of the stored runs, into which the law is written"),
    text("train_for", "24000steps", "how long the network is trained, such as 20000steps or 5m"),
    whole("seed", 0, "seed of the runs' values and of the network's weights", 0),
    whole("num_threads", None, "threads (default: one for each processor)", 1),
)  # fmt: skip
NO_ARGUMENT = "; see `tfmat emulate --help`"


def run(flag_values: FlagValues, arguments: list[str]) -> int | None:
    """Makes the runs that are missing, trains on all, and says how far the network is off."""
    if flag_values.simulator is None:
        raise InputError("say what to emulate: --simulator=FOLDER, with a simulator.toml in it")
    seconds_of(flag_values.train_for)  # a wrong one is refused before hours of runs
    from tfmat.cli.simulations import NUM_RUNS, run_progress, tell_runs
    from tfmat.data.dataset import available_threads
    from tfmat.specimens.campaign import make_runs
    from tfmat.specimens.description import read_description

    description = read_description(flag_values.simulator)
    threads = flag_values.num_threads or available_threads()
    started = time.monotonic()

    def made(campaign: "Campaign") -> None:
        tell_runs(campaign, time.monotonic() - started, pathlib.Path(flag_values.data_dir))

    try:
        with run_progress() as show:
            campaign = make_runs(
                description,
                flag_values.data_dir,
                flag_values.num_runs or NUM_RUNS,
                seed=flag_values.seed,
                processes=max(1, threads // description.threads),
                retry=flag_values.retry_failed,
                progress=show,
                made=made,
            )
    except KeyboardInterrupt:
        raise Interrupted(
            "interrupted; finished runs are stored, and the same command goes on"
        ) from None
    from tfmat.launch.runtime import prepare_tensorflow

    prepare_tensorflow(own_program=True)
    from tfmat.workflow.emulate import emulate

    found = emulate(
        campaign, flag_values.data_dir, seed=flag_values.seed, train_for=flag_values.train_for
    )
    print(
        f"network   {found.runs:,} runs trained it; it is off by {100 * found.test_error:.2g} % of the largest stress "
        f"(root mean square over runs that did not), {100 * found.worst:.2g} % at the worst point"
    )
    print(f"law       {found.law}")
    print(f"Next: tfmat train --law={found.law} --config=configs/forward.py")
    return None
