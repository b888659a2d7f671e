"""Answers that are not to be trusted, and what is said of them: curves of another law, too short ones, real ones."""

import re

import numpy as np
import pytest

import tfmat
from tfmat.identification.answer import identify
from tfmat.identification.caveats import measure_caveats
from tfmat.identification.networks import Identifier, law_alone, source_of
from tfmat.materials import History, find_law
from tfmat.records.cleaning import clean
from tfmat.records.files import find_records, load_records, write_example_curve
from tfmat.records.reading import RawCurve, ReadingOptions
from tfmat.records.record import CurveTarget, MeasuredRecord
from tfmat.records.simulation import CurveSettings
from tfmat_tests.records.files import load_measured_curve, load_measured_curves
from tfmat_tests.records.made_tests import cycles, saved


def test_an_answer_at_the_end_of_its_range_and_a_bad_fit_are_warned_about(tmp_path, identifier):
    law = find_law("hahn_tsai", ranges={"G0": (100.0, 20000.0)})
    path = write_example_curve(law, tmp_path / "stiff.csv", parameters={"G0": 12000.0, "a": 5e-8})
    stiff = load_measured_curve(path, identifier.target)
    (network,) = identify(identifier, [stiff], least_squares=False)
    assert any(
        "G0 is at the high end of its trained range (8000 MPa)" in line.text
        for line in network.warnings
    )
    # Least squares needs no range, and says that it left it.
    (result,) = identify(identifier, [stiff])
    assert result.parameters["G0"].value == pytest.approx(12000, rel=0.02)
    assert any(
        line.kind == "beyond the usual range" and line.text.startswith("G0 = 1.1")
        for line in result.warnings
    )
    strain = np.linspace(0, 0.04, 100)
    lines = [
        "strain,stress",
        *(f"{e},{s}" for e, s in zip(strain, 100 * (strain / 0.04) ** 3, strict=True)),
    ]
    (tmp_path / "odd.csv").write_text("\n".join(lines))
    (odd,) = identify(identifier, [load_measured_curve(tmp_path / "odd.csv", identifier.target)])
    assert any("does not describe this curve" in line.text for line in odd.warnings)
    assert "law does not follow the curve" in odd.do_not_use
    assert odd.to_json()["do_not_use"] is True


def _three_readings(end):
    """A voce law with noise to a true strain: as true values, and as tests in tension and compression measure it."""
    true = np.linspace(0.0, end, 300)
    law = find_law("voce")
    stress = law.stress(true[None], np.array([[200e3, 300.0, 250.0, 12.0]]))[0]
    stress = stress + np.random.default_rng(1).normal(0.0, 0.5, true.shape)
    return {
        "true values": (true, stress),
        "engineering values of compression": (-np.expm1(-true), stress * np.exp(true)),
        "tension": (np.expm1(true), stress * np.exp(-true)),
    }


def _measure_warnings(strain, stress, law="voce", **options):
    (answer,) = tfmat.identify([strain], [stress], law=law, **options)
    return [line.text for line in answer.warnings if line.kind == "engineering or true?"]


@pytest.mark.parametrize("end", [0.06, 0.15])
@pytest.mark.parametrize("taken", ["true values", "engineering values of compression"])
def test_columns_without_a_measure_are_told_what_another_reading_gives(end, taken):
    (text,) = _measure_warnings(*_three_readings(end)[taken])
    found = re.search(rf"as {taken} [^;]*Q = (\S+) MPa", text)
    assert float(found[1]) == pytest.approx(250.0, rel=0.03)


def test_true_values_of_compression_are_told_too():
    strain, stress = (-values for values in _three_readings(0.1)["true values"])
    (text,) = _measure_warnings(strain, stress)
    assert "taken as engineering values of compression" in text
    assert float(re.search(r"as true values Q = (\S+) MPa", text)[1]) == pytest.approx(
        250, rel=0.03
    )
    assert not _measure_warnings(strain, stress, strain_measure="true", stress_measure="true")


