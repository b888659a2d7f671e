"""The contract on equality under real mpirun: any number of ranks ends with the weights of a plain Keras loop."""

import itertools
import json

import numpy as np
import pytest

from tfmat_tests.backends.horovod_rank import by_mpi, train_cases
from tfmat_tests.backends.problem import (
    BATCH,
    NUM_EXAMPLES,
    ONE_PIECE,
    OPTIMIZERS,
    SAMPLE,
    TOLERANCE,
    PlainKerasLoop,
    keeping_precision,
    make_data,
    make_model,
    relative_error,
    set_precision,
)

# Ranks that run by default; --all takes the others too.
RANKS = [
    pytest.param(ranks, marks=[] if ranks in (2, 3) else [pytest.mark.large])
    for ranks in (1, 2, 3, 4, 8)
]
# What one mpirun trains; the last part is the same with any number of them.
PARTS = [
    pytest.param(ranks, part, marks=[] if ranks == 2 or few else [pytest.mark.large])
    for ranks in (1, 2, 3, 4, 8)
    for part, few in {
        "optimizers": ranks == 3,
        "divided": ranks == 3,
        "of each rank": False,
    }.items()
]


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

    with keeping_precision():
        yield weights


def _check(found, case, expected):
    # A bias before a normalisation has no gradient but rounding.
    floor = 1e-4 if "batch_normalization" in case.get("model", {}) else 0.0
    for i, weight in enumerate(expected(case)):
        error = relative_error(found[f"arr_{i}"], weight, floor)
        assert error < TOLERANCE[case["precision"]], (case["name"], i, error)


def _matrix(run_all, ranks):
    """(optimizer, precision, number of examples).

    7,919 examples: nothing divides, and the 14th batch is a partial one; 7,800: all batches are whole. An optimizer
    gets the same sums from any number of ranks: with more than two, one of them stands for all. Two stand for all that
    take float32.
    """
    optimizers = OPTIMIZERS if run_all else SAMPLE[: None if ranks == 2 else 1]
    for optimizer, precision in itertools.product(optimizers, ("float64", "float32")):
        if run_all or precision == "float64" or optimizer in SAMPLE[:2]:
            yield from ((optimizer, precision, count) for count in (NUM_EXAMPLES, 7_800))


def _equal_cases(run_all, ranks):
    """What must end with the weights of a plain loop: name of a part, which one mpirun trains -> its cases."""
    cases = [
        {
            "name": f"{optimizer}-{precision}-{count}",
            "optimizer": optimizer,
            "precision": precision,
            "num_examples": count,
        }
        for optimizer, precision, count in _matrix(run_all, ranks)
    ]
    one = {**cases[0], "batch": ONE_PIECE}
    hierarchical = {**one, "options": {"reduction": "hierarchical"}}
    normalized = {
        "num_examples": 7_800,
        "batch": BATCH,
        "model": {"batch_normalization": "synchronized"},
    }
    # The ranks are in turns on two nodes: from three on a node has several.
    by_nodes = [
        {**hierarchical, "name": "by nodes"},
        {**hierarchical, **normalized, "name": "normalized by nodes"},
    ]
    return {
        "optimizers": [{**cases[0], "name": "stream", "stream": True}, *cases, by_mpi(one)],
        "divided": [
            *(by_nodes if ranks > 2 else []),
            *map(by_mpi, by_nodes if ranks > 2 else []),
            # Moments of the whole batch, as Keras's layer has them on one device; the moving statistics too.
            {**one, **normalized, "name": "normalized"},
            *_divided_cases(one),
        ],
        "of each rank": _cases_of_any_rank(one, normalized) if run_all or ranks == 2 else [],
    }


