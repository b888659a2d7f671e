"""`law="auto"`: the kind of test, its laws ranked, and the best one's answer; on the command line the same."""

import json

import numpy as np
import pytest

import tfmat
from tfmat.cli.main import main
from tfmat.errors import InputError
from tfmat.identification.api import KINDS, TENSION, choose_law, kind_of_files
from tfmat.identification.networks import law_alone
from tfmat.materials import find_law
from tfmat.materials.registry import LAWS
from tfmat.records.cleaning import CleaningOptions
from tfmat.records.files import records_of_files, write_example_curve, write_example_tests
from tfmat.records.reading import ReadingOptions
from tfmat.records.simulation import CurveSettings

STEEL = {"E": 200e3, "sigma0": 300.0, "Q": 250.0, "b": 12.0}


@pytest.fixture(scope="module")
def steel(tmp_path_factory):
    """Two specimens of one steel."""
    folder = tmp_path_factory.mktemp("steel")
    law = find_law("voce")
    return [
        str(write_example_curve(law, folder / f"{name}.csv", parameters=STEEL, seed=seed))
        for seed, name in enumerate("ab")
    ]


def kind(*given):
    return kind_of_files([str(each) for each in given], ReadingOptions(), CleaningOptions())


def test_each_law_is_for_one_kind_of_test():
    assert sorted(law for kind in KINDS for law in kind.laws) == sorted(LAWS)


@pytest.mark.parametrize("law", ["voce", "hahn_tsai"])
def test_kind_of_a_curve_is_found(law, tmp_path):
    assert law in kind(write_example_curve(find_law(law), tmp_path / "a.csv")).laws


@pytest.mark.parametrize("law", ["voce_chaboche", "ladeveze_shear", "yeoh", "perzyna"])
def test_kind_of_tests_is_found_by_their_names_and_by_their_points(law, tmp_path):
    folder = write_example_tests(CurveSettings(law=law), tmp_path / law)
    assert law in kind(folder).laws
    if law != "perzyna":
        assert all(law in kind(file).laws for file in folder.glob("[0-9]*.csv"))


@pytest.mark.parametrize(
    ("names", "law"), [("Epsilon [-],Sigma [MPa]", "voce"), ("eps12 [-],Sigma [MPa]", "hahn_tsai")]
)
def test_an_epsilon_without_indices_is_no_shear(names, law, steel, tmp_path):
    with open(steel[0], encoding="utf-8") as file:
        _, rows = file.read().split("\n", 1)
    path = tmp_path / "epsilon.csv"
    path.write_text(f"{names}\n{rows}")
    assert law in kind(path).laws


@pytest.mark.parametrize("across", [",Transverse strain (-)", ""])
@pytest.mark.parametrize(
    ("head", "law"),
    [
        ("ASTM D3518", "hahn_tsai"),
        ("Zugversuch ±45°", "hahn_tsai"),
        ("[0/±45/90]s", "voce"),
        ("ASTM D3039", "voce"),
    ],
)
def test_tension_of_a_laminate_of_45_degrees_is_shear(head, law, across, tmp_path):
    """γ is axial less transverse strain and τ half of the axial stress (ASTM D3518): G of 5 GPa."""
    strain = np.linspace(0, 0.01, 60)
    rows = [[e, 100 * np.tanh(180 * e), -0.75 * e][: 3 if across else 2] for e in strain]
    names = f"Axial strain (-),Stress (MPa){across}"
    path = tmp_path / "a.csv"
    path.write_text(
        "\n".join([head, "", names, *(",".join(f"{value:.6g}" for value in row) for row in rows)])
    )
    assert law in kind(path).laws
    if law == "hahn_tsai" and across:
        (found,) = tfmat.identify(str(path))
        assert found.law.name in kind(path).laws
        assert found.parameters["G0"].value == pytest.approx(18e3 / 2 / 1.75, rel=0.1)


def test_compression_of_concrete_is_told_by_its_signs(tmp_path):
    """Eurocode 2's parabola for C30 (EN 1992-1-1, 3.1.7), beside a steel that is pressed."""
    strain = np.linspace(1e-5, 2e-3, 50)
    for name, stress, law in (
        ("concrete", 30 * (1 - (1 - strain / 2e-3) ** 2), "hognestad"),
        ("steel", np.minimum(200e3 * strain, 300 + 1e3 * strain), "voce"),
    ):
        rows = "".join(f"{-e:.8g},{-s:.8g}\n" for e, s in zip(strain, stress, strict=True))
        path = tmp_path / f"{name}.csv"
        path.write_text("strain [-],stress [MPa]\n" + rows)
        assert law in kind(path).laws


