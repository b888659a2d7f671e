"""Cards of rubber: the laws are incompressible, solvers want a bulk modulus, which Poisson's ratio stands for."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from tfmat.cards.material import (
    MATERIAL_1,
    NO_DENSITY,
    SOLVERS,
    Family,
    Material,
    Writer,
    comments,
    keyword_fields,
    keyword_names,
    listed,
    number,
)
from tfmat.errors import InputError
from tfmat.materials.rubber import RubberLaw

_ARRUDA_BOYCE = (1.0, 3 / 5, 99 / 175, 513 / 875, 42039 / 67375)


def compressibility(material: Material) -> float:
    """D1 = 2/K in 1/MPa, K the initial bulk modulus that goes with Poisson's ratio and the initial shear modulus."""
    modulus = _shear_modulus(material)
    if not modulus > 0:
        raise InputError(
            f"law {material.law.name} has an initial shear modulus of {modulus:.3g} MPa here; no solver takes that"
        )
    ratio = material.poisson_ratio
    return 3.0 * (1.0 - 2.0 * ratio) / (modulus * (1.0 + ratio))


def _shear_modulus(material: Material) -> float:
    values = material.values
    if "lambda_m" in values:
        powers = values["lambda_m"] ** (-2.0 * np.arange(len(_ARRUDA_BOYCE)))
        return float(values["mu"] * np.dot(_ARRUDA_BOYCE, powers))
    if "C10" in values:
        return 2.0 * (values["C10"] + values.get("C01", 0.0))
    return sum(value for name, value in values.items() if name.startswith("mu"))


def _polynomial(material: Material) -> tuple[float, float]:
    """C10 and C01 of Neo-Hooke or Mooney-Rivlin."""
    values = material.values
    return (values["mu"] / 2, 0.0) if "mu" in values else (values["C10"], values["C01"])


def _terms(material: Material) -> list[tuple[float, float]]:
    """(mu, alpha) of each term of Ogden's law, with the energy 2 mu / alpha² (sum of stretches^alpha - 3)."""
    count = sum(name.startswith("alpha") for name in material.values)
    return [(material.values[f"mu{k}"], material.values[f"alpha{k}"]) for k in range(1, count + 1)]


def _hyperelastic(options: str, constants: Sequence[str] = (), terms: int = 1) -> Writer:
    def write(material: Material) -> list[str]:
        """*HYPERELASTIC: CalculiX CrunchiX User's Manual; Abaqus Keywords Guide. At most eight values a line."""
        values = [material.values[name] for name in constants]
        if options.startswith("OGDEN"):
            values = [float(value) for value in np.ravel(_terms(material))]
        elif options == "NEO HOOKE":
            values = [_polynomial(material)[0]]
        data = [*values, *[compressibility(material)] * terms]
        rows = [listed(data[i : i + 8]) for i in range(0, len(data), 8)]
        return [f"*MATERIAL, NAME={material.name}", f"*HYPERELASTIC, {options}", *rows]

    return write


def _dyna(keyword: str, names: str, values: Sequence[float | str | None]) -> list[str]:
    return [
        *comments(SOLVERS["ls_dyna"], NO_DENSITY),
        keyword,
        keyword_names(names),
        keyword_fields(["1", None, *values]),
    ]


def _mat_027(material: Material) -> list[str]:
    """*MAT_MOONEY-RIVLIN_RUBBER, W = A (I1 - 3) + B (I2 - 3) + ...: LS-DYNA Keyword Manual, volume II."""
    values = [material.poisson_ratio, *_polynomial(material)]
    head = _dyna("*MAT_MOONEY-RIVLIN_RUBBER", "MID RO PR A B REF", values)
    return [*head, keyword_names("SGL SW ST LCID"), keyword_fields(["0.0"])]


def _mat_077_h(material: Material) -> list[str]:
    """*MAT_HYPERELASTIC_RUBBER with N = 0 and constants: LS-DYNA Keyword Manual, volume II."""
    values = material.values
    return [
        *_dyna("*MAT_HYPERELASTIC_RUBBER", "MID RO PR N", [material.poisson_ratio, "0"]),
        keyword_names("C10 C01 C11 C20 C02 C30"),
        keyword_fields([values["C10"], "0.0", "0.0", values["C20"], "0.0", values["C30"]]),
    ]


