"""tools/compare_specimens: its chains against the exact posterior of a bar with a closed form, and a whole comparison.

Runs are written as a campaign stores them, without a program being run.
"""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from tfmat.files import read_json
from tfmat.specimens.campaign import draw
from tfmat.specimens.description import read_description
from tfmat.specimens.runs import RUNS, Outcome, Solver, save
from tfmat_tests.processes import forked_python
from tfmat_tests.specimens.bar import END, LENGTH, MODULUS, bar_folder

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
STRAIN = np.linspace(0.0, END / LENGTH, 201)


def smooth_stress(drawn, strain=STRAIN):
    """MPa, [runs, points], of yield stresses and slopes [runs, 2], with a knee as emulators are made for."""
    saturated = drawn[:, :1] * -np.expm1(-MODULUS * strain / drawn[:, :1])
    return saturated + drawn[:, 1:2] * strain


def bar_stress(drawn, strain=STRAIN):
    """The same of the bar that the program knows, two straight lines."""
    elastic = np.minimum(strain, drawn[:, :1] / MODULUS)
    return (MODULUS - drawn[:, 1:2]) * elastic + drawn[:, 1:2] * strain


@pytest.fixture
def tools(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "specimens"]:
        del sys.modules[name]


@pytest.fixture(params=[bar_stress])
def stored(request, tmp_path):
    """A description, and 220 of its runs as a campaign stores them."""
    description = read_description(bar_folder(tmp_path))
    drawn, solver = draw(description, 0, 220), Solver(description)
    folder = tmp_path / "bar.runs" / RUNS
    folder.mkdir(parents=True)
    for row, stress in zip(drawn, request.param(drawn), strict=True):
        save(folder / f"{solver.deck(row).key}.npz", Outcome(0.5, STRAIN, stress))
    return description


def frozen(description, workdir, num_runs=220):
    from specimens.freezing import freeze

    workdir.mkdir()
    stored = description.folder.parent / "bar.runs"
    freeze(description, stored, workdir, num_runs=num_runs, test_from=200, sizes=[200], seed=0)
    return workdir


def test_records_are_made_once_and_are_the_same_however_many_there_are(tools, stored, tmp_path):
    from specimens.frozen import Records, Runs

    whole = frozen(stored, tmp_path / "whole")
    runs, records = Runs.open(whole / "runs-200.npz"), Records.open(whole / "records.npz")
    assert runs.curves.shape == (200, 401) and len(records) == 20
    # Two straight lines stay what they are but next to their knee, which cubics round.
    drawn = draw(stored, 0, 200)
    far = np.abs(runs.strain - drawn[:, :1] / MODULUS) > 2 * STRAIN[1]
    exact = bar_stress(drawn, runs.strain)
    np.testing.assert_allclose(runs.curves[far], exact[far], rtol=1e-9, atol=1e-9)
    # Noise of 0.1 to 0.5 % of the maximum; five deviations of the largest.
    strain, stress = records.one(3)
    exact = bar_stress(draw(stored, 0, 220)[203:204])[0]
    off = stress - np.interp(strain, STRAIN, exact)
    assert 0.0 < np.abs(off).max() < 5 * 5e-3 * exact.max()
    # A judge that is not there yet changes no other.
    solver, drawn = Solver(stored), draw(stored, 0, 220)
    key = solver.deck(drawn[219]).key
    (stored.folder.parent / "bar.runs" / RUNS / f"{key}.npz").unlink()
    fewer = Records.open(frozen(stored, tmp_path / "fewer") / "records.npz")
    assert len(fewer) == 19
    np.testing.assert_array_equal(fewer.one(3)[1], stress)


def exact_posterior(strain, stress, best, emulated=None):
    """Points of a posterior over (yields, slope, noise), shares 0-1, around `best`, and their weights.

    Args:
      emulated: its logarithmic density at points; None: that of the closed form.
    """
    low, high, levels = (
        np.array([100.0, 100.0]),
        np.array([300.0, 10_000.0]),
        np.array([1e-3, 5e-3]),
    )

    def curve(shares):
        values = np.column_stack(
            [
                low[0] + shares[:, 0] * (high[0] - low[0]),
                low[1] * (high[1] / low[1]) ** shares[:, 1],
            ]
        )
        return smooth_stress(values, strain)

    def log_density(points):
        found = curve(points)
        noise = levels[0] * (levels[1] / levels[0]) ** points[:, 2] * np.abs(found).max(axis=1)
        misfit = ((found - stress) ** 2).sum(axis=1) / noise**2
        return -0.5 * misfit - len(strain) * np.log(noise)

    step = 1e-5
    slopes = (curve(best + step * np.eye(2)) - curve(best[None])) / step
    noise = (stress - curve(best[None])[0]).std()
    spread = np.linalg.cholesky(np.linalg.inv(slopes @ slopes.T)) * noise
    # The linearised posterior's own axes, so that few points see all of it.
    axis = np.linspace(-7.0, 7.0, 41)
    around = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    places = best + around @ spread.T
    points = np.concatenate(
        [
            np.column_stack([places, np.full(len(places), share)])
            for share in np.linspace(0.02, 0.98, 9)
        ]
    )
    points = points[((points > 0) & (points < 1)).all(axis=1)]
    logarithm = (emulated or log_density)(points)
    weights = np.exp(logarithm - logarithm.max())
    return points[:, :2], weights / weights.sum()


def moments(points, weights):
    mean = weights @ points
    return mean, np.sqrt(weights @ (points - mean) ** 2)


