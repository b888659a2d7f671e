"""What a material law is: names, units and ranges of its parameters, and strain -> stress as one array operation."""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from tfmat.errors import InputError, nearest
from tfmat.materials.history import Array, History, Mode, Solver, TestSet
from tfmat.materials.parameter import Parameter, Scale, adjusted
from tfmat.materials.terms import in_falling_order

# Relative step of central differences: their error, of its square and of rounding over it, is about 1e-10.
_DIFFERENCE_STEP = 1e-6


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
      own_error: of a network in place of a program its root mean square error, as a share of the largest stress.
      compression: whether positive strain and stress are compression; of a law for tension a specimen necks at its
        maximum load, where measured curves are cut.
      max_strain: range that the end of a simulated curve is drawn from (-), uniform on max_strain_scale.
      strain_spacing: point i of n stands at max_strain * (i / (n - 1)) ** strain_spacing. 1 is even; metals use 2,
        because their elastic part is a hundredth of the curve and would hold no point at all.
      strength_mpa: range of the stress at which a simulated curve breaks off, or None for no cut-off.
      noise_mpa: default standard deviation of the Gaussian stress noise.
      noise_strain: the same of the strain (-), where a test drives the stress.
      rupture_strain: strain (-) at which a specimen breaks under a driven stress; the record ends before.
      laboratory: options of `CurveSettings` by which the records of this law's family depart from it, name -> (low,
        high), where a user asks for what a laboratory adds; {} for none that are known.
      tests: names of the test programmes that records are simulated of, where the user names none.
      modes: how a specimen may be loaded.
      interchangeable: terms that can change places without changing the response, each by its parameters, e.g.
        (("gamma1", "C1"), ("gamma2", "C2")). Labels are unique because the first parameter falls from term to term.
      material: of a specimen's law the law of its material, whose cards it has; its parameters are found by name here,
        or in `constants`. None for the law of a material.
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
    noise_strain: ClassVar[float] = 1e-5
    rupture_strain: ClassVar[float] = float("inf")
    laboratory: ClassVar[Mapping[str, tuple[float, float]]] = {}
    tests: ClassVar[tuple[str, ...]] = ("monotonic",)
    modes: ClassVar[tuple[Mode, ...]] = ("uniaxial",)
    interchangeable: ClassVar[tuple[tuple[str, ...], ...]] = ()
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

    @abc.abstractmethod
    def derivatives(self, strain: Array, parameters: Array) -> Array:
        """d stress / d parameter, same arguments as `stress`: [curves, points, len(self.parameters)], MPa per unit."""

    def stress_and_derivatives(self, strain: Array, parameters: Array) -> tuple[Array, Array]:
        """What `stress` and `derivatives` give; a law that works out one on the way to the other gives both at once."""
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

    def solver(self, history: History) -> Solver | None:
        """What answers a fit's many questions sooner than `respond` does; None where the law has none."""
        return None

    def sorted_labels(self, labels: Array) -> Array:
        """The unique form of labels [curves, identified]: interchangeable terms in falling order."""
        return in_falling_order(labels, self.label_columns_of_terms)

    @property
    def label_columns_of_terms(self) -> list[list[int]]:
        """Label columns of interchangeable terms that are wholly identified; [] where fewer than two are."""
        names = [parameter.name for parameter in self.identified]
        known = [term for term in self.interchangeable if set(term) <= set(names)]
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

    def label_expansion(
        self, strain: Array | TestSet, labels: Array, solvers: Sequence[Solver] = ()
    ) -> tuple[Array, Array]:
        """What `label_stress` and `label_derivatives` give; of a test set by the `solvers` of its tests, if given."""
        parameters = self.from_labels(labels)
        if isinstance(strain, TestSet) and solvers:
            response, derivatives = strain.expanded(solvers, parameters)
            return response, self._by_labels(derivatives, parameters)
        if isinstance(strain, TestSet):
            return self.label_stress(strain, labels), self.label_derivatives(strain, labels)
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
    """A law that is given by its response to a loading history; a subclass defines `respond`.

    `stress` and `derivatives`, which laws for monotonic loading are asked for, are its response to a driven strain in
    the first of its modes.
    """

    @abc.abstractmethod
    def respond(self, history: History, parameters: Array) -> Array:
        """See `Law.respond`."""

    def sensitivities(self, history: History, parameters: Array) -> Array:
        """See `Law.sensitivities`; central differences, which a subclass replaces by what is exact or quicker."""
        parameters = np.asarray(parameters, np.float64)
        found = []
        for i, parameter in enumerate(self.parameters):
            step = _DIFFERENCE_STEP * parameter.size(parameters[:, i])
            above, below = parameters.copy(), parameters.copy()
            above[:, i] += step
            below[:, i] -= step
            difference = self.respond(history, above) - self.respond(history, below)
            found.append(difference / (2.0 * step[:, None]))
        return np.stack(found, axis=2)

    def driven_strain(self, history: History) -> History:
        """The history, of which the law knows no answer where the stress is driven: InputError."""
        if history.strain is None:
            raise InputError(
                f"law {self.name} answers a driven strain, and this test drives the stress"
            )
        return history

    def stress(self, strain: Array, parameters: Array) -> Array:
        """See `Law.stress`."""
        return self.respond(History(self.modes[0], strain=np.asarray(strain)), parameters)

    def derivatives(self, strain: Array, parameters: Array) -> Array:
        """See `Law.derivatives`."""
        return self.sensitivities(History(self.modes[0], strain=np.asarray(strain)), parameters)
