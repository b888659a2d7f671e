"""The forward network of a simulation whose curve is a closed form, trained by the loop and compared with it."""

import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.materials import find_law
from tfmat.specimens.campaign import Campaign, Outcome, draw, emulate, read_description
from tfmat_tests.specimens.bar import MODULUS, bar_folder

# Root mean square over new values, as a share of the largest stress; written down before the first run.
CLOSE = 0.005


def formula(strain, yields, slope):
    """A bar that yields gradually, MPa."""
    return yields * np.tanh(MODULUS * strain / yields) + slope * strain


def campaign_of(folder, count):
    """Runs as a solver would give them: small increments first, a few of them failed."""
    description = read_description(bar_folder(folder))
    drawn = draw(description, 0, count)
    strain = 0.02 * np.linspace(0.0, 1.0, 60) ** 1.5
    outcomes = tuple(
        Outcome(0.1, failure="it broke")
        if number % 50 == 7
        else Outcome(0.1, strain, formula(strain, *values))
        for number, values in enumerate(drawn)
    )
    return Campaign(description, drawn, outcomes, 0)


def test_the_law_is_the_closed_form_at_values_that_were_never_run(tmp_path):
    campaign = campaign_of(tmp_path, 200)
    found = emulate(campaign, tmp_path / "data", train_for="1500steps", quiet=True)
    assert found.runs == pytest.approx(0.7 * 196, abs=4)
    law = find_law(found.law)
    values = law.from_labels(np.random.default_rng(5).random((300, 2)))
    strain = np.linspace(0.0, 0.02, 150)
    truth = np.stack([formula(strain, *row) for row in values])
    off = (law.stress(strain[None], values) - truth) / truth.max(axis=1, keepdims=True)
    error = float(np.sqrt(np.mean(off**2)))
    assert error < CLOSE
    # What the network says of itself, from runs that it did not see, is right within a factor of two.
    assert 0.5 * error < found.test_error < 2.0 * error
    # The same runs again: nothing is trained, and the same file is written.
    before = (tmp_path / "data" / "bar_200.py").read_bytes()
    again = emulate(campaign, tmp_path / "data", train_for="1500steps", quiet=True)
    assert again.test_error == found.test_error
    assert (tmp_path / "data" / "bar_200.py").read_bytes() == before


def test_too_few_runs(tmp_path):
    with pytest.raises(InputError, match="39 runs have a curve; a forward network needs 50"):
        emulate(campaign_of(tmp_path, 40), tmp_path / "data")