@pytest.mark.parametrize(("end", "told"), [(0.4, 1), (0.15, 0)])
def test_a_network_s_answer_tells_columns_without_a_measure_beyond_necking(end, told):
    """A record that nothing was fitted to; as engineering values the true stress at 0.4 is 40 % too high."""
    (answer,) = tfmat.identify(*([one] for one in _three_readings(end)["true values"]), law="voce")
    texts = [line.text for line in measure_caveats(find_law("voce"), answer.curve, None)]
    assert len(texts) == told and all("40 % too high" in text for text in texts)


def test_a_measure_that_is_told_or_that_the_curve_shows_is_not_asked_about():
    readings = _three_readings(0.15)
    told = {"strain_measure": "true", "stress_measure": "true"}
    assert not _measure_warnings(*readings["true values"], **told)
    assert not _measure_warnings(*readings["tension"])
    # The load has its maximum at a strain of 0.16, which tells tension also where another law misses the curve.
    assert _measure_warnings(*_three_readings(0.12)["tension"], law="swift")
    assert not _measure_warnings(*_three_readings(0.3)["tension"], law="swift")


@pytest.mark.parametrize(("neck", "fall"), [(0.03, 0.3), (0.15, 0.4)])
def test_true_values_beyond_the_maximum_load_are_asked_about_and_a_load_is_not(neck, fall):
    """Strain and stress of a necked specimen, worked out from the gauge length: the true stress falls in the end."""
    strain, stress = _three_readings(0.16)["tension"]  # Considère's strain of this law
    further = np.linspace(0.0, 1.0, 80)[1:]
    strain = np.append(strain, strain[-1] + neck * further)
    stress = np.append(stress, stress[-1] * (1.0 - fall * further**2))
    assert not _measure_warnings(strain, stress)
    (text,) = _measure_warnings(np.log1p(strain), stress * (1.0 + strain))
    found = re.search(r"as true values up to their own maximum load [^;]*Q = (\S+) MPa", text)
    assert float(found[1]) == pytest.approx(250.0, rel=0.03)


@pytest.mark.parametrize(
    ("end", "truth"),
    [
        (0.28, (78e3, 101.0, 193.0, 25.0)),
        # It begins within the elastic part, of a softer metal: the part before it has the modulus.
        (0.09, (117e3, 89.0, 93.0, 104.0)),
    ],
)
def test_a_missed_knee_that_looks_like_a_toe_leaves_the_modulus_in_its_interval(end, truth):
    """A smooth bump at first yield, twenty times the noise, rises as steeply as a metal behind a toe."""
    place = np.arange(200)
    strain = end * np.linspace(0.0, 1.0, 200) ** 2
    stress = find_law("voce").stress(strain[None], np.array([truth]))[0]
    stress = stress + 20.0 * np.exp(-(((place - 15) / 4) ** 2))
    stress = stress + np.random.default_rng(0).normal(size=200)
    told = {"strain_measure": "true", "stress_measure": "true"}
    (answer,) = tfmat.identify([strain], [stress], law="voce", **told)
    low, high = answer.parameters["E"].ci95
    assert "toe" in {line.kind for line in answer.warnings} and not answer.do_not_use
    assert low < truth[0] < high
    if end > 0.1:
        assert high < 2 * truth[0]
    else:
        assert answer.parameters["E"].value > 1.3 * truth[0]


@pytest.mark.parametrize("other", ["tanh_shear", "exponential_shear"])
def test_a_curve_of_another_law_says_which(tmp_path, identifier, other):
    path = write_example_curve(
        find_law(other),
        tmp_path / "curve.csv",
        parameters={"G0": 5000.0, "S": 80.0},
        max_strain=0.05,
    )
    (result,) = identify(identifier, [load_measured_curve(path, identifier.target)])
    (said,) = [line for line in result.warnings if line.kind.endswith("fits better")]
    assert said.text.startswith(f"{other} fits clearly better than hahn_tsai")
    assert said.advice == f"identify with --law={other}"


