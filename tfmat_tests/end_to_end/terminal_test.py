"""What stands in the terminal, the pipe or the file: nothing of TensorFlow, no traceback, no half-drawn bar."""

import json
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import sys
import time

import pytest

from tfmat import __version__
from tfmat.cli.main import COMMANDS
from tfmat_tests.end_to_end.runs import SMALL_RUN, leftovers, status
from tfmat_tests.processes import PATIENCE, PROJECT, forked_python, real_python

ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if name not in ("TF_CPP_MIN_LOG_LEVEL", "MPLBACKEND", "PYTHONIOENCODING", "LC_ALL", "LANG")
} | {"PYTHONPATH": str(PROJECT), "LC_ALL": "C.UTF-8"}


def _run(*arguments: str, cwd: pathlib.Path, **changes: str) -> subprocess.CompletedProcess[str]:
    environment = ENVIRONMENT | changes
    return real_python("-m", "tfmat", *arguments, cwd=cwd, env=environment, errors="replace")


def test_help_of_every_command_teaches_without_tensorflow(tmp_path: pathlib.Path) -> None:
    # One process for all of them: what one loads the others do not hide, since nothing may be loaded at all.
    program = f"""
import sys
from tfmat.cli.main import main
every = [[name, "--help"] for name in {list(COMMANDS)!r}]
for arguments in [["--help"], ["--version"], *every, ["laws"], ["laws", "voce"]]:
    print("==", *arguments, flush=True)
    assert main(arguments) == 0, arguments
    loaded = {{"tensorflow", "keras", "matplotlib"}} & set(sys.modules)
    assert not loaded, (arguments, loaded)
"""
    done = real_python("-c", program)
    assert done.returncode == 0 and not done.stderr, done.stderr
    texts = dict(part.split("\n", 1) for part in done.stdout.split("== ")[1:])
    for name in COMMANDS:
        assert name in texts["--help"]
        text = texts[f"{name} --help"]
        assert text.startswith(f"tfmat {name}: ") and f"  tfmat {name} " in text  # an example
        assert name == "horovod" or re.search(r"\n\n\w.*:\n  --\w", text)  # that one has no flags
    assert "optimizer.learning_rate: peak learning rate [0.0015]" in texts["train --help"]
    assert "config_override" not in texts["train --help"]
    assert texts["--version"] == f"tfmat {__version__}\n"


