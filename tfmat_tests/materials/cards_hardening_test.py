"""Cards of metals: in the real CalculiX against the laws, and by their text against the solvers' manuals."""

import re

import numpy as np
import pytest

from tfmat.materials import History, find_law
from tfmat.materials.cards import card_text
from tfmat_tests.materials.one_element import need_calculix, pull

# Relative error of the stress at a logarithmic strain; written down before the first run. CalculiX's own measure of
# plastic strain takes up to 0.7e-3 of it, more for stronger metals.
CLOSE = 1e-3
TESTED = 0.1
VALUES = {
    "voce": {"E": 200e3, "sigma0": 300.0, "Q": 250.0, "b": 12.0},
    "swift": {"E": 200e3, "K": 700.0, "epsilon0": 0.01, "n": 0.2},
    "ramberg_osgood": {"E": 200e3, "sigma02": 350.0, "n": 9.0},
    "ludwik": {"E": 200e3, "sigma0": 300.0, "K": 500.0, "n": 0.5},
    "hollomon": {"E": 200e3, "K": 600.0, "n": 0.15},
}
STEEL = {
    "E": 200e3, "A": 400.0, "B": 300.0, "n": 0.26, "C": 0.014, "m": 1.03,
    "reference_rate": 0.5, "room": 20.0, "melting": 1500.0,
}  # fmt: skip
CHABOCHE = {"E": 185e3, "sigma0": 255.0, "Q": 92.0, "b": 9.5, "C1": 17430.0, "gamma1": 157.0}


def text_of(solver, name, **options):
    return card_text(solver, find_law(name), VALUES[name], tested=TESTED, name="304L", **options)


def flow(name, plastic):
    """The published hardening curve, written again."""
    v = VALUES[name]
    if name == "voce":
        return v["sigma0"] + v["Q"] * (1 - np.exp(-v["b"] * plastic))
    if name == "swift":
        return v["K"] * (v["epsilon0"] + plastic) ** v["n"]
    if name == "ludwik":
        return v["sigma0"] + v["K"] * plastic ** v["n"]
    if name == "hollomon":
        strain = plastic.copy()
        for _ in range(100):  # the fixed point of strain = plastic + stress / E
            strain = plastic + np.minimum(v["E"] * strain, v["K"] * strain ** v["n"]) / v["E"]
        return v["K"] * np.maximum(strain, (v["K"] / v["E"]) ** (1 / (1 - v["n"]))) ** v["n"]
    return v["sigma02"] * (plastic / 0.002) ** (1 / v["n"])


def body(text, comment):
    """Lines that are no comments."""
    return [line for line in text.splitlines() if not line.startswith(comment)]


def numbers(lines):
    return np.array(
        [[float(part) for part in re.split(r"[ ,]+", line.strip(" ,"))] for line in lines]
    )


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("solver", ["calculix", "abaqus"])
def test_one_element_in_calculix_follows_the_law(solver, name, tmp_path):
    need_calculix()
    pulled = pull(tmp_path, text_of(solver, name), np.exp([0.004, TESTED]))
    strain = np.log(pulled.stretch)
    assert len(strain) == 80 and strain[-1] == pytest.approx(TESTED, rel=1e-6)
    law = find_law(name)
    expected = law.stress(strain[None], np.array([[*VALUES[name].values()]]))[0]
    np.testing.assert_allclose(pulled.true_stress, expected, rtol=CLOSE)


@pytest.mark.parametrize(
    ("temperature", "softening"), [(20.0, 1.03), (150.0, 0.5), (150.0, 2.0), (700.0, 1.03)]
)
def test_johnson_cook_in_calculix_follows_the_law_at_its_reference_rate(
    temperature, softening, tmp_path
):
    need_calculix()
    law, values = find_law("johnson_cook"), STEEL | {"m": softening}
    text = card_text("calculix", law, values, tested=TESTED)
    pulled = pull(tmp_path, text, np.exp([0.004, TESTED]), temperature=temperature)
    strain = np.log(pulled.stretch)
    history = History(
        strain=strain[None], rate=np.array([[0.5]]), temperature=np.array([[temperature]])
    )
    expected = law.respond(history, np.array([[*values.values()]]))[0]
    # Written down before the first run: 0.1 % as of one table, and 0.1 % of interpolation between temperatures.
    np.testing.assert_allclose(pulled.true_stress, expected, rtol=2 * CLOSE)


def test_one_element_in_calculix_has_the_given_poisson_ratio(tmp_path):
    need_calculix()
    text = text_of("calculix", "voce", poisson_ratio=0.2)
    assert "*ELASTIC\n200000, 0.2\n" in text and "Poisson's ratio 0.2" in text
    pulled = pull(tmp_path, text, [1.001], mode="planar", steps=2)
    assert pulled.true_stress[0] == pytest.approx(200e3 * 5e-4 / (1 - 0.2**2), rel=1e-3)


