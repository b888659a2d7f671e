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
import textwrap
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

from absl import flags

import tfmat
from tfmat.console import StandardError, printable
from tfmat.errors import InputError, Interrupted, TfmatError, nearest
from tfmat.files import write_error

if TYPE_CHECKING:
    from tfmat.cli.flags import Command

# Command -> its module in tfmat/cli, and one line for `tfmat --help`, here so that the list loads no command.
COMMANDS = {
    "train": (
        "train",
        "simulate curves, train the network, evaluate it and identify an example (the main job)",
    ),
    "generate": ("data", "simulate labelled curves, or pack your own, into a data set"),
    "emulate": (
        "data",
        "train a network in place of a program that simulates a specimen, as a law",
    ),
    "evaluate": ("train", "accuracy of a trained network on curves that it never saw"),
    "identify": ("identify", "material parameters of measured stress-strain curves"),
    "app": ("app", "a page to drop files on, for people without a shell"),
    "tune": (
        "train",
        "search hyper-parameters, with one command that can be left alone over night",
    ),
    "lr_range": ("studies", "learning-rate range test, for one batch or several"),
    "batch_sweep": (
        "studies",
        "time and accuracy over batch sizes, at equal epochs and at equal time",
    ),
    "learning_curve": (
        "studies",
        "how many curves, and how large a network, a wanted accuracy takes",
    ),
    "noise_scale": (
        "studies",
        "gradient noise scale of a run, and the critical batch that it predicts",
    ),
    "landscape": ("studies", "the loss around a run's minimum: surfaces, curvature, sharpness"),
    "scale": ("studies", "measure what more workers buy, and where the time goes"),
    "report": ("train", "a page on a run: verdict, accuracy, pictures, provenance"),
    "layouts": (
        "train",
        "how a mesh or pipeline stages would divide a network, and what that costs",
    ),
    "clean": ("data", "list the data sets on the disk, and delete those that are not needed"),
    "laws": ("data", "the material laws with formulas, units, ranges and sources"),
    "horovod": ("train", "build Horovod for this TensorFlow, and install it"),
    "doctor": ("train", "what this machine can do, and how to get what is missing"),
}

# Width of a command's help.
_COLUMNS = 100
_SECONDS_FOR_RANK_0 = 3.0
# Texts of the loader of shared libraries says where memory is limited (glibc, elf/dl-map-segments.h and dl-load.c).
_NO_MEMORY = re.compile("failed to map segment|[Cc]annot allocate memory(?! in static TLS)")
# Seconds after which an interruption comes again: by then the destructor that swallowed it is done.
_AGAIN_AFTER = 0.02
_HELP = ("--help", "-h", "--helpfull")

_USAGE = """tfmat: parameters of material laws from stress-strain curves

usage: tfmat COMMAND [--flag=value ...]

commands:
{commands}

`tfmat COMMAND --help` explains one. A first try:
  tfmat identify my_curve.csv                    a test of a metal, a ply, rubber: by the best law for it
  tfmat identify my_curve.csv --law=swift        the same by one law
  tfmat train                                    a network of your own for that, a few minutes on two cores

exit status: 0 done; 1 a defect of tfmat; 2 something in the input; 3 the training diverged;
             4 a worker was lost; 5 identify --strict: not to be used;
             75 interrupted, the same command goes on"""


def usage() -> str:
    """The text of `tfmat --help`."""
    width = max(map(len, COMMANDS))
    return _USAGE.format(
        commands="\n".join(
            f"  {name:{width}}  {summary}" for name, (_, summary) in COMMANDS.items()
        )
    )


