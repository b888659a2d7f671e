"""`tfmat COMMAND ...`: finds the command, parses its flags, and turns errors into one line and an exit status."""

import contextlib
import errno
import importlib
import io
import logging
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from types import ModuleType

from absl import flags

import tfmat
from tfmat.cli.interruptions import signals_as_interruptions
from tfmat.console import StandardError, printable
from tfmat.errors import InputError, Interrupted, TfmatError, nearest
from tfmat.files import write_error

# Command -> one line for `tfmat --help`, here so that the list loads no command.
COMMANDS = {
    "train": "simulate curves, train the network, evaluate it and identify an example (the main job)",
    "generate": "simulate labelled curves, or pack your own, into a data set",
    "emulate": "train a network in place of a program that simulates a specimen, as a law",
    "evaluate": "accuracy of a trained network on curves that it never saw",
    "identify": "material parameters of measured stress-strain curves",
    "tune": "search hyper-parameters, with one command that can be left alone over night",
    "lr_range": "learning-rate range test, for one batch or several",
    "batch_sweep": "time and accuracy over batch sizes, at equal epochs and at equal time",
    "learning_curve": "how many curves, and how large a network, a wanted accuracy takes",
    "noise_scale": "gradient noise scale of a run, and the critical batch that it predicts",
    "landscape": "the loss around a run's minimum: surfaces, curvature, sharpness",
    "scale": "measure what more workers buy, and where the time goes",
    "report": "a page on a run: verdict, accuracy, pictures, provenance",
    "layouts": "how a mesh or pipeline stages would divide a network, and what that costs",
    "clean": "list the data sets on the disk, and delete those that are not needed",
    "laws": "the material laws with formulas, units, ranges and sources",
    "doctor": "what this machine can do, and how to get what is missing",
}

_SECONDS_FOR_RANK_0 = 3.0
# What the loader of shared libraries says where memory is limited (glibc, elf/dl-map-segments.h and dl-load.c).
_NO_MEMORY = re.compile("failed to map segment|[Cc]annot allocate memory(?! in static TLS)")
_HELP = ("--help", "-h", "--helpfull")

_USAGE = """tfmat: parameters of material laws from stress-strain curves

usage: tfmat COMMAND [--flag=value ...]

commands:
{commands}

`tfmat COMMAND --help` explains one. A first try:
  tfmat identify my_curve.csv --law=swift        the tension test of a metal
  tfmat identify my_curve.csv --law=hahn_tsai    a ply in shear
  tfmat train                                    a network of your own for that, a few minutes on two cores

exit status: 0 done; 1 a defect of tfmat; 2 something in the input; 3 the training diverged;
             4 a worker was lost; 75 interrupted, the same command goes on"""


def usage() -> str:
    """The text of `tfmat --help`."""
    width = max(map(len, COMMANDS))
    return _USAGE.format(
        commands="\n".join(f"  {name:{width}}  {summary}" for name, summary in COMMANDS.items())
    )


def main(arguments: list[str], *, to_the_end: bool = False) -> int:
    """Runs one command line (without the program's name). Returns the exit status.

    `to_the_end` is whether the process ends with it, see `signals_as_interruptions`.
    """
    _prepare_output()
    with _log_on_stderr(), signals_as_interruptions(to_the_end=to_the_end) as interruptions:
        try:
            status = _dispatch(arguments)
            sys.stdout.flush()  # while a failure can still be told
            interruptions.stop_listening()
            return status
        except BaseException as error:
            interruptions.stop_listening()  # an impatient Ctrl-C must not tear what is told now
            return _tell(error)


def _tell(error: BaseException) -> int:
    """Says in one line what ended a command, and returns its exit status; defects go on as exceptions."""
    match error:
        case TfmatError():
            if not error.said_elsewhere:
                _let_rank_0_speak()
                _complain(str(error))
            return error.exit_status
        case KeyboardInterrupt():
            _complain("interrupted; start the same command again to go on")
            return Interrupted.exit_status
        case BrokenPipeError():
            # The reader of our output (head, say) has gone: not an error, and nothing can be told to it.
            _discard_output()
            return 0
        case OSError(errno=errno.ENOSPC | errno.EDQUOT | errno.EFBIG):
            _discard_output()
            _complain(str(write_error(error.filename or "the output", error)))
            return InputError.exit_status
        case ImportError() if _NO_MEMORY.search(_causes(error)):
            _complain(
                "a library cannot be loaded, most often because this process may not use enough memory; allow more "
                "(`ulimit -v`, or the memory of the job). A folder that is mounted noexec does the same"
            )
            return InputError.exit_status
        case SystemExit() if isinstance(
            error.__context__, BrokenPipeError
        ):  # what rich makes of it
            return 0
    raise error


