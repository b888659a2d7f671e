"""`tfmat.identify`: the whole answer, from files and from arrays, the same as the command's."""

import json

import numpy as np
import pandas as pd
import pytest

import tfmat
from tfmat.errors import InputError
from tfmat.materials import find_law
from tfmat.records.files import write_example_curve


@pytest.fixture
def metal(tmp_path, monkeypatch):
    """A tension test of a metal, true stress in ksi."""
    monkeypatch.chdir(tmp_path)
    path = write_example_curve(
        find_law("voce"),
        tmp_path / "metal.csv",
        parameters={"E": 190e3, "sigma0": 300.0, "Q": 400.0, "b": 8.0},
        max_strain=0.2,
    )
    strain, stress = np.loadtxt(path, delimiter=",", skiprows=1, unpack=True)
    lines = ["true strain,true stress [ksi]"]
    lines += [f"{e:.8g},{s / 6.894757293168361:.8g}" for e, s in zip(strain, stress, strict=True)]
    path.write_text("\n".join(lines))
    return path, strain, stress


def test_files_get_the_command_s_answer(metal, done):
    path, _, _ = metal
    (answer,) = tfmat.identify(path, law="voce", fixed={"E": 190e3}, toe="off")
    flags = ["--law=voce", "--fix=E=190000", "--toe=off", "--json=out.json"]
    done("identify", path, *flags)
    assert json.loads(json.dumps([answer.to_json()])) == json.loads(
        (path.parent / "out.json").read_text()
    )
    assert [a.curve.name for a in tfmat.identify(["*.csv"], law="voce")] == ["metal"]


def test_arrays_get_the_same_answer_as_their_file(metal):
    path, strain, stress = metal
    measures = {"strain_measure": "true", "stress_measure": "true"}
    (of_file,) = tfmat.identify(path, law="voce")
    answer = tfmat.identify(strain, stress, law="voce", **measures)
    for name, value in answer.parameters.items():
        assert value.value == pytest.approx(of_file.parameters[name].value, rel=1e-4)
        true = {"E": 190e3, "sigma0": 300.0, "Q": 400.0, "b": 8.0}[name]
        assert abs(value.value - true) < 4 * value.std
    ksi = tfmat.identify(
        strain, stress / 6.894757293168361, law="voce", stress_unit="ksi", **measures
    )
    assert ksi.parameters["Q"].value == pytest.approx(answer.parameters["Q"].value, rel=1e-6)
    assert not answer.do_not_use


def test_several_arrays_of_different_lengths(metal):
    _, strain, stress = metal
    measures = {"law": "voce", "strain_measure": "true", "stress_measure": "true"}
    both = tfmat.identify([strain, strain[::2]], [stress, stress[::2]], **measures)
    padded = np.full((2, len(strain)), np.nan)
    padded[0], padded[1, : len(strain[::2])] = stress, stress[::2]
    strains = np.stack([strain, np.full(len(strain), np.nan)])
    strains[1, : len(strain[::2])] = strain[::2]
    again = tfmat.identify(strains, padded, **measures)
    alone = tfmat.identify(strain[::2], stress[::2], **measures)
    for answers in (both, again):
        assert answers[1].parameters == alone.parameters


def test_stress_in_ksi_taken_for_mpa_is_not_to_be_used(metal):
    _, strain, stress = metal
    answer = tfmat.identify(strain, stress / 6.894757, law="swift", strain_measure="true")
    assert answer.do_not_use
    assert any("ksi" in str(warning) for warning in answer.warnings)


@pytest.mark.parametrize(
    ("strain", "stress", "options", "message"),
    [
        (np.arange(20.0), np.arange(19.0), {}, "strain has shape"),
        (np.arange(5.0), np.arange(5.0), {}, "at least 10"),
        (np.full(20, np.nan), np.zeros(20), {}, "at least 10"),
        (np.r_[np.nan, np.arange(20.0)], np.arange(21.0), {}, "NaN or infinity before the end"),
        (np.array(["a"] * 20), np.arange(20.0), {}, "give numbers"),
        ([np.arange(20.0)] * 2, [np.arange(20.0)], {}, "2 strains and 1 stresses"),
        (1.0, 2.0, {}, "single numbers"),
        (np.arange(20.0), None, {}, "strains need their stresses"),
        (np.arange(20.0), np.arange(20.0), {"stress_units": "ksi"}, "did you mean 'stress_unit'"),
        (np.arange(20.0), np.arange(20.0), {"sheet": "a"}, "is for files"),
        (np.arange(20.0), np.arange(20.0), {"stress_unit": "kN"}, "is no unit of stress"),
        (["none.csv"], None, {}, "none.csv: no such file"),
    ],
)
def test_what_is_no_curve_is_refused(strain, stress, options, message):
    with pytest.raises(InputError, match=message) as caught:
        tfmat.identify(strain, stress, law="voce", **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"least_squares": "no"}, "'least_squares' is 'no'; give True or False"),
        ({"samples": True}, "'samples' is True; give a whole number"),
        ({"samples": 1e3}, "'samples' is 1000.0; give a whole number"),
        ({"fixed": "E=2e5"}, "'fixed' is 'E=2e5'; give names and numbers"),
        ({"fixed": {"E": "200 GPa"}}, "'fixed' is .*200 GPa.*; give names and numbers"),
        ({"law": ["voce", "swift"]}, "'law' is .*; give a text"),
    ],
)
def test_an_option_of_another_type_is_refused(options, message):
    """A text in place of a truth value counted as True, and one for a number ended in a traceback."""
    strain = np.linspace(0, 0.1, 20)
    with pytest.raises(InputError, match=message):
        tfmat.identify(strain, 1e3 * strain, **{"law": "voce", **options})


def test_columns_may_be_numbers(metal):
    _, strain, stress = metal
    frame = pd.DataFrame({"a": stress, "b": strain})
    options = {"law": "swift", "strain_measure": "true", "stress_measure": "true"}
    by_number = tfmat.identify(frame, strain_column=2, stress_column=1, **options)
    assert by_number.parameters == tfmat.identify(strain, stress, **options).parameters
