"""Units, materials and laws that do not belong together are told."""

import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.materials import LAWS, find_law
from tfmat.records.cleaning import clean, measured_test
from tfmat.records.programmes import PROGRAMMES, check_answer
from tfmat.records.reading import RawCurve, ReadingOptions
from tfmat.records.record import CurveTarget, reasons_not_to_use
from tfmat.records.simulation import CurveSettings, Simulator
from tfmat_tests.records.files import load_file

# A modulus that no curve of the law has is warned about, with the unit that would explain it.


TARGETS = {
    law: CurveTarget.of(settings := CurveSettings(law=law), settings.build_law())
    for law in ("voce", "hahn_tsai", "ramberg_osgood", "swift")
}


def steel(strain):
    """E = 193 GPa, yield at 270 MPa, MPa in true measures."""
    return np.minimum(193e3 * strain, 270 + 1500 * strain)


@pytest.mark.parametrize(
    ("strain_factor", "stress_factor", "hint"),
    [
        (1, 1, None),
        (1, 1e-3, "--stress_unit=GPa"),
        (1, 1 / 6.894757, "--stress_unit=ksi"),
        (1, 145.04, "--stress_unit=psi"),
        (1, 1e6, "--stress_unit=Pa"),
        (100, 1, "--strain_unit=%"),
        (1, 1e-5, "a unit is wrong, or the law is not for this material"),
    ],
)
def test_mistaken_units_of_steel(strain_factor, stress_factor, hint):
    strain = 0.3 * np.linspace(0, 1, 300) ** 2
    raw = RawCurve("a", strain * strain_factor, steel(strain) * stress_factor, "true", "true")
    curve = clean(raw, TARGETS["voce"])
    assert bool(reasons_not_to_use(curve.warnings)) == (hint is not None)
    if hint:
        assert any(hint in str(line) for line in curve.warnings)


@pytest.mark.parametrize(("strength", "is_concrete"), [(30.0, True), (200.0, False)])
def test_concrete_in_positive_numbers_is_told_and_not_another_unit_guessed(strength, is_concrete):
    """The parabola of Hognestad, which falls by 15 % behind its maximum at a strain of 0.2 %."""
    strain = np.linspace(0, 0.0035, 120)
    share = strain / 0.002
    load = strength * np.where(share < 1, 2 * share - share**2, 1.0 - 0.15 * (share - 1.0) / 0.9)
    curve = clean(RawCurve("a", strain, load), TARGETS["voce"])
    (caveat,) = [caveat for caveat in curve.warnings if caveat.kind == "concrete?"] or [None]
    assert (caveat is not None) == is_concrete
    if caveat:
        assert caveat.blocks and "--law=hognestad" in caveat.advice
        assert not any("ksi" in str(line) for line in curve.warnings)


@pytest.mark.parametrize(("modulus", "strength"), [(8.2e3, 35.0), (11e3, 70.0), (17.7e3, 35.0)])
def test_a_ply_across_its_fibres_is_told_beside_another_unit(modulus, strength):
    """Nearly straight to a brittle end; the same numbers with a metal's yielding behind them are asked about."""
    strain = 1.02 * strength / modulus * np.linspace(0, 1, 150)
    ply = RawCurve("a", strain, modulus * strain * (1 - 0.02 * strain / strain[-1]))
    (caveat,) = clean(ply, TARGETS["voce"]).warnings
    assert caveat.kind == "no metal" and caveat.blocks
    assert "a ply across its fibres" in caveat.text and "ksi" in caveat.advice
    strain = np.linspace(0, 0.1, 400)
    metal = RawCurve("a", strain, np.minimum(modulus * strain, strength + 50 * strain))
    assert not any("ply" in line.text for line in clean(metal, TARGETS["voce"]).warnings)


@pytest.mark.parametrize("law", ["voce", "hahn_tsai", "ramberg_osgood"])
def test_curves_of_the_law_are_plausible(law):
    measure = None if law == "hahn_tsai" else "true"
    # Metals at room temperature: the corners of the laws' ranges are no metal's, or a hot one's.
    ranges = {
        "voce": {"E": (60e3, 220e3), "sigma0": (50, 1000), "Q": (20, 1600), "b": (1, 50)},
        "ramberg_osgood": {"E": (60e3, 220e3), "sigma02": (100, 1000), "n": (3, 30)},
    }
    settings = CurveSettings(law=law, ranges=ranges.get(law, {}))
    for curve in np.array(Simulator(settings, 5).curves(0, 30).features, float):
        strain, stress = curve[curve[:, 2] == 0, :2].T
        cleaned = clean(RawCurve("a", strain, stress, measure, measure), TARGETS[law])
        assert reasons_not_to_use(cleaned.warnings) == []


