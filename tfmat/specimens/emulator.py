"""A forward network that replaces a simulation, and the law file that holds it."""

import base64
import dataclasses
import functools
import io
import pathlib
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from tfmat.errors import InputError
from tfmat.files import atomic_write
from tfmat.materials.law import Array, Law, Parameter
from tfmat.records.laboratory import Laboratory

# --------------------------------------------------------------------------------------------------
# The forward network of a simulated specimen as a law: parameters -> the curve, by a few matrix products. NumPy only.
#
# Several small networks, the members, were trained on the same runs from other starts; the law answers with their
# mean, and their spread tells where they know little. Each gives the principal components of the curve on a fixed
# grid of strain. A machine that gives way beside the specimen, and the zero of the strain, are parameters of the law
# as well: the strain of a record is then the specimen's and stress / stiffness, less the zero.


MACHINE, ZERO = "machine_stiffness", "strain_zero"
# _ROUNDING: share of a range by which a limit may be off after it was written as text.
_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True)
class ForwardNetwork:
    """Members of two hidden layers (Gaussian error linear units), and what their outputs mean.

    Attributes:
      kernels, biases: of the layers, [members, inputs, outputs] and [members, outputs].
      strain: [points], the grid; mean: [points], MPa; components: [outputs, points], MPa for an output of 1.
    """

    kernels: tuple[Array, ...]
    biases: tuple[Array, ...]
    strain: Array
    mean: Array
    components: Array

    def outputs(self, inputs: Array) -> Array:
        """Each member's outputs for inputs [runs, inputs]: [members, runs, outputs]."""
        values = inputs[None]
        for layer, (kernel, bias) in enumerate(zip(self.kernels, self.biases, strict=True)):
            values = (_gelu(values)[0] if layer else values) @ kernel + bias[:, None]
        return np.asarray(values)

    def curves(self, inputs: Array) -> Array:
        """Stress on the grid, the mean of the members: [runs, points], MPa."""
        return np.asarray(self.outputs(inputs).mean(axis=0) @ self.components + self.mean)

    def spread(self, inputs: Array) -> Array:
        """Standard deviation of the members' stress about their mean: [runs, points], MPa."""
        return np.asarray((self.outputs(inputs) @ self.components).std(axis=0, ddof=1))

    def slopes(self, inputs: Array, changes: Array) -> tuple[Array, Array]:
        """The `curves`, and how they change along changes [runs, directions, inputs].

        Returns:
          [runs, points], MPa; and [points, runs, directions], MPa.
        """
        runs, directions, width = changes.shape
        values, along = inputs[None], changes.reshape(1, runs * directions, width)
        for layer, (kernel, bias) in enumerate(zip(self.kernels, self.biases, strict=True)):
            if layer:
                values, slope = _gelu(values, with_slope=True)
                # All directions are one product of matrices: products of a few rows each take twice as long.
                split = along.reshape(len(kernel), runs, directions, -1)
                along = (split * slope[:, :, None]).reshape(along.shape)
            values, along = values @ kernel + bias[:, None], along @ kernel
        turned = self.components.T @ along.mean(axis=0).T
        heights = values.mean(axis=0) @ self.components + self.mean
        return np.asarray(heights), turned.reshape(-1, runs, directions)

    def to_text(self) -> str:
        """Everything in letters, for `from_text`; single precision, in which the network was trained."""
        file = io.BytesIO()
        arrays = {f"kernel{i}": array for i, array in enumerate(self.kernels)}
        arrays |= {f"bias{i}": array for i, array in enumerate(self.biases)}
        single = {name: array.astype(np.float32) for name, array in arrays.items()}
        further = {name: getattr(self, name) for name in ("strain", "mean", "components")}
        np.savez(file, allow_pickle=False, **single, **further)
        return base64.b64encode(file.getvalue()).decode("ascii")

    @classmethod
    def from_text(cls, text: str) -> "ForwardNetwork":
        """The network that `to_text` wrote; white space in the text counts for nothing."""
        with np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False) as file:
            arrays = {name: np.asarray(file[name], np.float64) for name in file.files}
        layers = range(sum(name.startswith("kernel") for name in arrays))
        kernels = tuple(arrays[f"kernel{i}"] for i in layers)
        biases = tuple(arrays[f"bias{i}"] for i in layers)
        return cls(kernels, biases, arrays["strain"], arrays["mean"], arrays["components"])


# Keras's tanh approximation of Gaussian error linear units, which is far quicker.
_A, _B = np.sqrt(2.0 / np.pi), 0.044715


def _gelu(values: Array, with_slope: bool = False) -> tuple[Array, Array]:
    """The units' values, and their slopes where these are wanted; in few arrays, which are what takes the time."""
    squares = np.square(values)
    share = squares * (_A * _B)
    share += _A
    share *= values
    np.tanh(share, out=share)
    half = 0.5 * values
    if not with_slope:
        share += 1.0
        share *= half
        return share, np.empty(0)
    squares *= 3.0 * _A * _B
    squares += _A
    squares *= half
    slope = 1.0 - np.square(share)
    slope *= squares
    share += 1.0
    slope += 0.5 * share
    share *= half
    return share, slope