@pytest.mark.parametrize(("law", "times"), [("voce", 1), ("hahn_tsai", 2)])
def test_records_are_read_once_for_laws_that_read_them_alike(law, times, tmp_path):
    """Hahn and Tsai's law has a strength at which curves break off, and the other laws of a ply have none."""
    file = write_example_curve(find_law(law), tmp_path / "a.csv", seed=3)
    found, calls = kind(file), []

    def read(source):
        calls.append(source.law.name)
        target, options = source.target, (ReadingOptions(), CleaningOptions())
        return records_of_files(str(file), target, source.law, *options)

    chosen = choose_law(found, read)
    assert len(calls) == times
    (given,), (own,) = chosen.records, read(law_alone(chosen.law))
    assert np.array_equal(given.curve.strain, own.curve.strain)
    assert np.array_equal(given.curve.stress_mpa, own.curve.stress_mpa)
    assert (given.steps, given.warnings) == (own.steps, own.warnings)


def test_progress_counts_the_fits_of_the_chosen_law_s_intervals_too(steel):
    def read(source):
        options = (ReadingOptions(), CleaningOptions())
        return records_of_files(steel, source.target, source.law, *options)

    found, said = kind(steel[0]), []
    chosen = choose_law(found, read, progress=lambda *done: said.append(done))
    assert chosen.not_needed
    count = len(steel) * (len(found.laws) + 1)
    assert {total for _, total in said} == {count}
    done = [each for each, _ in said]
    assert done == sorted(set(done)) and done[-1] == count
    assert len(done) == count - len(steel) * len(chosen.not_needed)


def test_relaxation_may_be_a_metal_s_or_a_polymer_s(tmp_path):
    time = np.r_[np.linspace(0, 1, 20), np.linspace(2, 100, 80)]
    strain = 0.01 * np.minimum(time, 1.0)
    stress = 30.0 * np.minimum(time, 1.0) * np.exp(-np.maximum(time - 1.0, 0.0) / 50.0)
    rows = "".join(
        f"{t:.6g},{e:.8g},{s:.8g}\n" for t, e, s in zip(time, strain, stress, strict=True)
    )
    path = tmp_path / "hold.csv"
    path.write_text("time [s],strain [-],stress [MPa]\n" + rows)
    with pytest.raises(InputError, match="--law=prony relaxation=FILE"):
        kind(path)
    with pytest.raises(InputError, match="several materials"):
        kind(f"relaxation={path}")


def test_creep_is_named_and_a_plateau_is_none(tmp_path):
    time = np.concatenate([[0.0], np.geomspace(1.0, 1e6, 60)])
    strain = 4e-4 * (time > 0) + 1e-9 * time
    rows = [f"{t:.6g},{e:.6g},{60 * (t > 0):g}" for t, e in zip(time, strain, strict=True)]
    path = tmp_path / "creep.csv"
    path.write_text("\n".join(["time [s],strain,stress [MPa]", *rows]))
    with pytest.raises(InputError, match="a creep test. Say the test and the law, --law=norton"):
        kind(path)
    # A metal that hardly hardens is stretched, and its load still changes.
    stress = 300.0 * np.minimum(time / 1e4, 1.0) + 0.02 * np.arange(61)
    rows = [f"{t:.6g},{t * 1e-7:.6g},{s:.6g}" for t, s in zip(time, stress, strict=True)]
    path.write_text("\n".join(["time [s],strain,stress [MPa]", *rows]))
    assert kind(path) is TENSION


def test_best_law_answers_for_all_files_as_if_it_were_named(steel, tmp_path, done):
    output = tmp_path / "out.json"
    printed = done("identify", *steel, f"--json={output}", "--pool")
    assert "laws for tension of a metal" in printed and "ramberg_osgood" in printed
    *results, pooled = json.loads(output.read_text())
    assert pooled["law"] == "voce" and "ranking" not in pooled
    assert results[0]["ranking"][0]["law"] == "voce" and len(results[0]["ranking"]) > 4
    for result, named in zip(results, tfmat.identify(steel, law="voce"), strict=True):
        assert result["ranking"] == results[0]["ranking"]  # once for both
        assert result["parameters"] == json.loads(json.dumps(named.to_json()["parameters"]))


def test_samples_and_known_values_are_of_the_law_that_was_chosen(steel):
    answer = tfmat.identify(steel[0], fixed={"b": 12.0}, samples=100)[0]
    assert answer.law.name == "voce" and answer.parameters["b"].fixed
    assert answer.samples.values.shape == (100, 3) and answer.ranking
    with pytest.raises(InputError, match="no law for tension of a metal has a parameter 'c'"):
        tfmat.identify(steel[0], fixed={"c": 12.0})


def test_files_of_several_kinds_are_refused(steel, tmp_path, refused):
    ply = write_example_curve(find_law("hahn_tsai"), tmp_path / "ply.csv")
    assert "a is tension of a metal, ply is shear of a ply" in refused("identify", steel[0], ply)


def test_every_bad_file_is_named_once(tmp_path, capsys):
    (tmp_path / "bad.csv").write_text("stress\n1\n2\n")
    assert main(["identify", str(tmp_path / "bad.csv"), str(tmp_path / "none.csv")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_a_network_and_a_ranking_are_not_asked_for_together(steel):
    with pytest.raises(InputError, match="leave one out"):
        tfmat.identify(steel[0], law="auto", workdir="runs/quickstart")