def test_curves_of_the_right_law_raise_no_alarm(tmp_path, identifier):
    law = find_law("hahn_tsai")
    random = np.random.default_rng(0)
    paths = []
    for i in range(60):
        values = {"G0": random.uniform(2500, 7500), "a": 10 ** random.uniform(-8.8, -7.2)}
        paths.append(write_example_curve(law, tmp_path / f"{i}.csv", parameters=values, seed=i))
    curves, errors = load_measured_curves(paths, identifier.target)
    assert errors == []
    alarms = [
        line
        for result in identify(identifier, curves)
        for line in result.warnings
        if "clearly better" in str(line)
        or "does not describe" in str(line)
        or "leaves the law" in str(line)
    ]
    assert alarms == []


def test_what_a_short_curve_cannot_say_is_said(tmp_path, identifier):
    path = write_example_curve(
        find_law("hahn_tsai"),
        tmp_path / "curve.csv",
        parameters={"G0": 3000.0, "a": 1.5e-9},
        max_strain=0.01,
    )
    (result,) = identify(identifier, [load_measured_curve(path, identifier.target)])
    assert any(line.text.startswith("a is only known to be at most") for line in result.warnings)
    assert result.parameters["a"].std is None
    assert result.parameters["G0"].std is not None


TRELOAR = """1.02 .0255; 1.125 .1344; 1.24 .2256; 1.39 .3169; 1.585 .4081; 1.90 .5003; 2.18 .5886; 2.42 .6769;
3.02 .8633; 3.57 1.0497; 4.03 1.2263; 4.76 1.5892; 5.36 1.9522; 5.75 2.3152; 6.15 2.6879; 6.40 3.0411; 6.60 3.4139;
6.85 3.7769; 7.05 4.1300; 7.15 4.4930; 7.25 4.8658; 7.40 5.2287; 7.50 5.5917; 7.60 6.3176"""


class Middle(Identifier):
    """A network of a law that answers the middle of every range."""

    uncertainty = "none"

    def __init__(self, law_name):
        self.settings = CurveSettings(law=law_name)
        self.law = self.settings.build_law()
        self.parameters = self.law.identified
        self.target = CurveTarget.of(self.settings, self.law)

    def predict(self, features):
        return np.full((len(features), len(self.parameters)), 0.5)


@pytest.mark.parametrize("law_name", ["voce", "swift", "ramberg_osgood", "hahn_tsai"])
def test_treloars_rubber_is_warned_about_loudly(tmp_path, law_name):
    """Treloar, Trans. Faraday Soc. 40 (1944) 59: stretch and nominal stress (MPa) of vulcanised rubber."""
    rows = [row.split() for row in TRELOAR.split(";")]
    lines = ["stretch,nominal stress [MPa]", *(",".join(row) for row in rows)]
    (tmp_path / "rubber.csv").write_text("\n".join(lines))
    network = Middle(law_name)
    curves, errors = load_measured_curves([tmp_path / "rubber.csv"], network.target)
    if errors:
        assert "it is rubber" in str(errors[0])
        return
    (result,) = identify(network, curves)
    assert result.do_not_use
    assert any("it is rubber" in line.text for line in result.warnings)


def test_the_eight_304l_curves_by_least_squares(real_curves):
    files = sorted(real_curves.glob("304L_astm_e8/*.dat"))
    network = Middle("voce")
    curves, errors = load_measured_curves(files, network.target, ReadingOptions(stress_unit="ksi"))
    assert errors == []
    for result in identify(network, curves):
        values = {name: value.least_squares for name, value in result.parameters.items()}
        # 0.2 % offset stress of the law, against the measured points on either side of the offset line.
        law, strain = find_law("voce"), result.curve.strain
        grid = np.linspace(0.001, 0.01, 2000)
        stress = law.stress(grid[None], np.array([list(values.values())]))[0]
        offset = stress[np.argmax(stress < values["E"] * (grid - 0.002))]
        below = result.curve.stress_mpa < 193e3 * (strain - 0.002)
        measured = result.curve.stress_mpa[np.argmax(below)]
        assert offset == pytest.approx(measured, rel=0.25)
        assert 200 < offset < 300
        fitted = law.stress(strain[None], np.array([list(values.values())]))[0]
        error = np.sqrt(np.mean((fitted - result.curve.stress_mpa) ** 2))
        assert error < 0.02 * result.curve.stress_mpa.max()
        assert any("the specimen necks" in line.text for line in result.warnings)
        (said,) = [line.text for line in result.warnings if "leaves the law at" in line.text]
        assert float(said.split(" to ")[1].split(",")[0]) < 0.02  # the first points


