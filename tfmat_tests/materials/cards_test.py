"""Cards of materials: in the real CalculiX against the laws, and by their text against the solvers' manuals."""

import re

import numpy as np
import pytest

import tfmat
from tfmat.errors import InputError
from tfmat.materials import History, Law, Parameter, find_law
from tfmat.materials.cards import CARDS, SOLVERS, card_text, card_warnings, check_card, family_of
from tfmat.materials.metals import Voce
from tfmat_tests.materials.one_element import need_calculix, pull

# Which cards there are, what is refused, and the head that every card has.


VOCE = {"E": 200e3, "sigma0": 300.0, "Q": 250.0, "b": 12.0}


def test_every_writer_names_its_manual_and_every_solver_has_one():
    writers = {writer for family in CARDS.values() for writer in family.writers.values()}
    assert all("Guide" in doc or "Manual" in doc or "Reference" in doc or "U4.43.01" in doc
               for doc in (writer.__doc__ or "" for writer in writers))  # fmt: skip
    assert {solver for family in CARDS.values() for solver in family.writers} == set(SOLVERS)


def test_every_card_of_calculix_is_run_in_it():
    """By the other tests of this file, whose `VALUES` name the laws."""
    metals = f"{' '.join(METALS)} johnson_cook norton perzyna"
    rubber = "neo_hooke mooney_rivlin yeoh arruda_boyce ogden_1 ogden ogden_3"
    written = {law for law, family in CARDS.items() if "calculix" in family.writers}
    assert written == {*metals.split(), *rubber.split()}


@pytest.mark.parametrize("name", CARDS)
def test_cards_of_every_law_are_ascii_and_not_too_wide(name):
    law = find_law(name)
    values = {p.name: float(p.from_unit_interval(0.5)) for p in law.parameters}
    for solver in family_of(law).writers:
        text = card_text(solver, law, values, tested=0.05, name="Prüfling №3", facts=["größer ½ µ"])
        assert text.isascii() and text.endswith("\n")
        assert max(map(len, text.splitlines())) <= 90
        assert f"written by tfmat {tfmat.__version__}" in text
        assert f"law {name}:" in text and "mm, t, s, MPa" in text and "density is not" in text
        # A sum sign is no stress.
        said = re.sub(r"\n\W+", " ", text)
        assert said.count("sum of ") >= law.formula.count("Σ") and "sigma 2mu" not in said


@pytest.mark.parametrize(
    ("solver", "law", "ratio", "message"),
    [
        ("abacus", "voce", None, "no card for a solver 'abacus'; did you mean 'abaqus'"),
        ("calculix", "hahn_tsai", None, "CalculiX has no card for law hahn_tsai; .*: ls_dyna$"),
        ("abaqus", "voce", 0.5, "Poisson's ratio is 0.5; give 0 or more, and less than 0.5"),
        ("abaqus", "voce", float("nan"), "Poisson's ratio is nan"),
    ],
)
def test_a_card_that_is_not_there_is_refused_in_one_line(solver, law, ratio, message):
    with pytest.raises(InputError, match=message) as error:
        check_card(find_law(law), solver, ratio)
    assert "\n" not in str(error.value)


def test_laws_without_cards_are_refused_and_own_hardening_curves_are_tables():
    class Own(Voce):
        name = "own"
        parameters = (*Voce.parameters[:3], Parameter("b", "-", 1.0, 20.0))

    text = card_text("calculix", Own(), VOCE, tested=0.1)
    assert text.count("\n300, 0\n") == 1
    assert not card_warnings("calculix", Own(), VOCE, 0.1)

    class Softens(Law):
        """The stress falls behind a strain of 0.25, far beyond the test."""

        name, title, formula, source = "softens", "", "", ""
        parameters = Voce.parameters
        strain_measure = stress_measure = "true"

        def stress(self, strain, parameters):
            fallen = np.exp(-2.0 * np.maximum(strain - 0.25, 0.0))
            return Voce().stress(strain, parameters) * fallen

    (said,) = card_warnings("calculix", Softens(), VOCE, 0.1)
    start = float(re.search(r"falls from a plastic strain of ([0-9.]+) on", said)[1])
    assert start == pytest.approx(0.25 - 550 / 200e3, abs=0.03)  # a row of the table
    assert "WARNING: the table falls" in card_text("ansys", Softens(), VOCE, tested=0.1)

    class Other(type(find_law("tanh_shear"))):
        name = "other"

    with pytest.raises(InputError, match="law other has no card; laws with cards: voce, swift"):
        check_card(Other(), "abaqus")
    with pytest.raises(InputError, match="no known law"):
        check_card(None, "abaqus")


