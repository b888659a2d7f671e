"""Whole histories of viscoplastic specimens at once, for fits: parameters that change little from answer to answer.

Going from point to point costs some two hundred short NumPy calls each. Here the states at all points are unknowns
together: Newton's method, begun with the states of the last answer, takes a few calls on large arrays and leaves one
short recurrence, which is linear. (So Y. H. Lim et al., Parallelizing non-linear sequential models over the sequence
length, ICLR 2024, arXiv:2309.12252.) It ends where every step holds, with the answer that going from point to point
gives; specimens that it does not settle are gone through from point to point.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfmat.materials.blocks import rows_in_block
from tfmat.materials.history import Array, History
from tfmat.materials.viscoplastic_steps import Specimens, Step, is_held

# A step that changes the states by less than this share of the largest is the last: convergence is quadratic.
_LAST_STEP = 1e-6
# Steps for whole histories, at most, and in each of them for the growth of each implicit step.
_MOST_STEPS, _INNER_STEPS = 12, 2
# In steady flow a specimen flows as fast as it is loaded, and rounding says which is faster. So near to each other they
# count as they did in the last answer; either way of taking such a step is as good.
_UNDECIDED = 1e-3
# States are foreseen to first order where that moves them by no more than this share of the largest.
_FORESEEN = 0.3


class Histories:
    """Specimens under one history: a `tfmat.materials.law.Solver`."""

    def __init__(self, history: History, chosen: Sequence[int], all_columns: int):
        """At rest; `chosen` are the law's parameters among the columns of the equations, `all_columns` of them."""
        self._chosen, self._all_columns = list(chosen), all_columns
        self._history = history
        self._states: _States | None = None

    def rows(self, chosen: Any) -> "Histories":
        """See `Solver.rows`."""
        found = Histories(self._history.rows(chosen), self._chosen, self._all_columns)
        found._states = None if self._states is None else self._states.rows(chosen)
        return found

    def expand(self, parameters: Array) -> tuple[Array, Array]:
        """See `Solver.expand`."""
        count = len(parameters)
        block = rows_in_block(self._history.driven.shape[1])
        answers, states = [], []
        for first in range(0, count, block):
            rows = slice(first, first + block)
            columns = np.zeros((self._all_columns, 1, len(parameters[rows])))
            columns[self._chosen, 0] = parameters[rows].T
            begun = None if self._states is None else self._states.rows(rows)
            with np.errstate(all="ignore"):  # as going from point to point does
                found = _Block(self._history.rows(rows), columns).solved(begun)
            states.append(found)
            answers.append(found.answer(columns, self._chosen))
        self._states = _States.joined(states)
        response, sensitivities = (np.concatenate(parts) for parts in zip(*answers, strict=True))
        return response, sensitivities


@dataclasses.dataclass
class _States:
    """The states of specimens at all points.

    Attributes:
      driven: strain (-) or stress (MPa), [points, specimens] or [points, 1]; strains is whether it is strain.
      columns: of the equations, [columns, 1, specimens].
      state: path of the plastic strain, and plastic strain, [2, points, specimens].
      by_parameter: derivatives of the state, [2, columns, points, specimens].
      begin: logarithms of speed and growth where the next search begins, [2, points, specimens].
    """

    driven: Array
    strains: bool
    columns: Array
    state: Array
    by_parameter: Array
    begin: Array

    def near(self, columns: Array) -> Array:
        """The states to first order for other columns, where these are not too different."""
        moved = np.einsum("sfpi,fi->spi", self.by_parameter, (columns - self.columns)[:, 0])
        small = np.abs(moved) <= _FORESEEN * np.abs(self.state[0]).max(axis=0)
        return self.state + np.where(small, moved, 0.0)

    def rows(self, chosen: Any) -> "_States":
        driven = self.driven if self.driven.shape[1] == 1 else self.driven[:, chosen]
        return _States(
            driven,
            self.strains,
            self.columns[:, :, chosen],
            self.state[:, :, chosen],
            self.by_parameter[:, :, :, chosen],
            self.begin[:, :, chosen],
        )

    @classmethod
    def joined(cls, parts: Sequence["_States"]) -> "_States":
        if len(parts) == 1:
            return parts[0]
        shared = parts[0].driven.shape[1] == 1
        return cls(
            parts[0].driven if shared else np.concatenate([each.driven for each in parts], axis=1),
            parts[0].strains,
            np.concatenate([each.columns for each in parts], axis=2),
            np.concatenate([each.state for each in parts], axis=2),
            np.concatenate([each.by_parameter for each in parts], axis=3),
            np.concatenate([each.begin for each in parts], axis=2),
        )

    def answer(self, columns: Array, chosen: list[int]) -> tuple[Array, Array]:
        """The response [specimens, points] and its derivatives [specimens, points, parameters]."""
        modulus, plastic = columns[0], self.state[1]
        by_parameter = self.by_parameter[1].copy()
        if self.strains:
            response = modulus * (self.driven - plastic)
            by_parameter *= -modulus
            by_parameter[0] += self.driven - plastic
        else:
            response = self.driven / modulus + plastic
            by_parameter[0] -= self.driven / modulus**2
        return response.T, by_parameter[chosen].transpose(2, 1, 0)


