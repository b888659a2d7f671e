"""A forward network in a Python file of its own, as a law that every command takes."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from tfmat.curves.laboratory import Laboratory
from tfmat.files import atomic_write
from tfmat.materials.parameter import Parameter
from tfmat.simulators.forward import MACHINE, ZERO, ForwardNetwork

# The zero of a strain is looked for within so many of its largest standard deviations.
_DEVIATIONS = 2.0
_LINE = 110


@dataclasses.dataclass(frozen=True)
class Facts:
    """What a law's file says beside its network.

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

    What the laboratory adds becomes the law's own; a machine's stiffness and the strain's zero become parameters. The
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
    options: dict[str, Any] = {
        name: tuple(value)
        for name, value in laboratory.to_json().items()
        if isinstance(value, list) and name not in (MACHINE, "strain_offset", "max_strain")
    }
    options.setdefault("misfit", tuple(float(f"{share * facts.error:.3g}") for share in (0.5, 2.0)))
    attributes: Mapping[str, Any] = {
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
        "from tfmat.simulators.forward import ForwardLaw",
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