@pytest.mark.parametrize("seed", range(4))
def test_noise_of_the_strain_in_a_few_elastic_points_is_no_departure(tmp_path, seed):
    """Image correlation scatters by 200 µm/m, and 5 of 320 points are elastic; the curve is the law's."""
    random = np.random.default_rng(seed)
    strain = np.linspace(0.0, 0.18, 320)
    parameters = np.array([[207e3, 1010.0, 0.0025, 0.155]])
    stress = find_law("swift").stress(strain[None], parameters)[0] + random.normal(0, 0.7, 320)
    file = tmp_path / "dic.csv"
    rows = np.column_stack([strain + random.normal(0.0, 2e-4, 320), stress])
    np.savetxt(file, rows, "%.8f", ",", header="true strain [-],true stress [MPa]", comments="")
    (answer,) = tfmat.identify([file], law="swift")
    assert not [each.text for each in answer.warnings if "leaves the law" in each.text]


@pytest.mark.parametrize("upper", [250.0, 285.0], ids=["smooth", "yield point"])
def test_a_yield_point_is_told_with_a_way_around_it(tmp_path, upper):
    """Behind its plateau the steel follows Voce's law: what the warning says finds the law's Q and b."""
    strain = np.linspace(0.0, 0.12, 2401)
    parameters = np.array([[207e3, 250.0, 200.0, 12.0]])
    stress = find_law("voce").stress(strain[None], parameters)[0]
    plateau = 270.0 + (upper - 270.0) * (strain < 0.0015)
    if upper > 270.0:
        stress = np.where(stress < 270.0, np.minimum(207e3 * strain, plateau), stress)
    stress = stress + np.random.default_rng(0).normal(0.0, 0.5, len(strain))
    file = tmp_path / "steel.csv"
    lines = [f"{a},{b}" for a, b in zip(strain, stress, strict=True)]
    file.write_text("\n".join(["true strain,true stress [MPa]", *lines]))
    (answer,) = tfmat.identify([file], law="voce")
    kinds = [warning.kind for warning in answer.warnings]
    assert kinds.count("yield point") == (upper > 270.0)
    if upper > 270.0:
        (behind,) = tfmat.identify([file], law="voce", window=(0.012, None), fixed={"E": 207e3})
        assert "yield point" not in [warning.kind for warning in behind.warnings]
        for name, truth in (("Q", 200.0), ("b", 12.0)):
            low, high = behind.parameters[name].ci95
            assert low < truth < high


def machine_s(law_name, values, stiffness_mpa, start=0.0, points=400):
    """Engineering strain and stress of a metal, the strain with the machine's own: stress over its stiffness."""
    law = find_law(law_name)
    strain = np.linspace(start, 0.05, points)
    stress = law.stress(strain[None], np.array([values]))[0]
    noise = np.random.default_rng(0).normal(0.0, 1.0, points)
    load = stress * np.exp(-strain) + noise
    return np.expm1(strain) + load / stiffness_mpa, load


@pytest.mark.parametrize("law", ["voce", "swift", "ludwik"])
@pytest.mark.parametrize("stiffness", [70e3, 1e12])
def test_a_wire_s_modulus_that_holds_the_machine_s_is_not_to_be_used(tmp_path, law, stiffness):
    """Steel of 200 GPa and 1,800 MPa: with a soft machine 52 GPa, which is magnesium's, at no metal's strength."""
    strain, load = machine_s("voce", (200e3, 1500.0, 300.0, 40.0), stiffness)
    found = answered(tmp_path, law, strain, load)
    assert (found.do_not_use == ["implausible modulus for the strength"]) == (stiffness < 1e6)
    assert stiffness < 1e6 or found.do_not_use == []
    if stiffness < 1e6:
        assert "DO NOT USE: implausible modulus for the strength" in found.card("abaqus")


