"""Answers in a notebook: DataFrames in, a line, a table, axes and ArviZ's data out; and the files beside them."""

import dataclasses

import numpy as np
import openpyxl
import pandas
import pytest

import tfmat
from tfmat.cli.main import main
from tfmat.errors import InputError
from tfmat.identification.posterior import Certificate
from tfmat.materials import find_law
from tfmat.records.files import write_example_curve

STEEL = {"E": 200e3, "sigma0": 300.0, "Q": 250.0, "b": 12.0}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("steel")
    return write_example_curve(find_law("voce"), folder / "steel.csv", parameters=STEEL)


@pytest.fixture(scope="module")
def answer(path):
    """With samples, of the file as a DataFrame whose index says nothing; no network knows the given modulus."""
    frame = pandas.read_csv(path)
    frame.index = frame.index[::-1]
    return tfmat.identify(frame, law="voce", fixed={"E": 200e3}, samples=200)


def test_a_frame_is_read_as_its_file(answer, path):
    (of_file,) = tfmat.identify(path, law="voce", fixed={"E": 200e3})
    assert answer.parameters == of_file.parameters
    assert answer.curve.name == "DataFrame"


def test_units_in_a_second_level_of_names_and_gaps(path, answer):
    strain, stress = np.loadtxt(path, delimiter=",", skiprows=1, unpack=True)
    columns = pandas.MultiIndex.from_tuples([("true strain", "%"), ("true stress", "GPa")])
    frame = pandas.DataFrame(np.c_[100 * strain, stress / 1e3], columns=columns)
    frame = pandas.concat([frame, pandas.DataFrame([[np.nan, np.nan]], columns=columns)])
    found = tfmat.identify([frame, frame.astype("Float64")], law="voce", fixed={"E": 200e3})
    assert [each.curve.name for each in found] == ["DataFrame 1", "DataFrame 2"]
    for each in found:
        for name, value in each.parameters.items():
            assert value.value == pytest.approx(answer.parameters[name].value, rel=1e-4)


def test_frames_of_several_tests_are_one_material():
    """The neo-Hookean law's closed forms (Treloar 1975), stretch and nominal stress."""
    stretch = np.linspace(1.0, 1.8, 40)
    frames = {
        test: pandas.DataFrame(
            {"stretch": stretch, "stress [MPa]": 0.4 * (stretch - stretch**power)}
        )
        for test, power in {"uniaxial": -2, "planar": -3}.items()
    }
    answer = tfmat.identify(frames, law="neo_hooke")
    ((_, modulus),) = answer.parameters.items()
    assert modulus.value == pytest.approx(0.4, rel=1e-3)
    assert len(answer.plot()) == 2


def test_a_frame_that_is_no_curve_is_named():
    with pytest.raises(InputError, match="^DataFrame: no column is named"):
        tfmat.identify(pandas.DataFrame({"a": range(20), "b": range(20)}), law="voce")


def test_answer_in_one_line_as_html_as_text_and_as_a_table(answer):
    assert repr(answer).startswith("<Identification of DataFrame, voce: E ")
    assert "MPa" in repr(answer) and len(repr(answer)) < 200
    page = answer._repr_html_()
    assert "<td>sigma0</td>" in page and "data:image/png;base64," in page
    assert "sigma0 (MPa)" in answer.summary() and "\x1b" not in answer.summary()
    table = answer.to_frame()
    assert table.loc["Q", "value"] == answer.parameters["Q"].value
    assert table.loc["Q", ["ci95_low", "ci95_high"]].tolist() == list(answer.parameters["Q"].ci95)
    draws = answer.samples.to_frame()
    assert list(draws) == ["sigma0 [MPa]", "Q [MPa]", "b [-]"]
    assert draws["Q [MPa]"].mean() == pytest.approx(250, rel=0.05)
    axes = answer.plot()
    measured = axes.get_lines()[0].get_xydata()
    np.testing.assert_allclose(measured[:, 1], answer.curve.stress_mpa)
    assert answer.plot(axes) is axes


def test_inference_data_has_what_was_measured_and_predicted(answer):
    tree = answer.to_inferencedata()
    observed = tree["observed_data"]["response"]
    np.testing.assert_allclose(observed, answer.curve.stress_mpa)
    predicted = tree["posterior_predictive"]["response"]
    assert predicted.shape == (1, 200, len(observed))
    residual = np.sqrt(np.mean((answer.curve.stress_mpa - answer.resimulated_mpa) ** 2))
    np.testing.assert_allclose(predicted.mean(("chain", "draw")), observed, atol=5 * residual)
    assert float(predicted.std(("chain", "draw")).mean()) == pytest.approx(residual, rel=0.3)


def test_chains_of_a_sampler_stay_apart(answer):
    chains = np.repeat([0, 1, 2, 3], [50, 60, 45, 45])
    samples = dataclasses.replace(answer.samples, chains=chains, certificate=Certificate("chains"))
    tree = dataclasses.replace(answer, samples=samples, posterior=samples).to_inferencedata()
    found = tree["posterior"]["Q"]
    assert found.sizes["chain"] == 4 and found.sizes["draw"] == 45
    np.testing.assert_array_equal(found[1, :, 0], answer.samples.values[50:95, 1])


def test_workbook_and_strict_status(path, tmp_path, capsys):
    ksi = tmp_path / "ksi.csv"
    strain, stress = np.loadtxt(path, delimiter=",", skiprows=1, unpack=True)
    rows = "".join(f"{e:.8g},{s / 6.894757:.8g}\n" for e, s in zip(strain, stress, strict=True))
    ksi.write_text("true strain,true stress\n" + rows)
    flags = ["--law=voce", "--strict", f"--excel={tmp_path / 'out.xlsx'}"]
    assert main(["identify", str(path), *flags]) == 0
    assert main(["identify", str(ksi), *flags]) == 5
    assert "DO NOT USE" in capsys.readouterr().out
    book = openpyxl.load_workbook(tmp_path / "out.xlsx")
    header, row = (list(cells) for cells in book["answers"].values)
    assert row[header.index("do_not_use")] == "yes" and len(set(header)) == len(header)
    (answer,) = tfmat.identify(ksi, law="voce")
    assert row[header.index("E [MPa]")] == pytest.approx(answer.parameters["E"].value, rel=1e-5)
    points = np.array([row[1:] for row in book.worksheets[1].iter_rows(2, values_only=True)])
    expected = (answer.curve.strain, answer.curve.stress_mpa, answer.resimulated_mpa)
    np.testing.assert_allclose(points, np.stack(expected, axis=1), atol=1e-12)
