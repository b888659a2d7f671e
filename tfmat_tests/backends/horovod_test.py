"""The contract on equality under real mpirun: any number of ranks ends with the weights of a plain Keras loop."""

import itertools
import json

import numpy as np
import pytest

from tfmat_tests.backends.horovod_rank import by_mpi, train_cases
from tfmat_tests.backends.problem import (
    BATCH,
    DENSE,
    NUM_EXAMPLES,
    NUM_WHOLE,
    OPTIMIZERS,
    TOLERANCE,
    PlainKerasLoop,
    keeping_precision,
    make_data,
    make_model,
    relative_error,
    set_precision,
)

# Ranks that run by default, two and three: three divide nothing evenly, and two of them share a node. --all takes the
# others too, and all that this file has for any number of ranks.
NUMBERS = (1, 2, 3, 4, 8)
RANKS = [
    pytest.param(ranks, marks=[] if ranks in (2, 3) else [pytest.mark.large]) for ranks in NUMBERS
]
# Of which the last part is the same with any number of ranks.
FEW = ((2, "of each rank"), (3, "optimizers"), (3, "divided"))
PARTS = [
    pytest.param(ranks, part, marks=[] if (ranks, part) in FEW else [pytest.mark.large])
    for ranks in NUMBERS
    for part in ("optimizers", "divided", "of each rank")
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

    The 14th batch is a partial one, or all batches are whole. An optimizer gets the same sums from any number of ranks,
    and `equality_test.py` has them all: one stands for them. In float32 each optimizer has one number of ranks.
    """
    counts = (NUM_EXAMPLES, NUM_WHOLE)
    if run_all:
        own = list(OPTIMIZERS)[NUMBERS.index(ranks) :: len(NUMBERS)]
        pairs = [*((name, "float64") for name in OPTIMIZERS), *((name, "float32") for name in own)]
        return [(*pair, count) for pair, count in itertools.product(pairs, counts)]
    return [("nesterov", "float64", count) for count in counts]


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
    stream = {**cases[0], "name": "stream", "stream": True}
    found = {"optimizers": [], "divided": [], "of each rank": []}
    if run_all or ranks > 2:
        found["optimizers"] = [stream, *cases]
    if run_all or ranks > 2:
        found["divided"] = _divided_cases(run_all, ranks)
    if run_all or ranks == 2:
        found["of each rank"] = _cases_of_any_rank(run_all, ranks)
    return found


ONE = {"optimizer": "nesterov", "precision": "float64", "num_examples": NUM_EXAMPLES}
# Moments of the whole batch, as Keras's layer has them on one device; the moving statistics too.
NORMALIZED = {"optimizer": "clipped", "model": {**DENSE, "batch_normalization": "synchronized"}}


def _cases_of_any_rank(run_all, ranks):
    """What each rank does by itself, whatever their number: one and two ranks do all of it, more ranks a third each."""
    flow = {**DENSE, "uncertainty": "flow"}
    folded = {"model": {**flow, "representation": "fit", "terms": [[1], [0]]}, "optimizer": "adam"}
    setups = {
        "tests in buckets, mpi": {
            "model": {"tests": 3, "input_scaling": "curve"},
            "options": {"bucket_mb": 0.01},
            "backend": "mpi",
        },
        "posterior in parts and buckets": {**folded, "options": {"accumulate": 7, "bucket_mb": 0.01}},
    }  # fmt: skip
    if run_all:
        setups |= {
            "parts in buckets": {"options": {"accumulate": 7, "bucket_mb": 0.01}},
            "posterior": folded,
            "alone, mpi": {"backend": "mpi"},
            "normalized again": {**NORMALIZED, "options": {"recompute": "every:1"}},
            "posterior-float64": {"optimizer": "adam", "model": flow},
            "spectrum": {"model": {"representation": "plastic_spectrum"}},
            # NovoGrad has a step a tensor: Adam makes whole steps of gradients that are nothing but float32's rounding.
            "posterior-float32": {"optimizer": "novograd", "precision": "float32", "model": flow},
            # Slow to build, and so the last: of larger numbers of ranks, three have it.
            "posterior-compiled": {**folded, "compiled": True},
        }
    cases = [{**ONE, **setup, "name": name} for name, setup in setups.items()]
    return cases[NUMBERS.index(ranks) - 2 :: 3] if ranks > 2 else cases


def _divided_cases(run_all, ranks):
    """Slots in parts, norms of whole tensors summed from them, and sums by nodes: ranks in turns on two nodes."""
    hierarchical = {"options": {"reduction": "hierarchical"}}
    by_nodes = {**hierarchical, "name": "by nodes"}
    normalized = {**hierarchical, **NORMALIZED, "name": "normalized by nodes"}
    setups = [normalized] if ranks > 2 else []
    if run_all:
        setups += [by_nodes, by_mpi(by_nodes), by_mpi(normalized)] if ranks > 2 else []
        setups.append({**NORMALIZED, "name": "normalized", "num_examples": NUM_WHOLE})
    cases = [("clipped", 1, {**NORMALIZED, "options": {"recompute": "every:1"}, "timed": 2})]
    if run_all:
        cases += [
            ("lamb", 2, {"model": DENSE, "options": {"accumulate": 7}}),
            ("lamb, mpi", 1, {"model": DENSE, "backend": "mpi", "timed": 2}),
            ("adamw", 2, {"options": {"accumulate": 7}}),
            ("nesterov, mpi", 2, {"backend": "mpi", "precision": "float32", "timed": 1}),
            ("clipped apart, mpi", 2, {"backend": "mpi"}),
        ]
    for name, stage, others in cases:
        options = {**others.get("options", {}), "zero_stage": stage}
        own = {"name": f"divided {name}", "optimizer": name.partition(",")[0]}
        setups.append({**own, **others, "options": options})
    return [{**ONE, **setup} for setup in setups]


BASE = {"optimizer": "nesterov", "precision": "float32", "num_examples": NUM_EXAMPLES}
HALVED = {**BASE, "name": "fp16", "model": DENSE, "options": {"compression": "fp16"}}
HALVED_PARTS = {**HALVED, "name": "fp16 parts", "options": {"compression": "fp16", "zero_stage": 2}}
DIFFERENT = [
    {**BASE, "name": name, "model": {**DENSE, "batch_normalization": "local", "dropout": 0.3}}
    for name in ("local", "local again")
]


def _near_cases(run_all):
    """Trained by two ranks, outside the contract on equality."""
    halved = [by_mpi(HALVED_PARTS)]
    if run_all:
        halved += [HALVED, by_mpi(HALVED), HALVED_PARTS]
    return [*halved, *DIFFERENT]


@pytest.fixture(scope="module")
def trained(tmp_path_factory, run_all):
    """Number of ranks, name of a part -> case -> arrays of rank 0; under --all each part has its own mpirun."""
    known = {}

    def train(ranks, part):
        if (ranks, part) not in known:
            parts = _equal_cases(run_all, ranks) | {"near": _near_cases(run_all)}
            if run_all:
                parts = {part: parts[part]}
            elif ranks != 2:
                del parts["near"]
            folder = tmp_path_factory.mktemp(f"ranks-{ranks}")
            found = train_cases(ranks, list(itertools.chain(*parts.values())), folder)
            for name, cases in parts.items():
                known[ranks, name] = {case["name"]: found[case["name"]] for case in cases}
        return known[ranks, part]

    return train


@pytest.mark.parametrize(("ranks", "part"), PARTS)
def test_ranks_end_with_one_state(ranks, part, trained, run_all):
    """`check_replicas` at the end of each case compares all ranks' states bit by bit."""
    names = {case["name"] for case in _equal_cases(run_all, ranks)[part]}
    assert names and names == set(trained(ranks, part))


@pytest.mark.parametrize("ranks", RANKS)
def test_weights_of_a_plain_keras_loop(ranks, expected, trained, run_all):
    for part, cases in _equal_cases(run_all, ranks).items():
        for case in cases:
            _check(trained(ranks, part)[case["name"]], case, expected)


@pytest.mark.parametrize(
    "name",
    [
        "fp16 parts, mpi",
        # What goes over the wire is in workers_apart_test.py.
        *(
            pytest.param(name, marks=pytest.mark.large)
            for name in ("fp16", "fp16, mpi", "fp16 parts")
        ),
    ],
)
def test_halved_gradients_are_near(name, expected, trained):
    """fp16 has 11 bits: the weights' change over 20 steps of momentum is right to about 1e-3."""
    found = trained(2, "near")[name]
    set_precision("float32")
    start = make_model(**DENSE).get_weights()
    reference = expected(HALVED)
    errors = [
        relative_error(found[f"arr_{i}"] - begin, weight - begin)
        for i, (weight, begin) in enumerate(zip(reference, start, strict=True))
    ]
    assert 1e-6 < max(errors) < 1e-2, errors


def test_dropout_and_local_statistics(trained):
    """Outside the contract on equality: ranks draw for themselves, and still end with one state."""
    losses = {name: found["sums"][:, 0] for name, found in trained(2, "near").items()}
    assert not np.array_equal(losses["local"], losses["fp16 parts, mpi"])
    # A function of seed, step and rank.
    np.testing.assert_array_equal(losses["local"], losses["local again"])
    assert all(np.isfinite(losses[case["name"]]).all() for case in DIFFERENT)