def test_a_whole_run_as_users_start_it(tmp_path: pathlib.Path) -> None:
    """As a process of its own from the beginning; every line on standard error is tfmat's own. With another law."""
    law = ("--law=voce", "--config.fixed.E=193000", "--config.ranges.Q=50,1600")
    done = _run(*SMALL_RUN, *law, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    expected = [
        r"writing 830 curves \(0\.3 MB\) into data/voce-810-[0-9a-f]{8}; `tfmat clean` lists .*",
        r"simulated in .* s",
        r"network: [0-9,]+ parameters, 3 outputs",
        *[r"epoch ./3  loss \S+  val_loss \S+  [0-9,]+ curves/s  \d:\d\d left"] * 3,
        r"done: .*",
        r"the example curve is simulated: .*\.csv",
        r"identify your own as this one: tfmat identify .*\.csv --workdir=run",
        r"report: run/report\.html",
    ]
    lines = done.stderr.splitlines()
    assert len(lines) == len(expected), done.stderr
    for line, pattern in zip(lines, expected, strict=True):
        assert re.fullmatch(pattern, line), line
    assert done.stdout.startswith("law voce, 20 test curves")
    assert "\x1b" not in done.stdout + done.stderr
    run = tmp_path / "run"
    config, sidecar = (
        json.loads((run / f"{name}.json").read_text()) for name in ("config", "model")
    )
    assert config["law"] == "voce" and config["fixed"] == {"E": 193000.0}
    assert [p["name"] for p in sidecar["parameters"]] == ["sigma0", "Q", "b"]
    assert (run / "figures" / "example.png").stat().st_size > 1000


@pytest.mark.parametrize(
    "changes", [{"PYTHONIOENCODING": "latin-1"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}]
)  # fmt: skip
def test_terminals_that_are_not_utf_8(tmp_path: pathlib.Path, changes: dict[str, str]) -> None:
    done = _run("laws", cwd=tmp_path, **changes)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert "Voce 1948" in done.stdout
    done = _run("laws", "εlaw", cwd=tmp_path, **changes)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr


def test_readers_that_go_away(tmp_path: pathlib.Path) -> None:
    for command in ("laws", "train --help", "laws --json"):
        done = subprocess.run(
            f"{sys.executable} -m tfmat {command} | head -1; exit ${{PIPESTATUS[0]}}",
            shell=True, executable="/bin/bash", cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0 and not done.stderr, done.stderr
        assert done.stdout.count("\n") == 1
    for redirection, expected in ((">&-", 0), (">/dev/full", 2)):
        done = subprocess.run(
            f"{sys.executable} -m tfmat laws {redirection}",
            shell=True, executable="/bin/bash", cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == expected, done.stderr
        assert done.stderr.count("\n") == (1 if expected else 0) and "Traceback" not in done.stderr


ENDLESS_RUN = (
    *SMALL_RUN,
    "--config.train_for=500epochs",
    "--config.callbacks.early_stopping_patience=500",
)


class Terminal:
    """A terminal of 100 columns in which one `tfmat ...` runs, with TensorFlow loaded."""

    def __init__(self, *arguments: str, cwd: pathlib.Path):
        self.text, python = "", forked_python()
        self.pid, self._descriptor = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            environment = ENVIRONMENT | {"TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
            os.execve(python, [python, "-m", "tfmat", *arguments], environment)

    def read_until(self, pattern: str) -> None:
        """Reads what it prints until the pattern is there; '' waits for its end."""
        deadline = time.monotonic() + PATIENCE
        while not pattern or not re.search(pattern, self.text):
            assert time.monotonic() < deadline, self.text
            if select.select([self._descriptor], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self._descriptor, 65536).decode(errors="replace")
                except OSError:  # the terminal closes with its last program
                    assert not pattern, self.text
                    return

    def close(self) -> int:
        """Exit status."""
        self.read_until("")
        os.close(self._descriptor)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_ctrl_c_in_a_terminal(tmp_path: pathlib.Path) -> None:
    terminal = Terminal(*ENDLESS_RUN, cwd=tmp_path)
    terminal.read_until(r"epoch 2/500  loss")
    assert "curves/s" in terminal.text and "left  loss" in terminal.text  # the bar
    os.write(terminal._descriptor, b"\x03")
    assert terminal.close() == 75
    screen = _screen(terminal.text)
    assert screen[-1].startswith("tfmat: SIGINT received; saved at step ")
    assert not [line for line in screen if "━" in line], screen  # no bar is left
    assert "\x1b[?25h" in terminal.text.rpartition("\x1b[?25l")[2]  # the cursor is shown again
    assert status(tmp_path / "run")["state"] == "interrupted" and not leftovers(tmp_path)


@pytest.mark.large
@pytest.mark.parametrize("delay", [0.1, 0.3, 0.6, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0])
def test_ctrl_c_at_any_time(tmp_path: pathlib.Path, delay: float) -> None:
    """Also while TensorFlow is loaded: one line, no banner, no traceback."""
    # Python itself dies of it where it is still starting, as it is for long on a busy machine.
    program = "import runpy; print(flush=True); runpy.run_module('tfmat', run_name='__main__', alter_sys=True)"
    process = subprocess.Popen(
        [sys.executable, "-c", program, *ENDLESS_RUN],
        cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "\n"
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode in (75, -signal.SIGINT), (
        err
    )  # before Python has its handlers, the latter
    if process.returncode == 75:
        assert err.splitlines()[-1].endswith("start the same command again to go on"), err
        assert "Traceback" not in err and "oneDNN" not in err


def _screen(text: str) -> list[str]:
    """The lines that a terminal shows after `text`, for the few control sequences that progress bars use."""
    lines, row = [""], 0
    for token in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r\n|\r|\n|[^\x1b\r\n]+", text):
        if token in ("\n", "\r\n"):
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif token.startswith("\x1b["):
            if token.endswith("A"):
                row = max(0, row - int(token[2:-1] or 1))
            elif token == "\x1b[2K":
                lines[row] = ""
        elif token != "\r":  # always followed by an erased line
            lines[row] += token
    return [line.rstrip() for line in lines if line.strip()]
