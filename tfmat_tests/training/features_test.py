"""Walks the table of docs/your_own_model.md: what works agrees with Keras's steps, what is refused says so."""

import json

import numpy as np
import pytest

from tfmat_tests import mpi
from tfmat_tests.processes import PATIENCE
from tfmat_tests.training import features
from tfmat_tests.training.features import FEATURES, RANKS, WITH_ALL

PAGE = mpi.PROJECT / "docs" / "your_own_model.md"
# In the order of the table.
COLUMNS = ("single", "horovod", "mesh", "fit")


def read_table():
    """Row -> column -> cell, read from the page."""
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    head = next(i for i, line in enumerate(cells) if "Keras's `fit`" in line)
    table = {}
    for name, *row in cells[head + 2 :]:
        if len(row) != len(COLUMNS):
            break
        table[name] = dict(zip(COLUMNS, row, strict=True))
    return table


TABLE = read_table()
CELLS = [
    pytest.param(row, column, marks=[pytest.mark.large] if row in WITH_ALL.get(column, ()) else [])
    for row in TABLE
    for column in COLUMNS
]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory, programs, run_all):
    """Column -> what all its rows ended in, and the folder with the weights; a process begins when it is asked for."""
    folder, known = tmp_path_factory.mktemp("features"), set()

    def of(column):
        where = "horovod" if column == "fit" else column
        if where not in known:
            program = ["-m", "tfmat_tests.training.features_process", str(folder), where]
            program += ["all"] if run_all else []
            if where == "horovod":
                ended = mpi.mpirun(RANKS, *program, timeout=PATIENCE)
                assert ended.returncode == 0, ended.stderr[-4000:]
            else:
                programs.python(*program)
            known.add(where)
        return json.loads((folder / f"{column}.json").read_text()), folder

    return of


def weights_of(folder, column, number):
    """The weights that a run of the row with that number ended with."""
    with np.load(folder / f"{column}-{number}.npz") as saved:
        return [saved[name] for name in saved.files]


@pytest.fixture(scope="module")
def plain():
    """(row, column, ranks) -> begin, weights and metrics of Keras's own steps; each made once."""
    known = {}

    def steps(row, column, ranks=1):
        key = row, column == "fit", ranks
        if key not in known:
            batches = features.whole_batches() if column == "fit" else features.ordered_batches()
            feature = FEATURES[row]
            begin = feature.make_model().get_weights()
            known[key] = begin, *features.plain_steps(feature, batches, ranks)
        return known[key]

    return steps


def error_of(weights, expected, begin):
    """The relative norm of the error in the change of all weights."""

    def flat(arrays):
        return np.concatenate([np.ravel(array).astype(np.float64) for array in arrays])

    change = np.linalg.norm(flat(expected) - flat(begin))
    return np.linalg.norm(flat(weights) - flat(expected)) / change


def test_the_table_has_every_row():
    assert list(TABLE) == list(FEATURES)


@pytest.mark.parametrize(("row", "column"), CELLS)
def test_cell(row, column, outcomes, plain):
    found, folder = outcomes(column)
    outcome, cell = found[row], TABLE[row][column]
    if cell == "refused":
        assert outcome.get("type") == "InputError", outcome
        assert "\n" not in outcome["error"]
        assert outcome["error"].count(";") >= 1, "what to do instead"
        return
    assert "error" not in outcome, outcome
    weights = weights_of(folder, column, list(FEATURES).index(row))
    if cell == "works":
        begin, expected, metrics = plain(row, column)
        for name, value in metrics.items():
            assert outcome["metrics"][name] == pytest.approx(value, rel=1e-4), name
    else:
        assert cell in ("by rank", "by rank, with a warning")
        assert any("each rank" in line for line in outcome["warnings"]) == ("warning" in cell)
        begin, whole, _ = plain(row, column)
        assert error_of(weights, whole, begin) > 1e-2  # or the cell would be "works"
        begin, expected, _ = plain(row, column, RANKS)
    assert error_of(weights, expected, begin) < FEATURES[row].tolerance
