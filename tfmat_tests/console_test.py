"""Lines, bars and times for people."""

import logging

import pytest

from tfmat.console import clock_text, log, open_console, progress_bar


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (7.4, "0:07"), (59.6, "1:00"), (754, "12:34"), (3599.7, "1:00:00"), (10_801, "3:00:01")],
)  # fmt: skip
def test_seconds(seconds: float, text: str) -> None:
    assert clock_text(seconds) == text


def test_a_line_goes_to_standard_error_and_to_the_logger(
    capsys: pytest.CaptureFixture[str],
) -> None:
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
