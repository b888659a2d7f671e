"""Cyclic records are refused or cut to their first loading; unload loops of a tension test are not cyclic."""

import itertools

import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.records.cleaning import CleaningOptions, clean
from tfmat.records.reading import RawCurve
from tfmat.records.record import CurveTarget
from tfmat.records.simulation import CurveSettings
from tfmat_tests.records.files import load_file

VOCE = CurveTarget.of(CurveSettings(law="voce"), CurveSettings(law="voce").build_law())
MODULUS, YIELD, HARDENING = 200e3, 300.0, 1500.0


def bilinear_record(*turns: float, points: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Kinematic hardening steel that is strained from zero through all turns: strain and stress, MPa."""
    ends = np.array([0.0, *turns])
    strain = np.concatenate(
        [np.linspace(a, b, points, endpoint=False) for a, b in itertools.pairwise(ends)]
    )
    stress, plastic = np.zeros_like(strain), 0.0
    for i, total in enumerate(strain):
        trial = MODULUS * (total - plastic)
        over = abs(trial - HARDENING * plastic) - YIELD
        if over > 0:
            plastic += np.sign(trial - HARDENING * plastic) * over / (MODULUS + HARDENING)
        stress[i] = MODULUS * (total - plastic)
    return strain, stress


def cleaned(strain, stress, **options):
    return clean(RawCurve("a", strain, stress, "true", "true"), VOCE, CleaningOptions(**options))


def test_cycles_through_compression_are_refused_with_what_can_be_done():
    record = bilinear_record(0.02, -0.02, 0.02, -0.02, 0.02)
    with pytest.raises(
        InputError, match=r"cyclic record: the load turns 4 times.*--window=,0\.02 "
    ):
        cleaned(*record)
    first = cleaned(*record, window="0,0.02")
    assert first.strain[-1] == pytest.approx(0.02, rel=0.02)
    assert "took the first loading of a cyclic record" in " ".join(first.steps)
    np.testing.assert_allclose(first.stress_mpa, record[1][: len(first.strain)])
    with pytest.raises(InputError, match="cyclic"):
        cleaned(*record, window="0,0.03")
    with pytest.raises(InputError, match="cyclic"):
        cleaned(*record, window="0.001,")


def test_many_cycles_in_tension_are_refused_and_a_few_loops_are_not():
    peaks = np.linspace(0.004, 0.02, 4)
    loops = [turn for peak in peaks for turn in (peak, peak - 0.0012)]
    few = cleaned(*bilinear_record(*loops, 0.03))
    assert few.strain[-1] == pytest.approx(0.03, rel=0.02)
    assert "dropped unloadings" in " ".join(few.steps)
    with pytest.raises(InputError, match="cyclic record"):
        cleaned(*bilinear_record(*[0.01, 0.0088] * 12))


def test_a_record_that_is_mostly_its_first_loading_is_cut_and_warned_about():
    strain, stress = bilinear_record(0.04)
    back = bilinear_record(0.04, 0.02, points=30)
    record = np.append(strain, back[0][30:]), np.append(stress, back[1][30:])
    curve = cleaned(*record)
    assert [caveat.kind for caveat in curve.warnings] == ["load reversal"]
    assert len(curve.strain) == 61


def test_a_first_loading_in_compression_cannot_be_taken():
    strain, stress = bilinear_record(0.02, -0.02, 0.02, -0.02)
    with pytest.raises(InputError, match="its first loading is compression"):
        cleaned(-strain, -stress, window="0,0.02")


@pytest.mark.parametrize("law", ["voce", "hahn_tsai"])
def test_the_real_cyclic_records_are_refused(real_curves, law):
    settings = CurveSettings(law=law)
    target = CurveTarget.of(settings, settings.build_law())
    folder = real_curves / "resspylab_cyclic_steel"
    for name in ("example_1.csv", "example_2.csv"):
        with pytest.raises(InputError, match="it is a cyclic record: the load turns"):
            load_file(folder / name, target)


def test_the_first_loading_of_a_real_cyclic_record(real_curves):
    path = real_curves / "resspylab_cyclic_steel" / "example_2.csv"
    (curve,) = load_file(path, VOCE, cleaning=CleaningOptions(window=",0.0105"))
    # The record rises to 340 MPa at 0.0105 with an upper yield point, and the load turns there (looked up in it).
    assert 0.0095 < curve.strain[-1] <= 0.0105
    assert curve.stress_mpa[-1] == pytest.approx(340.0, abs=2.0)
    assert curve.strain.min() >= 0
