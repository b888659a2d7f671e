"""Lengths of training as people write them."""

import pytest

from tfmat.durations import Duration
from tfmat.errors import InputError


@pytest.mark.parametrize(
    ("text", "value", "unit", "seconds"),
    [
        ("20steps", 20, "steps", None),
        ("1step", 1, "steps", None),
        ("8epochs", 8, "epochs", None),
        ("1 epoch", 1, "epochs", None),
        ("0.5epochs", 0.5, "epochs", None),
        (".5epochs", 0.5, "epochs", None),
        ("90s", 90, "s", 90),
        ("90sec", 90, "s", 90),
        (" 10m ", 10, "m", 600),
        ("10min", 10, "m", 600),
        ("1.5h", 1.5, "h", 5400),
        ("0s", 0, "s", 0),
    ],
)
def test_read(text: str, value: float, unit: str, seconds: float | None) -> None:
    duration = Duration.parse(text)
    assert (duration.value, duration.unit, duration.seconds) == (value, unit, seconds)
    assert Duration.parse(str(duration)) == duration


@pytest.mark.parametrize(
    "text",
    ["", "10", "steps", "-5steps", "1.5steps", "10 days", "10m30s", "1e3steps", "10M", "9" * 400 + "s"],
)  # fmt: skip
def test_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a duration; give a number with a unit: 20steps"):
        Duration.parse(text)


def test_steps() -> None:
    assert Duration.parse("20steps").steps(7) == 20
    assert Duration.parse("3epochs").steps(7) == 21
    assert Duration.parse("0.5epochs").steps(7) == 4  # 3.5, rounded to even
    assert Duration.parse("0.01epochs").steps(7) == 0
    with pytest.raises(ValueError, match="its steps follow from a measured rate"):
        Duration.parse("10m").steps(7)
