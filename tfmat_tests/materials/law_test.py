"""Labels and the user's ranges: what every law inherits."""

import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.materials import LAWS, Parameter, find_law


def test_unit_interval_of_linear_and_log_ranges():
    linear, log = Parameter("x", "-", 2.0, 6.0), Parameter("a", "-", 1e-9, 1e-7, "log")
    np.testing.assert_allclose(linear.to_unit_interval([2, 4, 6]), [0, 0.5, 1])
    np.testing.assert_allclose(log.to_unit_interval([1e-9, 1e-8, 1e-7]), [0, 0.5, 1], atol=1e-15)
    values = np.linspace(-0.2, 1.2, 9)
    np.testing.assert_allclose(
        log.to_unit_interval(log.from_unit_interval(values)), values, atol=1e-14
    )


@pytest.mark.parametrize("name", [name for name, law in LAWS.items() if len(law.parameters) > 1])
def test_labels_and_parameters_are_inverse(name):
    law = find_law(name, fixed={LAWS[name].parameters[0].name: 5000.0})
    labels = np.random.default_rng(0).random((50, len(law.identified)))
    parameters = law.from_labels(labels)
    assert parameters.shape == (50, len(law.parameters))
    assert np.all(parameters[:, 0] == 5000.0)
    np.testing.assert_allclose(law.to_labels(parameters), labels, atol=1e-13)


def test_metals_hold_steel_and_aluminium():
    for name in ("ramberg_osgood", "voce", "swift"):
        modulus = find_law(name).parameters[0]
        assert modulus.name == "E"
        assert modulus.low <= 68e3 < 212e3 <= modulus.high
        assert find_law(name).strain_spacing == 2


def test_wrong_ranges_are_refused_by_name():
    with pytest.raises(InputError, match="no parameter 'g0'; did you mean 'G0'"):
        find_law("hahn_tsai", ranges={"g0": (1, 2)})
    with pytest.raises(InputError, match=r"range of a .* 0 < low < high"):
        find_law("hahn_tsai", ranges={"a": (0, 1e-7)})
    with pytest.raises(InputError, match=r"fixed E .* positive"):
        find_law("voce", fixed={"E": -1})
    with pytest.raises(InputError, match="every parameter"):
        find_law("hahn_tsai", fixed={"G0": 5000, "a": 1e-8})


@pytest.mark.parametrize(("scale", "width"), [("linear", 90.0), ("log", np.log(10.0))])
def test_slope_is_the_derivative_of_the_value_by_the_label(scale, width):
    parameter = Parameter("p", "MPa", 10.0, 100.0, scale)
    label, step = np.array([0.1, 0.5, 0.9]), 1e-6
    ends = [parameter.from_unit_interval(label + side * step) for side in (-1, 1)]
    slope = parameter.slope(parameter.from_unit_interval(label))
    np.testing.assert_allclose(slope, (ends[1] - ends[0]) / (2 * step), rtol=1e-8)
    assert parameter.width == pytest.approx(width)
