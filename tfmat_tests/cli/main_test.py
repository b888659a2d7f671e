"""The entry point: commands, flags, errors, exit status."""

import dataclasses
import os
import re
import shlex
import signal
import subprocess
import sys
import threading

import pytest
from absl import flags

from tfmat import errors
from tfmat.cli import data
from tfmat.cli import main as module
from tfmat.cli.main import COMMANDS, find_command, main
from tfmat.config import load_config

Capture = pytest.CaptureFixture[str]

TAKE_ARGUMENTS = ("identify", "clean", "landscape", "laws", "horovod")


def _raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Makes `tfmat laws` raise it."""

    def run(flag_values: flags.FlagValues, arguments: list[str]) -> int:
        raise error

    monkeypatch.setattr(data, "laws", dataclasses.replace(data.laws, run=run))


@pytest.mark.parametrize("argument", ["--help", "-h", "help", "--helpfull"])
def test_help(done, argument):
    out = done(argument)
    assert all(f"  {name} " in out for name in COMMANDS)
    assert "exit status: 0 done; 1 a defect of tfmat; 2 something in the input" in out


def test_nothing_at_all_is_a_mistake_that_teaches(capsys):
    assert main([]) == 2
    assert "usage: tfmat COMMAND" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["lows"], "unknown command 'lows'; did you mean 'laws'?"),
        (["--jsn"], "unknown flag '--jsn'; a command comes first, see `tfmat --help`"),
        (["laws", "--jsn"], "unknown flag --jsn; did you mean '--json'? (see `tfmat laws --help`)"),
        (["laws", "--json=5"], None),
        (["identify", "x", "--area=31.7,38"],
         ("--area is '31.7,38'; give one number, with a decimal point if any; "
          "answer specimens of different sizes one at a time")),
        (["generate", "--seed=1.5"], "--seed is '1.5'; give a whole number"),
        (["generate", "--seed"], None),
    ],
)  # fmt: skip
def test_one_line_for_a_mistake(refused, arguments, line):
    assert refused(*arguments) == line or line is None


@pytest.mark.parametrize(
    "error",
    [
        errors.TfmatError, errors.InputError, errors.DivergedError, errors.WorkerLostError,
        errors.Interrupted,
    ],
)  # fmt: skip
def test_errors_become_their_exit_status(monkeypatch, capsys, error):
    _raising(monkeypatch, error("what is wrong"))
    assert main(["laws"]) == error.exit_status
    assert capsys.readouterr().err == "tfmat: what is wrong\n"


def test_too_little_memory_for_a_library(monkeypatch, refused):
    """NumPy and TensorFlow say it somewhere among the causes (seen with `ulimit -v 300000`)."""
    error = ImportError("a long text about what to do")
    error.__cause__ = ImportError("libx.so.2: failed to map segment from shared object")
    _raising(monkeypatch, error)
    assert "allow more (`ulimit -v`" in refused("laws")
    # The order of imports makes the second one, and no limit of memory.
    for other in (
        "cannot import name 'x'",
        "libgomp.so.1: cannot allocate memory in static TLS block",
    ):
        _raising(monkeypatch, ImportError(other))
        with pytest.raises(ImportError):
            main(["laws"])


def test_ctrl_c(monkeypatch, capsys):
    _raising(monkeypatch, KeyboardInterrupt())
    assert main(["laws"]) == 75
    assert capsys.readouterr().err == "tfmat: interrupted; start the same command again to go on\n"


def test_a_defect_is_not_hidden(monkeypatch):
    for error in (ZeroDivisionError(), FileNotFoundError(2, "none"), SystemExit(5)):
        _raising(monkeypatch, error)
        with pytest.raises(type(error)):
            main(["laws"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_signals(monkeypatch, capsys, number):
    def run(flag_values: flags.FlagValues, arguments: list[str]) -> int:
        os.kill(os.getpid(), number)
        return 0

    monkeypatch.setattr(data, "laws", dataclasses.replace(data.laws, run=run))
    before = signal.getsignal(number)
    assert main(["laws"]) == 75
    assert capsys.readouterr().err == (
        f"tfmat: {number.name} received; start the same command again to go on\n"
    )
    assert signal.getsignal(number) == before


def test_from_a_thread_of_another_program(capsys):
    statuses: list[int] = []
    thread = threading.Thread(target=lambda: statuses.append(main(["laws", "voce"])))
    thread.start()
    thread.join()
    assert statuses == [0] and "Voce 1948" in capsys.readouterr().out


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in TAKE_ARGUMENTS])
def test_a_stray_argument_is_refused(name, refused):
    assert re.fullmatch(rf"{name} takes no argument 'stray'(; .+)?", refused(name, "stray"))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_the_agreed_form(name, done):
    text = done(name, "--help").partition("\nconfig keys (")[0]
    assert re.match(f"tfmat {name}: \\w", text)
    shown = re.findall(r"^  --(\w+): ", text, re.MULTILINE)
    # A flag for the program, not for people.
    known = set(find_command(name).define()) - {"config_override"}
    assert len(shown) == len(known) and set(shown) == known
    # A run names its law's file, and so does a data set, which generate repairs.
    assert ("trust" in known) == ("workdir" in known or name == "generate")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_begins_with_examples_to_paste(name, done):
    """They stand below the first sentence, use flags that exist, and a remark is the shell's comment."""
    examples = done(name, "--help").split("\n\n")[1].splitlines()
    for example in examples:
        words = shlex.split(example, comments=True)
        shown, *rest = words[words.index("tfmat") + 1 :]
        given = {word[2:].partition("=")[0] for word in rest if word.startswith("--")}
        known = find_command(shown).define()
        assert {flag for flag in given if not flag.startswith("config.")} <= {
            *known, *(f"no{flag}" for flag in known),
        }  # fmt: skip
        assert shown in TAKE_ARGUMENTS or all(word.startswith("--") for word in rest)


