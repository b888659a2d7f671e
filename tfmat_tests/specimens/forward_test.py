"""A forward network as a law: against its own curve and a root finder, central differences, and what its file says."""

import functools
import itertools

import numpy as np
import pytest
import scipy.optimize

from tfmat.errors import InputError
from tfmat.materials import Parameter, find_law
from tfmat.materials.law import check_law
from tfmat.records.laboratory import Laboratory
from tfmat.records.simulation import CurveSettings
from tfmat.specimens.emulator import Facts, ForwardNetwork, inputs_of, write_law

DRAWN = (Parameter("yields", "MPa", 100.0, 300.0, "log"), Parameter("radius", "mm", 2.9, 3.1))
GRID = 0.05 * np.linspace(0.0, 1.0, 101) ** 2
FACTS = Facts("a_bar", "A bar", "3 runs of nothing", 0.001, 400.0, (0.02, 0.05))


def a_network(seed=0):
    """Two members with random weights about a rising curve that begins at zero."""
    rng = np.random.default_rng(seed)
    sizes = (3, 8, 8, 2)
    kernels = tuple(rng.normal(size=(2, *pair)) for pair in itertools.pairwise(sizes))
    biases = tuple(rng.normal(size=(2, size)) for size in sizes[1:])
    mean = 400.0 * (1.0 - np.exp(-GRID / 0.004))
    components = np.stack([0.2 * mean, 50.0 * (GRID / 0.05)]) / 4.0
    arrays = [
        tuple(array.astype(np.float32).astype(float) for array in k) for k in (kernels, biases)
    ]
    return ForwardNetwork(*arrays, GRID, mean, components)


def write_bar_law(folder, **options):
    """Writes a law's file from options of the laboratory: the network in it, and what --law takes."""
    network = a_network()
    path = folder / "a_bar_law.py"
    return network, write_law(path, network, DRAWN, Laboratory.of(options), FACTS)


@pytest.fixture
def written(tmp_path):
    return functools.partial(write_bar_law, tmp_path)


def test_the_file_holds_the_network(written):
    network, spec = written()
    law = find_law(spec)
    values = law.from_labels(np.random.default_rng(1).random((5, 2)))
    np.testing.assert_allclose(
        law.stress(GRID[None], values),
        network.curves(inputs_of(DRAWN, values)),
        rtol=1e-12,
        atol=1e-9,
    )
    # Half-way between two points of the grid, and beyond the last, on straight lines.
    middle = 0.5 * (GRID[50] + GRID[51])
    ends = law.stress(np.array([[GRID[50], middle, GRID[51]]]), values)
    np.testing.assert_allclose(ends[:, 1], 0.5 * (ends[:, 0] + ends[:, 2]), rtol=1e-12)
    last = law.stress(np.array([[GRID[-2], GRID[-1], 2 * GRID[-1] - GRID[-2]]]), values)
    np.testing.assert_allclose(np.diff(last, 2), 0.0, atol=1e-8)


@pytest.mark.parametrize(
    "errors", [{}, {"machine_stiffness": (2e4, 2e5), "strain_offset": (1e-5, 2e-4)}]
)
def test_derivatives_agree_with_central_differences(written, errors):
    law = find_law(written(**errors)[1])
    findings = check_law(law)
    assert len(findings) == 3 and all(one.passed for one in findings), findings


def test_a_machine_takes_its_part_of_the_strain(written):
    """The specimen's strain is the root of strain = e + stress(e) / stiffness, found by Brent's method."""
    network, spec = written(machine_stiffness=(2e4, 2e5))
    law = find_law(spec)
    assert [p.name for p in law.parameters] == ["yields", "radius", "machine_stiffness"]
    values = np.array([[150.0, 2.95, 3e4], [250.0, 3.05, 1.5e5]])
    curves = network.curves(inputs_of(DRAWN, values[:, :2]))
    strain = np.array([0.0, 1e-3, 5e-3, 0.01, 0.03])
    found = law.stress(strain[None], values)
    for row, curve, stiffness in zip(found, curves, values[:, 2], strict=True):
        for at, stress in zip(strain, row, strict=True):
            own = scipy.optimize.brentq(
                lambda e, at=at, curve=curve, k=stiffness: e + np.interp(e, GRID, curve) / k - at,
                -1e-9,
                0.05,
                xtol=1e-15,
            )
            assert stress == pytest.approx(np.interp(own, GRID, curve), rel=1e-6, abs=1e-6)


def test_a_record_begins_at_zero_whatever_that_is_worth(written):
    network, spec = written(strain_offset=(1e-5, 2e-4))
    law = find_law(spec)
    assert [p.name for p in law.parameters] == ["yields", "radius", "strain_zero"]
    assert (law.parameters[2].low, law.parameters[2].high) == (-4e-4, 4e-4)
    values = np.array([[150.0, 2.95, 3e-4], [150.0, 2.95, -3e-4]])
    curve = network.curves(inputs_of(DRAWN, values[:1, :2]))[0]
    strain = np.array([[0.0, 1e-4, 0.01]])
    ahead = [0.0, np.interp(4e-4, GRID, curve), np.interp(0.0103, GRID, curve)]
    behind = [0.0, 0.0, np.interp(0.0097, GRID, curve)]
    assert curve[0] == pytest.approx(0.0, abs=1e-9)
    np.testing.assert_allclose(law.stress(strain, values), [ahead, behind], rtol=1e-9, atol=1e-9)


def test_what_a_laboratory_adds_becomes_the_law_s(written):
    spec = written(
        noise_of_maximum=(1e-3, 5e-3),
        machine_stiffness=(2e4, 2e5),
        strain_offset=(1e-5, 2e-4),
        max_strain=(0.02, 0.05),
    )[1]
    settings = CurveSettings(law=spec, laboratory=True).resolved()
    assert settings.noise_of_maximum == (1e-3, 5e-3)
    # The network's error, 0.1 %, half and twice.
    assert settings.misfit == (5e-4, 2e-3)
    # Parameters, not drawn once more.
    assert settings.machine_stiffness is settings.strain_offset is None
    assert settings.max_strain == (0.02, 0.05)


def test_what_the_runs_did_not_cover_is_refused(written):
    spec = written()[1]
    assert find_law(spec, ranges={"yields": (120, 200)}, fixed={"radius": 3.0}).identified
    for options in ({"ranges": {"yields": (90, 200)}}, {"fixed": {"radius": 3.2}}):
        said = r"beyond the runs that a_bar was trained on, .* wider"
        with pytest.raises(InputError, match=said):
            find_law(spec, **options)