METAL_LAWS = ("voce", "swift", "ramberg_osgood")


def kinds(law, **raw):
    strain = raw.pop("strain", 0.3 * np.linspace(0, 1, 300) ** 2)
    return reasons_not_to_use(clean(RawCurve("a", strain, **raw), TARGETS[law]).warnings)


@pytest.mark.parametrize("law", METAL_LAWS)
@pytest.mark.parametrize(
    ("modulus", "proof", "slope"),
    [
        (50e3, 15.0, 20.0),  # 6061 at 350 °C
        (44e3, 180.0, 600.0),  # magnesium AZ31
        (69e3, 35.0, 300.0),  # pure aluminium, annealed
        (71e3, 500.0, 700.0),  # 7075-T6
        (110e3, 60.0, 1000.0),  # copper, annealed
        (193e3, 230.0, 1600.0),  # 304L
        (205e3, 1700.0, 1000.0),  # maraging steel
    ],
)
def test_metals_in_mpa_are_plausible_and_in_ksi_are_asked_about(law, modulus, proof, slope):
    """The moduli and strengths of ASM's handbooks, rounded."""
    strain = 0.1 * np.linspace(0, 1, 300) ** 2
    stress = np.minimum(modulus * strain, proof + slope * strain)
    measures = {"strain_measure": "true", "stress_measure": "true"}
    assert kinds(law, strain=strain, stress_mpa=stress, **measures) == []
    in_ksi = kinds(law, strain=strain, stress_mpa=stress / 6.894757, **measures)
    assert in_ksi == ["stress in ksi?"]


def test_a_crosshead_s_strain_is_warned_about_and_no_unit_is_blamed():
    """Steel of 400 MPa in a machine that halves, or divides by ten, its modulus."""
    strain = 0.1 * np.linspace(0, 1, 300) ** 2
    for modulus, blocks in ((35e3, False), (15e3, True)):
        stress = np.minimum(modulus * strain, 400 + 500 * strain)
        curve = clean(RawCurve("a", strain, stress, "true", "true"), TARGETS["swift"])
        (caveat,) = [c for c in curve.warnings if c.kind == "implausible modulus"]
        assert "crosshead" in caveat.advice
        assert caveat.blocks == blocks


@pytest.mark.parametrize(
    "law", ["voce", *(pytest.param(law, marks=pytest.mark.large) for law in METAL_LAWS[1:])]
)
def test_the_real_304l_read_as_mpa_are_asked_about_and_as_ksi_are_not(real_curves, law):
    files = sorted(real_curves.glob("304L_*/cleaned*"))
    assert len(files) == 14
    for file in files:
        (curve,) = load_file(file, TARGETS[law])
        (doubt,) = [caveat for caveat in curve.warnings if caveat.blocks]
        assert doubt.kind == "stress in ksi?"
        assert "--stress_unit=ksi" in doubt.advice
        assert "stress in MPa" in curve.assumed
        (right,) = load_file(file, TARGETS[law], ReadingOptions(stress_unit="ksi"))
        assert reasons_not_to_use(right.warnings) == []
        assert right.assumed == ["strain in mm/mm"]


def test_without_hints_the_real_304l_are_asked_about_too(real_curves, tmp_path):
    """Strain and stress alone: no displacement, no temperature."""
    found = 0
    for file in sorted(real_curves.glob("304L_*/cleaned*")):
        lines = [line for line in file.read_text().splitlines() if not line.startswith("{")]
        rows = [",".join(np.array(line.split(","))[[3, 4]]) for line in lines]
        path = tmp_path / f"{file.stem}.csv"
        path.write_text("\n".join(rows))
        (curve,) = load_file(path, TARGETS["swift"])
        found += reasons_not_to_use(curve.warnings) == ["stress in ksi?"]
    assert found == 14


def test_hints_alone_are_told_where_the_numbers_are_plausible():
    strain = 0.3 * np.linspace(0, 1, 300) ** 2
    raw = RawCurve(
        "a", strain, steel(strain), "true", "true", us_unit_hints=("column 'Load' is in lbf",)
    )
    curve = clean(raw, TARGETS["voce"])
    assert [c.kind for c in curve.warnings if not c.blocks] == ["unit of the stress assumed"]
    assert reasons_not_to_use(curve.warnings) == []


