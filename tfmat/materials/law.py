"""Laws: parameters with units and ranges, and the response to a history. NumPy only."""

import abc
import dataclasses
import functools
import itertools
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfmat.errors import InputError, nearest

# --------------------------------------------------------------------------------------------------
# Loading of a specimen: its mode, and the strain or the stress that it is driven through.


Array = NDArray[np.floating]
# Planar tension is a wide, short strip, which cannot become narrower; rubber laboratories call it pure shear.
Mode = Literal["uniaxial", "equibiaxial", "planar", "shear"]
MODES: tuple[Mode, ...] = ("uniaxial", "equibiaxial", "planar", "shear")


@dataclasses.dataclass(frozen=True)
class History:
    """The history of a test, for one or many curves.

    A machine drives either the strain or the stress; the law answers with the other. Point 0 need not be unloaded: what
    lies before it is a virgin specimen at rest.

    Attributes:
      mode: how the specimen is loaded.
      strain: [curves, points], -, in the law's strain measure; None where the stress is driven.
      stress: [curves, points], MPa, in the law's stress measure; None where the strain is driven.
      time: [curves, points], s, not falling; None where the law asks for none.
      rate: [curves, 1], strain rate, 1/s; None where the law asks for none.
      temperature: [curves, 1], °C; None where the law asks for none.
    """

    mode: Mode = "uniaxial"
    strain: Array | None = None
    stress: Array | None = None
    time: Array | None = None
    rate: Array | None = None
    temperature: Array | None = None

    def __post_init__(self) -> None:
        if (self.strain is None) == (self.stress is None):
            raise ValueError("a history drives the strain or the stress: give one of them")

    @property
    def driven(self) -> Array:
        """The strain (-) or the stress (MPa) that the machine drives, [curves, points]."""
        driven = self.stress if self.strain is None else self.strain
        assert driven is not None
        return driven

    def __len__(self) -> int:
        return len(self.driven)

    def rows(self, chosen: Any) -> "History":
        """The history of some of the curves: an index array or a slice. Arrays of one row are shared by all."""
        return self.changed(lambda array: array if len(array) == 1 else array[chosen])

    def changed(self, change: Callable[[Array], Array]) -> "History":
        """The same history with `change` applied to each of its arrays."""
        arrays: dict[str, Any] = {
            field.name: change(value)
            for field in dataclasses.fields(self)
            if isinstance(value := getattr(self, field.name), np.ndarray)
        }
        return dataclasses.replace(self, **arrays)


@dataclasses.dataclass(frozen=True)
class TestSet:
    """The tests of each material: histories whose points stand one test after the other.

    An index picks materials, as it does for an array of strains, in whose place fits take a test set.

    Attributes:
      histories: one for each test, all of the same materials.
      unit: what responses are divided by, [points], [materials, points] or one number: tests that answer with stress
        and tests that answer with strain can be compared in units of their noise.
    """

    __test__ = False  # no case of pytest's

    histories: tuple[History, ...]
    unit: Array | float = 1.0

    def __len__(self) -> int:
        return max(map(len, self.histories))

    def __getitem__(self, chosen: Any) -> "TestSet":
        histories = tuple(history.rows(chosen) for history in self.histories)
        unit = np.asarray(self.unit)
        own = unit.ndim == 2 and len(unit) > 1
        return dataclasses.replace(self, histories=histories, unit=unit[chosen] if own else unit)

    def joined(self, answer: Callable[[History], Array]) -> Array:
        """The `answer` for each test, [materials, points of the test, ...], joined along the points."""
        return self._in_units(np.concatenate([answer(each) for each in self.histories], axis=1))

    def _in_units(self, joined: Array) -> Array:
        unit = np.asarray(self.unit)
        if unit.ndim:
            unit = unit.reshape(*unit.shape, *[1] * (joined.ndim - 2))
        return joined / unit


def driven_where(driven: Array | TestSet, valid: NDArray[np.bool_]) -> Array | TestSet:
    """The driven values, with zeros for points that are not valid; a test set holds its last point there already."""
    return driven if isinstance(driven, TestSet) else np.where(valid, driven, 0.0)


# --------------------------------------------------------------------------------------------------
# A parameter of a law, or a setting of a test: its unit, its range, and its scale.


