"""What a verdict may rest on: repetitions that agree, and more than one."""

import dataclasses

import pytest

from tfmat.scaling.model import analyse
from tfmat.scaling.report import judge, scaling_page
from tfmat.scaling.study import Assumptions
from tfmat_tests.scaling.synthetic import Truth, study


@pytest.mark.parametrize(
    ("factor", "rounds", "expected"),
    [(1.0, 2, "Parallelism pays"), (4.0, 2, "No verdict: repet"), (1.0, 1, "No verdict yet")],
)
def test_a_verdict_needs_repetitions_that_agree(factor, rounds, expected):
    whole = study(Truth(), workers=(2,), batches=(150,), rounds=rounds)
    first = next(e for e in whole.repetitions if e.point.workers == 2 and e.point.scaling == "weak")
    slow = dataclasses.replace(first, seconds=factor * first.seconds)
    repetitions = tuple(slow if each is first else each for each in whole.repetitions)
    found = analyse(dataclasses.replace(whole, repetitions=repetitions), Assumptions())
    assert judge(found).text.startswith(expected)
    assert ("By the model" in scaling_page(found, {}, "study")) == (expected == "Parallelism pays")