def test_the_law_must_be_for_the_test():
    strain = np.linspace(0, 0.04, 200)
    shear = 80 * np.tanh(5000 * strain / 80)
    assert kinds("hahn_tsai", strain=strain, stress_mpa=shear) == []
    gamma = clean(RawCurve("a", strain, shear, is_shear=True), TARGETS["voce"])
    (caveat,) = [c for c in gamma.warnings if c.blocks]
    assert caveat.kind == "a law of tension for shear"
    assert "--law=hahn_tsai, tanh_shear or exponential_shear" in caveat.advice
    tension = np.minimum(70e3 * strain, 90 + 200 * strain)
    for measure in ("engineering", None):
        metal = clean(RawCurve("a", strain, tension, measure, measure), TARGETS["hahn_tsai"])
        (caveat,) = [c for c in metal.warnings if c.blocks]
        assert caveat.kind == "a law of shear for a tension test"
        assert "voce" in caveat.advice
        assert "hahn_tsai" not in caveat.advice


@pytest.mark.parametrize(
    ("names", "advice"),
    [
        (("Strain", "Axial stress"), "half of the axial one"),
        (("Shear strain", "Tensile stress"), "half of the axial one"),
        (("Axial strain", "Shear stress"), "the axial less the transverse strain"),
        (("Strain +45", "Shear stress"), "less the strain at -45°"),
        (("Strain (-45°)", "Stress"), "less the strain at -45°"),
        (("Strain", "Stress"), None),
        (("Axial shear strain", "Tensile shear stress"), None),
        (("Strain [+45/-45]s", "Shear stress"), None),
        (("Strain of lot-45", "Shear stress"), None),
    ],
)
def test_columns_along_the_load_and_of_one_gauge_are_no_shear(names, advice):
    """A tension test of ±45° (ASTM D3518) and one with a V-notch (ASTM D5379): off by a factor of two."""
    strain = np.linspace(0, 0.02, 200)
    stress = 80 * np.tanh(5000 * strain / 80)
    raw = RawCurve("a", strain, stress, columns=names)
    law, programme = find_law("ladeveze_shear"), PROGRAMMES["cyclic_shear"]()
    for curve in (clean(raw, TARGETS["hahn_tsai"]), measured_test(raw, programme, law)):
        found = [c.advice for c in curve.warnings if c.kind == "a law of shear for a tension test"]
        assert [advice in said for said in found] == [True] * (advice is not None)
    if names == ("Strain", "Stress"):
        raw = RawCurve("a", strain, stress, columns=names, laminate_in_head="±45")
        told = clean(raw, TARGETS["hahn_tsai"])
        assert "add these columns" in " ".join(c.advice for c in told.warnings if c.blocks)


@pytest.mark.parametrize("law", METAL_LAWS)
def test_a_polymer_or_laminate_is_no_metal_and_a_metal_in_percent_is_one(law):
    strain = np.linspace(0, 0.2, 200)
    for modulus, strength in ((2.5e3, 60.0), (5e3, 90.0)):
        soft = strength * np.tanh(modulus * strain / strength)
        assert kinds(law, strain=strain, stress_mpa=soft) == ["no metal"]
    percent = 100 * (0.2 * np.linspace(0, 1, 300) ** 2)
    metal = np.minimum(2050 * percent, 380 + 5 * percent)
    assert "strain in %?" in kinds(law, strain=percent, stress_mpa=metal)


def test_compression_of_a_metal_under_a_law_of_shear_is_told_as_a_metal():
    strain = 0.02 * np.linspace(0, 1, 100) ** 2
    stress = np.minimum(70e3 * strain, 120 + 100 * strain)
    assert kinds("hahn_tsai", strain=-strain, stress_mpa=-stress) == [
        "a law of shear for a tension test"
    ]


@pytest.mark.parametrize("law", TARGETS)
@pytest.mark.parametrize("name", ["rubber_treloar_1944", "rubber_meunier_2008"])
@pytest.mark.parametrize("test", ["UT", "ET", "PS"])
def test_rubber_is_recognised(real_curves, law, name, test):
    options = ReadingOptions(strain_column="2", stress_column="1", strain_unit="stretch")
    try:
        (curve,) = load_file(real_curves / name / f"{test}.txt", TARGETS[law], options)
        (said,) = [str(caveat) for caveat in curve.warnings if caveat.kind == "rubber"]
    except InputError as error:  # where nothing of it lies within the trained strains
        said = str(error)
    assert "it is rubber or another elastomer" in said
    assert "--law=ogden uniaxial=FILE" in said
    assert "unit" not in said


