"""Records of tests, simulated: each test's history drawn, the law's response to it, and what a laboratory makes of it.

Whole blocks of records at a time. Every test draws from streams of its own, so that a further test leaves those before
it as they were.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tfmat.curves.observation import COSINES, before_break, log_uniform, smooth_deviation
from tfmat.curves.records import RecordForm
from tfmat.curves.settings import CurveSettings
from tfmat.errors import InputError
from tfmat.materials.history import Array, History

# Streams of random numbers, after those of `observation`: which tests are missing, and from there on each test's own.
_MISSING, _FIRST_TEST, _STREAMS = 16, 24, 8
_HISTORY, _NOISE, _MISFIT, _OFFSET = range(4)

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
        answer = respond(_with_offset(settings, history, stream(_OFFSET)))
        valid = np.broadcast_to(there[:, test, None], answer.shape)
        if strength is not None:
            stress = answer if programme.drives == "strain" else history.driven
            valid = valid & before_break(np.abs(stress), strength)
        if programme.drives == "stress":
            # Not up to and with the first strain that is too large: of a fast creep that may be any number.
            valid = valid & (np.maximum.accumulate(np.abs(answer), axis=1) < rupture_strain)
        if settings.misfit is not None:
            answer = answer * (1.0 + _misfit(settings.misfit, history.driven, stream(_MISFIT)))
        absolute = settings.noise_mpa if programme.drives == "strain" else settings.noise_strain
        observed = answer + _noise(settings, absolute or 0.0, answer, stream(_NOISE))
        form.write(features, test, history, observed, valid)


def _present(
    random: np.random.Generator, records: int, tests: int, missing: float
) -> NDArray[np.bool_]:
    """Which tests of each record are there, one at least: [records, tests]."""
    chosen = random.integers(0, tests, records)
    there = random.random((records, tests)) >= (missing if tests > 1 else 0.0)
    there[np.arange(records), chosen] = True
    return there


def _with_offset(settings: CurveSettings, history: History, random: np.random.Generator) -> History:
    """The history that the specimen sees where the record's zero of strain is wrong."""
    if settings.strain_offset is None or history.strain is None:
        return history
    records = len(history)
    size = log_uniform(settings.strain_offset, random.random(records))
    offset = (size * random.standard_normal(records))[:, None]
    return dataclasses.replace(history, strain=history.strain + offset)


def _misfit(limits: tuple[float, float], driven: Array, random: np.random.Generator) -> Array:
    """A smooth deviation from the law, as a fraction of the response, over the way that was driven."""
    records = len(driven)
    size = log_uniform(limits, random.random(records))
    normal, phase = random.standard_normal((records, COSINES)), random.random((records, COSINES))
    way = np.cumsum(np.abs(np.diff(driven, axis=1, prepend=0.0)), axis=1)
    share = way / np.maximum(way[:, -1:], 1e-300)
    return np.asarray(size[:, None] * smooth_deviation(share, normal, phase))


def _noise(
    settings: CurveSettings, absolute: float, answer: Array, random: np.random.Generator
) -> Array:
    """Noise of single points, in the response's unit."""
    deviation = np.full(len(answer), absolute)
    if settings.noise_of_maximum is not None:
        drawn = log_uniform(settings.noise_of_maximum, random.random(len(answer)))
        deviation = np.hypot(deviation, drawn * np.abs(answer).max(axis=1))
    whole = np.hypot(deviation[:, None], settings.noise_relative * answer)
    return whole * random.standard_normal(answer.shape, np.float32)
