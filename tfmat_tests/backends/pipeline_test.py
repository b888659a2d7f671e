"""Pipeline stages under real mpirun end with the weights of one process; checkpoints go from one to the other."""

import json

import numpy as np
import pytest

from tfmat.backends import make_backend
from tfmat.optimizers import make_functional
from tfmat_tests.backends import pipeline_problem
from tfmat_tests.backends.problem import OPTIMIZERS, TOLERANCE, keeping_precision, relative_error
from tfmat_tests.mpi import mpirun

CASES = {
    2: [
        {
            "name": "gpipe",
            "backend": "mpi",
            "precision": "float64",
            "clip": 0.01,
            "resume": True,
            "options": {
                "mesh": "stage:2",
                "schedule": "gpipe",
                "micro_batches": 3,
                "recompute": "every:2",
                "offload": "slots",
            },
        },
        {
            "name": "network",
            "backend": "mpi",
            "network": True,
            "width": 64,
            "optimizer": "nesterov",
            "bfloat16": True,
            "options": {"mesh": "stage:2", "micro_batches": 2, "recompute": "every:1"},
        },
        {
            "name": "dropout",
            "backend": "mpi",
            "dropout": 0.5,
            "resume": True,
            "options": {"mesh": "stage:2", "micro_batches": 2},
        },
        {
            "name": "dropout again",
            "backend": "mpi",
            "dropout": 0.5,
            "resume": True,
            "options": {"mesh": "stage:2", "micro_batches": 2, "recompute": "every:100"},
        },
    ],
    3: [
        {
            "name": "three",
            "backend": "mpi",
            "precision": "float64",
            "optimizer": "lamb",
            "options": {
                "mesh": "stage:3",
                "micro_batches": 4,
                "stages": "sum0,sum1",
                "recompute": "sum0,sum1,first",
            },
        }
    ],
    4: [
        {
            "name": "two by two",
            "backend": "horovod",
            "precision": "float64",
            "optimizer": "nesterov",
            # Not clipped, nor by Adam, with which a wrong scale of gradients would not show.
            "rate": 0.002,
            "options": {"mesh": "batch:2,stage:2", "micro_batches": 3},
        }
    ],
}


@pytest.fixture(scope="module", autouse=True)
def precision():
    with keeping_precision():
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Number of ranks -> name of a case -> arrays of rank 0; mpirun is started once for each number."""
    known = {}

    def train(ranks):
        if ranks not in known:
            folder = tmp_path_factory.mktemp(f"stages-{ranks}")
            (folder / "cases.json").write_text(json.dumps(CASES[ranks]))
            ended = mpirun(ranks, "-m", "tfmat_tests.backends.pipeline_rank", str(folder))
            assert ended.returncode == 0, ended.stderr
            known[ranks] = {c["name"]: np.load(folder / f"{c['name']}.npz") for c in CASES[ranks]}
        return known[ranks]

    return train


@pytest.mark.parametrize("ranks", CASES)
def test_stages_end_with_the_state_of_one_process(ranks, trained):
    """Weights, slots, sums of every step, of an evaluation, and answers; the fifth step has a partial batch."""
    data = pipeline_problem.make_data()
    for case in CASES[ranks]:
        if "dropout" in case:
            continue
        found = trained(ranks)[case["name"]]
        alone = {
            key: case[key] for key in case if key not in ("backend", "options", "resume", "name")
        }
        if "bfloat16" in case:  # in which each part's gradient is rounded: the same parts
            alone["options"] = {"accumulate": case["options"]["micro_batches"]}
        expected = pipeline_problem.train(alone, data)
        assert set(found.files) == set(expected)
        for name, array in expected.items():
            assert found[name].dtype == array.dtype, name
            # Slots are small sums of gradients, in which more is rounded.
            bound = TOLERANCE[case.get("precision", "float32")] * (10 if "slots" in name else 1)
            assert relative_error(found[name], array, 1e-30) < bound, (case["name"], name)


def test_dropout_differs_from_none(trained):
    """Outside the contract on equality; `resume` has the same steps taken twice, with the same losses."""
    sums = trained(2)["dropout"]["sums"]
    assert np.isfinite(sums).all()
    # A stage that is computed again as a whole draws the same masks.
    np.testing.assert_allclose(trained(2)["dropout again"]["sums"], sums, rtol=1e-5)
    # The same weights' loss over the first batch, before any step.
    assert not np.allclose(sums[0], trained(2)["gpipe"]["sums"][0], rtol=1e-3)


def test_a_state_of_stages_goes_on_in_one_process(trained):
    """What stages read fits the single backend, name by name; `resume` has rank 0's state go the other way."""
    found = trained(2)["gpipe"]
    pipeline_problem.set_precision("float64")
    model, backend = pipeline_problem.residual_model(), make_backend("single")
    backend.build(model, make_functional(OPTIMIZERS["adam"]()), lambda y, z: (y - z)[:, 0] ** 2, {})
    state = {
        name.replace("-", "/"): found[name]
        for name in found.files
        if name.split("-")[0] in ("weights", "slots", "non_trainable")
    }
    backend.write(state)
    for i, weight in enumerate(model.get_weights()):
        np.testing.assert_array_equal(found[f"model-{i}"], weight)
    for name, array in backend.read().items():
        np.testing.assert_array_equal(array, state[name])
