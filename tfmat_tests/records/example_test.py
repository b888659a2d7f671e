"""The shipped examples are what they say they are, and every law can have one made."""

import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.materials import find_law
from tfmat.materials.registry import LAWS, MONOTONIC_LAWS
from tfmat.records.files import (
    example_curve,
    find_records,
    load_records,
    write_example_curve,
    write_example_tests,
)
from tfmat.records.record import CurveTarget
from tfmat.records.simulation import CurveSettings
from tfmat_tests.records.files import load_measured_curve

SHIPPED = {
    "hahn_tsai": ({"G0": 6964.0, "a": 2.44e-8}, 0.04),
    "voce": ({"E": 200e3, "sigma0": 300.0, "Q": 250.0, "b": 12.0}, 0.2),
}


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_example_is_the_law_with_the_values_in_its_name(name, tmp_path):
    path = example_curve(name)
    assert path is not None
    parameters, max_strain = SHIPPED[name]
    strain, stress = np.loadtxt(path, delimiter=",", skiprows=1, unpack=True)
    assert len(strain) == 150
    assert strain[-1] == max_strain
    for parameter, value in parameters.items():
        assert f"_{parameter}_{value:.10g}".replace("e-0", "e-") in path.stem
    residual = (
        stress - find_law(name).stress(strain[None], np.array([list(parameters.values())]))[0]
    )
    assert np.std(residual) == pytest.approx(1.0, rel=0.2)
    assert abs(np.mean(residual)) < 0.3
    again = write_example_curve(
        find_law(name),
        tmp_path / "again.csv",
        parameters=parameters,
        max_strain=max_strain,
        noise_mpa=1.0,
    )
    np.testing.assert_allclose(
        np.loadtxt(again, delimiter=",", skiprows=1), np.stack([strain, stress], 1), rtol=1e-4
    )


@pytest.mark.parametrize("name", MONOTONIC_LAWS)
def test_an_example_of_every_law_is_read_back_as_its_own_curve(name, tmp_path):
    law = find_law(name)
    settings = CurveSettings(law=name)
    path = write_example_curve(law, tmp_path / "example.csv")
    curve = load_measured_curve(path, CurveTarget.of(settings, law))
    assert curve.warnings == []
    middle = np.array([[float(p.from_unit_interval(0.5)) for p in law.parameters]])
    residual = curve.stress_mpa - law.stress(curve.strain[None], middle)[0]
    assert np.std(residual) == pytest.approx(law.noise_mpa, rel=0.25)


# Laws without terms that are alike: all their parameters stand in the middle.
WITHOUT_TERMS = ("johnson_cook", "perzyna", "norton", "ladeveze_shear", "neo_hooke", "arruda_boyce")


@pytest.mark.parametrize("name", [name for name in LAWS if name not in MONOTONIC_LAWS])
def test_example_tests_of_every_law_are_read_back_as_its_own(name, tmp_path):
    settings = CurveSettings(
        law=name, num_points=100, missing_tests=0.5 if name == "ogden" else 0.0
    )
    law = settings.build_law()
    folder = write_example_tests(settings, tmp_path / "tests")
    (record,), errors = load_records(find_records([str(folder)], law), CurveTarget.of_tests(law))
    assert errors == [] and not any(caveat.blocks for caveat in record.warnings)
    assert [test.programme.name for test in record.tests] == list(law.tests)
    if name in WITHOUT_TERMS:
        middle = np.array(
            [
                [
                    float(p.from_unit_interval(0.5)) if p.fixed is None else p.fixed
                    for p in law.parameters
                ]
            ]
        )
        for test in record.tests:
            noise = law.noise_mpa if test.programme.drives == "strain" else law.noise_strain
            residual = test.response - law.respond(test.history, middle)[0]
            assert np.std(residual) == pytest.approx(noise, rel=0.4), test.programme.name


def test_no_example_for_an_unknown_law_and_no_unknown_parameter(tmp_path):
    assert example_curve("no_such_law") is None
    with pytest.raises(InputError, match="did you mean 'G0'"):
        write_example_curve(find_law("hahn_tsai"), tmp_path / "x.csv", parameters={"G": 1.0})
    assert list(tmp_path.iterdir()) == []
