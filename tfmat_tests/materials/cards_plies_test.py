"""Cards of ply shear: the fields of LS-DYNA's composite materials that a shear test tells."""

import numpy as np
import pytest

from tfmat.materials import find_law
from tfmat.materials.cards import card_text


def lines_of(name, values, solver="ls_dyna"):
    text = card_text(solver, find_law(name), values, tested=0.04)
    assert "INCOMPLETE" in text and "Poisson's ratio 0" not in text
    comment = {"ls_dyna": "$", "abaqus": "**"}[solver]
    return [line for line in text.splitlines() if not line.startswith(comment)]


def test_ramberg_osgood_shear_is_nasa_s_compdam():
    """IM7/8552 of CompDam's own tests: G12 5290 MPa, alpha_PL 4.412e-10, n_PL 5.934, as constants 11, 27 and 28."""
    values = {"G0": 5290.0, "gamma50": 4.412e-10 * 50**5.934 / 5290.0, "n": 5.934}
    lines = lines_of("ramberg_osgood_shear", values, "abaqus")
    at = lines.index("*USER MATERIAL, CONSTANTS=40")
    constants = [cell.strip() for line in lines[at + 1 :] for cell in line.split(",")]
    assert len(constants) == 40 and constants[0] == "010000"
    assert [float(constants[i - 1]) for i in (11, 27, 28)] == pytest.approx(
        [5290.0, 4.412e-10, 5.934], rel=1e-8
    )
    assert sum(map(bool, constants)) == 4


def test_hahn_tsai_is_mat_054_with_alph():
    lines = lines_of("hahn_tsai", {"G0": 6964.0, "a": 2.44e-8})
    assert lines[0] == "*MAT_ENHANCED_COMPOSITE_DAMAGE"
    assert len(lines) == 7
    assert lines[2] == f"{'6964':>10}"  # GAB
    assert lines[5] == f"{'':10}{'2.44e-08':>10}"  # ALPH
    assert lines[6][50:] == "      54.0"  # CRIT


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("tanh_shear", lambda strain: 90 * np.tanh(5000 * strain / 90)),
        ("exponential_shear", lambda strain: 90 * (1 - np.exp(-5000 * strain / 90))),
    ],
)
def test_other_laws_are_mat_058_with_a_curve(name, formula):
    lines = lines_of(name, {"G0": 5000.0, "S": 90.0})
    assert lines[0] == "*MAT_LAMINATED_COMPOSITE_FABRIC"
    assert lines[2] == "      -1.0"  # GAB is minus the curve's number
    curve = lines.index("*DEFINE_CURVE")
    assert lines[curve + 1].split() == ["1", "1000"]
    strain, stress = np.array([line.split() for line in lines[curve + 2 :]], float).T
    assert (strain[0], stress[0]) == (0.0, 0.0) and strain[-1] == pytest.approx(0.06)
    np.testing.assert_allclose(stress, formula(strain), rtol=1e-7)
