"""The ranges of laws hold the materials that people have."""

import numpy as np
import pytest
import scipy.optimize

from tfmat.materials import find_law


def test_304l_lies_inside_the_ranges():
    """Fits to the true stress of eight tension tests of 304L (sandialabs/matcal, ASTM E8), ends of what they gave."""
    fitted = {
        "voce": {"sigma0": (262, 277), "Q": (1159, 1561), "b": (1.15, 1.8)},
        "swift": {"K": (1359, 1379), "epsilon0": (0.053, 0.081), "n": (0.57, 0.66)},
    }
    for name, parameters in fitted.items():
        by_name = {parameter.name: parameter for parameter in find_law(name).parameters}
        for parameter, (low, high) in parameters.items():
            assert by_name[parameter].low < low < high < by_name[parameter].high
        assert find_law(name).max_strain[1] > 0.52


@pytest.mark.parametrize(
    ("modulus", "yield_stress", "tensile_strength", "uniform_strain"),
    [
        # Engineering handbooks' round numbers, MPa and -: EN AW-6061-O at 300 °C as measured by a crosshead, EN AW-1050
        # at room temperature, 7075-T6, OF copper annealed, Ti-6Al-4V, S235, 304L, 300M.
        (40e3, 20.0, 26.0, 0.05),
        (70e3, 30.0, 80.0, 0.25),
        (71e3, 500.0, 570.0, 0.08),
        (115e3, 50.0, 220.0, 0.4),
        (114e3, 880.0, 950.0, 0.08),
        (206e3, 235.0, 380.0, 0.2),
        (193e3, 250.0, 580.0, 0.45),
        (205e3, 1650.0, 1980.0, 0.05),
    ],
)
@pytest.mark.parametrize("name", ["voce", "swift", "ramberg_osgood", "ludwik"])
def test_common_metals_lie_inside_the_ranges(
    name, modulus, yield_stress, tensile_strength, uniform_strain
):
    """True stress through yield at 0.2 % and the maximum load, where the slope equals the stress (Considere)."""
    law = find_law(name)
    strain = np.log1p(uniform_strain)
    strength = tensile_strength * (1 + uniform_strain)
    wanted = np.array([yield_stress, strength])
    at = np.array([[yield_stress / modulus + 0.002, strain]])
    low, high = (np.array([getattr(p, end) for p in law.parameters]) for end in ("low", "high"))

    def away(labels):
        values = np.concatenate([[modulus], law.from_labels([[0.5, *labels]])[0, 1:]])
        return law.stress(at, values[None])[0] / wanted - 1

    count = len(law.parameters) - 1
    fits = [
        scipy.optimize.least_squares(away, np.full(count, start), bounds=(0, 1))
        for start in (0.3, 0.5, 0.7)
    ]
    assert low[0] < modulus < high[0]
    assert np.abs(min(fits, key=lambda fit: fit.cost).fun).max() < 0.02
