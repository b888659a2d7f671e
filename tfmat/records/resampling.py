"""Measured tests put on the points and into the channels that a network's records have."""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfmat.errors import InputError
from tfmat.materials.law import Array, History, Law
from tfmat.records.cleaning import Caveat, Cells, places_in_time, settings_beyond
from tfmat.records.programmes import Programme, Uniaxial, along_path
from tfmat.records.record import MeasuredRecord, MeasuredTest
from tfmat.records.settings import CurveSettings
from tfmat.records.simulation import FLAG, RecordForm
from tfmat.records.tables import MINIMUM_POINTS

# --------------------------------------------------------------------------------------------------
# A cleaned curve put on the points that a model's training curves have.


@dataclasses.dataclass(frozen=True)
class CurveTarget:
    """The form of the curves that a model was trained on.

    Attributes:
      num_points: points a curve.
      strain_spacing: point i of n stands at max_strain * (i / (n - 1)) ** strain_spacing.
      max_strain: range of the trained curves' ends (-), or None where nothing is known of them.
      max_stress_mpa: the largest strength at which a trained curve broke off, or None without a cut-off.
      strain_measure, stress_measure: the law's own (see Law), or None where there is no law: nothing is converted.
      law: with the trained ranges; what is implausible for it is warned about. None checks nothing.
    """

    num_points: int
    strain_spacing: float = 1.0
    max_strain: tuple[float, float] | None = None
    max_stress_mpa: float | None = None
    strain_measure: str | None = None
    stress_measure: str | None = None
    law: Law | None = None

    @classmethod
    def of(cls, settings: CurveSettings, law: Law) -> "CurveTarget":
        """The form of the curves that these settings make."""
        settings = settings.resolved()
        form = cls(
            num_points=settings.num_points,
            strain_spacing=law.strain_spacing,
            max_strain=settings.max_strain,
            max_stress_mpa=settings.strength_mpa[1] if settings.strength_mpa else None,
        )
        if law.strain_measure == "nominal":
            return form
        return dataclasses.replace(
            form, strain_measure=law.strain_measure, stress_measure=law.stress_measure, law=law
        )

    @classmethod
    def of_tests(cls, law: Law) -> "CurveTarget":
        """The form of tests as they are measured, for a law that takes tests."""
        return cls(2, strain_measure=law.strain_measure, stress_measure=law.stress_measure, law=law)


def resample(
    strain: Array, stress_mpa: Array, target: CurveTarget
) -> tuple[Array, Array, np.ndarray]:
    """Puts a cleaned curve on the points of the trained curves.

    Where several measured points share a grid cell (reaching half-way to the neighbouring grid points) their mean
    strain and mean stress stand for them, so that the noise of a densely measured curve falls as it should; cells
    without a point are bridged by straight lines. The curve begins at (0, 0) and is drawn on straight from its last
    two means to its very end. A curve that ends before the shortest trained one is padded.

    Returns:
      strain [num_points], -; stress [num_points], MPa; valid [num_points], bool, False where padded.
    """
    end = float(strain[-1])
    low, high = target.max_strain or (end, end)
    grid = (
        min(max(end, low), high) * np.linspace(0.0, 1.0, target.num_points) ** target.strain_spacing
    )
    valid = grid <= end * (1 + 1e-12)
    if np.count_nonzero(valid) < MINIMUM_POINTS:
        raise InputError(
            f"it ends at strain {end:.3g}, far before {low:.3g} where the shortest trained curves end; "
            "measure further or choose a model for smaller strains"
        )
    cell = np.searchsorted((grid[1:] + grid[:-1]) / 2, strain)
    count = np.bincount(cell, minlength=len(grid))
    held = count > 0
    strain = np.bincount(cell, strain, len(grid))[held] / count[held]
    stress = np.bincount(cell, stress_mpa, len(grid))[held] / count[held]
    if strain[0] > 0:
        strain, stress = np.insert(strain, 0, 0.0), np.insert(stress, 0, 0.0)
    slope = (stress[-1] - stress[-2]) / (strain[-1] - strain[-2]) if len(strain) > 1 else 0.0
    strain, stress = (
        np.append(strain, end),
        np.append(stress, stress[-1] + slope * (end - strain[-1])),
    )
    return np.where(valid, grid, 0.0), np.where(valid, np.interp(grid, strain, stress), 0.0), valid


# --------------------------------------------------------------------------------------------------
# Measured tests put on the points and into the channels that a network's records have.


# A test whose first driven value is below this share of its largest begins at rest.
_AT_REST = 1e-3


