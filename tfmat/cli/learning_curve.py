"""Learning curve: how many curves, and how large a network, the accuracy that you want takes; before a long run.

    tfmat learning_curve                                 five numbers of curves, one network, two seeds: some minutes
    tfmat learning_curve --widths=0.5,1,2 --wanted=1.2   also what a narrower and a wider network would reach
    tfmat learning_curve --config=my.py --curves=20000,40000,80000,160000
    tfmat learning_curve --data_dir=data/my_own_set      on the first curves of a data set of your own

Every point is an ordinary run of the config in a folder of its own under --workdir. With `train_for` in epochs each
number of curves is seen as often, and the answer is for more curves and as much longer a run; with steps or a time
each run is as long, and fewer curves are seen more often. The errors on test curves, which are the same for all, are
fitted by error = limit + A * curves^-alpha + B * parameters^-beta, one law for each material parameter, with 90 %
intervals. The error is eta, expected squared error over the smallest possible, where that is known, else the root mean
square in % of the parameter's range. The same command again goes on where it was stopped, also with more numbers of
curves, widths or seeds; what is done is not repeated.
Results: learning_curve.json, .csv, .png, .svg.
"""

import math
import pathlib
from typing import Any

from absl.flags import FlagValues

from tfmat.cli.flags import (
    DATA_DIR,
    config_flags,
    config_help,
    listed,
    number,
    output_folder,
    read_config,
    text,
    whole,
)
from tfmat.errors import InputError

FLAGS = (
    *config_flags("configs/quickstart.py"),
    text("workdir", None, "folder of the results [runs/learning_curve-<config name>]"),
    DATA_DIR,
    listed(
        "curves",
        ["5000", "10000", "20000", "40000", "80000"],
        "training curves, four numbers or more",
    ),
    listed("widths", ["1"], "times the config's dense units: one, or three or more"),
    whole("seeds", 2, "runs of each point", 1),
    number("wanted", 1.2, "error that you want: eta, or % of the range where eta is not known"),
)
NO_ARGUMENT = ""
extra_help = config_help

# Beyond so many times the largest measured number an answer is told to be a guess.
_FAR = 10.0
# Beyond so many times it there is none.
_OUT_OF_REACH = 1000


def run(flag_values: FlagValues, arguments: list[str]) -> int:
    """Trains, fits and prints; returns the exit status."""
    config = read_config(flag_values)
    workdir = output_folder(flag_values, "learning_curve-")
    curves = [int(value) for value in _numbers("curves", flag_values.curves, whole=True)]
    widths = _numbers("widths", flag_values.widths)
    from tfmat.large_batch.learning_curve import learning_curve

    content = learning_curve(
        config,
        workdir=workdir,
        data_dir=flag_values.data_dir,
        curves=curves,
        widths=widths,
        seeds=flag_values.seeds,
        wanted=flag_values.wanted,
    )
    for name, law in content["laws"].items():
        for line in lines(name, law, content):
            print(line)
    print(pathlib.Path(workdir) / "learning_curve.png")
    return 0


def lines(name: str, law: dict[str, Any], content: dict[str, Any]) -> list[str]:
    """The answers for one parameter in plain words.

    Args:
      name: of the parameter.
      law: see `tfmat.large_batch.learning_curve.answers`.
      content: of learning_curve.json.
    """
    measured = {
        key: [point[key] for point in content["points"]] for key in ("curves", "parameters")
    }
    wanted = f"{content['quantity']} ≤ {content['wanted']:g}"
    said = [f"{name}: {_exponents(law)}; runs are {100 * law['misfit']:.0f} % off the fit"]
    if not law["falls"]:
        said.append(
            "  note: the error does not surely fall with the curves; add --curves or --seeds"
        )
    if below := [one for one in law["networks"] if one["reached"] < one["limit"]["value"]]:
        widths = ", ".join(f"{one['width']:g}" for one in below)
        said.append(
            f"  note: width {widths} already came below the limit of the fit, which runs do not follow; do not rely "
            "on limits and sizes"
        )
    for network in law["networks"]:
        who = f"width {network['width']:g} ({network['parameters']:,} parameters)"
        answer, limit = _curves(network["curves"], measured["curves"], wanted), network["limit"]
        said.append(
            f"  {who}: {answer}; limit {limit['value']:.3g} ({limit['low']:.3g} to {limit['high']:.3g})"
        )
    for size in law["sizes"]:
        who = "endless curves" if size["curves"] is None else f"{size['curves']:,} curves"
        needed, width = size["parameters"], size["width"]
        answer = f"no width gives {wanted}"
        if width["value"] is not None:
            doubt = _doubt(needed["value"], measured["parameters"], "parameters")
            answer = (
                f"{wanted} takes about width {width['value']:.2g} ({_about(width['low'])} to "
                f"{_about(width['high'])}), {_about(needed['value'])} parameters{doubt}"
            )
        said.append(f"  with {who}: {answer}")
    return said


def _curves(needed: dict[str, float | None], measured: list[int], wanted: str) -> str:
    value = needed["value"]
    if value is None:
        if needed["low"] is None:
            return f"no number of curves gives {wanted}; try a longer training or a larger network"
        return f"by the fit no number of curves gives {wanted}, by its interval {_about(needed['low'])} or more"
    if value > _OUT_OF_REACH * max(measured):
        return f"no number of curves within {_OUT_OF_REACH:,} times those measured gives {wanted}"
    count = int(float(f"{value:.2g}"))
    return (
        f"{wanted} takes about {_about(value)} training curves ({_about(needed['low'])} to {_about(needed['high'])}), "
        f"data.num_curves={count + count // 3}{_doubt(value, measured, 'curves')}"
    )


def _exponents(law: dict[str, Any]) -> str:
    said = []
    for name, what in (("alpha", "curves"), ("beta", "parameters")):
        if one := law[name]:
            said.append(f"{what}^-{one['value']:.2f} ({one['low']:.2f} to {one['high']:.2f})")
    return f"falls as {' and '.join(said)}"


def _about(value: float | None) -> str:
    """Two digits of a number; an interval's end that is infinite has none."""
    if value is None:
        return "no end"
    rounded = float(f"{value:.2g}")
    return f"{rounded:,.0f}" if 10 <= rounded < 1e9 else f"{rounded:.2g}"


def _doubt(value: float, measured: list[int], unit: str) -> str:
    if value > _FAR * max(measured):
        return (
            f" - a guess, more than {_FAR:g} times the {max(measured):,} {unit} that were measured"
        )
    if value < min(measured) / _FAR:
        return f" - a guess, less than a tenth of the {min(measured):,} {unit} that were measured"
    return ""


def _numbers(flag: str, texts: list[str], whole: bool = False) -> list[float]:
    try:
        values = [float(each) for each in texts]
    except ValueError:
        values = []
    sound = values and all(0 < value < math.inf for value in values)
    if not sound or (whole and any(value % 1 for value in values)):
        kind = "positive whole numbers" if whole else "positive numbers"
        raise InputError(f"--{flag}={','.join(texts)}: give {kind} with commas between them")
    return values