Scale = Literal["linear", "log"]
# PRIOR_VARIANCE: of a label, uniform between 0 and 1; it bounds what can be unknown.
PRIOR_VARIANCE = 1.0 / 12.0
# The size of a value of 0, as a share of its range.
_LEAST_SIZE = 1e-2


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One parameter of a law.

    Attributes:
      name: as it appears in flags, files and reports, e.g. `G0`.
      unit: e.g. `MPa`; `-` for a pure number.
      low, high: the range that simulated curves are drawn from, in `unit`.
      scale: `linear` or `log`; labels are uniform in 0-1 on this scale.
      description: a few words, e.g. "initial shear modulus".
      fixed: a value in `unit` when the parameter is known and not identified.
    """

    name: str
    unit: str
    low: float
    high: float
    scale: Scale = "linear"
    description: str = ""
    fixed: float | None = None

    def to_unit_interval(self, value: ArrayLike) -> Array:
        """Maps values in `unit` to labels: `low` to 0, `high` to 1. Same shape as `value`."""
        value = np.asarray(value, np.float64)
        if self.scale == "log":
            return np.log(value / self.low) / self.width
        return (value - self.low) / self.width

    def from_unit_interval(self, label: ArrayLike) -> Array:
        """Maps labels back to values in `unit`; the inverse of `to_unit_interval`. Same shape as `label`."""
        label = np.asarray(label, np.float64)
        if self.scale == "log":
            return self.low * (self.high / self.low) ** label
        return self.low + self.width * label

    @property
    def width(self) -> float:
        """The range's width on its scale: high - low, or the natural logarithm of high / low."""
        return float(np.log(self.high / self.low)) if self.scale == "log" else self.high - self.low

    def slope(self, value: ArrayLike) -> Array:
        """d value / d label at values in `unit`, in `unit`. Same shape as `value`."""
        value = np.asarray(value, np.float64)
        return value * self.width if self.scale == "log" else np.full_like(value, self.width)

    def size(self, value: ArrayLike) -> Array:
        """The size of values that a small change of them is measured by, in `unit`: not 0 where they are."""
        least = self.low if self.low > 0 else max(abs(self.low), abs(self.high))
        return np.maximum(np.abs(np.asarray(value, np.float64)), _LEAST_SIZE * least)


def adjusted(
    law: str, parameter: Parameter, limits: tuple[float, float] | None, fixed: float | None
) -> Parameter:
    """`parameter` with the user's range or fixed value, both checked."""
    if limits is not None:
        low, high = (float(limit) for limit in limits)
        if not (np.isfinite([low, high]).all() and low < high) or (
            parameter.scale == "log" and low <= 0
        ):
            condition = "0 < low < high" if parameter.scale == "log" else "low < high"
            raise InputError(
                f"range of {parameter.name} (law {law}) is {low:g} to {high:g} {parameter.unit}; "
                f"give {condition}, e.g. --config.ranges.{parameter.name}={parameter.low:g},{parameter.high:g}"
            )
        parameter = dataclasses.replace(parameter, low=low, high=high)
    if fixed is not None:
        if not np.isfinite(fixed) or (parameter.low > 0 and fixed <= 0):
            raise InputError(
                f"fixed {parameter.name} (law {law}) is {fixed:g} {parameter.unit}; give a positive number"
            )
        parameter = dataclasses.replace(parameter, fixed=float(fixed))
    return parameter


# --------------------------------------------------------------------------------------------------
# Errors that laboratories of each family of laws add to a record: options of `CurveSettings` with their ranges.
#
# They are asked for (`data.laboratory`), never silently there. Drawn noise takes the place of the law's own
# `noise_mpa`. Misfit and spread of the yield stress belong to the material, not to the laboratory. Limits of ISO
# standards: an extensometer of class 0.5 is off by 1.5 µm, one of class 1 by 3 µm (ISO 9513); the zero of a load cell
# of class 1 is off by 0.1 % of its range (ISO 7500-1).


Ranges = dict[str, tuple[float, float]]

# As 16 tension tests of 304L and 6061-T6 show it: their noise, recorded points, and zeroes that are up to 10 MPa off.
METAL_TENSION: Ranges = {
    "noise_of_maximum": (3e-4, 5e-3),
    "measured_points": (15, 400),
    "strain_offset": (5e-6, 2e-4),
}

# An extensometer of class 0.5 to 1 on 12 to 25 mm, a load cell of class 1 whose range is up to 1000 MPa of the
# specimen, a servo loop that the filters of the amplifiers smooth. The machine itself is outside of the gauge length.
METAL_CYCLIC: Ranges = {
    "noise_of_maximum": (5e-4, 5e-3),
    "noise_correlation": (0.1, 0.8),
    "strain_offset": (5e-6, 1.5e-4),
    "stress_offset": (0.1, 1.0),
}