class _Block:
    """Specimens that are solved together."""

    def __init__(self, history: History, columns: Array):
        """Columns [equation columns, 1, specimens]."""
        assert history.time is not None
        driven, time = (array.T.astype(np.float64) for array in (history.driven, history.time))
        self._columns, self._strains, self._driven = columns, history.strain is not None, driven
        self._increments = np.diff(driven, axis=0, prepend=0.0)
        self._durations = np.diff(time, axis=0, prepend=time[:1])
        self._shape = (len(driven), columns.shape[2])
        # Holds have an equation of their own, and are solved apart.
        held = is_held(self._increments, driven).all(axis=1)
        self._groups = [group for group in (held, ~held) if group.any()]

    def solved(self, begun: _States | None) -> _States:
        """The states at all points, from those of a former answer."""
        if begun is None:
            state = self._one_after_the_other(slice(None))
            begin = np.full((4, *self._shape), np.inf)
        else:
            state, begin = begun.near(self._columns), begun.begin
        settled = np.zeros(self._shape[1], np.bool_)
        for _ in range(_MOST_STEPS):
            found, slopes, begin, change = self._step(state, begin, _INNER_STEPS)
            moved = np.abs(found - state).max(axis=(0, 1))
            settled = (moved <= _LAST_STEP * np.abs(found[0]).max(axis=0)) & (change <= _LAST_STEP)
            state = found
            if settled.all() and self._decided(state, begin, settled):
                break
        else:
            self._decided(state, begin, settled)
        if not settled.all():
            rows = np.flatnonzero(~settled)
            state[:, :, rows] = self._one_after_the_other(rows)
            begin[:, :, rows] = np.inf
            state, slopes, begin, _ = self._step(state, begin, Specimens.most_steps)
            self._decided(state, begin, settled)
        return _States(self._driven, self._strains, self._columns, state, _carried(slopes), begin)

    def _decided(self, state: Array, begin: Array, settled: NDArray[np.bool_]) -> bool:
        """Whether these are the steps that the specimens take in two stages; if not, those of `begin` are changed."""
        before = np.concatenate([np.zeros_like(state[:, :1]), state[:, :-1]], axis=1)
        points = _Points(
            self._columns, self._strains, self._driven - self._increments, before, begin, 0
        )
        wrong = points.decide(self._driven, self._durations)
        begin[-1] = points.loaded
        settled &= ~wrong.any(axis=0)
        return bool(settled.all())

    def _one_after_the_other(self, rows: Any) -> Array:
        """The states [2, points, specimens] of some of the specimens, by going from point to point."""
        shared = self._driven.shape[1] == 1
        specimens = Specimens(self._columns[:, 0, rows], self._strains, None)
        found = []
        for increment, duration in zip(self._increments, self._durations, strict=True):
            one = increment if shared else increment[rows]
            specimens.move(one, duration if len(duration) == 1 else duration[rows])
            found.append(specimens.state)
        return np.stack(found, axis=1)

    def _step(self, state: Array, begin: Array, inner: int) -> tuple[Array, Array, Array, Array]:
        """One step of Newton's method for all points.

        Returns:
          The new states, the derivatives of every point's state by the columns and by the state before it [2, columns +
          2, points, specimens], where the next search begins, and the largest change of a growth, [specimens].
        """
        before = np.concatenate([np.zeros_like(state[:, :1]), state[:, :-1]], axis=1)
        after, begun = np.empty_like(state), np.empty_like(begin)
        slopes = np.empty((2, len(self._columns) + 2, *self._shape))
        change = np.zeros(self._shape[1])
        for group in self._groups:
            driven = self._driven[group] - self._increments[group]
            points = _Points(
                self._columns, self._strains, driven, before[:, group], begin[:, group], inner
            )
            points.move(self._increments[group], self._durations[group])
            after[:, group], slopes[:, :, group], begun[:, group] = points.found()
            change = np.maximum(change, points.change.max(axis=0))
        return state + _summed(slopes[:, -2:], after - state), slopes, begun, change