def _cases_of_any_rank(case, normalized):
    """What each rank does by itself, whatever their number."""
    setups = {
        "parts": {"options": {"accumulate": 7}},
        "buckets": {"options": {"bucket_mb": 0.01}},
        "buckets, mpi": {"options": {"bucket_mb": 0.01}, "backend": "mpi"},
        "normalized again": {**normalized, "options": {"recompute": "every:1"}},
        "tests": {"batch": BATCH, "model": {"tests": 3, "input_scaling": "curve"}},
        "posterior-float64": {
            "optimizer": "adam",
            "precision": "float64",
            "model": {"uncertainty": "flow"},
        },
        "posterior-compiled": {
            "optimizer": "adam",
            "precision": "float64",
            "compiled": True,
            "model": {"uncertainty": "flow", "representation": "fit", "terms": [[1], [0]]},
        },
        # NovoGrad has a step a tensor: Adam makes whole steps of gradients that are nothing but float32's rounding.
        "posterior-float32": {
            "batch": BATCH,
            "optimizer": "novograd",
            "precision": "float32",
            "model": {"uncertainty": "flow"},
        },
        "spectrum": {"model": {"representation": "plastic_spectrum"}},
    }
    return [{**case, **setup, "name": name} for name, setup in setups.items()]


def _divided_cases(case):
    """Slots in parts; norms of whole tensors are summed from them."""
    setups = [
        ("adamw", "float64", 2, {"options": {"zero_stage": 2, "accumulate": 7}}),
        ("clipped", "float64", 1, {"model": {"batch_normalization": "synchronized"}, "timed": 2}),
        ("nesterov", "float32", 2, {"backend": "mpi", "timed": 1}),
        ("lamb", "float64", 1, {"backend": "mpi"}),
        ("clipped apart", "float64", 2, {"backend": "mpi"}),
    ]
    for optimizer, precision, stage, others in setups:
        own = {"name": f"divided {optimizer}", "optimizer": optimizer, "precision": precision}
        yield {**case, "options": {"zero_stage": stage}, **own, **others}


BASE = {"optimizer": "adam", "precision": "float32", "num_examples": NUM_EXAMPLES}
HALVED = {
    **BASE,
    "name": "fp16",
    "optimizer": "nesterov",
    "batch": ONE_PIECE,
    "options": {"compression": "fp16"},
}
HALVED_PARTS = {**HALVED, "name": "fp16 parts", "options": {"compression": "fp16", "zero_stage": 2}}
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
    """Number of ranks, name of a part -> name of a case -> arrays of rank 0; mpirun is started once for each."""
    known = {}

    def train(ranks, part):
        if (ranks, part) not in known:
            halved = [HALVED, HALVED_PARTS]
            others = {"near": [*halved, *map(by_mpi, halved), *DIFFERENT]}
            cases = (_equal_cases(run_all, ranks) | others)[part]
            folder = tmp_path_factory.mktemp(f"ranks-{ranks}")
            known[ranks, part] = train_cases(ranks, cases, folder)
        return known[ranks, part]

    return train


@pytest.mark.parametrize(("ranks", "part"), PARTS)
def test_ranks_end_with_one_state(ranks, part, trained, run_all):
    """All cases of a part, in one mpirun: `check_replicas` at the end of each compares all ranks' states bit by bit."""
    names = {case["name"] for case in _equal_cases(run_all, ranks)[part]}
    assert names and names == set(trained(ranks, part))


@pytest.mark.parametrize("networks", [False, True], ids=["baseline", "other networks"])
@pytest.mark.parametrize("ranks", RANKS)
def test_weights_of_a_plain_keras_loop(ranks, networks, expected, trained, run_all):
    # Apart, since tracing all of Keras's loops takes minutes where processors are busy.
    for part, cases in _equal_cases(run_all, ranks).items():
        for case in cases:
            if ("model" in case) == networks:
                _check(trained(ranks, part)[case["name"]], case, expected)


@pytest.mark.parametrize("name", ["fp16", "fp16 parts"])
@pytest.mark.parametrize("by", ["", ", mpi"], ids=["horovod", "mpi"])
def test_halved_gradients_are_near(by, name, expected, trained):
    """fp16 has 11 bits: the weights' change over 20 steps of momentum is right to about 1e-3."""
    found = trained(2, "near")[f"{name}{by}"]
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
    cases = {**trained(2, "near"), **trained(2, "optimizers")}
    losses = {name: found["sums"][:, 0] for name, found in cases.items()}
    assert not np.array_equal(losses["dropout"], losses[f"adam-float32-{NUM_EXAMPLES}"])
    np.testing.assert_array_equal(
        losses["dropout"], losses["dropout again"]
    )  # a function of seed, step and rank
    assert all(np.isfinite(losses[case["name"]]).all() for case in DIFFERENT)
