"""Cards of rubber: in the real CalculiX in three modes against the energies, and by their text."""

import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.materials import History, find_law
from tfmat.materials.cards import card_text, card_warnings
from tfmat_tests.materials.one_element import need_calculix, pull

# Relative error of the nominal stress, written down before the first run; the laws are incompressible, and at this
# Poisson's ratio CalculiX nearly is.
CLOSE, POISSON = 1e-3, 0.49999
VALUES = {
    "neo_hooke": {"mu": 0.4},
    "mooney_rivlin": {"C10": 0.15, "C01": 0.03},
    "yeoh": {"C10": 0.2, "C20": -0.002, "C30": 5e-5},
    "arruda_boyce": {"mu": 0.3, "lambda_m": 5.0},
    "ogden_1": {"mu1": 0.4, "alpha1": 1.5},
    "ogden": {"mu1": 0.4, "alpha1": 1.5, "mu2": 0.002, "alpha2": 5.0},
    "ogden_3": {
        "mu1": 0.4,
        "alpha1": 1.5,
        "mu2": 2e-5,
        "alpha2": 7.0,
        "mu3": 0.006,
        "alpha3": -2.0,
    },
}
STRETCHES = {
    "uniaxial": (5.0, lambda s: (s, s**-0.5, s**-0.5)),
    "equibiaxial": (3.0, lambda s: (s, s, s**-2.0)),
    "planar": (4.0, lambda s: (s, np.ones_like(s), 1 / s)),
}


def energy(name, stretches):
    """The strain energy per volume, MPa, as the solvers' manuals have it."""
    v = VALUES[name]
    first = sum(s**2 for s in stretches) - 3
    second = sum(s**-2.0 for s in stretches) - 3
    if name == "neo_hooke":
        return v["mu"] / 2 * first
    if name == "mooney_rivlin":
        return v["C10"] * first + v["C01"] * second
    if name == "yeoh":
        return v["C10"] * first + v["C20"] * first**2 + v["C30"] * first**3
    if name == "arruda_boyce":
        terms = zip((1 / 2, 1 / 20, 11 / 1050, 19 / 7000, 519 / 673750), range(1, 6), strict=True)
        invariant, chain = first + 3, v["lambda_m"]
        return v["mu"] * sum(c / chain ** (2 * i - 2) * (invariant**i - 3**i) for c, i in terms)
    pairs = zip(list(v.values())[::2], list(v.values())[1::2], strict=True)
    return sum(2 * m / a**2 * (sum(s**a for s in stretches) - 3) for m, a in pairs)


def nominal_stress(name, mode, stretch):
    """By central differences of the energy; two directions share it in the equibiaxial test."""
    others, step = STRETCHES[mode][1], 1e-6 * stretch
    change = energy(name, others(stretch + step)) - energy(name, others(stretch - step))
    return change / (2 * step) / (2 if mode == "equibiaxial" else 1)


def text_of(solver, name, **options):
    return card_text(solver, find_law(name), VALUES[name], tested=6.0, **options)


def body(text, comment):
    return [line for line in text.splitlines() if not line.startswith(comment)]


@pytest.mark.parametrize("mode", STRETCHES)
@pytest.mark.parametrize("name", VALUES)
def test_one_element_in_calculix_follows_the_law(name, mode, tmp_path):
    need_calculix()
    text = text_of("calculix", name, poisson_ratio=POISSON)
    assert body(text, "**") == body(text_of("abaqus", name, poisson_ratio=POISSON), "**")
    pulled = pull(tmp_path, text, [STRETCHES[mode][0]], mode)
    assert len(pulled.stretch) == 40
    expected = nominal_stress(name, mode, pulled.stretch)
    np.testing.assert_allclose(pulled.nominal_stress, expected, rtol=CLOSE)
    history = History(mode, strain=pulled.stretch[None] - 1)
    found = find_law(name).respond(history, np.array([[*VALUES[name].values()]]))[0]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_compressibility_is_that_of_poissons_ratio():
    # K = 2 mu (1 + nu) / (3 (1 - 2 nu)), D = 2 / K.
    (line,) = body(text_of("abaqus", "neo_hooke", poisson_ratio=0.45), "**")[2:]
    bulk = 2 * 0.4 * 1.45 / (3 * 0.1)
    assert [float(part) for part in line.split(",")] == pytest.approx([0.2, 2 / bulk])
    assert "Poisson's ratio 0.4995 (the test" in text_of("abaqus", "ogden")


def test_ls_dyna():
    assert body(text_of("ls_dyna", "mooney_rivlin"), "$") == [
        "*MAT_MOONEY-RIVLIN_RUBBER",
        "         1              0.4995      0.15      0.03",
        "       0.0",
    ]
    assert body(text_of("ls_dyna", "yeoh"), "$") == [
        "*MAT_HYPERELASTIC_RUBBER",
        "         1              0.4995         0",
        "       0.2       0.0       0.0    -0.002       0.0     5e-05",
    ]
    # Its energy is mu / alpha (...), ours 2 mu / alpha² (...).
    assert body(text_of("ls_dyna", "ogden"), "$")[2:] == [
        "0.53333333    0.0008",
        "       1.5         5",
    ]


def test_ansys_and_code_aster():
    assert body(text_of("ansys", "neo_hooke"), "!")[0] == "TB,HYPER,1,,,NEO"
    assert body(text_of("ansys", "neo_hooke"), "!")[1].startswith("TBDATA,1,0.4,0.005")
    namespace = {"_F": dict, "DEFI_MATERIAU": dict}
    exec(text_of("code_aster", "mooney_rivlin"), namespace)
    assert namespace["mater"] == {"ELAS_HYPER": {"C10": 0.15, "C01": 0.03, "NU": 0.4995}}


def test_what_no_solver_takes_is_refused():
    for solver, name, values, message in (
        ("abaqus", "mooney_rivlin", {"C10": 0.1, "C01": -0.2}, "initial shear modulus of -0.2 MPa"),
        ("ls_dyna", "ogden_1", {"mu1": 0.1, "alpha1": 0.0}, "exponent of Ogden's law is 0"),
    ):
        with pytest.raises(InputError, match=message):
            card_text(solver, find_law(name), values, tested=1.0)


@pytest.mark.parametrize(("tested", "warns"), [(0.5, False), (0.9, True), (3.0, True)])
def test_a_law_that_is_not_stable_says_so_and_warns_near_the_tested_strain(tested, warns):
    """This law of Yeoh's softens in equibiaxial tension from nominal strain 1.25."""
    values = {"C10": 0.5, "C20": -0.015, "C30": 1e-5}
    for solver in ("abaqus", "calculix", "ls_dyna"):
        text = card_text(solver, find_law("yeoh"), values, tested=tested)
        said = " ".join(line.strip("*$ ") for line in text.splitlines())
        assert ("WARNING: not stable (Drucker): " in said) == warns
        assert "equibiaxial tension from nominal strain 1.25" in said
        assert bool(card_warnings(solver, find_law("yeoh"), values, tested)) == warns
    assert "stable (Drucker) in uniaxial" in text_of("abaqus", "yeoh")
    assert "WARNING" not in text_of("abaqus", "yeoh")