@pytest.mark.parametrize("law", ["voce", "swift"])
def test_a_modulus_from_hardly_any_elastic_point_is_not_to_be_used(tmp_path, law):
    """Four points below yield, from an extensometer that has not yet gripped."""
    strain, load = machine_s("voce", (200e3, 380.0, 200.0, 12.0), 1e12, start=0.0025, points=90)
    strain = np.concatenate([[0.0, 2e-5, 2e-4, 3e-4], strain])
    load = np.concatenate([[0.0, 99.0, 200.0, 302.0], load])
    found = answered(tmp_path, law, strain, load)
    assert found.parameters["E"].value > 520e3
    assert "implausible modulus" in found.do_not_use


def answered(folder, law, strain, load):
    rows = "\n".join(f"{e:.8g},{s:.8g}" for e, s in zip(strain, load, strict=True))
    (folder / "a.csv").write_text(f"engineering strain,engineering stress (MPa)\n{rows}\n")
    source = law_alone(law)
    (found,) = identify(source, [load_measured_curve(folder / "a.csv", source.target)])
    return found


_BROKEN = """
import numpy as np
from tfmat.materials.metals import Voce

class Broken(Voce):
    name = "broken"

    def stress_and_derivatives(self, strain, parameters):
        stress, derivatives = super().stress_and_derivatives(strain, parameters)
        # Between the places at which laws are tried.
        derivatives[np.abs(parameters[:, 1] - 300.0) < 5.0, -1, 3] = np.nan
        return stress, derivatives
"""


def test_a_law_whose_derivatives_are_not_finite_is_not_to_be_used(tmp_path):
    (tmp_path / "broken.py").write_text(_BROKEN)
    strain = np.linspace(0.0, 0.06, 60)
    stress = find_law("voce").stress(strain[None], np.array([[200e3, 300.0, 200.0, 20.0]]))[0]
    found = answered(tmp_path, f"{tmp_path}/broken.py:Broken", strain, stress)
    assert "derivatives not finite" in found.do_not_use
    (said,) = [line for line in found.warnings if line.kind == "derivatives not finite"]
    assert "by b is not finite at 1 of" in said.text


def test_cycles_of_steel_with_the_machine_s_strain_are_not_to_be_used(tmp_path):
    law, values = find_law("voce_chaboche_1"), np.array([[200e3, 900.0, 300.0, 8.0, 60e3, 150.0]])
    strain = cycles((0.03, -0.03, 0.03, -0.03))
    stress = law.respond(History(strain=strain[None]), values)[0]
    for stiffness in (1e12, 60e3):
        path = saved(tmp_path, "true strain,true stress (MPa)", strain + stress / stiffness, stress)
        source = law_alone("voce_chaboche_1")
        records, errors = load_records(
            find_records([path], source.law), CurveTarget.of_tests(source.law)
        )
        assert not errors
        (found,) = identify(source, records)
        implausible = any(kind.startswith("implausible") for kind in found.do_not_use)
        assert implausible == (stiffness < 1e6)


def test_the_noise_of_a_record_is_the_same_with_a_network_s_description_and_without():
    strain = np.linspace(0.0, 0.15, 300)
    stress = find_law("voce").label_stress(strain[None], np.full((1, 4), 0.5))[0]
    raw = RawCurve("a", strain, stress * (1.0 + 0.04 * np.sin(70.0 * strain)), "true", "true")
    said = []
    for source in (law_alone("voce"), source_of("voce")[0]):
        (answer,) = identify(source, [MeasuredRecord.of(clean(raw, source.target))])
        said.append([line.text for line in answer.warnings if line.kind == "law follows roughly"])
    assert said[0] == said[1] and "times the noise" in said[0][0]