def test_help_shows_flags_in_titled_groups(done):
    """All that `tfmat identify` takes stands on two screens, and what is wanted most comes first."""
    text = done("identify", "--help")
    assert text.count("\n") <= 100 and max(map(len, text.splitlines())) <= 100
    groups = dict(re.findall(r"(?<=\n\n)(\w[^\n]*):\n((?:  .*\n)+)", text))
    assert list(groups)[:4] == ["answer", "output", "input", "cleaning"]
    assert groups["answer"].startswith("  --law: ")
    assert set(re.findall("--(toe|window|envelope)", groups["cleaning"])) == {
        "toe", "window", "envelope",
    }  # fmt: skip


def _shown(text: str) -> dict[str, str]:
    """Config key -> value in brackets, of a command's help."""
    _, _, keys = text.partition("config keys")
    return dict(re.findall(r"^  ([a-z_.]+): .* \[(.*)\]$", keys, re.MULTILINE))


@pytest.mark.parametrize("command", ["train", "layouts", "scale", "lr_range"])
def test_help_shows_what_a_run_would_take(command, done):
    """The config file's own values and those of the command line, not the schema's."""
    shown = _shown(done(command, "--help"))
    file = "scaling" if command == "scale" else "quickstart"
    config = load_config(f"configs/{file}.py")
    assert shown["optimizer.warmup"] == config.optimizer.warmup
    assert shown["data.num_curves"] == str(config.data.num_curves)
    assert shown["optimizer.learning_rate"] == str(config.optimizer.learning_rate)
    assert shown["model.hidden_units"] == "125" and shown["jit_compile"] == "false"
    changed = ["--config=configs/baseline.py", "--config.train_for=10m"]
    shown = _shown(done(command, *changed, "--help"))
    assert (shown["global_batch_size"], shown["train_for"]) == ("75", "10m")
    assert main([command, "--unknown", "--help"]) == 0


def test_flags_and_arguments_in_any_order(done):
    first = done("laws", "voce", "--json")
    assert done("laws", "--json", "voce") == first


def test_the_program_ends_with_the_status(monkeypatch):
    monkeypatch.setattr("sys.argv", ["tfmat", "--nothing"])
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit) as caught:
            module.console_main()
    finally:
        # It ignores Ctrl-C at its end, and programs that other tests start would inherit that.
        signal.signal(signal.SIGINT, before)
    assert caught.value.code == 2


def test_a_full_disk_behind_standard_output(monkeypatch, refused):
    _raising(monkeypatch, OSError(28, os.strerror(28)))
    monkeypatch.setattr(module, "_discard_output", lambda: None)
    assert "cannot write the output: No space left on device" in refused("laws")


def test_the_project_folder_is_not_needed(tmp_path, monkeypatch, done):
    monkeypatch.chdir(tmp_path)
    assert "configs/quickstart.py" in done("train", "--help")
    assert not list(tmp_path.iterdir())


def test_the_list_of_commands_loads_nothing_heavy():
    heavy = "{'jinja2', 'numpy', 'psutil', 'rich', 'subprocess', 'tensorflow'}"
    program = f"import sys, tfmat.cli.main; print(*sorted({heavy} & set(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, "\n"), ended.stderr