# Strain gauges or image correlation on a ±45° coupon (ASTM D3518): gauges are zeroed to some 10 to 200 µm/m, images
# scatter more than they; loads of some kN on a cell of 100 kN.
PLY_SHEAR: Ranges = {
    "noise_of_maximum": (1e-3, 1e-2),
    "strain_offset": (1e-5, 2e-4),
    "stress_offset": (0.05, 0.5),
}

# Small forces, marks on the specimen that are read to some tenths of a millimetre on 25 mm, a strip that hangs loose at
# first, often points read by hand. No machine gives way: rubber is ten thousand times softer.
RUBBER: Ranges = {
    "noise_of_maximum": (2e-3, 2e-2),
    "measured_points": (12, 400),
    "strain_offset": (1e-3, 1e-2),
    "toe": (1e-3, 2e-2),
}

# Hopkinson bars ring (noise that swings over several points), and the strain of bars and crossheads holds what gives
# way beside the specimen.
RATES_AND_TEMPERATURES: Ranges = {
    "noise_of_maximum": (3e-3, 3e-2),
    "noise_correlation": (0.3, 0.95),
    "strain_offset": (1e-4, 1e-3),
    "machine_stiffness": (1e5, 1e6),
}

# An extensometer holds the strain, or a dead weight the stress, for hours: the room's temperature swings slowly, and
# the zero of the load cell drifts with it.
HELD_METAL: Ranges = METAL_CYCLIC | {"noise_correlation": (0.3, 0.95)}

# The same of polymers, which bear a fiftieth of the stress at a hundred times the strain.
HELD_POLYMER: Ranges = {
    "noise_of_maximum": (1e-3, 1e-2),
    "noise_correlation": (0.3, 0.95),
    "strain_offset": (1e-5, 2e-4),
    "stress_offset": (0.002, 0.02),
}


# --------------------------------------------------------------------------------------------------
# Interchangeable terms: labels that may change places without changing the response. NumPy only.
#
# A term is the columns of its labels, and the first of them tells its place: [[5, 4], [7, 6]] are two.


def orders_of(count: int, terms: Sequence[Sequence[int]]) -> list[NDArray[np.intp]]:
    """Permutations of `count` columns that only change the places of terms; the first changes none."""
    orders = []
    for places in itertools.permutations(terms):
        order = np.arange(count)
        for old, new in zip(terms, places, strict=True):
            order[list(old)] = new
        orders.append(order)
    return orders


def in_falling_order(
    labels: NDArray[np.floating], terms: Sequence[Sequence[int]]
) -> NDArray[np.floating]:
    """Labels [curves, labels] with their terms so placed that the first column falls from term to term."""
    if not terms:
        return labels
    columns = [list(term) for term in terms]
    values = np.asarray(labels)[:, columns]  # [curves, terms, parameters]
    order = np.argsort(-values[:, :, 0], axis=1, kind="stable")
    found = np.array(labels)
    found[:, columns] = np.take_along_axis(values, order[:, :, None], axis=1)
    return found


# --------------------------------------------------------------------------------------------------
# A material law: names, units and ranges of its parameters, and strain -> stress as one array operation.


# _SAME_LABEL: labels that differ by less are the same.
_SAME_LABEL = 1e-9
# Relative step of central differences: their error, of its square and of rounding over it, is about 1e-10.
_DIFFERENCE_STEP = 1e-6


def central_differences(
    respond: Callable[[Array], Array],
    described: Sequence[Parameter],
    parameters: Array,
    relative_step: float,
) -> Iterator[tuple[Array, Array]]:
    """d response / d parameter [curves, points] for each parameter in turn, and its step [curves].

    Args:
      respond: parameters [curves, p] -> response [curves, points].
      described: the p parameters, whose sizes the steps are shares of.
    """
    parameters = np.asarray(parameters, np.float64)
    for i, parameter in enumerate(described):
        step = relative_step * parameter.size(parameters[:, i])
        above, below = parameters.copy(), parameters.copy()
        above[:, i] += step
        below[:, i] -= step
        difference = np.asarray(respond(above) - respond(below))
        yield difference / (2.0 * step[:, None]), step