# Cards of metals: in the real CalculiX against the laws, and by their text against the solvers' manuals.


# Relative error of the stress at a logarithmic strain; written down before the first run. CalculiX's own measure of
# plastic strain takes up to 0.7e-3 of it, more for stronger metals.
CLOSE = 1e-3
TESTED = 0.1
VALUES = {
    "voce": {"E": 200e3, "sigma0": 300.0, "Q": 250.0, "b": 12.0},
    "swift": {"E": 200e3, "K": 700.0, "epsilon0": 0.01, "n": 0.2},
    "hockett_sherby": {"E": 200e3, "sigma0": 158.0, "Q": 263.0, "N": 5.6, "p": 0.77},
    "swift_voce": {"E": 200e3, "K": 1031.0, "epsilon0": 5e-3, "n": 0.2, "Q": 335.0, "b": 20.0, "alpha": 0.6},
    "ramberg_osgood": {"E": 200e3, "sigma02": 350.0, "n": 9.0},
    "ludwik": {"E": 200e3, "sigma0": 300.0, "K": 500.0, "n": 0.5},
    "hollomon": {"E": 200e3, "K": 600.0, "n": 0.15},
    "neo_hooke": {"mu": 0.4},
    "mooney_rivlin": {"C10": 0.15, "C01": 0.03},
    "yeoh": {"C10": 0.2, "C20": -0.002, "C30": 5e-5},
    "arruda_boyce": {"mu": 0.3, "lambda_m": 5.0},
    "ogden_1": {"mu1": 0.4, "alpha1": 1.5},
    "ogden": {"mu1": 0.4, "alpha1": 1.5, "mu2": 0.002, "alpha2": 5.0},
    "ogden_3": {"mu1": 0.4, "alpha1": 1.5, "mu2": 2e-5, "alpha2": 7.0, "mu3": 0.006, "alpha3": -2.0},
    "norton": {"E": 200e3, "K": 2000.0, "n": 5.0},
    "perzyna": {"E": 200e3, "sigma0": 200.0, "Q": 100.0, "b": 20.0, "K": 300.0, "n": 5.0},
}  # fmt: skip
STEEL = {
    "E": 200e3, "A": 400.0, "B": 300.0, "n": 0.26, "C": 0.014, "m": 1.03,
    "reference_rate": 0.5, "room": 20.0, "melting": 1500.0,
}  # fmt: skip
CHABOCHE = {"E": 185e3, "sigma0": 255.0, "Q": 92.0, "b": 9.5, "C1": 17430.0, "gamma1": 157.0}


FIRST_YIELD = ("voce", "swift", "swift_voce")
METALS = ("voce", "swift", "hockett_sherby", "swift_voce", "ramberg_osgood", "ludwik", "hollomon")
RUBBERS = ("neo_hooke", "mooney_rivlin", "yeoh", "arruda_boyce", "ogden_1", "ogden", "ogden_3")


def text_of(solver, name, **options):
    tested = {**dict.fromkeys(METALS, TESTED), **dict.fromkeys(RUBBERS, 6.0)}.get(name, 0.05)
    options = {"name": "304L", **options}
    return card_text(solver, find_law(name), VALUES[name], tested=tested, **options)