def find_command(name: str) -> "Command":
    """The command of a name in `COMMANDS`; loads its module."""
    command: Command = getattr(importlib.import_module(f"tfmat.cli.{COMMANDS[name][0]}"), name)
    return command


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
            return _tell(interruptions.behind(error))


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
        case Exception() if "tfmat.materials.registry" in sys.modules:
            from tfmat.materials.registry import users_error

            if found := users_error(error):
                return _tell(found)
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
    """Shows the log of tfmat's modules, once: TensorFlow's libraries bring a handler of their own."""
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
    """Lets what is still buffered go nowhere: Python would try to write it at exit, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def console_main() -> None:
    """Entry point of the installed program."""
    status = main(sys.argv[1:], to_the_end=True)
    # Python's last steps put its handlers back.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(status)


def _let_rank_0_speak() -> None:
    """An error of all ranks is said once: by the time the others would say it, mpirun or srun has ended them."""
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
    from tfmat.cli.flags import rewrite

    command = find_command(name)
    flag_values = command.define()
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
    from tfmat.launch.processes import check_settings

    check_settings()
    if positional and command.no_argument is not None:
        hint = command.no_argument.format(positional[0])
        raise InputError(f"{name} takes no argument '{positional[0]}'{hint}")
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
        raise InputError(_plain_error(" ".join(str(error).split()))) from error


def _plain_error(text: str) -> str:
    """absl's error without the words of Python's conversions to a number."""
    found = re.fullmatch(r"flag --(\w+)=(.*?): (could not convert|invalid literal for int).*", text)
    if found is None:
        return text
    name, value, of = found.groups()
    kind = (
        "one number, with a decimal point if any" if of == "could not convert" else "a whole number"
    )
    is_size = name in ("area", "gauge_length") and "," in value
    hint = "; answer specimens of different sizes one at a time" if is_size else ""
    return f"--{name} is '{value}'; give {kind}{hint}"


def _command_help(name: str, command: "Command", flag_values: flags.FlagValues) -> str:
    lines = [f"tfmat {name}: {command.about()}"]
    for title, rows in command.meanings(flag_values):
        lines += ["", f"{title}:"]
        for flag, meaning in rows:
            lines += textwrap.wrap(
                f"{flag}: {meaning}",
                _COLUMNS,
                initial_indent="  ",
                subsequent_indent="      ",
                break_long_words=False,
                break_on_hyphens=False,
            )
    if "config" in flag_values and command.shows_config:
        from tfmat.cli.flags import config_help

        lines.append(config_help(flag_values))
    return "\n".join(lines)


# --------------------------------------------------------------------------------------------------
# Signals that end a command: as exceptions, and never lost.


class _CtrlC(KeyboardInterrupt):
    """Ctrl-C. A plain KeyboardInterrupt in code that was made of text, as in dataclasses, would make Python end
    by SIGINT, whatever the status is (unhandled_keyboard_interrupt in pythonrun.c)."""


@contextlib.contextmanager
def signals_as_interruptions(*, to_the_end: bool = False) -> Iterator["Interruptions"]:
    """SIGTERM and SIGUSR1 end a command as Ctrl-C does. While it trains, the training room takes them, and saves.

    Args:
      to_the_end: the process ends with the command, and Ctrl-C does nothing from there on: Python's own handler would
        let an impatient one tear what is still deleted then.

    Raises:
      Interrupted: at SIGTERM or SIGUSR1, once.
      KeyboardInterrupt: at each Ctrl-C.
    """
    interruptions = Interruptions()
    if threading.current_thread() is not threading.main_thread():  # Python takes no signals there
        yield interruptions
        return
    handlers: dict[signal.Signals, Any] = {
        signal.SIGTERM: interruptions.by_signal,
        signal.SIGUSR1: interruptions.by_signal,
    }
    # Where the caller ignores Ctrl-C, as a shell does for what runs in its background, so do we.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        handlers[signal.SIGINT] = interruptions.by_hand
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    sys.unraisablehook = interruptions.unraisable
    try:
        yield interruptions
    finally:
        interruptions.stop_listening()
        sys.unraisablehook = interruptions.other_hook
        if to_the_end:
            previous.pop(signal.SIGINT, None)
        for number, handler in previous.items():
            signal.signal(number, handler)


class Interruptions:
    """The handlers, and what they need to know of each other."""

    def __init__(self) -> None:
        self._listening = True
        # The signal that became Interrupted, or 0; later ones do not disturb the clearing up.
        self._raised: int = 0
        # The exception that the handlers raised last.
        self._last: KeyboardInterrupt | Interrupted | None = None
        # An exception that is raised while the hook runs is lost for good.
        self._in_hook = False
        self.other_hook = sys.unraisablehook

    def stop_listening(self) -> None:
        """Nothing interrupts from here on."""
        self._listening = False

    def behind(self, error: BaseException) -> BaseException:
        """The interruption that became a defect's exception, or the error itself where it has a line of its own.

        TensorFlow makes a TypeError of what is raised while it looks at the arguments of a graph.
        """
        expected = isinstance(error, TfmatError | KeyboardInterrupt | OSError | SystemExit)
        return error if expected or self._last is None else self._last

    def by_hand(self, number: int, frame: FrameType | None) -> None:
        """Handler of SIGINT."""
        if self._in_hook or _starts_a_thread(frame):
            _send_again(number)
        elif self._listening:
            self._last = _CtrlC()
            raise self._last

    def by_signal(self, number: int, frame: FrameType | None) -> None:
        """Handler of SIGTERM and SIGUSR1."""
        if self._in_hook or _starts_a_thread(frame):
            _send_again(number)
        elif self._listening and not self._raised and not _clears_up():
            self._raised = number
            name = signal.Signals(number).name
            self._last = Interrupted(f"{name} received; start the same command again to go on")
            raise self._last

    def unraisable(self, lost: "sys.UnraisableHookArgs") -> None:
        """Sends again what came while an object was being deleted: Python prints it there, and goes on."""
        self._in_hook = True
        try:
            if isinstance(lost.exc_value, KeyboardInterrupt):
                _send_again(signal.SIGINT)
            elif isinstance(lost.exc_value, Interrupted) and self._raised:
                number, self._raised = self._raised, 0
                _send_again(number)
            else:
                self.other_hook(lost)
        finally:
            self._in_hook = False


def _clears_up() -> bool:
    """Whether an Interrupted is being handled where this is called, also one that another room raised."""
    handled = sys.exception()
    while handled and not isinstance(handled, Interrupted):
        handled = handled.__context__
    return handled is not None


def _starts_a_thread(frame: FrameType | None) -> bool:
    """Whether a frame stands in `Thread.start`, which an exception would tear: the thread ends with a traceback."""
    while frame is not None and frame.f_code is not threading.Thread.start.__code__:
        frame = frame.f_back
    return frame is not None


def _send_again(number: int) -> None:
    """Sends a signal a little later: here and now it would be lost again, or tear what it came into."""
    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), number))
    signal.setitimer(signal.ITIMER_REAL, _AGAIN_AFTER)
