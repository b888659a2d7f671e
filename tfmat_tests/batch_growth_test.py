"""Where epochs begin when the batch grows, against a list made step by step."""

import itertools

import pytest

from tfmat.batch_growth import EpochPlan, is_growth, parse_growth
from tfmat.durations import Duration
from tfmat.errors import InputError

PLAN = EpochPlan(1000, 64, parse_growth("2epochs:2, 3epoch:5"))
# (epoch, step within it, batch) of each global step of six epochs, counted out.
STEPS = [
    (epoch, i, batch)
    for epoch, batch in enumerate([64, 64, 128, 320, 320, 320])
    for i in range(len(range(0, 1000, batch)))
]


def test_every_step_is_where_counting_puts_it():
    for step, (epoch, within, batch) in enumerate(STEPS):
        assert PLAN.locate(step) == (epoch, within)
        assert PLAN.batch_size(epoch) == batch
        assert PLAN.first_step(epoch) == step - within
        assert PLAN.epochs(step) == epoch + within / PLAN.steps_in(epoch)
    assert PLAN.locate(len(STEPS)) == (6, 0)


def test_durations():
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
