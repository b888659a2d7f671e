"""Parts that are asked for ahead, over a link that is simulated with its clock.

Written down before the first run: where a step is shorter than the round trip, 200 steps take no more than their own
time and five round trips, or 200 round trips where each part is asked for when it is wanted.
"""

import collections

import pytest

from tfmat.backends.asynchronous import PartsAhead

STEPS = 200


class Link:
    """Rank 0 behind a link: each answer comes `round_trip` seconds after its question."""

    def __init__(self, round_trip):
        self.round_trip, self.now, self.next = round_trip, 0.0, 0
        self.under_way = collections.deque()

    def ask_for_ticket(self):
        self.under_way.append((self.now + self.round_trip, self.next))
        self.next += 1

    def asked_ticket(self):
        comes, number = self.under_way.popleft()
        self.now = max(self.now, comes)
        return number


def work(link, parts, step, total=STEPS):
    """Computes parts of a call until there are no more; the most that waited beside the one under way."""
    most, number = 0, parts.take()
    while number < total:
        most = max(most, len(link.under_way))
        link.now += step(number) if callable(step) else step
        following = parts.take()
        assert following == number + 1  # none is left out, none comes twice
        number = following
    parts.end()
    assert not link.under_way
    return most


def parts_over(link, most=STEPS):
    parts = PartsAhead(link, clock=lambda: link.now)
    parts.begin(most)
    return parts


@pytest.mark.parametrize(("step", "ahead"), [(3e-3, 4), (9e-3, 2), (1.1e-3, 10)])
def test_no_step_waits_for_a_round_trip(step, ahead):
    link = Link(10e-3)
    assert work(link, parts_over(link), step) == ahead
    assert link.now < STEPS * step + 5 * link.round_trip


def test_no_more_are_asked_for_than_is_allowed():
    link = Link(10e-3)
    assert work(link, parts_over(link, most=2), 3e-3) == 2


def test_a_worker_whose_steps_are_long_keeps_no_part_from_the_others():
    link = Link(10e-3)
    assert work(link, parts_over(link), 0.5) == 0


def test_the_time_of_compiling_is_no_step():
    """The first step takes seconds; the ones after it would still wait if it counted."""
    link = Link(10e-3)
    work(link, parts_over(link), lambda number: 3e-3 if number else 5.0)
    assert link.now < 5.0 + STEPS * 3e-3 + 5 * link.round_trip


def test_a_late_answer_has_no_more_asked_for():
    """A worker that is stopped for a while finds its answer late, though the link is as fast as before."""
    link = Link(10e-3)
    parts = parts_over(link)
    work(link, parts, 3e-3)
    link.next, link.round_trip = 0, 40e-3
    parts.begin(STEPS)
    assert work(link, parts, 3e-3) == 4


def test_each_call_begins_with_its_own_numbers():
    link = Link(10e-3)
    parts = parts_over(link)
    for _ in range(3):
        work(link, parts, 3e-3)
        link.next = 0
        parts.begin(STEPS)