class Law(abc.ABC):
    """A constitutive law, stress over strain along one axis of loading.

    A law for monotonic loading sets the class attributes and defines `stress` and `derivatives`; one file is enough,
    inside the project or outside it (`--law=my_law.py:MyLaw`). A law that remembers, or that must know the mode of
    loading, the time, the rate or the temperature, is a `HistoryLaw`. NumPy only: laws never import TensorFlow.

    Attributes:
      name: registered name, e.g. `hahn_tsai`.
      title: for people, e.g. "Hahn-Tsai 1973".
      formula: one line of plain Unicode.
      source: the publication and equation.
      parameters: in the order of the columns of every parameter array.
      strain_measure, stress_measure: what `stress` takes and returns; `nominal` is displacement over a gauge length and
        force over an area of a specimen that is no material point, whose records are taken as they are.
      known_beyond: whether it answers for parameters beyond its ranges too.
      own_error: RMS error of an emulator relative to its largest stress; 0 for a closed-form law.
      compression: whether positive strain and stress are compression; of a law for tension a specimen necks at its
        maximum load, where measured curves are cut.
      max_strain: range that the end of a simulated curve is drawn from (-), uniform on max_strain_scale.
      strain_spacing: point i of n stands at max_strain * (i / (n - 1)) ** strain_spacing. 1 is even; metals use 2,
        because their elastic part is a hundredth of the curve and would hold no point at all.
      strength_mpa: range of the stress at which a simulated curve breaks off, or None for no cut-off.
      noise_mpa: default standard deviation of the Gaussian stress noise.
      solves: whether the stress is the root of an equation, so that the derivatives take little more.
      rises: whether the law holds only where the stress rises with the strain; `tfmat laws` refuses it elsewhere.
      noise_strain: default standard deviation of the noise of the strain (-), where a test drives the stress.
      meaningful: parameter name -> (low, high), beyond which a value has no meaning, such as a weight above 1.
      rupture_strain: strain (-) at which a specimen breaks under a driven stress; the record ends before.
      laboratory: what `data.laboratory=true` adds to simulated records: option of `CurveSettings` -> (low, high); {}
        where nothing is known.
      tests: names of the programmes that records are simulated of, where the user names none.
      modes: how a specimen may be loaded.
      interchangeable: terms that can change places without changing the response, each by its parameters, e.g.
        (("gamma1", "C1"), ("gamma2", "C2")). Labels are unique because the first parameter falls from term to term.
      told_apart: interchangeable terms whose ranges differ. Labels are unique because each term stands where it lies
        within its ranges.
      material: law of the material that a specimen is made of, by which its cards are written; its parameters are
        found by name here, or in `constants`. None for the law of a material.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    formula: ClassVar[str]
    source: ClassVar[str]
    parameters: tuple[Parameter, ...]
    strain_measure: ClassVar[Literal["engineering shear", "engineering", "true", "nominal"]]
    stress_measure: ClassVar[Literal["shear", "engineering", "true", "nominal"]]
    known_beyond: ClassVar[bool] = True
    own_error: ClassVar[float] = 0.0
    compression: ClassVar[bool] = False
    max_strain: ClassVar[tuple[float, float]]
    max_strain_scale: ClassVar[Scale] = "linear"
    strain_spacing: ClassVar[float] = 1.0
    strength_mpa: ClassVar[tuple[float, float] | None] = None
    noise_mpa: ClassVar[float] = 1.0
    solves: ClassVar[bool] = False
    rises: ClassVar[bool] = False
    noise_strain: ClassVar[float] = 1e-5
    meaningful: ClassVar[Mapping[str, tuple[float, float]]] = {}
    rupture_strain: ClassVar[float] = float("inf")
    laboratory: ClassVar[Mapping[str, tuple[float, float]]] = {}
    tests: ClassVar[tuple[str, ...]] = ("monotonic",)
    modes: ClassVar[tuple[Mode, ...]] = ("uniaxial",)
    interchangeable: ClassVar[tuple[tuple[str, ...], ...]] = ()
    told_apart: ClassVar[tuple[tuple[str, ...], ...]] = ()
    material: ClassVar[str | None] = None
    constants: ClassVar[Mapping[str, float]] = {}

    def __init__(
        self,
        ranges: Mapping[str, tuple[float, float]] | None = None,
        fixed: Mapping[str, float] | None = None,
        scales: Mapping[str, Scale] | None = None,
    ):
        """Takes the law's own ranges and scales.

        `ranges` (name -> (low, high)), `fixed` (name -> value) and `scales` (name -> linear or log) replace them.
        """
        ranges, fixed, scales = dict(ranges or {}), dict(fixed or {}), dict(scales or {})
        known = [parameter.name for parameter in type(self).parameters]
        for name in [*ranges, *fixed, *scales]:
            if name not in known:
                raise InputError(f"law {self.name} has no parameter '{name}'{nearest(name, known)}")
        for name, (low, high) in self.meaningful.items():
            for value in (*ranges.get(name, ()), *([fixed[name]] if name in fixed else [])):
                if not low <= value <= high:
                    raise InputError(
                        f"{name} of law {self.name} is {value:g}; give {low:g} to {high:g}"
                    )
        self.parameters = tuple(
            adjusted(
                self.name,
                dataclasses.replace(parameter, scale=scales.get(parameter.name, parameter.scale)),
                ranges.get(parameter.name),
                fixed.get(parameter.name),
            )
            for parameter in type(self).parameters
        )
        if not self.identified:
            raise InputError(
                f"every parameter of law {self.name} is fixed; leave at least one to identify"
            )
        self._check_interchangeable()

    @property
    def identified(self) -> tuple[Parameter, ...]:
        """The parameters that are not fixed: the columns of a label array."""
        return tuple(parameter for parameter in self.parameters if parameter.fixed is None)

    @abc.abstractmethod
    def stress(self, strain: Array, parameters: Array) -> Array:
        """Stress of each curve at each strain.

        Args:
          strain: [curves, points] (or [1, points]), -, non-negative and finite.
          parameters: [curves, len(self.parameters)], in their units, the fixed ones included.

        Returns:
          [curves, points], MPa, float64.
        """

    def derivatives(self, strain: Array, parameters: Array) -> Array:
        """d stress / d parameter, same arguments as `stress`: [curves, points, len(self.parameters)], MPa per unit.

        Central differences, which a subclass replaces by what is exact or quicker.
        """
        return self._differences(lambda changed: self.stress(strain, changed), parameters)

    def _differences(self, respond: Callable[[Array], Array], parameters: Array) -> Array:
        found = central_differences(respond, self.parameters, parameters, _DIFFERENCE_STEP)
        return np.stack([difference for difference, _ in found], axis=2)

    def stress_and_derivatives(self, strain: Array, parameters: Array) -> tuple[Array, Array]:
        """The `stress` and `derivatives`; a law that works out one on the way to the other gives both at once."""
        return self.stress(strain, parameters), self.derivatives(strain, parameters)

    def respond(self, history: History, parameters: Array) -> Array:
        """The response of each curve's specimen: stress where the strain is driven, strain where the stress is.

        Args:
          history: of [curves, points], or of one row that all curves share.
          parameters: [curves, len(self.parameters)], in their units, the fixed ones included.

        Returns:
          [curves, points], MPa or -, float64.
        """
        return self.stress(history.driven, parameters)

    def sensitivities(self, history: History, parameters: Array) -> Array:
        """d response / d parameter, same arguments as `respond`: [curves, points, len(self.parameters)]."""
        return self.derivatives(history.driven, parameters)

    def expanded(self, history: History, parameters: Array) -> Array:
        """The response, and behind it its `sensitivities`: [curves, points, 1 + len(self.parameters)]."""
        response = self.respond(history, parameters)[..., None]
        return np.concatenate([response, self.sensitivities(history, parameters)], axis=2)

    def sorted_labels(self, labels: Array) -> Array:
        """The unique form of labels [curves, identified]: interchangeable terms in falling order."""
        return in_falling_order(labels, self.label_columns_of_terms)

    def placed_labels(self, labels: Array) -> Array:
        """The unique form of labels [curves, identified], also where ranges reach beyond the law's own.

        Terms that are told apart change places where they then lie nearer to the law's own ranges, and within these.
        """
        labels = self.sorted_labels(labels)
        terms = self._label_columns(self.told_apart)
        if not terms:
            return labels
        own = {parameter.name: parameter for parameter in type(self).parameters}
        values, least, found = self.identified_values(labels), np.full(len(labels), np.inf), labels
        columns = list(itertools.chain(*terms))
        for places in itertools.permutations(terms):
            moved = values.copy()
            moved[:, columns] = values[:, list(itertools.chain(*places))]
            at, beyond = labels.copy(), np.zeros(len(labels))
            for column, parameter in enumerate(self.identified):
                at[:, column] = parameter.to_unit_interval(moved[:, column])
                far = own[parameter.name].to_unit_interval(moved[:, column])
                beyond += np.maximum(np.maximum(far - 1.0, -far), 0.0)
            outside = ((at < -_SAME_LABEL) | (at > 1.0 + _SAME_LABEL)).any(axis=1)
            nearer = ~outside & (beyond < least - _SAME_LABEL)
            if places != tuple(terms):
                found = np.where(nearer[:, None], np.clip(at, 0.0, 1.0), found)
            least = np.where(nearer, beyond, least)
        return found

    @property
    def label_columns_of_terms(self) -> list[list[int]]:
        """Label columns of interchangeable terms that are wholly identified; [] where fewer than two are."""
        return self._label_columns(self.interchangeable)

    def _label_columns(self, terms: Sequence[Sequence[str]]) -> list[list[int]]:
        names = [parameter.name for parameter in self.identified]
        known = [term for term in terms if set(term) <= set(names)]
        return [[names.index(name) for name in term] for term in known] if len(known) > 1 else []

    def _check_interchangeable(self) -> None:
        for column in zip(*self.label_columns_of_terms, strict=True):
            first, *others = (self.identified[i] for i in column)
            for other in others:
                alike = [(p.low, p.high, p.scale) for p in (first, other)]
                if alike[0] != alike[1]:
                    raise InputError(
                        f"{first.name} and {other.name} of law {self.name} can change places, so they need one range; "
                        f"{first.name} has {first.low:g} to {first.high:g} ({first.scale}), {other.name} "
                        f"{other.low:g} to {other.high:g} ({other.scale}): give both the same, or fix one"
                    )

    def to_labels(self, parameters: ArrayLike) -> Array:
        """[curves, all parameters] in their units -> [curves, identified parameters] scaled to 0-1."""
        parameters = np.asarray(parameters, np.float64)
        columns = [
            parameter.to_unit_interval(parameters[:, i])
            for i, parameter in enumerate(self.parameters)
            if parameter.fixed is None
        ]
        return np.stack(columns, axis=1)

    def from_labels(self, labels: ArrayLike) -> Array:
        """[curves, identified parameters] scaled to 0-1 -> [curves, all parameters] in their units."""
        labels = np.asarray(labels, np.float64)
        columns, column = [], 0
        for parameter in self.parameters:
            if parameter.fixed is not None:
                columns.append(np.full(len(labels), parameter.fixed))
            else:
                columns.append(parameter.from_unit_interval(labels[:, column]))
                column += 1
        return np.stack(columns, axis=1)

    def label_stress(self, strain: Array | TestSet, labels: Array) -> Array:
        """Stress at strain [curves, points] (or [1, points]) for labels [curves, identified]: [curves, points], MPa.

        For a test set it is the response of all tests, one after the other along the points.
        """
        parameters = self.from_labels(labels)
        if isinstance(strain, TestSet):
            return strain.joined(lambda history: self.respond(history, parameters))
        return self.stress(strain, parameters)

    def label_derivatives(self, strain: Array | TestSet, labels: Array) -> Array:
        """d stress / d label by the chain rule: [curves, points, identified], MPa; arguments as of `label_stress`."""
        parameters = self.from_labels(labels)
        if isinstance(strain, TestSet):
            derivatives = strain.joined(lambda history: self.sensitivities(history, parameters))
        else:
            derivatives = self.derivatives(strain, parameters)
        return self._by_labels(derivatives, parameters)

    def label_expansion(self, strain: Array | TestSet, labels: Array) -> tuple[Array, Array]:
        """The `label_stress` and `label_derivatives` together."""
        parameters = self.from_labels(labels)
        if isinstance(strain, TestSet):
            both = strain.joined(lambda history: self.expanded(history, parameters))
            return both[..., 0], self._by_labels(both[..., 1:], parameters)
        stress, derivatives = self.stress_and_derivatives(strain, parameters)
        return stress, self._by_labels(derivatives, parameters)

    def _by_labels(self, derivatives: Array, parameters: Array) -> Array:
        """Derivatives by all parameters, [curves, points, all] -> by labels, [curves, points, identified]."""
        if len(self.identified) < derivatives.shape[2]:
            derivatives = derivatives[:, :, self._columns]
        derivatives *= self.label_slopes(parameters)[:, None, :]
        return derivatives

    def label_slopes(self, parameters: Array) -> Array:
        """d parameter / d label in the parameters' units; parameters [curves, all] -> [curves, identified]."""
        columns = [self.parameters[i].slope(parameters[:, i]) for i in self._columns]
        return np.stack(columns, axis=1)

    def identified_values(self, labels: Array) -> Array:
        """Labels [curves, identified] -> values in the parameters' units, same shape."""
        return self.from_labels(labels)[:, self._columns]

    @property
    def _columns(self) -> list[int]:
        """Columns of a parameter array that are labels."""
        return [i for i, parameter in enumerate(self.parameters) if parameter.fixed is None]


