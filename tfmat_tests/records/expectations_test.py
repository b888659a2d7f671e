"""Moduli and strengths that belong together, and those that no one material has."""

import numpy as np
import pytest

from tfmat.materials import LAWS, find_law
from tfmat.records.programmes import check_answer

METALS = [name for name, law in LAWS.items() if law.parameters[0].name == "E"]
# Young's modulus and tensile strength, MPa, rounded from handbooks (ASM) and makers' sheets.
REAL = {
    "7075-T6": (71.7e3, 572),
    "AZ31": (45e3, 260),
    "copper, annealed": (115e3, 210),
    "Ti-6Al-4V": (114e3, 1170),
    "metastable beta titanium": (80e3, 1500),
    "beryllium copper": (128e3, 1400),
    "grey cast iron": (100e3, 250),
    "304L": (193e3, 600),
    "maraging steel 350": (190e3, 2400),
    "music wire": (205e3, 3200),
    "metallic glass": (96e3, 1900),
    "tungsten": (411e3, 1500),
    "6061 at 350 C": (50e3, 20),
}


def parameters(name, modulus):
    law = find_law(name)
    values = law.from_labels(np.full((1, len(law.identified)), 0.5))[0]
    values[0] = modulus
    return values


@pytest.mark.parametrize("metal", REAL)
def test_pairs_of_real_metals_are_plausible(metal):
    modulus, strength = REAL[metal]
    for name in METALS:
        assert check_answer(find_law(name), parameters(name, modulus), strength) is None


@pytest.mark.parametrize(
    ("modulus", "strength", "kind"),
    [
        (51e3, 1821, "implausible modulus for the strength"),
        (80e3, 2000, "implausible modulus for the strength"),
        (30e3, 700, "implausible modulus for the strength"),
        (1041e3, 581, "implausible modulus"),
        (20.5e3, 400, "implausible modulus"),
        (2.0, 0.4, "implausible modulus"),
    ],
)
def test_pairs_of_no_metal_are_told(modulus, strength, kind):
    for name in METALS:
        found = check_answer(find_law(name), parameters(name, modulus), strength)
        assert found is not None and found[0] == kind


def test_a_given_modulus_is_not_judged():
    law = type(find_law("voce"))(fixed={"E": 51e3})
    assert check_answer(law, parameters("voce", 51e3), 1821) is None


@pytest.mark.parametrize(
    ("name", "modulus", "strength", "plausible"),
    [
        ("hahn_tsai", 5e3, 90.0, True),
        ("ladeveze_shear", 4.2e3, 70.0, True),
        ("tanh_shear", 1.2e3, 60.0, True),
        ("tanh_shear", 1.0e3, 130.0, False),
        ("hahn_tsai", 70e3, 90.0, False),
    ],
)
def test_laminates_in_shear(name, modulus, strength, plausible):
    found = check_answer(find_law(name), parameters(name, modulus), strength)
    assert (found is None) == plausible


@pytest.mark.parametrize(
    ("peak_strain", "plausible"), [(0.002, True), (0.0035, True), (0.012, False)]
)
def test_concrete_by_the_strain_at_its_strength(peak_strain, plausible):
    """The machine's own deformation in the strain of a press gives a peak at one percent."""
    found = check_answer(find_law("hognestad"), np.array([35.0, peak_strain]), 35.0)
    assert (found is None) == plausible


@pytest.mark.parametrize("name", [name for name in LAWS if name not in METALS])
def test_curves_of_the_laws_own_ranges_are_plausible(name):
    law = find_law(name)
    for values in law.from_labels(np.random.default_rng(0).uniform(size=(20, len(law.identified)))):
        stress = 1.0 if law.tests[0] != "monotonic" else law.stress(LINE, values[None]).max()
        assert check_answer(law, values, float(stress)) is None


LINE = np.linspace(1e-5, 0.03, 300)[None]
