"""A run is read once: its lengths against counting by hand, and the places where text is read, counted."""

import ast
import pathlib

import pytest

import tfmat
from tfmat.backends import make_backend
from tfmat.config import Duration, apply_override, check_config, default_config
from tfmat.errors import InputError
from tfmat.training.plan import RunPlan

PACKAGE = pathlib.Path(tfmat.__file__).parent

# What turns text, or the launcher's environment, into values -> the modules that may call it. The config's schema reads
# a duration to refuse it where it is given. The command line asks who it is once more, to tell an error only once, and
# Horovod's own face is for other programs. A scaling study reads its config and what was measured, and each process
# that it starts asks once who it is, as does each of a landscape's.
READERS = {
    # Beside the keys of the config, where it is defined.
    "Duration.parse": {"scaling/matrix.py", "training/plan.py"},
    "parse_growth": {"training/plan.py"},
    "EpochPlan": {"training/plan.py", "data/pipeline.py"},
    # Beside the options of a backend, where it is defined.
    "MeshShape.parse": {"scaling/matrix.py", "scaling/measurements.py"},
    "find_processes": {
        "backends/options.py",
        "cli/machines.py",
        "cli/main.py",
        "cli/studies.py",
        "horovod/collectives.py",
        "scaling/worker.py",
    },
}


def _calls(tree: ast.AST) -> set[str]:
    """What a module calls, and what it hands on as a field's default factory."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            found.add(ast.unparse(node.func))
            found |= {ast.unparse(k.value) for k in node.keywords if k.arg == "default_factory"}
    return found


def _definitions(tree: ast.AST) -> set[str]:
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


def test_text_is_read_in_one_place() -> None:
    readers: dict[str, set[str]] = {name: set() for name in READERS}
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        own, calls = _definitions(tree), _calls(tree)
        for name in READERS:
            if name in calls and name.partition(".")[0] not in own:
                readers[name].add(path.relative_to(PACKAGE).as_posix())
    assert readers == READERS


def _config(**values: str):
    config = default_config()
    for key, text in values.items():
        apply_override(config, key.replace("__", "."), text)
    return check_config(config)


def test_a_config_is_read() -> None:
    config = _config(
        train_for="3epochs", batch_growth="1epochs:2", checkpoint__every="90s", seed="7",
        optimizer__warmup="5steps", optimizer__schedule="step", optimizer__step_every="2epochs",
        global_batch_size="10",
    )  # fmt: skip
    plan = RunPlan.of_config(config, workdir="runs/x")
    assert (plan.train_for, plan.growth, plan.seed) == (Duration(3, "epochs"), ((1, 2),), 7)
    assert plan.checkpoint_every.seconds == 90 and plan.workdir == "runs/x"
    epochs = plan.epochs(100)
    assert plan.total_steps(epochs, lambda: 1 / 0, print) == 10 + 5 + 5
    steps = plan.steps(epochs, 20)
    assert (steps.total, steps.warmup, steps.falls) == (20, 5, (15,))
    assert RunPlan.of_config(_config()).steps(epochs, 20).falls == ()


def test_a_time_is_measured_once_and_counts_epochs_where_the_batch_grows() -> None:
    said: list[str] = []
    plan = RunPlan(10, train_for=Duration(4, "s"))
    assert plan.total_steps(plan.epochs(100), lambda: 5.0, said.append) == 20
    assert said == ["4s are 20 steps at the measured 5.0 steps/s"]
    grown = plan.changed(growth="1epochs:2")
    assert grown.total_steps(grown.epochs(100), lambda: 5.0, said.append) == 10 + 5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"train_for": "soon"}, "'soon' is not a duration"),
        ({"growth": "4:2"}, "'4:2' is no growth of the batch"),
        ({"trace_steps": 3}, "trace_steps needs a workdir"),
    ],
)
def test_what_cannot_be_planned(settings, message) -> None:
    with pytest.raises(InputError, match=message):
        RunPlan().changed(**settings)


def test_a_warm_up_longer_than_the_run_takes_a_tenth_of_it() -> None:
    plan = RunPlan(10, warmup=Duration(500, "steps"))
    assert plan.steps(plan.epochs(100), 60).warmup == 6
    assert plan.steps(plan.epochs(100), 501).warmup == 500


def test_the_plan_in_steps_for_people() -> None:
    plan = RunPlan.of_config(
        _config(train_for="3epochs", batch_growth="1epochs:2", global_batch_size="10")
    )
    found = plan.resolved(plan.epochs(100), 20, make_backend("single"))
    assert found["steps"] == 20 and found["steps_per_epoch"] == 10 and found["epochs"] == 3
    assert found["batch_from_epoch"] == {0: 10, 1: 20} and found["first_checkpoint_at_step"] == 10
    assert (found["backend"], found["processes"], "mesh" in found) == ("single", 1, False)
