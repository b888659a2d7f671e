"""What a test programme is: settings that are drawn for every record, and the loading history that they mean."""

import abc
import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from tfmat.errors import InputError, nearest
from tfmat.materials.law import Array, History, Mode, Parameter


class Programme(abc.ABC):
    """One kind of test; a subclass sets the attributes and defines `history`.

    Attributes:
      name: as in `--config.tests=cyclic`.
      title: for people, a few words.
      mode: how the specimen is loaded.
      settings: what is drawn for every record, each within its range.
      channels: what the record tells beside strain and stress: any of `time`, `rate`, `temperature`.
      drives: what the machine drives: `strain` or `stress`.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    mode: ClassVar[Mode] = "uniaxial"
    settings: tuple[Parameter, ...]
    channels: ClassVar[tuple[str, ...]] = ()
    drives: ClassVar[str] = "strain"

    def __init__(self, ranges: Mapping[str, tuple[float, float]] | None = None):
        """`ranges` (setting -> (low, high), equal ones give a value) replace the programme's own."""
        ranges = dict(ranges or {})
        known = [setting.name for setting in type(self).settings]
        for name in ranges:
            if name not in known:
                raise InputError(f"test {self.name} has no setting '{name}'{nearest(name, known)}")
        self.settings = tuple(
            _within(setting, ranges[setting.name], self.name) if setting.name in ranges else setting
            for setting in type(self).settings
        )

    def draw(self, random: np.random.Generator, count: int, points: int) -> History:
        """Histories of `count` records of `points` points, whose settings are drawn with `random`."""
        return self.history(self.draw_settings(random, count), points, random)

    def draw_settings(self, random: np.random.Generator, count: int) -> Array:
        """[count, settings], in their units."""
        drawn = random.random((count, len(self.settings)))
        columns = [
            setting.from_unit_interval(drawn[:, i])
            if setting.low < setting.high
            else np.full(count, setting.low)
            for i, setting in enumerate(self.settings)
        ]
        return np.stack(columns, axis=1)

    @abc.abstractmethod
    def history(self, settings: Array, points: int, random: np.random.Generator) -> History:
        """The histories that these settings [records, settings] mean: [records, points].

        `random` is for what no setting says, such as the amplitude of each single cycle.
        """


def _within(setting: Parameter, limits: tuple[float, float], programme: str) -> Parameter:
    """The setting with a user's range, or with his value where both limits are equal."""
    low, high = limits
    floor = 0.0 if setting.scale == "log" else -np.inf
    if not floor < low <= high < np.inf:
        raise InputError(
            f"range of {setting.name} (test {programme}) is {low:g} to {high:g} {setting.unit}; give "
            f"{'0 < ' if setting.scale == 'log' else ''}low <= high, e.g. "
            f"--config.test_ranges.{setting.name}={setting.low:g},{setting.high:g}"
        )
    return dataclasses.replace(setting, low=low, high=high)
