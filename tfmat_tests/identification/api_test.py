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


def relaxation():
    """Strain that is held, the stress of three terms that relax, and the time in s."""
    time = np.r_[np.linspace(0.0, 1.0, 20), np.geomspace(1.1, 2e4, 60)]
    strain = np.minimum(time, 1.0) * 0.01
    moduli = np.array([300.0, 150.0, 80.0])
    rates = 1.0 / np.array([1.0, 100.0, 1e4])
    loaded, held = np.minimum(time, 1.0)[:, None], np.maximum(time - 1.0, 0.0)[:, None]
    relaxed = 0.01 / rates * -np.expm1(-rates * loaded) * np.exp(-rates * held)
    stress = 400.0 * strain + relaxed @ moduli
    return strain, stress + np.random.default_rng(0).normal(0, 0.005, len(time)), time


def test_the_time_of_arrays_is_in_its_unit():
    """It was taken for seconds, whatever `time_unit` said."""
    strain, stress, time = relaxation()
    answer = tfmat.identify({"relaxation": (strain, stress, time)}, law="prony")
    assert answer.parameters["E_inf"].value == pytest.approx(400.0, abs=15.0)
    hours = tfmat.identify(
        {"relaxation": (strain, stress, time / 3600.0)}, law="prony", time_unit="h"
    )
    for name, value in answer.parameters.items():
        assert hours.parameters[name].value == pytest.approx(value.value, rel=1e-6)


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (None, {}, "test relaxation is NoneType; give a file"),
        (("strain", "stress", "time", "time"), {}, "test relaxation is tuple; give a file"),
        (("strain", "stress", "time"), {"area": 20.0}, "'area' is for files; leave it out"),
        (("strain", "stress", "time"), {"time_column": "t"}, "'time_column' is for files"),
        (("strain", "masked", "time"), {}, "stress is masked at 3 of 80 points"),
        ({"strain": "strain", "stress": "stress", "rate": "time"}, {}, "give one number"),
    ],
)
def test_arrays_of_tests_that_would_count_otherwise_are_refused(given, options, message):
    """An area was not heard, a fourth array dropped, masked points counted, and None ended in a traceback."""
    strain, stress, time = relaxation()
    masked = np.ma.array(stress, mask=np.arange(80) > 76)
    arrays = {"strain": strain, "stress": stress, "time": time, "masked": masked}
    if isinstance(given, tuple):
        given = tuple(arrays[name] for name in given)
    elif given is not None:
        given = {channel: arrays[name] for channel, name in given.items()}
    with pytest.raises(InputError, match=message):
        tfmat.identify({"relaxation": given}, law="prony", **options)


def test_masked_points_do_not_count(metal):
    _, strain, stress = metal
    wrong = np.ma.array(stress, mask=strain > 0.1)
    with pytest.raises(InputError, match="stress is masked at .* points; leave these out"):
        tfmat.identify(strain, wrong, law="voce", strain_measure="true")
