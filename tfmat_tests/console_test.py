"""Lines, bars and times for people."""

import logging
import re

import pytest
from rich.table import Table
from rich.text import Text

from tfmat.cli.main import main
from tfmat.console import clock_text, log, open_console, progress_bar


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (7.4, "0:07"), (59.6, "1:00"), (754, "12:34"), (3599.7, "1:00:00"), (10_801, "3:00:01")],
)  # fmt: skip
def test_seconds(seconds: float, text: str) -> None:
    assert clock_text(seconds) == text


def test_a_line_goes_to_standard_error_and_to_the_logger(capsys):
    lines: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    listener = Listener()
    logging.getLogger("tfmat.console").addHandler(listener)
    try:
        log("100 % of [the] line")
    finally:
        logging.getLogger("tfmat.console").removeHandler(listener)
    assert capsys.readouterr().err == "100 % of [the] line\n"
    assert lines == ["100 % of [the] line"]


def test_a_pipe_is_wide_and_has_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    open_console(300).print("word " * 50)
    assert len(capsys.readouterr().out.splitlines()) == 1
    with progress_bar("working", "curves") as show:
        assert show is None


def test_a_name_gives_no_orders_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A title, the clipboard (OSC) and 8-bit CSI, in a line of the log, in a table and in an error."""
    evil = "a\x1b]0;title\x07\x1b]52;c;eA==\x07\x9b2J\r.csv"
    log(evil)
    table = Table(evil)
    table.add_row(Text(evil))
    open_console().print(table, evil)
    assert main(["identify", evil]) == 2
    said = capsys.readouterr()
    for text in said:
        assert "\\x1b]0;title" in text
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)
