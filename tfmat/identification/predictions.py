"""What a network says of one curve, or of the tests of one material."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tfmat.curves.cleaning import Caveat, MeasuredCurve
from tfmat.curves.measured_tests import MeasuredRecord
from tfmat.curves.record_resampling import record_features
from tfmat.curves.records import features_of
from tfmat.curves.resampling import resample
from tfmat.errors import InputError
from tfmat.identification import caveats
from tfmat.identification.draws import Samples
from tfmat.identification.uncertainty import in_units
from tfmat.materials.law import Array
from tfmat.materials.parameter import Parameter

if TYPE_CHECKING:
    from tfmat.identification.identifier import Identifier

Interval = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Predicted:
    """What the network says of one curve, p identified parameters.

    Attributes:
      labels: [p], cut to 0-1.
      std: [p], calibrated, on the same scale; None where the network gives none.
      interval: [p, 2], 95 %, on the same scale; None with `std`.
      samples: of the posterior; None where none were asked for.
    """

    labels: Array
    std: Array | None
    interval: Array | None
    samples: Samples | None = None


def predict(
    network: "Identifier", curve: MeasuredCurve, may_fail: bool, samples: int = 0
) -> Predicted | None:
    """The network's answer; None for a curve that is far too short for it (an error unless it `may_fail`)."""
    try:
        strain, stress, valid = resample(curve.strain, curve.stress_mpa, network.target)
    except InputError:
        if may_fail and network.law is not None:
            return None
        raise
    return _predicted(network, features_of(strain[None], stress[None], valid[None]), samples)


def _predicted(network: "Identifier", features: np.ndarray, samples: int) -> Predicted:
    """The answer for one record [1, points, channels]."""
    raw, std, limits = network.answers(features)
    if not np.isfinite(raw).all():
        raise InputError("the model answers with NaN; its training diverged, train again")
    labels = np.clip(raw[0], 0.0, 1.0)
    if std is None or limits is None:
        return Predicted(labels, None, None)
    drawn = None
    if samples:
        drawn = network.draws(features, samples).samples(network.parameters, 0)
    return Predicted(labels, std[0], limits[0, 0], drawn)


def without_unfounded_interval(
    predicted: Predicted | None,
    errors: Mapping[str, float],
    noise_mpa: float,
    curve: MeasuredCurve,
) -> Predicted | None:
    """The network's answer, without its intervals where the curve is not like those that they were calibrated on.

    They hold the truth for curves that follow the law up to the noise; what the misfit of a real curve does to the
    network's answer they do not know.
    """
    if predicted is None or predicted.std is None:
        return predicted
    nearest = errors.get("least_squares", errors["network"])
    largest = float(np.abs(curve.stress_mpa).max())
    if 0.01 * nearest * largest <= caveats.ABOVE_NOISE * noise_mpa:
        return predicted
    return dataclasses.replace(predicted, interval=None)


def network_errors(
    parameters: Sequence[Parameter], predicted: Predicted
) -> list[tuple[float | None, Interval | None]]:
    """Standard deviation and 95 % interval of each identified parameter, in its unit; None where there is none."""
    if predicted.std is None or predicted.interval is None:
        return [(None, None) for _ in parameters]
    std, limits = in_units(
        parameters, predicted.labels[None], predicted.std[None], predicted.interval[None]
    )
    return [(float(std[0, i]), interval_of(limits[0, i])) for i in range(len(parameters))]


def interval_of(ends: Array) -> Interval | None:
    """Both ends of an interval [2]; None where one is not known."""
    return (float(ends[0]), float(ends[1])) if np.isfinite(ends).all() else None


def predict_record(
    network: "Identifier", record: MeasuredRecord, samples: int = 0
) -> tuple[Predicted | None, list[Caveat]]:
    """The network's answer to tests, and what it was not trained for; None where it knows none of them."""
    features, beyond = record_features(record, network.form)
    if features is None:
        return None, beyond
    return _predicted(network, features, samples), beyond