def _mat_077_o(material: Material) -> list[str]:
    """*MAT_OGDEN_RUBBER, W = sum mu / alpha (...), so that mu is 2 mu / alpha: LS-DYNA Keyword Manual, volume II."""
    terms = _terms(material)
    if any(power == 0.0 for _, power in terms):
        raise InputError("an exponent of Ogden's law is 0, which LS-DYNA's form of it cannot hold")
    return [
        *_dyna("*MAT_OGDEN_RUBBER", "MID RO PR N", [material.poisson_ratio, "0"]),
        keyword_names(" ".join(f"MU{k}" for k in range(1, 9))),
        keyword_fields([2.0 * modulus / power for modulus, power in terms]),
        keyword_names(" ".join(f"ALPHA{k}" for k in range(1, 9))),
        keyword_fields([power for _, power in terms]),
    ]


def _neo(material: Material) -> list[str]:
    """TB,HYPER,,,,NEO with mu and d = 2/K: Mechanical APDL Structural Analysis Guide, Neo-Hookean option."""
    return [
        *comments(SOLVERS["ansys"], MATERIAL_1),
        "TB,HYPER,1,,,NEO",
        f"TBDATA,1,{number(_shear_modulus(material))},{number(compressibility(material))}",
    ]


def _elas_hyper(material: Material) -> list[str]:
    """DEFI_MATERIAU with ELAS_HYPER: Code_Aster U4.43.01; for RELATION='ELAS_HYPER'."""
    first, second = (number(value) for value in _polynomial(material))
    ratio = number(material.poisson_ratio)
    return [
        "# for RELATION='ELAS_HYPER'",
        "mater = DEFI_MATERIAU(",
        f"    ELAS_HYPER=_F(C10={first}, C01={second}, NU={ratio}),",
        ")",
    ]


def _with_limits(material: Material, solver: str) -> Material:
    """Says where the law is not stable, and warns where that is near the tested strain."""
    assert isinstance(material.law, RubberLaw)
    limits = material.law.stability_limits(np.array(list(material.values.values())))
    if not limits:
        said = (
            "stable (Drucker) in uniaxial, equibiaxial and planar tests at stretches of 0.1 to 10"
        )
        return dataclasses.replace(material, remarks=(said,))
    said = f"not stable (Drucker): {', '.join(map(str, limits))}"
    if any(limit.is_near(material.tested) for limit in limits):
        return dataclasses.replace(material, warnings=(said,))
    return dataclasses.replace(material, remarks=(said,))


def _family(keyword: Writer, **others: Writer) -> Family:
    note = (
        "the law is incompressible; the solver's bulk modulus is that of Poisson's ratio, so near 0.5 take elements "
        "that do not lock (CalculiX has no hybrid ones: a lower ratio helps there); beyond the tested stretches the "
        "law extrapolates"
    )
    return Family({"abaqus": keyword, "calculix": keyword, **others}, 0.4995, note, _with_limits)


NEO_HOOKE = _family(
    _hyperelastic("NEO HOOKE"), ls_dyna=_mat_027, ansys=_neo, code_aster=_elas_hyper
)
MOONEY_RIVLIN = _family(
    _hyperelastic("MOONEY-RIVLIN", ("C10", "C01")), ls_dyna=_mat_027, code_aster=_elas_hyper
)
YEOH = _family(_hyperelastic("YEOH", ("C10", "C20", "C30"), 3), ls_dyna=_mat_077_h)
ARRUDA_BOYCE = _family(_hyperelastic("ARRUDA-BOYCE", ("mu", "lambda_m")))


def ogden(terms: int) -> Family:
    """The cards of Ogden's law with so many terms."""
    return _family(_hyperelastic(f"OGDEN, N={terms}", terms=terms), ls_dyna=_mat_077_o)
