"""The median rule on curves whose answer is plain, a run's curve, and what supervisors share out and tell."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest

from tfmat.errors import InputError
from tfmat.report.tables import best_first
from tfmat.tuning.search import (
    DONE,
    RUNNING,
    Options,
    SearchState,
    TrialRecord,
    load_search,
    trial_rows,
)
from tfmat.tuning.trials import (
    Curve,
    TrialRun,
    _last_complaint,
    hopeless,
    oracle_value,
    read_curve,
    share_cores,
)


def curve(*values: float) -> Curve:
    places = np.arange(1.0, len(values) + 1)
    return Curve(places, places / 4, np.array(values))


OTHERS = [
    curve(5, 4, 3, 2),
    curve(6, 3, 2, 1),
    curve(9, 9, 9, 9),
    curve(4, 2, 1, 1),
    curve(7, 5, 4, 3),
]


@pytest.mark.parametrize(
    ("own", "others", "stops"),
    [
        (curve(8, 4.1), OTHERS, True),  # the others at epoch 2: 4, 3, 9, 2, 5; the median is 4
        (curve(8, 4.0), OTHERS, False),
        (curve(3, 8), OTHERS, False),  # its best counts
        (curve(8, 4.1, 3.0), OTHERS, False),  # at epoch 3: 3, 2, 9, 1, 4
        (curve(8, 4.1, 3.1), OTHERS, True),
        (curve(100), OTHERS[:4], False),  # too few say nothing
        (curve(9, 9, 9, 9, 9), OTHERS, False),  # nobody has come so far
    ],
)
def test_median_rule(own, others, stops):
    assert bool(hopeless(own, others, at_least=5)) == stops


def test_curve_of_a_run(tmp_path):
    lines = [
        {"step": 10, "epoch": 1.0, "seconds": 3.0, "val_loss": 2.0},
        {"step": 20, "epoch": 2.0, "seconds": 6.0, "val_loss": float("nan")},
        {"step": 40, "epoch": 3.0, "seconds": 9.0, "val_loss": 1.0},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "config.json").write_text('{"total_steps": 80}')
    by_time = read_curve(tmp_path, "val_loss", "12s")
    np.testing.assert_allclose(by_time.position, [3.0, 9.0])
    np.testing.assert_allclose(by_time.progress, [0.125, 0.5])
    # A growing batch: the third epoch had twice the steps; the share is that of the epochs.
    by_epochs = read_curve(tmp_path, "val_loss", "4epochs")
    np.testing.assert_allclose(by_epochs.position, [1.0, 3.0])
    np.testing.assert_allclose(by_epochs.progress, [0.25, 0.75])
    assert by_epochs.until(0.25).values.tolist() == [2.0]
    assert not len(read_curve(tmp_path / "nowhere", "val_loss", "12s").values)


def test_an_objective_that_is_to_be_large(tmp_path):
    """The best epoch is the largest, small courses are hopeless, and the oracle sees what is to be small."""
    base, search = load_search(pathlib.Path(__file__).with_name("space.py"))
    search = dataclasses.replace(
        search, objective="val_r2", direction="max", objective_scale="linear", hopeless_after=3,
        stop_hopeless=True,
    )  # fmt: skip
    search.check()
    state = SearchState(search.to_json(), base.to_dict(), Options())
    values = {
        "0000": [0.5, 0.9, 0.8],
        "0001": [0.4, 0.6, 0.7],
        "0002": [0.6, 0.7, 0.6],
        "0003": [0.1, 0.2, 0.2],
    }
    for name, course in values.items():
        state.trials[name] = TrialRecord(name, {}, name, state=DONE if name != "0003" else RUNNING)
        run = tmp_path / "trials" / name / "seed-0"
        run.mkdir(parents=True)
        lines = [
            json.dumps({"epoch": n + 1, "step": n + 1, "val_r2": v}) for n, v in enumerate(course)
        ]
        (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
        trial = TrialRun(tmp_path, state, state.trials[name], lambda: True, lambda: False, 1.0)
        outcome = trial._done(run)
        assert outcome.value == max(course)
        assert oracle_value(search, outcome, 0.0) == -max(course)
        state.trials[name].value = outcome.value if name != "0003" else None
    assert trial._judge(run) == "hopeless: 0.2 at best, the median of the others there is 0.7"
    assert state.best().trial_id == "0000"
    assert [row.trial for row in best_first(trial_rows(state), "max")] == list(values)
    with pytest.raises(InputError, match="direction of the search is 'up'; give min or max"):
        dataclasses.replace(search, direction="up").check()


@pytest.mark.parametrize(
    ("cores", "num_workers", "expected"),
    [
        ([0, 1], 1, [{0, 1}]),
        ([0, 1], 2, [{0}, {1}]),
        ([4, 5, 6, 7, 8], 2, [{4, 5}, {6, 7, 8}]),
        ([2, 3], 5, [{2}, {3}, {2}, {3}, {2}]),
    ],
)
def test_every_worker_has_cores_and_none_lies_idle(cores, num_workers, expected):
    shares = share_cores(cores, num_workers)
    assert shares == expected
    assert set().union(*shares) == set(cores)


def test_why_a_worker_refused_is_told_though_a_living_one_writes_to_its_log(tmp_path):
    log = tmp_path / "0.log"
    log.write_text("trial 0000\ntfmat: an older line\ntfmat: it runs already\ntrial 0001\n")
    assert _last_complaint(log) == "it runs already"
    log.write_text("trial 0000\n")
    assert _last_complaint(log) == "?"