def _summed(slopes: Array, change: Array) -> Array:
    """x of the recurrence x[i] = change[i] + slopes[i] x[i - 1]: [2, points, specimens].

    Args:
      slopes: [2, 2, points, specimens]; change: [2, points, specimens].
    """
    matrices = np.ascontiguousarray(slopes.transpose(2, 3, 0, 1))
    found = np.ascontiguousarray(change.transpose(1, 2, 0))[..., None]
    onward = np.empty_like(found[0])
    for i in range(1, len(found)):
        np.matmul(matrices[i], found[i - 1], out=onward)
        found[i] += onward
    return found[..., 0].transpose(2, 0, 1)


def _carried(slopes: Array) -> Array:
    """Derivatives of the states by the parameters alone, [2, columns, points, specimens]; see `_Block._step`."""
    matrices = np.ascontiguousarray(slopes[:, -2:].transpose(2, 3, 0, 1))
    found = np.ascontiguousarray(slopes[:, :-2].transpose(2, 3, 0, 1))
    for i in range(1, len(found)):
        found[i] += matrices[i] @ found[i - 1]
    return found.transpose(2, 3, 0, 1)


class _Points(Specimens):
    """Points of histories side by side, [points, specimens], each with the state of the point before it."""

    def __init__(
        self,
        columns: Array,
        drives_strain: bool,
        driven: Array,
        state: Array,
        begin: Array,
        steps: int,
    ):
        super().__init__(columns, drives_strain, None)
        self._driven, self.state, self.most_steps = driven, state, steps
        *self._log_speeds, self._log_growth, self.loaded = begin
        self._derivatives = np.zeros((2, len(columns) + 2, *state.shape[1:]))
        self._derivatives[0, -2] = self._derivatives[1, -1] = 1.0
        self.change = np.zeros(state.shape[1:])

    def found(self) -> tuple[Array, Array, Array]:
        """The states, their derivatives, and where the next search begins."""
        assert self._derivatives is not None and self._log_growth is not None
        return (
            self.state,
            self._derivatives,
            np.stack([*self._log_speeds, self._log_growth, self.loaded]),
        )

    def _is_loaded(self, driven: Array, duration: Array) -> NDArray[np.bool_]:
        unknown = np.isinf(self.loaded)
        if unknown.any():
            self.loaded = np.where(unknown, super()._is_loaded(driven, duration), self.loaded)
        return self.loaded == 1.0

    def decide(self, driven: Array, duration: Array) -> NDArray[np.bool_]:
        """Finds which steps are `loaded` anew, and says where that was clearly wrong."""
        flow, rise = self._flow_and_rise(driven, duration)
        loaded = flow <= rise
        clear = np.abs(flow - rise) > _UNDECIDED * np.abs(rise)
        wrong = clear & (loaded != (self.loaded == 1.0))
        self.loaded = np.where(clear, loaded, self.loaded)
        return wrong

    def _grow(self, driven: Array, duration: Array, held: NDArray[np.bool_], times: float) -> None:
        stage = int(times == 1.0)
        self._log_speed = self._log_speeds[stage]
        super()._grow(driven, duration, held, times)
        self._log_speeds[stage] = self._log_speed

    def _euler(self, step: Step) -> Array:
        found = super()._euler(step)
        self._note(step.flows & ~step.holds)
        return found

    def _decayed(self, step: Step) -> Array:
        self._log_growth = super()._decayed(step)
        self._note(step.flows & step.holds)
        return self._log_growth

    def _note(self, counts: NDArray[np.bool_]) -> None:
        self.change = np.maximum(self.change, np.where(counts, self.last_change, 0.0))
