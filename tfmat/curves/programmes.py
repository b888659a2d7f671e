"""Test programmes: how a laboratory loads a specimen, and within which limits that is drawn for simulated records.

A programme is one class, here or in a user's own file. Its settings are drawn for every record; what it makes of them
is a loading history. Strain is the law's own measure: true for metals, engineering (stretch - 1) for rubber.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from tfmat.curves.paths import along_path, ramp_and_hold
from tfmat.curves.programme import Programme
from tfmat.errors import InputError, nearest
from tfmat.materials.law import Array, History, Parameter
from tfmat.materials.registry import file_digest, is_file, user_class

# Most cycles of a cyclic record by default; its points must hold all turning points.
MOST_CYCLES = 12
# Each departure from cycles of constant amplitude about zero is left out of this share of the records.
_PLAIN_SHARE = 0.5


class Monotonic(Programme):
    """One rising loading: tension of a metal, or shear of a ply, up to where it fails or necks."""

    name = "monotonic"
    title = "one rising loading"
    settings = (Parameter("max_strain", "-", 0.005, 0.6, "log", "largest strain"),)

    def history(self, settings: Array, points: int, random: np.random.Generator) -> History:
        """See `Programme.history`; points are dense where the material yields."""
        return History(self.mode, strain=settings * np.linspace(0.0, 1.0, points) ** 2)


class Cyclic(Programme):
    """Strain cycles of a metal: of constant, growing or irregular amplitude, about zero or a mean strain."""

    name = "cyclic"
    title = "cyclic tension and compression"
    settings = (
        Parameter("amplitude", "-", 0.003, 0.03, "log", "largest strain, of either sign"),
        Parameter("cycles", "-", 1.0, MOST_CYCLES, "log", "number of cycles"),
        Parameter("first", "-", 0.2, 1.0, "linear", "first amplitude over the largest"),
        Parameter(
            "irregularity",
            "-",
            0.0,
            1.0,
            "linear",
            "how far turning points stray; 1: anywhere in the range",
        ),
        Parameter("mean", "-", -0.5, 0.5, "linear", "mean strain over the amplitude"),
    )

    def history(self, settings: Array, points: int, random: np.random.Generator) -> History:
        """See `Programme.history`; the turning points are points of the history."""
        records = len(settings)
        amplitude, cycles, first, irregularity, mean = settings.T[:, :, None]
        plain = random.random((3, records, 1)) < _PLAIN_SHARE
        first = np.where(plain[0], 1.0, first)
        irregularity = np.where(plain[1], 0.0, irregularity)
        mean = np.where(plain[2], 0.0, mean)
        turns = np.maximum(np.rint(2.0 * cycles), 1.0)
        (most,) = (setting.high for setting in self.settings if setting.name == "cycles")
        number = np.arange(max(1, round(2.0 * most)))
        share = first + (1.0 - first) * number / np.maximum(turns - 1.0, 1.0)
        side = np.where(random.random((records, 1)) < 0.5, 1.0, -1.0) * (-1.0) ** number
        astray = 1.0 - 2.0 * irregularity * random.random((records, len(number)))
        strain = amplitude * (mean + side * share * astray) / (1.0 + np.abs(mean))
        last = np.take_along_axis(strain, turns.astype(int) - 1, axis=1)
        strain = np.where(number < turns, strain, last)
        return History(self.mode, strain=along_path(strain, points))


class CyclicShear(Programme):
    """Shear of a ply in cycles of loading and unloading whose peaks grow to the largest strain."""

    name = "cyclic_shear"
    title = "shear with unloading"
    mode = "shear"
    settings = (
        Parameter("max_strain", "-", 0.02, 0.10, "log", "largest engineering shear strain"),
        Parameter("cycles", "-", 1.0, 6.0, "linear", "number of loadings"),
        Parameter(
            "unloading",
            "-",
            0.1,
            1.0,
            "linear",
            "share of the peak strain that each unloading takes back",
        ),
    )

    def history(self, settings: Array, points: int, random: np.random.Generator) -> History:
        """See `Programme.history`; the last loading is not unloaded."""
        largest, cycles, unloading = settings.T[:, :, None]
        cycles = np.rint(cycles)
        number = 1.0 + np.arange(int(np.rint(self.settings[1].high)))
        peaks = largest * np.minimum(number / cycles, 1.0)
        valleys = np.where(number < cycles, peaks * (1.0 - unloading), peaks)
        turning = np.stack([peaks, valleys], axis=2).reshape(len(settings), -1)
        return History(self.mode, strain=along_path(turning, points))


class Uniaxial(Programme):
    """Tension of a strip of rubber to a largest stretch."""

    name = "uniaxial"
    title = "uniaxial tension"
    settings = (Parameter("max_strain", "-", 0.5, 7.0, "log", "largest stretch - 1"),)

    def history(self, settings: Array, points: int, random: np.random.Generator) -> History:
        """See `Programme.history`."""
        return History(self.mode, strain=settings * np.linspace(0.0, 1.0, points))


class Equibiaxial(Uniaxial):
    """Equal tension along two axes of a sheet of rubber."""

    name = "equibiaxial"
    title = "equibiaxial tension"
    mode = "equibiaxial"
    settings = (Parameter("max_strain", "-", 0.3, 4.0, "log", "largest stretch - 1"),)


class Planar(Uniaxial):
    """Tension of a wide, short strip of rubber, which keeps its width; also called pure shear."""

    name = "planar"
    title = "planar tension"
    mode = "planar"
    settings = (Parameter("max_strain", "-", 0.3, 5.0, "log", "largest stretch - 1"),)


class Compression(Uniaxial):
    """Compression of rubber between lubricated plates."""

    name = "compression"
    title = "uniaxial compression"
    settings = (Parameter("max_strain", "-", -0.7, -0.1, "linear", "stretch - 1 at the end"),)


class RateAndTemperature(Programme):
    """Tension at a constant true strain rate and a constant temperature."""

    name = "rate_and_temperature"
    title = "tension at a rate and a temperature"
    settings = (
        Parameter("max_strain", "-", 0.05, 0.5, "log", "largest true strain"),
        Parameter("rate", "1/s", 1e-4, 1e4, "log", "true strain rate"),
        Parameter("temperature", "°C", 20.0, 800.0, "linear", "of the specimen"),
    )
    channels = ("rate", "temperature")

    def history(self, settings: Array, points: int, random: np.random.Generator) -> History:
        """See `Programme.history`; points are dense where the metal yields."""
        largest, rate, temperature = settings.T[:, :, None]
        strain = largest * np.linspace(0.0, 1.0, points) ** 2
        return History(self.mode, strain=strain, rate=rate, temperature=temperature)


class TensionAtRate(Programme):
    """Tension at a constant strain rate."""

    name = "tension_at_rate"
    title = "tension at a rate"
    settings = (
        Parameter("max_strain", "-", 0.01, 0.1, "log", "largest strain"),
        Parameter("rate", "1/s", 1e-6, 1e-1, "log", "strain rate"),
    )
    channels = ("time",)

    def history(self, settings: Array, points: int, random: np.random.Generator) -> History:
        """See `Programme.history`; points are dense where the metal yields."""
        largest, rate = settings.T[:, :, None]
        strain = largest * np.linspace(0.0, 1.0, points) ** 2
        return History(self.mode, strain=strain, time=strain / rate)


class Relaxation(Programme):
    """A strain, reached at a constant rate and held: the stress relaxes."""

    name = "relaxation"
    title = "stress relaxation"
    settings = (
        Parameter("strain", "-", 0.002, 0.02, "log", "strain that is held"),
        Parameter("rate", "1/s", 1e-4, 1e-1, "log", "strain rate of the ramp"),
        Parameter("hold", "s", 100.0, 1e5, "log", "how long the strain is held"),
    )
    channels = ("time",)

    def history(self, settings: Array, points: int, random: np.random.Generator) -> History:
        """See `Programme.history`; the times of the hold are even on a log scale."""
        strain, rate, hold = settings.T[:, :, None]
        return History(self.mode, **ramp_and_hold("strain", strain, strain / rate, hold, points))


class Creep(Programme):
    """A stress, reached at a constant rate and held: the strain creeps."""

    name = "creep"
    title = "creep"
    settings = (
        Parameter("stress", "MPa", 10.0, 400.0, "log", "stress that is held"),
        Parameter("ramp", "s", 1.0, 100.0, "log", "how long the ramp takes"),
        Parameter("hold", "s", 100.0, 1e6, "log", "how long the stress is held"),
    )
    channels = ("time",)
    drives = "stress"

    def history(self, settings: Array, points: int, random: np.random.Generator) -> History:
        """See `Programme.history`; the times of the hold are even on a log scale."""
        stress, ramp, hold = settings.T[:, :, None]
        return History(self.mode, **ramp_and_hold("stress", stress, ramp, hold, points))


PROGRAMMES: dict[str, type[Programme]] = {
    programme.name: programme
    for programme in (
        Cyclic, CyclicShear, Uniaxial, Equibiaxial, Planar, Compression, RateAndTemperature, TensionAtRate,
        Relaxation, Creep,
    )
}  # fmt: skip


def programme_class(spec: str) -> type[Programme]:
    """The class of a registered name (`cyclic`) or of `path/to/file.py:ClassName`; InputError if there is none."""
    if is_file(spec):
        guide = "docs/adding_a_law.md shows a complete one"
        return user_class(spec, Programme, "test", "--config.tests", guide)
    if spec not in PROGRAMMES:
        raise InputError(
            f"there is no test '{spec}'{nearest(spec, PROGRAMMES)} "
            "(`tfmat laws --tests` lists them; path/to/file.py:ClassName is one of your own)"
        )
    return PROGRAMMES[spec]


def find_programmes(
    specs: Sequence[str], ranges: Mapping[str, tuple[float, float]] | None = None
) -> tuple[Programme, ...]:
    """The programmes that `specs` name.

    Args:
      specs: registered names, or `path/to/file.py:ClassName`.
      ranges: `setting`, for every programme that has it, or `programme_setting` for one -> (low, high).

    Raises:
      InputError: no such programme, a range that no programme has, or one that is none.
    """
    classes = [programme_class(spec) for spec in specs]
    names = [[setting.name for setting in one.settings] for one in classes]
    known = {
        key
        for one, settings in zip(classes, names, strict=True)
        for name in settings
        for key in (name, f"{one.name}_{name}")
    }
    ranges = dict(ranges or {})
    for key in ranges:
        if key not in known:
            raise InputError(f"no test of this record has a setting '{key}'{nearest(key, known)}")
    found = []
    for one, settings in zip(classes, names, strict=True):
        chosen = {n: ranges[n] for n in settings if n in ranges}
        chosen |= {n: ranges[f"{one.name}_{n}"] for n in settings if f"{one.name}_{n}" in ranges}
        found.append(one(chosen))
    return tuple(found)


def file_digests(specs: Sequence[str]) -> list[str]:
    """What tells the files of user's own programmes from edited ones; empty without any."""
    return [file_digest(spec) for spec in specs if is_file(spec)]
