"""The ways that tests go: from one turning point to the next, or up a ramp and on."""

import numpy as np

from tfmat.errors import InputError
from tfmat.materials.law import Array

# Of a test with a ramp and a hold, the share of the points that lie on the ramp.
_RAMP_SHARE = 0.3


def along_path(turning: Array, points: int) -> Array:
    """Points of the path from 0 through turning points, evenly along the way and with every turning point among them.

    Args:
      turning: [records, turns]; a turning point that repeats the one before adds nothing.
      points: of each record, at least twice the turns and two more.

    Returns:
      [records, points]; the first point is 0, the last the last turning point.
    """
    records, turns = turning.shape
    if points < 2 * turns + 2:
        raise InputError(
            f"{points} points are too few for a history that turns {turns} times; give --config.data.num_points at "
            f"least {2 * turns + 2}"
        )
    knots = np.concatenate([np.zeros((records, 1)), turning], axis=1)
    length = np.abs(np.diff(knots, axis=1))
    place = np.concatenate([np.zeros((records, 1)), np.cumsum(length, axis=1)], axis=1)
    total = np.maximum(place[:, -1:], 1e-300)
    # Every branch with a length takes at least one interval; the rest are shared out by length.
    held = length > 1e-9 * total
    spare = points - 1 - held.sum(axis=1, keepdims=True)
    ends = np.cumsum(held, axis=1) + np.rint(spare * place[:, 1:] / total)
    ends = ends.astype(np.int64)
    # The branch of each point: how many branches ended before it.
    row = np.arange(records)[:, None]
    begun = np.bincount((row * (points + 1) + ends + 1).ravel(), minlength=records * (points + 1))
    branch = np.cumsum(begun[: records * (points + 1)].reshape(records, -1)[:, :points], axis=1)
    branch = np.minimum(branch, turns - 1) + row * turns
    starts = np.concatenate([np.zeros((records, 1), np.int64), ends[:, :-1]], axis=1)
    slope = np.diff(knots, axis=1) / np.maximum(ends - starts, 1)
    base = knots[:, :-1] - slope * starts
    path = base.ravel()[branch] + slope.ravel()[branch] * np.arange(points)
    # The turning points exactly, and not up to rounding.
    path[row, ends] = turning
    return np.asarray(path)


def ramp_and_hold(
    driven: str, level: Array, ramp: Array, hold: Array, points: int
) -> dict[str, Array]:
    """The arrays of a history, [records, points], that rises evenly to `level` in `ramp` seconds and stays there."""
    rising = max(2, round(_RAMP_SHARE * points))
    up = np.linspace(0.0, 1.0, rising)
    rest = np.linspace(0.0, 1.0, points - rising + 1)[1:]
    # From a thousandth of the hold on, evenly in ln t.
    held = hold * 1e-3 ** (1.0 - rest)
    time = np.concatenate([ramp * up, ramp + held], axis=1)
    value = np.concatenate([level * up, np.broadcast_to(level, held.shape)], axis=1)
    return {driven: value, "time": time}
