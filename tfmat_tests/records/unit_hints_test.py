"""Signs of US units in a file whose stress has no unit."""

import numpy as np
import pytest

from tfmat.records.reading import ReadingOptions, read_curves
from tfmat_tests.records.files import STRAIN, STRESS, table, write


def with_displacement(gauge_length: float, header: str) -> str:
    rows = [f"{gauge_length * e:.9g},{e:.9g},{s:.9g}" for e, s in zip(STRAIN, STRESS, strict=True)]
    return "\n".join([header, *rows])


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (table("strain,stress"), None),
        (f"{{'temperature':534.67}}\n{table('strain,stress')}", "75 °F in degrees Rankine"),
        (f"{{'temperature':293.15}}\n{table('strain,stress')}", None),
        (with_displacement(0.25, "displacement,strain,stress"), "0.25, a gauge length in inches"),
        (with_displacement(0.25, "displacement [in],strain,stress"), "'displacement' is in in"),
        (with_displacement(25.0, "displacement,strain,stress"), None),
        (with_displacement(25.0, "Load [lbf],strain,stress"), "'Load' is in lbf"),
        (with_displacement(25.0, "Temperature [°F],strain,stress"), "in degrees °F"),
    ],
)
def test_hints(tmp_path, text, hint):
    path = write(tmp_path, text)
    found = " ".join(read_curves(path)[0].us_unit_hints)
    assert (hint in found) if hint else not found
    assert not read_curves(path, ReadingOptions(stress_unit="MPa"))[0].us_unit_hints


def test_every_real_file_in_ksi_shows_signs_of_it(real_curves):
    files = [*real_curves.glob("304L_*/*.[dc]*"), *real_curves.glob("6061T6_tension/*.csv")]
    assert len(files) == 16
    measures = {"strain": "true", "stress": "true"}
    for file in files:
        curve = read_curves(file, measures=measures)[0]
        assert any("inches" in hint for hint in curve.us_unit_hints), file
        assert np.isfinite(curve.stress_mpa).all()