def inputs_of(parameters: tuple[Parameter, ...], values: Array) -> Array:
    """Values [runs, parameters] as a network takes them: -1 to 1 on each scale, and evenly where that is another.

    Stress is nearly linear in some parameters and in the logarithm of others; with both a network learns it sooner.
    """
    labels = [p.to_unit_interval(values[:, i]) for i, p in enumerate(parameters)]
    even = [
        (values[:, i] - p.low) / (p.high - p.low)
        for i, p in enumerate(parameters)
        if p.scale != "linear"
    ]
    return 2.0 * np.stack(labels + even, axis=1) - 1.0


def _input_slopes(parameters: tuple[Parameter, ...], values: Array) -> Array:
    """d input / d parameter, [runs, parameters, inputs]."""
    logarithmic = [i for i, p in enumerate(parameters) if p.scale != "linear"]
    found = np.zeros((len(values), len(parameters), len(parameters) + len(logarithmic)))
    for i, parameter in enumerate(parameters):
        found[:, i, i] = 2.0 / parameter.slope(values[:, i])
    for column, i in enumerate(logarithmic, start=len(parameters)):
        found[:, i, column] = 2.0 / (parameters[i].high - parameters[i].low)
    return found


class ForwardLaw(Law):
    """The nominal stress of a specimen by its forward network; files that hold a subclass are made by `write_law`.

    Attributes:
      weights: the network, see `ForwardNetwork.to_text`.
      drawn: parameters of the simulation in the order of the network's inputs; a stiffness of the machine and
        a zero of the strain stand behind them in `parameters`.
    """

    formula = "a network trained on runs of the simulation"
    strain_measure = "nominal"
    stress_measure = "nominal"
    strain_spacing = 2.0
    known_beyond = False
    weights: ClassVar[str]
    drawn: ClassVar[tuple[Parameter, ...]]

    def __init__(self, ranges: Any = None, fixed: Any = None, scales: Any = None):
        """See `Law.__init__`; InputError for a range or value beyond the runs', of which the network knows nothing."""
        super().__init__(ranges, fixed, scales)
        for own, known in zip(self.parameters, type(self).parameters, strict=True):
            limits = (own.low, own.high) if own.fixed is None else (own.fixed, own.fixed)
            slack = _ROUNDING * (known.high - known.low)
            if limits[0] < known.low - slack or limits[1] > known.high + slack:
                asked = f"{limits[0]:g}" + (f" to {limits[1]:g}" if own.fixed is None else "")
                raise InputError(
                    f"{own.name} {asked} {own.unit} is beyond the runs that {self.name} was trained on, "
                    f"{known.low:g} to {known.high:g}; make runs with a wider range"
                )

    @classmethod
    @functools.cache
    def network(cls) -> ForwardNetwork:
        """The network in the file."""
        return ForwardNetwork.from_text(cls.weights)

    @property
    def _errors(self) -> list[str]:
        return [parameter.name for parameter in self.parameters[len(self.drawn) :]]

    def stress(self, strain: Array, parameters: Array) -> Array:
        """See `Law.stress`; beyond the end of the runs the curve goes on straight."""
        return self._read(strain, parameters)[0]

    def derivatives(self, strain: Array, parameters: Array) -> Array:
        """See `Law.derivatives`; exact for the lines that are drawn between the points of the grid."""
        return self._read(strain, parameters, with_slopes=True)[1]

    def _read(
        self, strain: Array, parameters: Array, with_slopes: bool = False
    ) -> tuple[Array, Array]:
        parameters, network = np.asarray(parameters, np.float64), self.network()
        own = parameters[:, : len(self.drawn)]
        inputs = inputs_of(self.drawn, own)
        slopes: Array = np.empty(0)
        if with_slopes:
            heights, slopes = network.slopes(inputs, _input_slopes(self.drawn, own))
        else:
            heights = network.curves(inputs)
        places = np.broadcast_to(network.strain, heights.shape)
        errors = dict(zip(self._errors, parameters[:, len(self.drawn) :].T, strict=True))
        compliance: Array = np.zeros(len(parameters))
        if MACHINE in errors:
            compliance = 1.0 / errors[MACHINE]
            places = places + compliance[:, None] * heights
            # A machine softer than the specimen's fall would tear it: the record holds nothing of what follows.
            places = np.maximum.accumulate(places, axis=1)
        strain = np.broadcast_to(np.asarray(strain, np.float64), (len(parameters), strain.shape[1]))
        moves = np.zeros(strain.shape)
        if ZERO in errors:
            # A record begins at zero, whatever that is worth.
            shifted = strain + errors[ZERO][:, None]
            moves = ((strain > 0.0) & (shifted > 0.0)).astype(np.float64)
            strain = shifted * moves
        left = np.stack([at.searchsorted(seen) for at, seen in zip(places, strain, strict=True)])
        left = np.clip(left - 1, 0, places.shape[1] - 2)
        # Places in whole arrays: NumPy takes these in half the time of places along an axis.
        rows = np.arange(len(left))[:, None]
        flat = left + places.shape[1] * rows
        places, heights = np.ascontiguousarray(places).ravel(), heights.ravel()
        low, below = places.take(flat), heights.take(flat)
        flat += 1
        width, climb = places.take(flat) - low, heights.take(flat) - below
        width[width <= 0.0] = 1.0
        share, rise = (strain - low) / width, climb / width
        stress = below + share * climb
        if not with_slopes:
            return stress, np.empty(0)
        columns = np.empty((*stress.shape, len(self.parameters)))
        slopes = slopes.reshape(-1, len(self.drawn))
        flat = len(left) * left + rows
        first = slopes.take(flat, axis=0)
        along = slopes.take(flat + len(left), axis=0)
        along -= first
        along *= share[:, :, None]
        along += first
        along *= (1.0 - rise * compliance[:, None])[:, :, None]
        columns[:, :, : len(self.drawn)] = along
        for name, column in zip(
            self._errors, range(len(self.drawn), columns.shape[2]), strict=True
        ):
            if name == MACHINE:
                columns[:, :, column] = rise * stress * np.square(compliance)[:, None]
            else:
                columns[:, :, column] = rise * moves
        return stress, columns