@pytest.mark.parametrize("stored", [smooth_stress], indirect=True)
@pytest.mark.parametrize(
    "kind", ["polynomials", pytest.param("processes", marks=pytest.mark.large)]
)
def test_the_posterior_by_an_emulator_is_the_exact_one(tools, stored, tmp_path, kind):
    # Written down before: means within half an exact deviation, deviations within 0.8 to 1.5 of the exact ones.
    from specimens.emulator_chains import Posterior, chains
    from specimens.emulators import Emulator
    from specimens.frozen import Records, Runs

    folder = frozen(stored, tmp_path / "frozen")
    runs, records = Runs.open(folder / "runs-200.npz"), Records.open(folder / "records.npz")
    with np.load(folder / "records.npz") as file:
        truths = file["truth"]
    emulator = Emulator(kind, runs.drawn, runs.curves)
    for number in (0, 1):
        record, best = records.one(number), truths[number]
        posterior = Posterior(emulator, runs, *record)
        exact, deviation = moments(*exact_posterior(*record, best))
        mean, spread = moments(*exact_posterior(*record, best, posterior.log_density))
        assert (np.abs(mean - exact) <= 0.5 * deviation).all()
        assert ((spread >= 0.8 * deviation) & (spread <= 1.5 * deviation)).all()
    found = chains(posterior, seed=0, steps=900)
    assert found["r_hat"] < 1.1
    samples = found["samples"][..., :2].reshape(-1, 2)
    assert (np.abs(samples.mean(axis=0) - mean) <= 0.3 * spread).all()
    assert (np.abs(samples.std(axis=0) / spread - 1.0) <= 0.3).all()


def test_least_squares_with_the_program_in_the_loop_finds_the_bar_and_counts_its_runs(
    tools, stored, tmp_path
):
    from specimens import least_squares
    from specimens.frozen import Records, answer_path

    folder = frozen(stored, tmp_path / "frozen")
    records = Records.open(folder / "records.npz")
    with np.load(folder / "records.npz") as file:
        truth = file["truth"][0]
    least_squares.answer(stored, records, tmp_path, 1)
    with np.load(answer_path(tmp_path, 0)) as file:
        found = {name: file[name] for name in file.files}
    deviation = (found["high"] - found["low"]) / 3.92
    assert (np.abs(found["mean"] - truth) < 4 * deviation).all()
    made = list((tmp_path / "00000.runs" / RUNS).glob("*.npz"))
    assert found["runs"] == len(made)


def run_tool(*arguments):
    return subprocess.run(
        [forked_python(), str(TOOLS / "compare_specimens.py"), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(TOOLS.parent)},
    )


def test_a_comparison_is_told_and_goes_on_where_it_was(tools, stored, tmp_path):
    from specimens.frozen import answer_path, keep

    workdir = frozen(stored, tmp_path / "compared")
    with np.load(workdir / "records.npz") as file:
        truths = file["truth"]
    # A network's answers as they are stored: off by 0.01 in the first parameter, which its intervals miss.
    network = workdir / "network-200"
    network.mkdir()
    keep(network / "trained.npz", training_seconds=50.0, told="specimen.py")
    for number, truth in enumerate(truths):
        mean = truth + np.array([0.01, 0.0])
        answer = {"mean": mean, "low": mean - 0.005, "high": mean + 0.005, "seconds": 0.002}
        keep(answer_path(network, number), **answer)
    arguments = [
        f"--simulator={stored.folder}",
        f"--runs={tmp_path / 'bar.runs'}",
        "--num_runs=220",
        "--test_from=200",
        "--train=200",
        "--methods=solver",
        f"--workdir={workdir}",
    ]
    ended = run_tool(*arguments, "--fits=1")
    assert ended.returncode == 0, ended.stderr
    found, solver = read_json(workdir / "results.json")["results"]
    assert (found["method"], found["records"]) == ("network", 20)
    assert found["squared_error"] == pytest.approx(0.5e-4)
    assert found["coverage_95_each"] == [0.0, 1.0]
    assert (solver["method"], solver["records"]) == ("solver", 1)
    assert solver["error_of_network_over_this"] == pytest.approx(0.5e-4 / solver["squared_error"])
    # 200 runs of half a second and a training of 50 s, against the seconds of a fit.
    quicker = solver["seconds_a_specimen"] - 0.002
    assert solver["break_even_specimens"] == pytest.approx(150.0 / quicker)
    assert found["solver_over_this"] == pytest.approx(solver["seconds_a_specimen"] / 0.002)
    assert "| network | 200 | 20 |" in (workdir / "table.md").read_text()
    answered = answer_path(workdir / "solver-200", 0).stat().st_mtime_ns
    assert run_tool(*arguments, "--fits=2").returncode == 0
    assert answer_path(workdir / "solver-200", 0).stat().st_mtime_ns == answered
    assert read_json(workdir / "results.json")["results"][1]["records"] == 2


def test_what_is_wrong_is_refused_in_one_line(stored, tmp_path):
    common = [
        f"--simulator={stored.folder}",
        f"--workdir={tmp_path / 'compared'}",
        "--num_runs=220",
    ]
    for arguments, said in (
        (["--methods=abc", "--test_from=200"], "there is no abc; choose of network,"),
        (["--test_from=220"], "wanted is 0 < --train <= --test_from < --num_runs"),
        (["--test_from=200", "--sed=1"], "there is no --sed=1; --help lists all flags"),
        (["--test_from=200", "--seed=1"], "holds 0 of these runs"),
    ):
        ended = run_tool(*common, f"--runs={tmp_path / 'bar.runs'}", "--train=200", *arguments)
        assert ended.returncode == 2
        (line,) = ended.stderr.strip().splitlines()
        assert line.startswith("tools/compare_specimens: ") and said in line
