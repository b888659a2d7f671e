"""The contract on equality under real mpirun: any number of ranks ends with the weights of a plain Keras loop."""

import itertools
import json

import keras
import numpy as np
import pytest

from tfmat_tests.backends.numpy_exchange import SHAPES, NumpyExchange, some_gradients
from tfmat_tests.backends.problem import (
    BATCH,
    NUM_EXAMPLES,
    OPTIMIZERS,
    SAMPLE,
    STEPS,
    TOLERANCE,
    PlainKerasLoop,
    PlainWorkers,
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

BACKENDS = ("horovod", "mpi")
# What a case of `by_mpi` is called after.
SUFFIXES = pytest.mark.parametrize("by", ["", ", mpi"], ids=BACKENDS)

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


def _matrix(run_all, ranks):
    """(optimizer, precision, number of examples).

    7,919 examples: nothing divides, and the 14th batch is a partial one; 7,800: all batches are whole. An optimizer
    gets the same sums from any number of ranks: with more than two, one of them stands for all.
    """
    optimizers = OPTIMIZERS if run_all else SAMPLE[: None if ranks == 2 else 1]
    return itertools.product(optimizers, ("float64", "float32"), (NUM_EXAMPLES, 7_800))


def _equal_cases(run_all, ranks):
    """What must end with the weights of a plain loop."""
    cases = [
        {
            "name": f"{optimizer}-{precision}-{count}",
            "optimizer": optimizer,
            "precision": precision,
            "num_examples": count,
        }
        for optimizer, precision, count in _matrix(run_all, ranks)
    ]
    hierarchical = {**cases[0], "options": {"reduction": "hierarchical"}}
    normalized = {"num_examples": 7_800, "model": {"batch_normalization": "synchronized"}}
    # The ranks are in turns on two nodes: from three on a node has several.
    by_nodes = [
        {**hierarchical, "name": "by nodes"},
        {**hierarchical, **normalized, "name": "normalized by nodes"},
    ]
    return [
        *(by_nodes if ranks > 2 else []),
        *map(by_mpi, by_nodes if ranks > 2 else []),
        {**cases[0], "name": "stream", "stream": True},
        *cases,
        by_mpi(cases[0]),
        {**cases[0], "name": "parts", "options": {"accumulate": 7}},
        {**cases[0], "name": "buckets", "options": {"bucket_mb": 0.01}},
        by_mpi({**cases[0], "name": "buckets", "options": {"bucket_mb": 0.01}}),
        # Moments of the whole batch, as Keras's layer has them on one device; the moving statistics too.
        {**cases[0], **normalized, "name": "normalized"},
        {
            **cases[0],
            **normalized,
            "name": "normalized again",
            "options": {"recompute": "every:1"},
        },
        *_divided_cases(cases[0]),
        *(_cases_of_networks(cases[0]) if run_all or ranks == 2 else []),
    ]


def _cases_of_networks(case):
    """Whose layers do the same on each of any number of ranks."""
    setups = {
        "tests": {"model": {"tests": 3, "input_scaling": "curve"}},
        "posterior-float64": {
            "optimizer": "adam",
            "precision": "float64",
            "batch": ONE_PIECE,
            "model": {"uncertainty": "flow"},
        },
        # NovoGrad has a step a tensor: Adam makes whole steps of gradients that are nothing but float32's rounding.
        "posterior-float32": {
            "optimizer": "novograd",
            "precision": "float32",
            "model": {"uncertainty": "flow"},
        },
        "spectrum": {"batch": ONE_PIECE, "model": {"representation": "plastic_spectrum"}},
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


def by_mpi(case):
    """The same without Horovod."""
    return {**case, "name": f"{case['name']}, mpi", "backend": "mpi"}


BASE = {"optimizer": "adam", "precision": "float32", "num_examples": NUM_EXAMPLES}
LOCAL_STEPS = {"compression": "powersgd", "local_steps": 4, "outer_learning_rate": 0.7}
# In the hidden layer there is enough to compress.
APART = {
    name: {
        **BASE,
        "name": name,
        "precision": "float64",
        "optimizer": "nesterov",
        "model": {"hidden_units": (100,)},
        "options": options,
    }
    for name, options in {
        "powersgd": {"compression": "powersgd"},
        "local steps": LOCAL_STEPS,
        "overlapped": {**LOCAL_STEPS, "overlap_meetings": True},
        "overlapped momentum": {"local_steps": 16, "overlap_meetings": True},
    }.items()
}
HALVED = {**BASE, "name": "fp16", "optimizer": "nesterov", "options": {"compression": "fp16"}}
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
    """Number of ranks -> name of a case -> arrays of rank 0; mpirun is started once for each number."""
    known = {}

    def train(ranks):
        if ranks not in known:
            folder = tmp_path_factory.mktemp(f"ranks-{ranks}")
            cases = _equal_cases(run_all, ranks)
            if ranks == 2:
                apart = [HALVED, HALVED_PARTS, *APART.values()]
                cases += [*apart, *map(by_mpi, apart), *DIFFERENT]
            (folder / "cases.json").write_text(json.dumps(cases))
            ended = mpirun(ranks, "-m", "tfmat_tests.backends.horovod_rank", str(folder))
            assert ended.returncode == 0, ended.stderr
            names = [c["name"] for c in cases]
            names += [f"exchange-{backend}" for backend in BACKENDS] if ranks == 2 else []
            known[ranks] = {name: np.load(folder / f"{name}.npz") for name in names}
        return known[ranks]

    return train


@pytest.mark.parametrize("ranks", RANKS)
def test_ranks_end_with_one_state(ranks, trained, run_all):
    """All cases, in one mpirun: `check_replicas` at the end of each compares the states of all ranks bit by bit."""
    assert {case["name"] for case in _equal_cases(run_all, ranks)} <= set(trained(ranks))


@pytest.mark.parametrize("networks", [False, True], ids=["baseline", "other networks"])
@pytest.mark.parametrize("ranks", RANKS)
def test_weights_of_a_plain_keras_loop(ranks, networks, expected, trained, run_all):
    # Apart, since tracing all of Keras's loops takes minutes where processors are busy.
    for case in _equal_cases(run_all, ranks):
        if ("model" in case) == networks:
            _check(trained(ranks)[case["name"]], case, expected)


@pytest.mark.parametrize("name", ["fp16", "fp16 parts"])
@SUFFIXES
def test_halved_gradients_are_near(by, name, expected, trained):
    """fp16 has 11 bits: the weights' change over 20 steps of momentum is right to about 1e-3."""
    found = trained(2)[f"{name}{by}"]
    set_precision("float32")
    start = make_model().get_weights()
    reference = expected(HALVED)
    errors = [
        relative_error(found[f"arr_{i}"] - begin, weight - begin)
        for i, (weight, begin) in enumerate(zip(reference, start, strict=True))
    ]
    assert 1e-6 < max(errors) < 1e-2, errors


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["fp16", "bf16", "int8", "sign", "topk", "powersgd"])
def test_exchanges_over_the_wire(name, backend, trained):
    """Four of them one after the other, against NumPy; every rank has the same sums, as each has checked."""
    gradients, found = some_gradients(4, workers=2), trained(2)[f"exchange-{backend}"]
    exact = name in ("fp16", "bf16")
    reference = NumpyExchange(name, SHAPES[:0] if exact else SHAPES, workers=2)
    for step, own in enumerate(gradients):
        for i, expected in enumerate(reference.sum(own)):
            # Each number is rounded once, and an fp16 sum once more.
            most = {"fp16": 2**-10, "bf16": 2**-8}.get(name, 1e-9)
            bound = most * sum(abs(worker[i]) for worker in own) + 1e-7 * exact + 1e-9
            assert (abs(found[f"{name}-{i}"][step] - expected) <= bound).all(), (step, i)


@SUFFIXES
def test_compressed_training_is_that_of_the_paper(by, trained):
    """Twenty steps over two ranks, a batch among them of which the second rank has no example."""
    plain, sums = PlainWorkers(), []
    for step in range(STEPS):
        gradients, total = plain.gradients(step, alone=False)
        totals = plain.exchange.sum(gradients)
        for worker in range(2):
            plain.apply(worker, totals)
        sums.append(total)
    found = trained(2)[f"powersgd{by}"]
    for i, weight in enumerate(plain.models[0].get_weights()):
        assert relative_error(found[f"arr_{i}"], weight) < 1e-9, i
    np.testing.assert_allclose(found["sums"][:, 0], sums, rtol=1e-9)


@SUFFIXES
def test_local_steps_are_those_of_workers_that_are_alone(by, trained):
    """They meet after every fourth step of a call, and at its end: calls are of 5, 9 and 6 steps."""
    plain, sums = PlainWorkers(), []
    anchors = plain.models[0].get_weights()
    for step in range(STEPS):
        sums.append(plain.step_alone(step))
        if step + 1 in (4, 5, 9, 13, 14, 18, 20):
            mean = plain.mean(plain.moved([anchors, anchors]))
            anchors = [anchor - 0.7 * m for anchor, m in zip(anchors, mean, strict=True)]
            for model in plain.models:
                model.set_weights(anchors)
    _check_alone(trained(2)[f"local steps{by}"], anchors, sums)


@SUFFIXES
@pytest.mark.parametrize("name", ["overlapped", "overlapped momentum"])
def test_overlapped_meetings_bring_the_round_before(by, name, trained):
    """By flat vectors in NumPy; after the second call and after the last one, as after an epoch, the workers settle.

    With w what a worker has and m the mean over the workers, both at the end of the round before: each adds 0.7 (m - w)
    to what it has now. On top comes what Nesterov's step goes beyond the mean's own way d: d - rate (d + momentum v).
    """
    several = name == "overlapped"
    rate, momentum = (0.7, 0.0) if several else (0.5, 0.8)
    plain, sums = PlainWorkers(), []
    begun = plain.models[0].get_weights()
    zero = [0.0 * weight for weight in begun]
    velocity, beyond, under_way = zero, zero, None

    def combined(function, *lists):
        return [function(*each) for each in zip(*lists, strict=True)]

    for step in range(STEPS):
        sums.append(plain.step_alone(step))
        if step + 1 not in ((4, 5, 9, 13, 14, 18, 20) if several else (5, 14, 20)):
            continue
        at = [model.get_weights() for model in plain.models]
        way, further = zero, zero
        if under_way:
            way = plain.mean(under_way, compressed=several)
            velocity = combined(lambda v, d: momentum * v + d, velocity, way)
            further = combined(lambda d, v: d - rate * (d + momentum * v), way, velocity)
            own = [combined(lambda u, d: 0.7 * (u - d), each, way) for each in under_way]
        else:
            own = [zero, zero]
        begun = combined(lambda b, d, s: b - d + s, begun, way, beyond)
        under_way = plain.moved([begun, begun])
        at = [
            combined(lambda w, o, s: w + o + s, w, o, further) for w, o in zip(at, own, strict=True)
        ]
        beyond = further
        if step + 1 in (14, 20):
            way = plain.mean(under_way, compressed=several)
            velocity = combined(lambda v, d: momentum * v + d, velocity, way)
            begun = combined(
                lambda b, d, v, s: b - rate * (d + momentum * v) + s, begun, way, velocity, beyond
            )
            at, beyond, under_way = [begun, begun], zero, None
        for model, weights in zip(plain.models, at, strict=True):
            model.set_weights(weights)
    _check_alone(trained(2)[f"{name}{by}"], begun, sums)


def _check_alone(found, weights, sums):
    for i, weight in enumerate(weights):
        assert relative_error(found[f"arr_{i}"], weight) < 1e-9, i
    np.testing.assert_allclose(found["sums"][:, 0], sums, rtol=1e-9)


def test_dropout_and_local_statistics(trained):
    """Outside the contract on equality: ranks draw for themselves, and still end with one state."""
    losses = {name: found["sums"][:, 0] for name, found in trained(2).items() if "sums" in found}
    assert not np.array_equal(losses["dropout"], losses[f"adam-float32-{NUM_EXAMPLES}"])
    np.testing.assert_array_equal(
        losses["dropout"], losses["dropout again"]
    )  # a function of seed, step and rank
    assert all(np.isfinite(losses[case["name"]]).all() for case in DIFFERENT)