def record_features(
    record: MeasuredRecord, form: RecordForm
) -> tuple[NDArray[np.float32] | None, list[Caveat]]:
    """A record as the network takes it, [1, points, channels], missing tests flagged; and what it was not trained for.

    Returns:
      None in place of the features where the network knows none of the tests.
    """
    features = np.zeros((1, *form.shape), np.float32)
    features[:, :, FLAG] = 1.0
    free = list(range(len(form.programmes)))
    caveats: list[Caveat] = []
    for test in record.tests:
        slot = next((i for i in free if form.programmes[i].name == test.programme.name), None)
        if slot is None:
            caveats.append(
                Caveat(
                    "test unknown to the network",
                    f"the network has no place for {test.curve.name}, a test {test.programme.name}",
                    "its answer does not know of that test; take that of least squares",
                )
            )
            continue
        try:
            if form.as_recorded and len(test) < form.points:
                history, response, valid = as_recorded(test, form.points)
            else:
                history, response = onto_points(test, form.programmes[slot], form.points)
                valid = np.ones(response.shape, bool)
        except InputError as error:
            caveats.append(Caveat("beyond the trained tests", f"{test.curve.name}: {error}"))
            continue
        free.remove(slot)
        beyond = settings_beyond(form.programmes[slot], test.settings)
        noise = 0.0
        if form.noise_told is not None:
            largest = float(np.abs(test.response).max())
            low, high = (limit * largest for limit in form.noise_told)
            found = test.noise / np.sqrt(max(1.0, len(test) / form.points))
            # More than there is, rather than less than the network ever saw.
            noise = max(found, low)
            if noise > high:
                beyond.append(f"noise of {100 * noise / largest:.2g} % of the largest response")
        form.write(features, slot, history, response, valid, np.array([[noise]]))
        if isinstance(test.programme, Uniaxial) and test.driven.min() * test.driven.max() < 0.0:
            beyond.append("it saw the larger side only, and not both tension and compression")
        if beyond:
            caveats.append(
                Caveat(
                    "beyond the trained tests",
                    f"{test.curve.name} is unlike the tests that the network was trained on: {', '.join(beyond)}",
                    "take the values of least squares, or train with wider --config.test_ranges",
                )
            )
    return (features if len(free) < len(form.programmes) else None), caveats


def as_recorded(test: MeasuredTest, points: int) -> tuple[History, Array, NDArray[np.bool_]]:
    """The history and the response of a test at its own points, the last repeated, and which are there: [1, points].

    A record begins at rest: where its first point does not, and no time says when that was, the zero is put before it.
    """
    history, response = test.history, test.response[None]
    if test.time is None and abs(test.driven[0]) > _AT_REST * np.abs(test.driven).max():
        zero = np.zeros((1, 1))
        begun: dict[str, Any] = {
            test.programme.drives: np.concatenate([zero, history.driven], axis=1)
        }
        history = dataclasses.replace(history, **begun)
        response = np.concatenate([zero, response], axis=1)
    held = np.minimum(np.arange(points), response.shape[1] - 1)
    valid = (np.arange(points) < response.shape[1])[None]
    filled = history.changed(lambda array: array[:, held] if array.shape[1] > 1 else array)
    return filled, response[:, held], valid


def onto_points(test: MeasuredTest, programme: Programme, points: int) -> tuple[History, Array]:
    """The history and the response [1, points] of a test on the points of a programme's records.

    Points of a test that turns are even along its path, with the turning points among them; those of another stand
    where its programme, with the settings that were measured, puts them. Means are taken where the test is denser.

    Raises:
      InputError: it turns too often for so many points.
    """
    if test.turns:
        ends = np.array([*test.turns, len(test) - 1])
        if points < 2 * len(ends) + 2:
            raise InputError(
                f"it turns {len(test.turns)} times, too often for the {points} points that the network takes"
            )
        path = along_path(test.driven[ends][None], points)
        at = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(path[0])))])
        # The specimen was at rest at zero, where a path begins.
        places = test.places + abs(float(test.driven[0]))
        turns = np.searchsorted(at, places[ends[:-1]] - 1e-12 * at[-1])
        pairs = tuple(zip(turns.tolist(), ends[:-1].tolist(), strict=True))
        return _told(test, History(test.programme.mode, **{programme.drives: path})), Cells(
            at, places, pairs
        ).of(test.response)[None]
    middle = {s.name: float(s.from_unit_interval(0.5)) for s in programme.settings}
    settings = middle | test.settings
    if isinstance(programme, Uniaxial):
        (limits,) = programme.settings
        low, high = sorted((limits.low, limits.high))
        reached = float(test.driven[np.abs(test.driven).argmax()])
        settings["max_strain"] = min(max(reached, low), high)
        if abs(settings["max_strain"]) > abs(reached):
            settings["max_strain"] = reached
    row = np.array([[settings[s.name] for s in programme.settings]])
    history = programme.history(row, points, np.random.default_rng(0))
    if test.time is not None and history.time is not None and "hold" in settings:
        at = places_in_time(history.driven[0], history.time[0])
        return history, Cells(_rising(at), places_in_time(test.driven, test.time)).of(
            test.response
        )[None]
    # Elastic at rest: what lies before the first point is a line from zero.
    side = np.sign(history.driven[0, -1])
    way = np.concatenate([[0.0], side * test.driven])
    order = np.argsort(way, kind="stable")
    order = order[way[order] >= 0.0]
    response = np.concatenate([[0.0], test.response])[order]
    cells = Cells(np.abs(history.driven[0]), way[order])
    return _told(test, history), cells.of(response)[None]


def _rising(at: Array) -> Array:
    return np.asarray(np.maximum.accumulate(at))


def _told(test: MeasuredTest, history: History) -> History:
    """The history with what was measured of rate and temperature."""
    told: dict[str, Any] = {
        name: np.array([[value]])
        for name in ("rate", "temperature")
        if (value := getattr(test, name)) is not None
    }
    return dataclasses.replace(history, **told)
