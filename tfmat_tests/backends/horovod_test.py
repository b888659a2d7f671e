"""The contract on equality under real mpirun: any number of ranks ends with the weights of a plain Keras loop."""

import itertools
import json

import keras
import numpy as np
import pytest

from tfmat_tests.backends.problem import (
    BATCH,
    NUM_EXAMPLES,
    OPTIMIZERS,
    SAMPLE,
    TOLERANCE,
    PlainKerasLoop,
    make_data,
    make_model,
    relative_error,
    set_precision,
)
from tfmat_tests.mpi import mpirun

# Ranks that run by default; --all takes the others too.
RANKS = [
    pytest.param(ranks, marks=[] if ranks in (2, 3) else [pytest.mark.large])
    for ranks in (1, 2, 3, 4, 8)
]

# Two ranks take it in one piece each, so that a network of many operations is traced once; BATCH goes in two pieces.
ONE_PIECE = 480


@pytest.fixture(scope="module")
def expected():
    """case -> weights of the plain loop; each made once, and what Keras traces too, whatever the number of examples."""
    loops, known, data = {}, {}, make_data()

    def weights(case):
        kind = json.dumps([case["optimizer"], case["precision"], case.get("model", {})])
        key = kind, case["num_examples"], case.get("batch", BATCH)
        if key not in known:
            set_precision(case["precision"])
            if kind not in loops:
                model = make_model(**case.get("model", {}))
                loops[kind] = PlainKerasLoop(model, OPTIMIZERS[case["optimizer"]]())
            examples = tuple(array[: case["num_examples"]] for array in data)
            known[key] = loops[kind].train(examples, key[-1])
        return known[key]

    before = keras.config.floatx(), keras.config.dtype_policy()
    yield weights
    keras.config.set_floatx(before[0])
    keras.config.set_dtype_policy(before[1])


def _check(found, case, expected):
    # A bias before a normalisation has no gradient but rounding.
    floor = 1e-4 if "batch_normalization" in case.get("model", {}) else 0.0
    for i, weight in enumerate(expected(case)):
        error = relative_error(found[f"arr_{i}"], weight, floor)
        assert error < TOLERANCE[case["precision"]], (case["name"], i, error)


def _matrix(run_all):
    """(optimizer, precision, number of examples).

    7,919 examples: nothing divides, and the 14th batch is a partial one; 7,800: all batches are whole.
    """
    return itertools.product(
        OPTIMIZERS if run_all else SAMPLE, ("float64", "float32"), (NUM_EXAMPLES, 7_800)
    )


def _equal_cases(run_all):
    """What must end with the weights of a plain loop."""
    cases = [
        {
            "name": f"{optimizer}-{precision}-{count}",
            "optimizer": optimizer,
            "precision": precision,
            "num_examples": count,
        }
        for optimizer, precision, count in _matrix(run_all)
    ]
    return [
        {**cases[0], "name": "stream", "stream": True},
        *cases,
        {**cases[0], "name": "parts", "options": {"accumulate": 7}},
        # Moments of the whole batch, as Keras's layer has them on one device; the moving statistics too.
        {
            **cases[0],
            "name": "normalized",
            "num_examples": 7_800,
            "model": {"batch_normalization": "synchronized"},
        },
        {**cases[0], "name": "tests", "model": {"tests": 3, "input_scaling": "curve"}},
        # NovoGrad has a step a tensor: Adam makes whole steps of gradients that are nothing but float32's rounding.
        *(
            {
                **cases[0],
                "name": f"posterior-{precision}",
                "optimizer": optimizer,
                "precision": precision,
                "batch": batch,
                "model": {"uncertainty": "flow"},
            }
            for precision, optimizer, batch in (
                ("float64", "adam", ONE_PIECE),
                ("float32", "novograd", BATCH),
            )
        ),
        {
            **cases[0],
            "name": "spectrum",
            "batch": ONE_PIECE,
            "model": {"representation": "plastic_spectrum"},
        },
    ]


BASE = {"optimizer": "adam", "precision": "float32", "num_examples": NUM_EXAMPLES}
HALVED = {**BASE, "name": "fp16", "optimizer": "nesterov", "options": {"compression": "fp16"}}
DIFFERENT = [
    {**BASE, "name": name, "model": model}
    for name, model in {
        "dropout": {"dropout": 0.3},
        "local": {"batch_normalization": "local"},
        "dropout again": {"dropout": 0.3},
    }.items()
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory, run_all):
    """Number of ranks -> name of a case -> arrays of rank 0; mpirun is started once for each number."""
    known = {}

    def train(ranks):
        if ranks not in known:
            folder = tmp_path_factory.mktemp(f"ranks-{ranks}")
            cases = _equal_cases(run_all) + ([HALVED, *DIFFERENT] if ranks == 2 else [])
            (folder / "cases.json").write_text(json.dumps(cases))
            ended = mpirun(ranks, "-m", "tfmat_tests.backends.horovod_rank", str(folder))
            assert ended.returncode == 0, ended.stderr
            known[ranks] = {c["name"]: np.load(folder / f"{c['name']}.npz") for c in cases}
        return known[ranks]

    return train


@pytest.mark.parametrize("ranks", RANKS)
def test_ranks_end_with_one_state(ranks, trained, run_all):
    """All cases, in one mpirun: `check_replicas` at the end of each compares the states of all ranks bit by bit."""
    assert {case["name"] for case in _equal_cases(run_all)} <= set(trained(ranks))


@pytest.mark.parametrize("networks", [False, True], ids=["baseline", "other networks"])
@pytest.mark.parametrize("ranks", RANKS)
def test_weights_of_a_plain_keras_loop(ranks, networks, expected, trained, run_all):
    # Apart, since tracing all of Keras's loops takes minutes where processors are busy.
    for case in _equal_cases(run_all):
        if ("model" in case) == networks:
            _check(trained(ranks)[case["name"]], case, expected)


def test_halved_gradients_are_near(expected, trained):
    """fp16 has 11 bits: the weights' change over 20 steps of momentum is right to about 1e-3."""
    found = trained(2)["fp16"]
    set_precision("float32")
    start = make_model().get_weights()
    reference = expected(HALVED)
    errors = [
        relative_error(found[f"arr_{i}"] - begin, weight - begin)
        for i, (weight, begin) in enumerate(zip(reference, start, strict=True))
    ]
    assert 1e-6 < max(errors) < 1e-2, errors


def test_dropout_and_local_statistics(trained):
    """Outside the contract on equality: ranks draw for themselves, and still end with one state."""
    losses = {name: found["sums"][:, 0] for name, found in trained(2).items()}
    assert not np.array_equal(losses["dropout"], losses[f"adam-float32-{NUM_EXAMPLES}"])
    np.testing.assert_array_equal(
        losses["dropout"], losses["dropout again"]
    )  # a function of seed, step and rank
    assert all(np.isfinite(losses[case["name"]]).all() for case in DIFFERENT)