class HistoryLaw(Law):
    """A law that is given by its response to a history; a subclass defines `respond`.

    `stress` and `derivatives`, which laws for monotonic loading are asked for, are its response to a driven strain in
    the first of its modes.
    """

    @abc.abstractmethod
    def respond(self, history: History, parameters: Array) -> Array:
        """See `Law.respond`."""

    def sensitivities(self, history: History, parameters: Array) -> Array:
        """See `Law.sensitivities`; central differences, which a subclass replaces by what is exact or quicker."""
        return self._differences(lambda changed: self.respond(history, changed), parameters)

    def driven_strain(self, history: History) -> History:
        """The history, of which the law knows no answer where the stress is driven: InputError."""
        if history.strain is None:
            raise InputError(
                f"law {self.name} answers a driven strain, and this test drives the stress"
            )
        return history

    def stress(self, strain: Array, parameters: Array) -> Array:
        return self.respond(History(self.modes[0], strain=np.asarray(strain)), parameters)

    def derivatives(self, strain: Array, parameters: Array) -> Array:
        return self.sensitivities(History(self.modes[0], strain=np.asarray(strain)), parameters)


# --------------------------------------------------------------------------------------------------
# Trying a law out: what `tfmat laws NAME` reports, and what a new law should pass before curves are made with it.