def _causes(error: BaseException) -> str:
    """The texts of an error and of what caused it."""
    texts: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        texts.append(str(cause))
        cause = cause.__cause__ or cause.__context__
    return "\n".join(texts)


def _prepare_output() -> None:
    """A terminal that is not UTF-8 shows `?` for an ε, and output that the caller closed (`>&-`) goes nowhere."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (until the process ends)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


@contextlib.contextmanager
def _log_on_stderr() -> Iterator[None]:
    """What tfmat's modules log is shown, once: TensorFlow's libraries bring a handler of their own."""
    log, handler = logging.getLogger("tfmat"), StandardError()
    before = log.level, log.propagate
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before[0])
        log.propagate = before[1]


def _discard_output() -> None:
    """What is still buffered goes nowhere: Python would try to write it at exit, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def console_main() -> None:
    """Entry point of the installed program."""
    status = main(sys.argv[1:], to_the_end=True)
    # Python's last steps put its handlers back.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(status)


def _let_rank_0_speak() -> None:
    """What all ranks found wrong is said once: by the time the others would say it, mpirun or srun has ended them."""
    from tfmat.launch.processes import find_processes

    with contextlib.suppress(InputError):
        if find_processes().rank > 0:
            time.sleep(_SECONDS_FOR_RANK_0)


def _complain(message: str) -> None:
    print(f"tfmat: {printable(message)}", file=sys.stderr, flush=True)


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in (*_HELP, "help"):
        print(usage())
        return 0 if arguments else InputError.exit_status
    if arguments[0] == "--version":
        print(f"tfmat {tfmat.__version__}")
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        kind = "flag" if name.startswith("-") else "command"
        hint = (
            "; a command comes first, see `tfmat --help`"
            if kind == "flag"
            else nearest(name, COMMANDS)
        )
        raise InputError(f"unknown {kind} '{name}'{hint}")
    from tfmat.cli.flags import define, rewrite

    command = importlib.import_module(f"tfmat.cli.{name}")
    flag_values = flags.FlagValues()
    define(flag_values, command.FLAGS)
    if "config_override" in flag_values:
        rest = rewrite(rest)
    if any(argument in _HELP for argument in rest):
        # The other flags may choose what is explained (a config, say); wrong ones keep nobody from the help.
        with contextlib.suppress(InputError):
            _parse(name, flag_values, [word for word in rest if word not in _HELP])
        flag_values.mark_as_parsed()
        print(_command_help(name, command, flag_values))
        return 0
    positional = _parse(name, flag_values, rest)
    from tfmat.launch.runtime import check_settings

    check_settings()
    instead = getattr(command, "NO_ARGUMENT", None)
    if positional and instead is not None:
        raise InputError(
            f"{name} takes no argument '{positional[0]}'{instead.format(positional[0])}"
        )
    if "trust" in flag_values and flag_values.trust:
        from tfmat.materials.registry import trust

        for file_name in flag_values.trust:
            trust(file_name)
    return command.run(flag_values, positional) or 0


def _parse(name: str, flag_values: flags.FlagValues, arguments: list[str]) -> list[str]:
    """Parses flags in any order; returns the positional arguments."""
    flag_values.set_gnu_getopt(True)
    try:
        return flag_values([f"tfmat {name}", *arguments])[1:]
    except flags.UnrecognizedFlagError as error:
        hint = nearest(f"--{error.flagname}", [f"--{known}" for known in flag_values])
        raise InputError(
            f"unknown flag --{error.flagname}{hint} (see `tfmat {name} --help`)"
        ) from error
    except flags.Error as error:
        raise InputError(" ".join(str(error).split())) from error


def _command_help(name: str, command: ModuleType, flag_values: flags.FlagValues) -> str:
    lines = [f"tfmat {name}: {(command.__doc__ or '').strip()}", "", "flags:"]
    for flag in sorted(flag_values, key=str):
        holder = flag_values[flag]
        if holder.help.startswith("(no help"):  # made for the program, not for people
            continue
        default = "" if holder.default in (None, [], "", False) else f" [{_text(holder.default)}]"
        lines.append(f"  --{flag}: {holder.help}{default}")
    extra = getattr(command, "extra_help", None)
    return "\n".join([*lines, *([extra(flag_values)] if extra else [])])


def _text(default: object) -> str:
    return ",".join(map(str, default)) if isinstance(default, list | tuple) else str(default)
