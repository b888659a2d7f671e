"""The form of a record: how the tests of one material stand in an array of points and channels, and back.

One curve of rising strain is [points, 3]. A record of several tests, or of a loading history, has the points of its
tests one after the other, and further channels where its programmes tell the time, the rate or the temperature.
"""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfmat.curves.programme import Programme
from tfmat.curves.setting_checks import MORE_THAN_NOISE
from tfmat.curves.settings import CurveSettings
from tfmat.materials.law import MODES, Array, History, TestSet

# Channels that every record begins with: strain (-), stress (MPa), flag (1 where the point is padding).
STRAIN, STRESS, FLAG = range(3)
_FURTHER = ("time", "rate", "temperature", "noise")

Flags = NDArray[np.bool_]


def features_of(strain: Array, stress: Array, valid: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Strain (-), stress (MPa) and valid, each [curves, points] -> [curves, points, 3]; padding is zero with flag 1."""
    features = np.empty((*strain.shape, 3), np.float32)
    features[:, :, 0] = np.where(valid, strain, 0.0)
    features[:, :, 1] = np.where(valid, stress, 0.0)
    features[:, :, 2] = ~valid
    return features


def split_features(features: NDArray[np.floating]) -> tuple[Array, Array, NDArray[np.bool_]]:
    """The inverse of `features_of`: strain (-) and stress (MPa), both float64, and valid, each [curves, points]."""
    strain, stress, padded = np.moveaxis(np.asarray(features, np.float64), 2, 0)
    return np.ascontiguousarray(strain), np.ascontiguousarray(stress), padded == 0


@dataclasses.dataclass(frozen=True)
class RecordForm:
    """What the points and channels of a record are.

    Attributes:
      points: of one test.
      programmes: the tests in their order; empty for one curve of rising strain.
      noise_told: None, or a channel tells the standard deviation of each test's noise, in the unit of its response;
        it is drawn within these shares of the test's largest.
      as_recorded: a test stands in the record at the points that were measured, and padding fills the rest.
      more_than_noise: records depart from their law by more than independent noise, so that what fits leave tells.
    """

    points: int
    programmes: tuple[Programme, ...] = ()
    noise_told: tuple[float, float] | None = None
    as_recorded: bool = False
    more_than_noise: bool = False

    @classmethod
    def of(cls, settings: CurveSettings) -> "RecordForm":
        """The form of the records that these settings make."""
        programmes = settings.programmes()
        return cls(
            settings.num_points,
            programmes,
            settings.noise_of_maximum if settings.noise_told else None,
            bool(programmes) and settings.measured_points is not None,
            any(getattr(settings, name) is not None for name in MORE_THAN_NOISE),
        )

    @property
    def num_tests(self) -> int:
        return max(1, len(self.programmes))

    @property
    def num_points(self) -> int:
        """Points of the whole record."""
        return self.points * self.num_tests

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the channels, those that all records have first."""
        told = {name for programme in self.programmes for name in programme.channels}
        if self.noise_told:
            told.add("noise")
        return ("strain", "stress", "flag", *(name for name in _FURTHER if name in told))

    @property
    def shape(self) -> tuple[int, int]:
        """(points, channels) of a record."""
        return self.num_points, len(self.channels)

    @property
    def modes(self) -> NDArray[np.float32]:
        """How each test loads its specimen, and whether it drives the stress: [tests, modes + 1], zeros and ones."""
        tokens = np.zeros((self.num_tests, len(MODES) + 1), np.float32)
        for i, programme in enumerate(self.programmes):
            tokens[i, MODES.index(programme.mode)] = 1.0
            tokens[i, -1] = programme.drives == "stress"
        return tokens

    def network(self) -> dict[str, Any]:
        """What `tfmat.networks.build_model` must know of a record."""
        tokens = self.modes.tolist() if self.num_tests > 1 else ()
        return {
            "num_points": self.num_points,
            "channels": self.channels,
            "tokens": tokens,
            "more_than_noise": self.more_than_noise,
        }

    def part(self, test: int) -> slice:
        """The points of one test."""
        return slice(test * self.points, (test + 1) * self.points)

    def write(
        self,
        features: NDArray[np.float32],
        test: int,
        history: History,
        response: Array,
        valid: Flags,
        noise: Array | float = 0.0,
    ) -> None:
        """Writes a test's driven history, its response and which points are there into features [records, ...].

        `noise` [records, 1] is written where the form tells it.
        """
        part = features[:, self.part(test)]
        driven, answer = (
            (STRAIN, STRESS) if self.programmes[test].drives == "strain" else (STRESS, STRAIN)
        )
        part[:, :, driven] = np.where(valid, history.driven, 0.0)
        part[:, :, answer] = np.where(valid, response, 0.0)
        part[:, :, FLAG] = ~valid
        for channel, name in enumerate(self.channels[3:], start=3):
            told = noise if name == "noise" else getattr(history, name)
            part[:, :, channel] = 0.0 if told is None else np.where(valid, told, 0.0)

    def split(self, features: NDArray[np.floating]) -> tuple[TestSet, Array, Flags]:
        """The inverse of `write` for whole records [records, points, channels] of tests.

        Returns:
          The histories (padded points stay at the last that is there), the responses [records, points], and which
          points are there, [records, points].
        """
        features = np.asarray(features, np.float64)
        valid = features[:, :, FLAG] == 0
        histories, responses = [], []
        for test, programme in enumerate(self.programmes):
            part = features[:, self.part(test)]
            last = np.maximum(valid[:, self.part(test)].sum(axis=1) - 1, 0)
            held = np.minimum(np.arange(self.points), last[:, None])
            filled = np.take_along_axis(part, held[:, :, None], axis=1)
            strain_driven = programme.drives == "strain"
            told: dict[str, Any] = {}
            for name in programme.channels:
                values = filled[:, :, self.channels.index(name)]
                if name != "time":
                    values = values[:, :1]
                    values = np.where(
                        valid[:, self.part(test)][:, :1], values, _typical(programme, name)
                    )
                told[name] = values
            driven = filled[:, :, STRAIN if strain_driven else STRESS]
            told["strain" if strain_driven else "stress"] = driven
            histories.append(History(programme.mode, **told))
            responses.append(part[:, :, STRESS if strain_driven else STRAIN])
        return TestSet(tuple(histories)), np.concatenate(responses, axis=1), valid

    def noise(self, settings: CurveSettings) -> Array:
        """Standard deviation of the noise of each point's response that does not depend on it: [points], MPa or -."""
        settings = settings.resolved()
        of_test = [
            settings.noise_mpa if programme.drives == "strain" else settings.noise_strain
            for programme in self.programmes
        ]
        return np.repeat(np.array(of_test, np.float64), self.points)


def _typical(programme: Programme, setting: str) -> float:
    """The middle of a setting's range, which stands for a test that is missing."""
    found = next((one for one in programme.settings if one.name == setting), None)
    return float(found.from_unit_interval(0.5)) if found else 1.0


def observed(
    settings: CurveSettings, features: NDArray[np.floating]
) -> tuple[Array | TestSet, Array, NDArray[np.bool_]]:
    """What was driven, the response, and which points are there, as fits and likelihoods take them.

    Args:
      features: records as simulated with these settings, [curves, points, channels].

    Returns:
      Strain (-), stress (MPa) and valid, each [curves, points]. For tests: a test set, its responses in units of their
      noise, which are what is told of it, or near it where it is drawn and not told, and valid.
    """
    form = RecordForm.of(settings)
    if not form.programmes:
        return split_features(features)
    tests, response, valid = form.split(features)
    unit = form.noise(settings)
    if form.noise_told is not None:
        unit = np.asarray(features[:, :, form.channels.index("noise")], np.float64)
    elif settings.noise_of_maximum is not None:
        # As near as one comes without knowing the noise: the middle of its range.
        largest = np.abs(response).reshape(len(response), form.num_tests, -1).max(axis=2)
        middle = np.sqrt(np.prod(settings.noise_of_maximum))
        unit = np.hypot(unit, middle * np.repeat(largest, form.points, axis=1))
    unit = np.where(unit > 0, unit, 1.0)
    return dataclasses.replace(tests, unit=unit), response / unit, valid
