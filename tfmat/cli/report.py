"""Writes the report on a run or a scaling study: one HTML page that opens offline, with a verdict in plain words.

    tfmat report --workdir=runs/quickstart
    tfmat report --workdir=runs/scaling --price_per_hour=2.5 --watts_a_worker=300

The page of a run, report.html in its folder, says first how good the network is and by which rules; then its accuracy
for each parameter beside the best that is possible, which curves are hard, an example, when classical fitting is the
better choice, how the training went, and what the run was made with. Its pictures are also in figures/.

`tfmat train` and `tfmat evaluate` write it by themselves; this command makes it again from the files in the folder, at
any time: also while the run goes on, or after it was interrupted.

The page of a study, scaling_report.html, says what several workers bought and where the time went, and predicts more
workers. The flags after --workdir are for it alone; they are kept in the folder for the next page.
"""

from absl.flags import FlagValues

from tfmat.cli.flags import number, text
from tfmat.errors import InputError

# Flag -> what it means, for a scaling study; the names are those of `tfmat.scaling.measurements.Assumptions`.
_NUMBERS = {
    "price_per_hour": "of one worker's device, in any currency",
    "watts_a_worker": "electric power of one worker, where it was not measured",
    "target_val_loss": "accuracy up to which time and cost are counted",
    "network_latency": "seconds, of the network between nodes, where it was not measured",
    "network_bytes_per_second": "of that network",
}
FLAGS = (
    text("workdir", "runs/quickstart", "folder of the run or study"),
    *(number(name, None, meaning) for name, meaning in _NUMBERS.items()),
    text(
        "baseline_hardware",
        None,
        "divide by the single worker of this hardware instead of the same one",
    ),
)
NO_ARGUMENT = "; name the run with --workdir={}"


def run(flag_values: FlagValues, arguments: list[str]) -> int:
    """Writes the page and prints its path; returns the exit status."""
    names = [*_NUMBERS, "baseline_hardware"]
    given = {name: flag_values[name].value for name in names if flag_values[name].value is not None}
    from tfmat.scaling.measurements import is_study

    if is_study(flag_values.workdir):
        from tfmat.scaling.pages import write_scaling_report

        print(write_scaling_report(flag_values.workdir, given)[0])
        return 0
    if given:
        raise InputError(
            f"--{next(iter(given))} is for a scaling study, and {flag_values.workdir} is none; leave it out"
        )
    from tfmat.report.pages import write_training_report

    print(write_training_report(flag_values.workdir))
    return 0