def flow(name, plastic):
    """The published hardening curve, written again."""
    v = VALUES[name]
    if name == "voce":
        return v["sigma0"] + v["Q"] * (1 - np.exp(-v["b"] * plastic))
    if name == "swift":
        return v["K"] * (v["epsilon0"] + plastic) ** v["n"]
    if name == "hockett_sherby":
        saturated = v["sigma0"] + v["Q"]
        return saturated - v["Q"] * np.exp(-v["N"] * plastic ** v["p"])
    if name == "swift_voce":
        first_yield = v["K"] * v["epsilon0"] ** v["n"]
        swift = v["K"] * (v["epsilon0"] + plastic) ** v["n"]
        voce = first_yield + v["Q"] * (1 - np.exp(-v["b"] * plastic))
        return v["alpha"] * swift + (1 - v["alpha"]) * voce
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


@pytest.mark.parametrize("name", METALS)
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
def test_johnson_cook_in_calculix_is_the_law_at_its_reference_rate(
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


@pytest.mark.parametrize("name", METALS)
@pytest.mark.parametrize("solver", ["abaqus", "ls_dyna", "ansys", "calculix", "code_aster"])
def test_tables_follow_the_hardening_curve(solver, name):
    if (solver, name) == ("ls_dyna", "swift"):
        pytest.skip("its card has parameters, no table")
    plastic, stress = rows_of(text_of(solver, name), solver).T
    assert plastic[0] == pytest.approx(0.0, abs=1e-11)
    assert len(plastic) == (100 if solver == "ansys" else 200)
    assert (np.diff(plastic) > 0).all() and (np.diff(stress) >= 0).all() and plastic[-1] > 0.999
    tried = np.geomspace(2e-5, TESTED - 0.003, 1000)
    close = 1e-4 if name in FIRST_YIELD else 7e-4 if solver == "ansys" else 3e-4
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


# Cards of rubber: in the real CalculiX in three modes against the energies, and by their text.


# Relative error of the nominal stress, written down before the first run; the laws are incompressible, and at this
# Poisson's ratio CalculiX nearly is.
POISSON = 0.49999
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


@pytest.mark.parametrize("mode", STRETCHES)
@pytest.mark.parametrize("name", RUBBERS)
def test_one_element_in_calculix_follows_the_law_of_rubber(name, mode, tmp_path):
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


# Cards of metals that flow with time: relaxation of one element in the real CalculiX against the laws.


STEPS = 200


@pytest.mark.parametrize(
    ("name", "strain"), [pytest.param("norton", 0.001, marks=pytest.mark.large), ("perzyna", 0.01)]
)
def test_one_element_in_calculix_relaxes_as_the_law_does(name, strain, tmp_path):
    need_calculix()
    ends = np.exp([strain, strain])
    pulled = pull(tmp_path, text_of("calculix", name), ends, steps=STEPS, seconds=[10.0, 100.0])
    time = np.concatenate([np.linspace(0, 10, STEPS + 1), np.linspace(10, 110, STEPS + 1)[1:]])
    history = History(strain=np.log([[1.0, *pulled.stretch]]), time=time[None])
    expected = find_law(name).respond(history, np.array([[*VALUES[name].values()]]))[0, 1:]
    # CalculiX's steps are of first order; written down before: 0.3 %, without the first quarter of the pull, where
    # its loads are small and converge to no more than some percent.
    late = slice(STEPS // 4, None)
    np.testing.assert_allclose(pulled.true_stress[late], expected[late], rtol=3e-3)
    assert expected[-1] < 0.97 * expected[STEPS - 1]


def test_the_lines_are_those_of_the_manuals():
    for solver, keyword in (("abaqus", "*CREEP, LAW=TIME"), ("calculix", "*CREEP")):
        lines = text_of(solver, "norton").splitlines()[-2:]
        assert lines == [keyword, "3.125e-17, 5, 0"]
    assert text_of("calculix", "perzyna").count("\n*PLASTIC\n200, 0\n") == 1


@pytest.mark.parametrize(
    ("name", "drag", "exponent"),
    [
        ("norton", 3000.0, 8.0),
        pytest.param("norton", 20000.0, 12.0, marks=pytest.mark.large),
        pytest.param("perzyna", 300.0, 10.0, marks=pytest.mark.large),
    ],
)
def test_constants_that_calculix_cannot_hold_are_in_gpa(name, drag, exponent, tmp_path):
    """It takes A below 1e-20 as 1e-20, and relaxes to a half or a hundredth of the stress without a word."""
    need_calculix()
    values = VALUES[name] | {"K": drag, "n": exponent}
    text = card_text("calculix", find_law(name), values, tested=0.05)
    assert "units: mm, kg, ms, GPa" in text and "WARNING: this card is in GPa and ms" in text
    assert card_warnings("calculix", find_law(name), values, 0.05)
    strain = (values.get("sigma0", 0.0) + 2 * drag * 1e-5 ** (1 / exponent)) / 200e3
    seconds = np.array([1e5, 1e6]) * strain
    ends = np.exp([strain, strain])
    pulled = pull(tmp_path, text, ends, steps=STEPS, seconds=list(1e3 * seconds))
    loading = np.linspace(0, seconds[0], STEPS + 1)
    holding = np.linspace(seconds[0], seconds.sum(), STEPS + 1)[1:]
    history = History(
        strain=np.log([[1.0, *pulled.stretch]]), time=np.concatenate([loading, holding])[None]
    )
    expected = find_law(name).respond(history, np.array([[*values.values()]]))[0, 1:]
    late = slice(STEPS // 4, None)
    np.testing.assert_allclose(1e3 * pulled.true_stress[late], expected[late], rtol=1e-2)


def test_small_constants_are_a_stress_and_a_rate_for_abaqus():
    """Its guide wants A of no less than 1e-27; q0, n, m and the rate at q0 have no such constant."""
    law = find_law("norton")
    text = card_text("abaqus", law, VALUES["norton"] | {"K": 3000.0, "n": 8.0}, tested=0.05)
    assert text.splitlines()[-2:] == ["*CREEP, LAW=TIME POWER LAW", "3000, 8, 0, 1"]
    assert "units: mm, t, s, MPa" in text and "WARNING" not in text


def test_constants_that_no_unit_makes_large_enough_are_refused():
    values = {"E": 200e3, "K": 2e5, "n": 12.0}
    with pytest.raises(InputError, match="below 1e-20 as that, and A is 2.44e-64 here"):
        card_text("calculix", find_law("norton"), values, tested=0.05)


# Cards of polymers that relax, by their text: the modulus that a solver makes of it against the law's.

MODULI = {"E_inf": 400.0, "E1": 300.0, "E2": 150.0, "E3": 80.0, "E4": 50.0, "E5": 20.0}
TIMES = {f"tau{i + 1}": 10.0**i for i in range(5)}


@pytest.mark.parametrize("solver", ["abaqus", "ansys"])
def test_prony_cards_relax_as_the_law_does(solver):
    """E = 9 K G / (3 K + G) of the card's moduli, each its first value times 1 - sum of g (1 - exp(-t / tau))."""
    text = card_text(solver, find_law("prony"), MODULI | TIMES, tested=0.01)
    if solver == "abaqus":
        lines = body(text, "**")
        assert lines[1] == "*ELASTIC, MODULI=INSTANTANEOUS"
        assert lines[3] == "*VISCOELASTIC, TIME=PRONY"
        modulus, ratio = numbers(lines[2:3])[0]
        shear, bulk, times = numbers(lines[4:]).T
        bulk_times = times
    else:
        lines = body(text, "!")
        modulus, ratio = (float(line.split(",")[3]) for line in lines[:2])
        tables = "\n".join(lines[2:]).split("TB,PRONY,1,,5,")
        assert [table.splitlines()[0] for table in tables[1:]] == ["SHEAR", "BULK"]
        constants = np.zeros((2, 10))
        for row, table in zip(constants, tables[1:], strict=True):
            for line in table.splitlines()[1:]:
                first, *values = (float(value) for value in line.split(",")[1:])
                assert len(values) <= 6  # TBDATA takes no more
                row[int(first) - 1 : int(first) - 1 + len(values)] = values
        (shear, times), (bulk, bulk_times) = (row.reshape(5, 2).T for row in constants)
    assert ratio == 0.4
    time = np.geomspace(1e-3, 1e6, 50)

    def relaxed(at_once, shares, times):
        return at_once * (1 - (shares * (1 - np.exp(-time[:, None] / times))).sum(axis=1))

    shear_modulus = relaxed(modulus / (2 + 2 * ratio), shear, times)
    bulk_modulus = relaxed(modulus / (3 - 6 * ratio), bulk, bulk_times)
    youngs = 9 * bulk_modulus * shear_modulus / (3 * bulk_modulus + shear_modulus)
    long_term, *moduli = MODULI.values()
    decays = np.exp(-time[:, None] / np.array([*TIMES.values()]))
    expected = long_term + (np.array(moduli) * decays).sum(axis=1)
    np.testing.assert_allclose(youngs, expected, rtol=1e-7)


# Cards of ply shear: the fields of LS-DYNA's composite materials that a shear test tells.


def lines_of(name, values, solver="ls_dyna"):
    text = card_text(solver, find_law(name), values, tested=0.04)
    assert "INCOMPLETE" in text and "Poisson's ratio 0" not in text
    comment = {"ls_dyna": "$", "abaqus": "**"}[solver]
    return [line for line in text.splitlines() if not line.startswith(comment)]


def test_ramberg_osgood_shear_is_nasa_s_compdam():
    """IM7/8552 of CompDam's own tests: G12 5290 MPa, alpha_PL 4.412e-10, n_PL 5.934, as constants 11, 27 and 28."""
    values = {"G0": 5290.0, "gamma50": 4.412e-10 * 50**5.934 / 5290.0, "n": 5.934}
    lines = lines_of("ramberg_osgood_shear", values, "abaqus")
    at = lines.index("*USER MATERIAL, CONSTANTS=40")
    constants = [cell.strip() for line in lines[at + 1 :] for cell in line.split(",")]
    assert len(constants) == 40 and constants[0] == "010000"
    assert [float(constants[i - 1]) for i in (11, 27, 28)] == pytest.approx(
        [5290.0, 4.412e-10, 5.934], rel=1e-8
    )
    assert sum(map(bool, constants)) == 4


def test_hahn_tsai_is_mat_054_with_alph():
    lines = lines_of("hahn_tsai", {"G0": 6964.0, "a": 2.44e-8})
    assert lines[0] == "*MAT_ENHANCED_COMPOSITE_DAMAGE"
    assert len(lines) == 7
    assert lines[2] == f"{'6964':>10}"  # GAB
    assert lines[5] == f"{'':10}{'2.44e-08':>10}"  # ALPH
    assert lines[6][50:] == "      54.0"  # CRIT


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("tanh_shear", lambda strain: 90 * np.tanh(5000 * strain / 90)),
        ("exponential_shear", lambda strain: 90 * (1 - np.exp(-5000 * strain / 90))),
    ],
)
def test_other_laws_are_mat_058_with_a_curve(name, formula):
    lines = lines_of(name, {"G0": 5000.0, "S": 90.0})
    assert lines[0] == "*MAT_LAMINATED_COMPOSITE_FABRIC"
    assert lines[2] == "      -1.0"  # GAB is minus the curve's number
    curve = lines.index("*DEFINE_CURVE")
    assert lines[curve + 1].split() == ["1", "1000"]
    strain, stress = np.array([line.split() for line in lines[curve + 2 :]], float).T
    assert (strain[0], stress[0]) == (0.0, 0.0) and strain[-1] == pytest.approx(0.06)
    np.testing.assert_allclose(stress, formula(strain), rtol=1e-7)
