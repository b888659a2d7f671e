"""tools/large_batch_study.py: the table from rows, which recipes it takes, and what it refuses."""

import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest

from tfmat.tuning.definition import load_search
from tfmat_tests.processes import forked_python

PROJECT = pathlib.Path(__file__).resolve().parents[2]
TOOL = PROJECT / "tools" / "large_batch_study.py"


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("large_batch_study", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_an_earlier_study_s_fastest_recipes_are_taken(tool):
    """Recipes of the committed study: the fastest of each batch and optimizer, as docs/large_batch.md names them."""
    target, recipes = tool._earlier(PROJECT / "docs" / "large_batch" / "study.json")
    assert target == pytest.approx(7.391e-4, rel=1e-3)
    assert len(recipes) == 3 and len({(r.batch, r.optimizer) for r in recipes}) == 3
    runs = json.loads((PROJECT / "docs/large_batch/study.json").read_text())["runs"]
    reached = [r for r in runs if r.get("reached") and r["seed"] == 0 and r["optimizer"] != "study"]
    fastest = min(reached, key=lambda run: run["seconds_to_target"])
    assert recipes[0].name == fastest["run"]


def test_the_table_counts_a_seed_that_missed_the_target_with_all_of_its_time(tool, tmp_path):
    study = tool.Study.__new__(tool.Study)
    study.output, study.target, study.rows = tmp_path, 1e-3, {}
    times = {"study": [80.0, None, 100.0], "lamb": [10.0, 20.0, None]}
    for optimizer, seconds in times.items():
        for seed, second in enumerate(seconds):
            recipe = tool.Recipe(75, optimizer, seed=seed)
            study.rows[recipe] = {
                **tool.dataclasses.asdict(recipe),
                "state": "done",
                "training_seconds": 200.0,
                "val_loss": 9e-4,
                "loss": 9e-4,
                "gap": 0.0,
                "reached": second is not None,
                "seconds_to_target": second,
                "epochs_to_target": 1.0,
            }
    study.write()
    table = (tmp_path / "table.md").read_text()
    # Medians: 100 of (80, 200, 100), and 20 of (10, 20, 200).
    assert "| the study's | 1 | 80, not reached, 100 | 1.0 |" in table
    assert "| lamb, none from 0 | 1 | 10, 20, not reached | 5.0 |" in table
    assert json.loads((tmp_path / "study.json").read_text())["target_val_loss"] == 1e-3
    assert {path.name for path in tmp_path.iterdir()} == {
        "study.csv", "study.json", "study.png", "study.svg", "table.md",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give folders of searches, or --finalists_of"),
        (["runs/no_such_search"], "best.py is missing"),
        (["--finalists_of=setup.cfg"], "setup.cfg"),
    ],
)
def test_a_wrong_argument_is_refused_at_once(arguments, message):
    done = subprocess.run(
        [forked_python(), str(TOOL), *arguments], capture_output=True, text=True, cwd=PROJECT
    )
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr


def test_the_search_can_be_used_for_every_batch():
    for batch in ("75", "6000"):
        base, search = load_search("configs/large_batch_search.py", [("global_batch_size", batch)])
        assert base.global_batch_size == int(batch) and search.algorithm == "hyperband"