# --------------------------------------------------------------------------------------------------
# A forward network in a Python file of its own, as a law that every command takes.


# The zero of a strain is looked for within so many of its largest standard deviations.
_DEVIATIONS = 2.0
_LINE = 110


@dataclasses.dataclass(frozen=True)
class Facts:
    """The text of a law's file beside its network.

    Attributes:
      name: registered name; title, source: for people.
      error: root mean square error as a share of the largest stress, on runs that chose the network but never trained.
      peak: median of the largest stresses of the runs, MPa.
      max_strain: range in which tests end.
      material: the law of the material, None where that is not known; constants: parameters of it that all runs share.
    """

    name: str
    title: str
    source: str
    error: float
    peak: float
    max_strain: tuple[float, float]
    material: str | None = None
    constants: Mapping[str, float] = dataclasses.field(default_factory=dict)


def write_law(
    path: pathlib.Path,
    network: ForwardNetwork,
    drawn: tuple[Parameter, ...],
    laboratory: Laboratory,
    facts: Facts,
) -> str:
    """Writes a Python file with the law, whole or not at all; returns `path:ClassName`, as --law takes it.

    Additions of the laboratory become the law's own; a machine's stiffness and the strain's zero become parameters. The
    network's error is a misfit of its curves, drawn about the one that was found.
    """
    parameters = drawn
    if laboratory.machine_stiffness is not None:
        low, high = laboratory.machine_stiffness
        meaning = "apparent modulus of what gives way beside the specimen"
        parameters = (*parameters, Parameter(MACHINE, "MPa", low, high, "log", meaning))
    if laboratory.strain_offset is not None:
        most = _DEVIATIONS * laboratory.strain_offset[1]
        meaning = "what the record's strain is short of the true one"
        parameters = (*parameters, Parameter(ZERO, "-", -most, most, "linear", meaning))
    options = {
        name: tuple(value)
        for name, value in laboratory.to_json().items()
        if isinstance(value, list) and name not in (MACHINE, "strain_offset", "max_strain")
    }
    options.setdefault("misfit", tuple(float(f"{share * facts.error:.3g}") for share in (0.5, 2.0)))
    attributes = {
        "name": facts.name,
        "title": facts.title,
        "source": facts.source,
        "max_strain": tuple(map(float, facts.max_strain)),
        "noise_mpa": float(f"{laboratory.noise_mpa or 0.002 * facts.peak:.3g}"),
        "laboratory": options,
        "own_error": float(f"{facts.error:.3g}"),
    }
    if facts.material is not None:
        attributes = {**attributes, "material": facts.material, "constants": dict(facts.constants)}
    name = "".join(part.capitalize() for part in facts.name.replace("-", "_").split("_"))
    text = network.to_text()
    rows = [text[i : i + _LINE] for i in range(0, len(text), _LINE)]
    lines = [
        f'"""{facts.title}: a network in place of its program."""',
        "",
        "from tfmat.materials import Parameter",
        "from tfmat.specimens.emulator import ForwardLaw",
        "",
        "",
        f"class {name}(ForwardLaw):",
        f'    """{facts.title}; off by {facts.error:.2%} of the largest stress (root mean square)."""',
        "",
        *(f"    {key} = {value!r}" for key, value in attributes.items()),
        "    drawn = (",
        *(f"        {_call(parameter)}," for parameter in drawn),
        "    )",
        "    parameters = (",
        "        *drawn,",
        *(f"        {_call(parameter)}," for parameter in parameters[len(drawn) :]),
        "    )",
        '    weights = """',
        *rows,
        '"""',
        "",
    ]
    with atomic_write(path, "w") as file:
        file.write("\n".join(lines))
    return f"{path}:{name}"


def _call(parameter: Parameter) -> str:
    values = list(dataclasses.astuple(parameter))
    while values[-1] in (None, ""):
        values.pop()
    return f"Parameter({', '.join(map(repr, values))})"
