"""Lengths of training as people write them; epochs of a batch that grows, against a list made step by step."""

import itertools

import pytest

from tfmat.config import Duration, EpochPlan, is_growth, parse_growth
from tfmat.errors import InputError

PLAN = EpochPlan(1000, 64, parse_growth("2epochs:2, 3epoch:5"))
# (epoch, step within it, batch) of each global step of six epochs, counted out.
STEPS = [
    (epoch, i, batch)
    for epoch, batch in enumerate([64, 64, 128, 320, 320, 320])
    for i in range(len(range(0, 1000, batch)))
]


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


def test_every_step_is_where_counting_puts_it():
    for step, (epoch, within, batch) in enumerate(STEPS):
        assert PLAN.locate(step) == (epoch, within)
        assert PLAN.batch_size(epoch) == batch
        assert PLAN.first_step(epoch) == step - within
        assert PLAN.epochs(step) == epoch + within / PLAN.steps_in(epoch)
    assert PLAN.locate(len(STEPS)) == (6, 0)


def test_durations_where_the_batch_grows():
    assert PLAN.steps(Duration.parse("6epochs")) == len(STEPS)
    assert PLAN.steps(Duration.parse("2.5epochs")) == 16 + 16 + 4
    assert PLAN.steps(Duration.parse("7steps")) == 7
    with pytest.raises(ValueError, match="is a time"):
        PLAN.steps(Duration.parse("3s"))
    same = EpochPlan(1000, 64)
    assert same.steps(Duration.parse("1.7epochs")) == Duration.parse("1.7epochs").steps(16)


@pytest.mark.parametrize("every", ["1epochs", "2epochs", "0.5epochs", "5steps"])
def test_multiples_of_a_duration(every):
    duration = Duration.parse(every)
    found = list(itertools.accumulate(range(9), lambda s, _: PLAN.next_multiple(duration, s)))[1:]
    if every == "5steps":
        assert found == [5, 10, 15, 20, 25, 30, 35, 40]
    else:
        assert found == [PLAN.steps(Duration(duration.value * k, "epochs")) for k in range(1, 9)]


@pytest.mark.parametrize(
    "text", ["4:2", "4epochs", "2epochs:2,2epochs:4", "0epochs:2", "3epochs:0"]
)
def test_what_is_no_growth(text):
    assert not is_growth(text)
    with pytest.raises(InputError):
        parse_growth(text)


def test_a_batch_larger_than_the_set_is_refused():
    with pytest.raises(InputError, match="makes the batch 1280, there are 1000 training examples"):
        EpochPlan(1000, 64, parse_growth("1epochs:20"))
