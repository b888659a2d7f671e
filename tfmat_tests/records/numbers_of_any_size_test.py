"""Records with numbers of any size, constant columns and noise end in a curve or in one line, never in an overflow."""

import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.records.cleaning import clean
from tfmat.records.reading import RawCurve
from tfmat.records.record import CurveTarget, resample
from tfmat.records.simulation import CurveSettings

TARGETS = [
    CurveTarget.of(CurveSettings(law=law), CurveSettings(law=law).build_law())
    for law in ("voce", "hahn_tsai")
] + [CurveTarget(50)]
EXTREMES = [1e308, -1e308, 5e-324, 1e5]


def record(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Strain and stress, [points]: curves, noise or constants, then scaled, rounded or with one wild value."""
    num_points, kind, damage = (int(i) for i in random.integers((10, 0, 0), (120, 8, 9)))
    size = 10.0 ** random.uniform(-320, 300)
    strain = np.cumsum(random.uniform(0, 1, num_points)) / num_points * 10 ** random.uniform(-6, 0)
    stress = np.tanh(strain * random.uniform(1, 300)) * 10.0 ** random.uniform(-3, 4)
    if kind >= 5:
        strain = random.normal(0, 1, num_points) * 10.0 ** random.uniform(-8, 2)
    if kind % 2 == 0:
        stress = random.normal(0, 1, num_points) * 10.0 ** random.uniform(-3, 6)
    if kind == 6:
        strain = np.full(num_points, random.choice([0.0, 1e-3, 0.5]))
    if kind == 7:
        stress = np.full(num_points, random.choice([0.0, 1e-3, 500.0]))
    if damage == 0:
        strain = strain * size
    elif damage == 1:
        stress = stress * size
    elif damage == 2:
        strain = np.round(strain, int(random.integers(0, 5)))
    elif damage == 3:
        stress = np.round(stress, int(random.integers(-2, 3)))
    elif damage in (4, 5):
        (strain, stress)[damage - 4][random.integers(num_points)] = random.choice(EXTREMES)
    elif damage == 6:
        strain = np.sort(strain)
    return strain, stress


@pytest.mark.parametrize("block", range(4))
def test_any_record_is_a_finite_curve_or_one_line(block):
    answered, lines = 0, []
    for seed in range(block * 600, (block + 1) * 600):
        random = np.random.default_rng(seed)
        with np.errstate(all="ignore"):
            strain, stress = record(random)
        if not (np.isfinite(strain).all() and np.isfinite(stress).all()):
            continue  # refused by its line when it is read
        measure = (None, "true", "engineering")[int(random.integers(3))]
        target = TARGETS[seed % 3]
        try:
            with np.errstate(all="raise"):
                curve = clean(RawCurve("a", strain, stress, measure, measure), target)
                points = resample(curve.strain, curve.stress_mpa, target)
        except InputError as error:
            lines.append(str(error))
            continue
        answered += 1
        assert all(np.isfinite(values).all() for values in points)
    # About a sixth are curves, the others are refused.
    assert answered > 60
    assert not [line for line in lines if "nan" in line or "\n" in line]


@pytest.mark.parametrize(("axis", "column"), [(0, "strain"), (1, "stress")])
def test_a_number_that_no_unit_explains_is_refused(axis, column):
    record = [np.linspace(0, 0.04, 50), np.linspace(0, 100, 50)]
    record[axis] = record[axis] * 1e200
    with pytest.raises(InputError, match=f"which no unit makes a {column}; is --{column}_column"):
        clean(RawCurve("a", *record), TARGETS[0])
