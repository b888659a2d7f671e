"""Which law has a card for which solver, and the text of a card."""

from collections.abc import Iterable, Mapping

from tfmat.cards import creep, hardening, plies, rubber
from tfmat.cards.material import SOLVERS, Family, Material, head, material_name
from tfmat.errors import InputError, nearest
from tfmat.materials.law import Law
from tfmat.materials.registry import LAWS, find_law

# Up to this strain tables of a specimen's material are as fine as those of a tested strain.
_STRAIN_IN_SPECIMENS = 0.5

# A further law is a line here, with a family of its own where no other writes it.
CARDS: Mapping[str, Family] = {
    "voce": hardening.HARDENING,
    "swift": hardening.POWER_HARDENING,
    "ludwik": hardening.HARDENING,
    "hollomon": hardening.HARDENING,
    "ramberg_osgood": hardening.SMOOTH_YIELD,
    "johnson_cook": hardening.JOHNSON_COOK,
    "norton": creep.NORTON,
    "perzyna": creep.PERZYNA,
    "voce_chaboche_1": hardening.CYCLIC,
    "voce_chaboche": hardening.CYCLIC,
    "voce_chaboche_3": hardening.CYCLIC_3,
    "hahn_tsai": plies.CUBIC_SHEAR,
    "tanh_shear": plies.CURVED_SHEAR,
    "ramberg_osgood_shear": plies.PLASTIC_SHEAR,
    "exponential_shear": plies.CURVED_SHEAR,
    "neo_hooke": rubber.NEO_HOOKE,
    "mooney_rivlin": rubber.MOONEY_RIVLIN,
    "yeoh": rubber.YEOH,
    "arruda_boyce": rubber.ARRUDA_BOYCE,
    "ogden_1": rubber.ogden(1),
    "ogden": rubber.ogden(2),
    "ogden_3": rubber.ogden(3),
}


def family_of(law: Law | None) -> Family:
    """How the law becomes cards; InputError where it has none."""
    if law is None:
        raise InputError(
            "the network was trained on curves of no known law; there is no card (a specimen's simulation has one by "
            "way of `tfmat emulate`)"
        )
    law = point_of(law)
    family = CARDS.get(law.name)
    if family is None and law.name not in LAWS and _is_of_metals(law):
        family = hardening.SMOOTH_YIELD  # a user's own, which may have a first yield or none
    if family is None:
        own = "" if law.name in LAWS else "; a specimen's simulation says `material` to have one"
        raise InputError(f"law {law.name} has no card; laws with cards: {', '.join(CARDS)}{own}")
    return family


def point_of(law: Law) -> Law:
    """The law of the material: that which a specimen's law has parameters of, or the law itself."""
    return find_law(law.material) if law.material else law


def _is_of_metals(law: Law) -> bool:
    """Whether a law of one rising curve can be a table of stress over plastic strain."""
    names = [parameter.name for parameter in law.parameters]
    measures = (law.strain_measure, law.stress_measure)
    return names[0] == "E" and measures == ("true", "true") and law.tests == ("monotonic",)


def check_card(law: Law | None, solver: str, poisson_ratio: float | None = None) -> None:
    """Raises InputError, in one line, unless there is such a card and Poisson's ratio makes sense."""
    if poisson_ratio is not None and not 0.0 <= poisson_ratio < 0.5:
        raise InputError(f"Poisson's ratio is {poisson_ratio:g}; give 0 or more, and less than 0.5")
    if solver not in SOLVERS:
        raise InputError(f"there is no card for a solver '{solver}'{nearest(solver, SOLVERS)}")
    writers = family_of(law).writers
    if solver not in writers:
        assert law is not None
        title = SOLVERS[solver].title
        raise InputError(
            f"{title} has no card for law {law.name}; this law has cards for: {', '.join(writers)}"
        )


def card_text(
    solver: str,
    law: Law,
    values: Mapping[str, float],
    *,
    tested: float,
    name: str = "material",
    poisson_ratio: float | None = None,
    facts: Iterable[str] = (),
) -> str:
    """The material card of a law for a solver, in mm, t, s, MPa.

    Args:
      solver: a key of `SOLVERS`.
      law: the law; values: parameter -> value in its unit, all of them.
      tested: the largest strain of the test, in the law's measure.
      name: of the material; it becomes letters, digits and _.
      poisson_ratio: between 0 and 0.5; None takes the law's default, 0.3 for metals and 0.4995 for rubber.
      facts: lines for the head, such as where the parameters come from.

    Raises:
      InputError: there is no such solver, no such card, or Poisson's ratio makes no sense.
    """
    check_card(law, solver, poisson_ratio)
    family, point = family_of(law), point_of(law)
    material = _material(solver, law, values, tested, name, poisson_ratio)
    ratio = material.poisson_ratio
    assumed = f"Poisson's ratio {ratio:g} (the test does not tell it); " if ratio else ""
    article = "an" if law.strain_measure.startswith("e") else "a"
    strain = f"{article} {law.strain_measure} strain of {tested:.6g}"
    if point is not law:
        # Where a specimen is strained most, its material has seen far more than the specimen's own strain.
        strain += f" of the specimen ({law.title})"
    notes = [
        f"assumed: {assumed}density is not included",
        f"tested up to {strain}; {family.note}",
    ]
    lines = [*head(SOLVERS[solver], material, facts, notes), *family.writers[solver](material)]
    return "\n".join(lines) + "\n"


def card_warnings(
    solver: str, law: Law, values: Mapping[str, float], tested: float
) -> tuple[str, ...]:
    """What a user of the card must not miss, as its head says it; arguments as of `card_text`."""
    check_card(law, solver)
    return _material(solver, law, values, tested, "material", None).warnings


def _material(
    solver: str,
    law: Law,
    values: Mapping[str, float],
    tested: float,
    name: str,
    poisson_ratio: float | None,
) -> Material:
    """What the writer is given; arguments as of `card_text`."""
    family, point = family_of(law), point_of(law)
    ratio = family.poisson_ratio if poisson_ratio is None else poisson_ratio
    known = {**law.constants, **values}
    ordered = {parameter.name: float(known[parameter.name]) for parameter in point.parameters}
    seen = tested if point is law else _STRAIN_IN_SPECIMENS
    material = Material(material_name(name), point, ordered, ratio or 0.0, seen)
    return family.prepared(material, solver)