# _POINTS: of a trial curve. _MOST_CORNERS, _RANDOM_CURVES: trial curves at corners of the ranges and within them.
_POINTS = 50
_MOST_CORNERS = 64
_RANDOM_CURVES = 64
# _QUICK_CURVES, _QUICK_POINTS: of a quick check, which then takes milliseconds.
_QUICK_CURVES, _QUICK_POINTS = 12, 16
# _QUICK_TOLERANCE: of its derivatives; among few points those that a kink spoils are no small share.
_QUICK_TOLERANCE = 1e-3
# Central differences of smooth functions in float64 are good to about 1e-9 of the largest value.
_CHECK_STEP = 1e-5
_ROUNDING = 8 * float(np.finfo(np.float64).eps)
_DIFFERENCE_TOLERANCE = 1e-5
_INSIDE = 1e-3
# Relative change of the response by a relative change of the parameter that counts as none.
_NO_CHANGE = 1e-4
# _FALL: share of a curve's largest stress; a fall from one point to the next by less is rounding.
_FALL = 1e-9


@dataclasses.dataclass(frozen=True)
class Finding:
    """Outcome of one check: what was checked, whether it passed, and what to know about it."""

    check: str
    passed: bool
    detail: str = ""


def check_law(
    law: Law, draw: Callable[[int, int], History] | None = None, quick: bool = False
) -> list[Finding]:
    """Tries `law` at the corners of its ranges and at random inside; a law that is fine passes every check.

    Args:
      draw: curves, points -> the histories to try it over; by default strain that rises to the law's `max_strain`.
      quick: at a few corners and points alone, so that every command can afford it; what the law raises is raised.
    """
    parameters = _trial_parameters(law)
    if quick:
        parameters = parameters[:: max(1, len(parameters) // _QUICK_CURVES)]
    history = (draw or _rising(law))(len(parameters), _POINTS)
    if quick:
        step = max(1, history.driven.shape[1] // _QUICK_POINTS)
        history = history.changed(lambda array: array[:, ::step])
    findings = []
    tolerance = _QUICK_TOLERANCE if quick else _DIFFERENCE_TOLERANCE
    derivatives = functools.partial(_check_derivatives, tolerance=tolerance)
    checks: dict[str, Callable[[Law, History, Array], Finding]] = {
        "stress": _check_stress,
        "independence": _check_independence,
        "derivatives": derivatives,
    }
    for name, check in checks.items():
        try:
            findings.append(check(law, history, parameters))
        except Exception as error:  # whatever a user's own law raises is a finding
            if quick:
                raise
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{frame.filename.rsplit('/', 1)[-1]}, line {frame.lineno}"
            findings.append(Finding(name, False, f"{error!r} ({place})"))
        if not findings[-1].passed:
            break  # the later ones build on it
    return findings


def _rising(law: Law) -> Callable[[int, int], History]:
    def draw(curves: int, points: int) -> History:
        ends = np.resize(law.max_strain, curves)
        share = np.linspace(0.0, 1.0, points) ** law.strain_spacing
        return History(law.modes[0], strain=ends[:, None] * share)

    return draw


def _trial_parameters(law: Law) -> Array:
    """[curves, all parameters]: corners of the ranges, then random points of a fixed seed."""
    count = len(law.identified)
    corners = list(itertools.islice(itertools.product((0.0, 1.0), repeat=count), _MOST_CORNERS))
    random = np.random.default_rng(0).random((_RANDOM_CURVES, count))
    return law.from_labels(np.concatenate([np.array(corners), random]))


def _answer(history: History) -> str:
    return "strain" if history.strain is None else "stress"


def _check_stress(law: Law, history: History, parameters: Array) -> Finding:
    """Stress, or strain where the stress is driven."""
    answered = _answer(history)
    driven, unit = ("strain", "MPa") if answered == "stress" else ("stress", "")
    stress = np.asarray(law.respond(history, parameters))
    expected = (len(parameters), history.driven.shape[1])
    if stress.shape != expected:
        return Finding(answered, False, f"shape {stress.shape} for {driven} of shape {expected}")
    if stress.dtype.kind not in "fiu":
        return Finding(answered, False, f"holds {stress.dtype}; give real numbers")
    bad = ~np.isfinite(stress).all(axis=1)
    if bad.any():
        return Finding(answered, False, f"not finite at {_values(law, parameters[bad][0])}")
    falls = np.diff(stress) < -_FALL * np.abs(stress).max(axis=1, keepdims=True)
    if law.rises and falls.any():
        return Finding(
            answered,
            False,
            f"falls {_where(law, history, parameters, falls)}; hardening must rise within all ranges: choose other "
            "ranges, or the gain of stress as a parameter",
        )
    extremes = f"{stress.min():.4g} to {stress.max():.4g} {unit}".rstrip()
    return Finding(answered, True, f"finite, {extremes} over the ranges")


def _values(law: Law, parameters: Array) -> str:
    names = (parameter.name for parameter in law.parameters)
    return ", ".join(f"{name}={value:g}" for name, value in zip(names, parameters, strict=True))


def _where(law: Law, history: History, parameters: Array, bad: NDArray[np.bool_]) -> str:
    """The first of the `bad` [curves, points], in words."""
    curve, point = np.argwhere(bad)[0]
    driven = np.broadcast_to(history.driven, (len(parameters), history.driven.shape[1]))
    name, unit = ("stress", " MPa") if history.strain is None else ("strain", "")
    place = f"at {name} {driven[curve, point]:.4g}{unit}"
    return f"{place} with {_values(law, parameters[curve])}"


def _check_independence(law: Law, history: History, parameters: Array) -> Finding:
    stress = np.asarray(law.respond(history, parameters))
    scale = np.abs(stress).max() or 1.0
    for i in (0, len(parameters) // 2, len(parameters) - 1):
        row = slice(i, i + 1)
        alone = np.asarray(law.respond(history.rows(row), parameters[row]))
        if not np.allclose(alone[0], stress[i], rtol=1e-9, atol=1e-12 * scale):
            return Finding(
                "independence", False, "a curve alone differs from the same curve among others"
            )
    return Finding("independence", True, "a curve does not depend on its neighbours")


def _check_derivatives(law: Law, history: History, parameters: Array, tolerance: float) -> Finding:
    derivatives = np.asarray(law.sensitivities(history, parameters))
    expected = (len(parameters), history.driven.shape[1], len(law.parameters))
    if derivatives.shape != expected:
        return Finding("derivatives", False, f"shape {derivatives.shape}, expected {expected}")
    # A difference at a limit would leave the range: a yield stress of 0 would become negative.
    labels = np.clip(law.to_labels(parameters), _INSIDE, 1.0 - _INSIDE)
    parameters = law.from_labels(labels)
    derivatives = np.asarray(law.sensitivities(history, parameters))
    largest = 0.0
    differences = central_differences(
        lambda changed: law.respond(history, changed), law.parameters, parameters, _CHECK_STEP
    )
    for i, parameter in enumerate(law.parameters):
        bad = ~np.isfinite(derivatives[:, :, i])
        if bad.any():
            place = _where(law, history, parameters, bad)
            detail = f"d {_answer(history)} / d {parameter.name} is not finite {place}"
            return Finding("derivatives", False, detail)
        difference, step = next(differences)
        # A kink (a sharp yield) spoils the difference at the few points that cross it. Rounding of a difference: all
        # there is where a curve does not depend on the parameter.
        stress = np.abs(np.asarray(law.respond(history, parameters)))
        rounding = _ROUNDING * stress / step[:, None]
        error = np.maximum(np.abs(derivatives[:, :, i] - difference) - rounding, 0.0)
        # A curve that the parameter hardly changes tells nothing about its derivative.
        hardly = _NO_CHANGE * stress.max(axis=1) * _CHECK_STEP / step
        error /= np.maximum(np.abs(difference).max(axis=1), hardly)[:, None] + 1e-300
        typical = float(np.quantile(error, 0.98))
        if not typical <= tolerance:
            place = _where(law, history, parameters, error >= error.max())
            detail = f"differs from central differences by {typical:.1g} of its largest value, most {place}"
            return Finding(
                "derivatives", False, f"d {_answer(history)} / d {parameter.name} {detail}"
            )
        largest = max(largest, typical)
    return Finding("derivatives", True, f"agree with central differences to {largest:.1g}")
