"""Writes the report on a run: one HTML page that opens offline, with a verdict in plain words.

    tfmat report --workdir=runs/quickstart

The page, report.html in the run's folder, says first how good the network is and by which rules; then its accuracy
for each parameter beside the best that is possible, which curves are hard, an example, when classical fitting is the
better choice, how the training went, and what the run was made with. Its pictures are also in figures/.

`tfmat train` and `tfmat evaluate` write it by themselves; this command makes it again from the files in the folder, at
any time: also while the run goes on, or after it was interrupted.
"""

from absl import flags

from tfmat.errors import InputError

SUMMARY = "a page on a run: verdict, accuracy, pictures, provenance"


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines this command's flags."""
    flags.DEFINE_string("workdir", "runs/quickstart", "folder of the run", flag_values=flag_values)


def run(flag_values: flags.FlagValues, arguments: list[str]) -> int:
    """Writes the page and prints its path; returns the exit status."""
    if arguments:
        raise InputError(
            f"report takes no argument '{arguments[0]}'; name the run with --workdir={arguments[0]}"
        )
    from tfmat.report.training_report import write_training_report

    print(write_training_report(flag_values.workdir))
    return 0