def rows_of(text, solver):
    """Plastic strain and stress of the card's table, [rows, 2]."""
    if solver in ("abaqus", "calculix"):
        return numbers(body(text, "**")[4:])[:, ::-1]
    if solver == "ls_dyna":
        lines = body(text, "$")
        return numbers(lines[lines.index("*DEFINE_CURVE") + 2 :])
    if solver == "ansys":
        return numbers(line.removeprefix("TBPT,DEFI,") for line in body(text, "!")[3:])
    lines = [line for line in body(text, "#") if line.startswith("        ")]
    strain, stress = numbers(lines).T
    return np.stack([strain - stress / 200e3, stress], axis=1)


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("solver", ["abaqus", "ls_dyna", "ansys", "calculix", "code_aster"])
def test_tables_follow_the_hardening_curve(solver, name):
    if (solver, name) == ("ls_dyna", "swift"):
        pytest.skip("its card has parameters, no table")
    plastic, stress = rows_of(text_of(solver, name), solver).T
    assert plastic[0] == pytest.approx(0.0, abs=1e-11)
    assert len(plastic) == (100 if solver == "ansys" else 200)
    assert (np.diff(plastic) > 0).all() and (np.diff(stress) >= 0).all() and plastic[-1] > 0.999
    tried = np.geomspace(2e-5, TESTED - 0.003, 1000)
    close = 1e-4 if name in ("voce", "swift") else 7e-4 if solver == "ansys" else 3e-4
    np.testing.assert_allclose(np.interp(tried, plastic, stress), flow(name, tried), rtol=close)
    np.testing.assert_allclose(stress[-5:], flow(name, plastic[-5:]), rtol=1e-6)


def test_ls_dyna_voce_is_mat_024_with_a_curve():
    lines = body(text_of("ls_dyna", "voce"), "$")
    assert lines[:5] == [
        "*MAT_PIECEWISE_LINEAR_PLASTICITY",
        "         1              200000       0.3       300",
        "                             1",
        "       0.0",
        "       0.0",
    ]
    assert lines[5] == "*DEFINE_CURVE" and lines[6].split() == ["1", "1000"]
    assert lines[6][70:] == "      1000"  # LCINT


def test_ls_dyna_swift_is_mat_018():
    # SIGY = K epsilon0^n makes LS-DYNA's strain to yield (SIGY / K)^(1/n) Swift's pre-strain.
    assert body(text_of("ls_dyna", "swift"), "$") == [
        "*MAT_POWER_LAW_PLASTICITY",
        "         1              200000       0.3       700       0.2",
        "278.675019",
    ]
    np.testing.assert_allclose((278.675019 / 700) ** (1 / 0.2), 0.01, rtol=1e-6)


def test_ansys_and_code_aster_begin_as_their_manuals_do():
    assert body(text_of("ansys", "voce"), "!")[:4] == [
        "MP,EX,1,200000",
        "MP,PRXY,1,0.3",
        "TB,PLASTIC,1,,,MISO",
        "TBPT,DEFI,0,300",
    ]
    namespace = {"_F": dict, "DEFI_FONCTION": dict, "DEFI_MATERIAU": dict}
    exec(text_of("code_aster", "voce"), namespace)  # its input is Python
    assert namespace["mater"]["ELAS"] == {"E": 200000, "NU": 0.3}
    assert namespace["mater"]["TRACTION"]["SIGM"]["VALE"][:2] == (0.0015, 300)


def test_johnson_cook_in_abaqus_and_ls_dyna():
    names = ("E", "A", "B", "n", "C", "m", "reference_rate", "room", "melting")
    values = dict(zip(names, (208e3, 792, 510, 0.26, 0.014, 1.03, 1.0, 20, 1520), strict=True))
    law = find_law("johnson_cook")
    assert body(card_text("abaqus", law, values, tested=0.3), "**")[3:] == [
        "*PLASTIC, HARDENING=JOHNSON COOK",
        "792, 510, 0.26, 1.03, 1520, 20",
        "*RATE DEPENDENT, TYPE=JOHNSON COOK",
        "0.014, 1",
    ]
    lines = body(card_text("ls_dyna", law, values, tested=0.3, poisson_ratio=0.28), "$")
    assert lines[1].split() == ["1", "81250", "208000", "0.28"]
    assert lines[1][20:30] == "     81250"
    assert lines[2].split() == ["792", "510", "0.26", "0.014", "1.03", "1520", "20", "1"]


def test_cyclic_plasticity_in_abaqus_and_code_aster():
    two = CHABOCHE | {"C2": 1762.0, "gamma2": 3.5}
    assert body(card_text("abaqus", find_law("voce_chaboche"), two, tested=0.02), "**") == [
        "*MATERIAL, NAME=MATERIAL",
        "*ELASTIC",
        "185000, 0.3",
        "*PLASTIC, HARDENING=COMBINED, DATA TYPE=PARAMETERS, NUMBER BACKSTRESSES=2",
        "255, 17430, 157, 1762, 3.5",
        "*CYCLIC HARDENING, PARAMETERS",
        "255, 92, 9.5",
    ]
    for name, values, keyword in (
        ("voce_chaboche_1", CHABOCHE, "CIN1_CHAB"),
        ("voce_chaboche", two, "CIN2_CHAB"),
    ):
        namespace = {"_F": dict, "DEFI_MATERIAU": dict}
        exec(card_text("code_aster", find_law(name), values, tested=0.02), namespace)
        found = namespace["mater"][keyword]
        assert found.pop("R_I") == found.pop("R_0") + 92
        constants = {"B": 9.5, "K": 1.0, "W": 0.0, "A_I": 1.0}
        names = ("C_I", "G_0") if len(values) == 6 else ("C1_I", "G1_0", "C2_I", "G2_0")
        assert found == constants | dict(zip(names, list(values.values())[4:], strict=True))
