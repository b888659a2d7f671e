"""Records of tests, simulated: each test's history drawn, the law's response to it, and what a laboratory makes of it.

Whole blocks of records at a time. Every test draws from streams of its own, so that a further test leaves those before
it as they were.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tfmat.curves.apparatus import Apparatus, correlated, drawn_offset, log_uniform, thinned
from tfmat.curves.observation import COSINES, before_break, smooth_deviation
from tfmat.curves.records import RecordForm
from tfmat.curves.settings import CurveSettings
from tfmat.errors import InputError
from tfmat.materials.law import Array, History

# Streams of random numbers, after those of `observation`: which tests are missing, what the tests of a record share,
# and from there on each test's own.
_MISSING, _STIFFNESS, _CORRELATION, _FIRST_TEST, _STREAMS = 16, 17, 18, 24, 8
_HISTORY, _NOISE, _MISFIT, _OFFSET, _STRESS_OFFSET, _TOE, _PLACES = range(7)

Generators = Callable[[int], np.random.Generator]


def fill_tests(
    settings: CurveSettings,
    form: RecordForm,
    generator_of: Generators,
    respond: Callable[[History], Array],
    strength: Array | None,
    features: NDArray[np.float32],
) -> None:
    """Writes records into features [records, points, channels].

    Args:
      settings: resolved.
      form: of the records.
      generator_of: stream of random numbers -> its generator for this block.
      respond: the law with the records' parameters.
      strength: stress at which each record's specimens break, [records], MPa; None where they never do.
    """
    records = len(features)
    rupture_strain = settings.build_law().rupture_strain
    there = _present(generator_of(_MISSING), records, form.num_tests, settings.missing_tests)
    # One machine, and one way of recording, for all tests of a material.
    stiffness, correlation = (
        limits and log_uniform(limits, generator_of(number).random(records))
        for limits, number in (
            (settings.machine_stiffness, _STIFFNESS),
            (settings.noise_correlation, _CORRELATION),
        )
    )
    for test, programme in enumerate(form.programmes):
        first = _FIRST_TEST + test * _STREAMS

        def stream(number: int, first: int = first) -> np.random.Generator:
            return generator_of(first + number)

        history = programme.draw(stream(_HISTORY), records, form.points)
        if history.driven.shape != (records, form.points):
            raise InputError(
                f"test {programme.name}: history() drives an array of shape {history.driven.shape}, expected "
                f"{(records, form.points)}"
            )
        valid = np.broadcast_to(there[:, test, None], history.driven.shape)
        if settings.measured_points is not None:
            history, recorded = _recorded(settings.measured_points, history, stream(_PLACES))
            valid = valid & recorded
        apparatus = Apparatus(
            strain_offset=drawn_offset(settings.strain_offset, stream(_OFFSET), records),
            stress_offset=drawn_offset(settings.stress_offset, stream(_STRESS_OFFSET), records),
            slack=settings.toe and log_uniform(settings.toe, stream(_TOE).random(records)),
            stiffness=stiffness,
        )
        answer = apparatus.answer(history, respond)
        if strength is not None:
            stress = answer if programme.drives == "strain" else history.driven
            valid = valid & before_break(np.abs(stress), strength)
        if programme.drives == "stress":
            # Not up to and with the first strain that is too large: of a fast creep that may be any number.
            valid = valid & (np.maximum.accumulate(np.abs(answer), axis=1) < rupture_strain)
        if settings.misfit is not None:
            answer = answer * (1.0 + _misfit(settings.misfit, history.driven, stream(_MISFIT)))
        shown = apparatus.shown(history, answer)
        random = stream(_NOISE)
        noise = _noise(settings, programme.drives, shown, valid, random)
        whole = np.hypot(noise, settings.noise_relative * shown)
        normal = random.standard_normal(shown.shape, np.float32)
        if correlation is not None:
            normal = correlated(normal, correlation)
        form.write(features, test, history, shown + whole * normal, valid, noise)


def _present(
    random: np.random.Generator, records: int, tests: int, missing: float
) -> NDArray[np.bool_]:
    """Which tests of each record are there, one at least: [records, tests]."""
    chosen = random.integers(0, tests, records)
    there = random.random((records, tests)) >= (missing if tests > 1 else 0.0)
    there[np.arange(records), chosen] = True
    return there


def _recorded(
    limits: tuple[int, int], history: History, random: np.random.Generator
) -> tuple[History, NDArray[np.bool_]]:
    """The history at as many of its points as the machine records, and which are there; see `thinned`."""
    low, high = limits
    # Each whole number stands for the half below and above it.
    drawn = log_uniform((low - 0.5, high + 0.5), random.random(len(history)))
    return thinned(history, np.clip(np.rint(drawn), low, high).astype(np.int64), random)


def _misfit(limits: tuple[float, float], driven: Array, random: np.random.Generator) -> Array:
    """A smooth deviation from the law, as a fraction of the response, over the way that was driven."""
    records = len(driven)
    size = log_uniform(limits, random.random(records))
    normal, phase = random.standard_normal((records, COSINES)), random.random((records, COSINES))
    way = np.cumsum(np.abs(np.diff(driven, axis=1, prepend=0.0)), axis=1)
    share = way / np.maximum(way[:, -1:], 1e-300)
    return np.asarray(size[:, None] * smooth_deviation(share, normal, phase))


def _noise(
    settings: CurveSettings,
    drives: str,
    shown: Array,
    valid: NDArray[np.bool_],
    random: np.random.Generator,
) -> Array:
    """Standard deviation of the noise of each test that is the same at all its points: [records, 1], MPa or -."""
    absolute = settings.noise_mpa if drives == "strain" else settings.noise_strain
    deviation = np.full(len(shown), absolute or 0.0)
    if settings.noise_of_maximum is not None:
        drawn = log_uniform(settings.noise_of_maximum, random.random(len(shown)))
        largest = np.abs(shown).max(axis=1, where=valid, initial=0.0)
        deviation = np.hypot(deviation, drawn * largest)
    return np.asarray(deviation[:, None])