@pytest.mark.parametrize(
    ("factor", "assumed", "doubted"), [(1.0, (), False), (0.145, ("stress in MPa",), True)]
)
@pytest.mark.parametrize("modulus", [72e3, 205e3])
def test_curves_without_elastic_points_are_in_their_own_unit(modulus, factor, assumed, doubted):
    """Sixteen points, the first beyond the knee: in MPa as the file says, and in ksi taken for MPa."""
    settings = CurveSettings(law="voce")
    law = settings.build_law()
    strain = 0.1 * np.arange(1, 17) / 16
    stress = law.stress(strain[None], np.array([[modulus, 300.0, 250.0, 12.0]]))[0]
    raw = RawCurve(
        "few",
        strain,
        factor * stress,
        strain_measure="true",
        stress_measure="true",
        assumed=assumed,
    )
    kinds = [caveat.kind for caveat in clean(raw, CurveTarget.of(settings, law)).warnings]
    assert ("stress in ksi?" in kinds) == doubted


# Moduli and strengths that belong together, and those that no one material has.


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
    ("names", "modulus", "strength", "kind"),
    [
        (METALS, 51e3, 1821, "implausible modulus for the strength"),
        (METALS, 80e3, 2000, "implausible modulus for the strength"),
        (METALS, 30e3, 700, "implausible modulus for the strength"),
        (METALS, 1041e3, 581, "implausible modulus"),
        (METALS, 20.5e3, 400, "implausible modulus"),
        (METALS, 2.0, 0.4, "implausible modulus"),
        # A light metal's modulus with a steel's strength.
        (["voce"], 40e3, 510.0, "rare modulus"),
        (["voce"], 50e3, 600.0, "rare modulus"),
        (["voce"], 72e3, 1100.0, "rare modulus"),
        # Magnesium, tin, the strongest aluminium, and a titanium alloy.
        (["voce"], 45e3, 400.0, None),
        (["voce"], 50e3, 30.0, None),
        (["voce"], 71e3, 740.0, None),
        (["voce"], 80e3, 1100.0, None),
        # Laminates in shear.
        (["hahn_tsai"], 5e3, 90.0, None),
        (["ladeveze_shear"], 4.2e3, 70.0, None),
        (["tanh_shear"], 1.2e3, 60.0, None),
        (["tanh_shear"], 1.0e3, 130.0, "implausible modulus for the strength"),
        (["hahn_tsai"], 70e3, 90.0, "implausible modulus"),
    ],
)
def test_pairs_of_no_material_are_told(names, modulus, strength, kind):
    for name in names:
        found = check_answer(find_law(name), parameters(name, modulus), strength)
        assert (found and found[0]) == kind
        assert found is None or found[2] == (kind != "rare modulus")


@pytest.mark.parametrize(
    ("true", "is_told"), [(205e3, True), (193e3, True), (69e3, False), (114e3, False)]
)
def test_a_third_more_strain_makes_a_rare_modulus_of_a_steel(true, is_told):
    """Three quarters of aluminium's modulus are tin's, of titanium's those of a brass: only steel's stand alone."""
    found = check_answer(find_law("voce"), parameters("voce", 0.75 * true), 400.0)
    assert (found is not None and found[0] == "rare modulus" and not found[2]) == is_told
    assert check_answer(find_law("voce"), parameters("voce", true), 400.0) is None
    assert check_answer(find_law("voce"), parameters("voce", 0.75 * true), 400.0, 600.0) is None


@pytest.mark.parametrize(
    ("modulus", "is_told"), [(411e3, True), (328e3, True), (250e3, True), (233e3, False)]
)
@pytest.mark.parametrize("celsius", [20.0, 600.0])
def test_a_modulus_above_the_stiffest_common_alloys_is_told(modulus, is_told, celsius):
    """A steel's extension of 50 mm over a gauge length of 80 mm has 328 GPa. Cobalt alloys have 233, tungsten 411."""
    found = check_answer(find_law("voce"), parameters("voce", modulus), 400.0, celsius)
    assert (found is not None and found[0] == "rare modulus" and not found[2]) == is_told


def test_a_given_modulus_is_not_judged():
    law = type(find_law("voce"))(fixed={"E": 51e3})
    assert check_answer(law, parameters("voce", 51e3), 1821) is None


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
