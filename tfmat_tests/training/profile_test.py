"""Where the time goes: seconds that were put into a known place are found there, each of them once."""

import gzip
import json

import numpy as np
import pytest

from tfmat.backends.base import PARTS
from tfmat_tests.mpi import mpirun
from tfmat_tests.training.profile_rank import CALL

MODULE = "tfmat_tests.training.profile_rank"
# Long beside what else a busy machine does in a step, which the test would take for a part of it.
DELAY, STEPS = 0.4, 15
POINTS = 0.05  # of a step's time
UNDISTURBED = ({"name": "without", "profile": False, "steps": 100}, {"name": "long", "steps": 100})


def run(folder, backend, cases, ranks=1):
    """(profiles by case, what each rank says by case)."""
    folder.mkdir()
    settings = {"folder": str(folder), "backend": backend, "cases": cases}
    # Two processors alone: a batch then goes through in two pieces side by side.
    text = json.dumps({**settings, "processors": 1 if ranks > 1 else 2})
    done = mpirun(ranks if ranks > 1 else 0, "-m", MODULE, text)
    assert done.returncode == 0, done.stderr
    profiles = {
        case["name"]: json.loads((folder / case["name"] / "profile.json").read_text())
        for case in cases
    }
    answers = [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(ranks)]
    return profiles, answers, folder, done.stderr


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    return run(
        tmp_path_factory.mktemp("profile") / "two",
        "horovod",
        [
            *UNDISTURBED,
            {"name": "late", "slow": "loss", "seconds": DELAY, "rank": 1, "steps": STEPS},
            {
                "name": "callback",
                "slow": "callback",
                "seconds": CALL * DELAY,
                "rank": 1,
                "steps": STEPS,
            },
            {"name": "traced", "trace_steps": 10, "model": {"batch_normalization": "synchronized"}},
        ],
        ranks=2,
    )


@pytest.fixture(scope="module")
def one_process(tmp_path_factory):
    return run(
        tmp_path_factory.mktemp("profile") / "one",
        "single",
        [
            *UNDISTURBED,
            {"name": "slow", "slow": "dataset", "seconds": DELAY / 2, "steps": STEPS},
            {"name": "late", "slow": "loss", "seconds": DELAY, "steps": STEPS},
        ],
    )


def shares(profile, answers, name):
    """Of each rank, the means of its parts as shares of a step by the clock of the test."""
    return [
        {part: rank["use"][part] / answer[name]["step_seconds"] for part in PARTS}
        for rank, answer in zip(profile["ranks"], answers, strict=True)
    ]


def medians(profile, rank, answer):
    """As `shares`, of the medians: a machine that does other things too makes single steps slow."""
    parts = profile["ranks"][rank]["parts"]
    return {part: parts[part]["median"] / answer["step_seconds"] for part in PARTS}


def test_a_late_rank_computes_and_the_other_waits(two_ranks):
    """How much later rank 1 is, step by step, is known from the test's own clock in both ranks' losses."""
    profiles, answers, *_ = two_ranks
    times = [answer["late"] for answer in answers]
    step_seconds = times[1]["step_seconds"]
    assert times[1]["slept"] / step_seconds > 0.5  # or the machine is too busy to tell
    late = medians(profiles["late"], 1, times[1])
    own = profiles["long"]["ranks"][1]["parts"]["forward_backward"]["median"]
    assert abs(late["forward_backward"] - (own + times[1]["slept"]) / step_seconds) < POINTS
    assert late["waiting"] < POINTS

    other = medians(profiles["late"], 0, times[0])
    later = np.median(np.subtract(times[1]["woke"], times[0]["woke"]))
    assert later > 0.9 * DELAY
    # Medians again: where a busy machine also holds up the late rank after its sleep, the other rightly waits longer.
    assert abs(other["waiting"] - later / step_seconds) < POINTS


def test_a_slow_callback_of_one_rank_is_its_host_and_the_other_waits(two_ranks):
    """Rank 0 is through with its callbacks at once, and then waits to agree with rank 1, between two calls."""
    profiles, answers, *_ = two_ranks
    found = shares(profiles["callback"], answers, "callback")
    times = [answer["callback"] for answer in answers]
    assert times[1]["slept"] / CALL / times[1]["step_seconds"] > 0.5
    expected = [time["between_calls"] / time["step_seconds"] for time in times]
    assert abs(found[1]["host"] - expected[1]) < POINTS
    # It also waits in the graph, for the first step of a rank that begins its call later; none of it is its own host.
    assert found[0]["waiting"] > expected[0] - POINTS
    assert found[0]["host"] < 2 * POINTS


def test_slow_input_is_input(one_process):
    """Between two calls this process does nothing else that takes long."""
    profiles, answers, *_ = one_process
    (found,) = shares(profiles["slow"], answers, "slow")
    times = answers[0]["slow"]
    assert times["slept"] / times["step_seconds"] > 0.5
    assert found["input"] > times["slept"] / times["step_seconds"] - POINTS
    assert abs(found["input"] - times["between_calls"] / times["step_seconds"]) < POINTS


def test_a_slow_loss_is_computing_also_in_pieces(one_process):
    """Both pieces of a batch sleep, side by side or one after the other: computing ends with the last of them."""
    profiles, answers, *_ = one_process
    (found,) = shares(profiles["late"], answers, "late")
    delay = answers[0]["late"]["slept"] / answers[0]["late"]["step_seconds"]
    assert delay - POINTS < found["forward_backward"] < 1
    assert found["forward_backward"] > 1 - 2 * POINTS
    assert found["waiting"] < 0.01
    assert found["moving"] == 0


@pytest.mark.parametrize("name", ["late", "callback"])
def test_the_parts_add_up_to_the_time_of_a_step(two_ranks, name):
    profiles, answers, *_ = two_ranks
    for rank, parts in enumerate(shares(profiles[name], answers, name)):
        assert abs(sum(parts.values()) - 1) < 0.02, (rank, parts)


def test_the_parts_add_up_on_one_process(one_process):
    profiles, answers, *_ = one_process
    for name in ("slow", "late"):
        (parts,) = shares(profiles[name], answers, name)
        assert abs(sum(parts.values()) - 1) < 0.02


def test_measuring_changes_no_bit(two_ranks, one_process):
    for _, answers, *_ in (two_ranks, one_process):
        for answer in answers:
            assert answer["long"]["weights"] == answer["without"]["weights"]


def test_of_a_long_run_one_call_in_eight_is_measured(two_ranks, one_process):
    """Of 20 calls the first 8, without the very first, which compiles, and the 16th."""
    for profiles, *_ in (two_ranks, one_process):
        for rank in profiles["long"]["ranks"]:
            assert (rank["steps"], rank["timed_steps"]) == (100, 8 * CALL)
            parts = sum(rank["use"][part] for part in PARTS)
            assert parts == pytest.approx(rank["step_seconds"], rel=0.01)
    for rank in two_ranks[0]["traced"]["ranks"]:
        assert (rank["steps"], rank["timed_steps"]) == (30, 5 * CALL)


def test_without_the_split_there_is_still_what_the_host_sees(two_ranks):
    profile = two_ranks[0]["without"]
    assert not profile["split"]
    for rank in profile["ranks"]:
        assert "parts" not in rank
        assert {"input", "cpu_utilisation", "memory_bytes"} <= set(rank["use"])


def test_statistics_of_the_whole_batch_are_meetings_too(two_ranks):
    """Synchronised batch normalisation sums in the middle of the network: all parts stay what they are."""
    for rank in two_ranks[0]["traced"]["ranks"]:
        assert all(rank["use"][part] >= 0 for part in PARTS)
        assert rank["use"]["moving"] > 0


def test_the_table_is_printed_once(two_ranks):
    profiles, _, folder, errors = two_ranks
    split = sum(profile["split"] for profile in profiles.values())
    assert errors.count("where a step's time goes") == split == 4
    assert str(folder / "traced" / "trace.json.gz") in errors


def test_a_trace_holds_each_operation_once_a_step(two_ranks):
    folder = two_ranks[2] / "traced"
    events = json.loads(gzip.decompress((folder / "trace.json.gz").read_bytes()))["traceEvents"]
    names = [event["name"] for event in events if event["ph"] == "X"]
    gathers = {n for n in names if n.endswith(":GatherV2") and "gradient_tape" not in n}
    assert len(gathers) == 2  # features and labels
    assert {names.count(name) for name in gathers} == {10}
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in events if event["ph"] == "X")
    # Of each step one sum, and what the workers agree on between the calls.
    timeline = (folder / "horovod_timeline.json").read_text()
    assert timeline.count('"B", "name": "MPI_ALLREDUCE"') >= 10


def test_every_second_of_an_epoch_is_counted_once(tmp_path):
    import tfmat
    from tfmat_tests.backends.problem import DENSE, make_data, make_model

    features, labels = (array[:2000] for array in make_data())
    trainer = tfmat.Trainer(
        make_model(**DENSE), workdir=str(tmp_path), steps_per_call=4, quiet=True
    )
    trainer.fit(
        features,
        labels,
        global_batch_size=100,
        train_for="3epochs",
        validation=(features[:500], labels[:500]),
    )
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    before = 0.0
    for line in lines:
        use = line["use"]
        seconds = {name: value for name, value in use.items() if name.endswith("_seconds")}
        assert min(seconds.values()) >= 0
        # `seconds` of a line is rounded to milliseconds.
        assert abs(sum(seconds.values()) - (line["seconds"] - before)) < 0.01 + 0.02 * sum(
            seconds.values()
        )
        before = line["seconds"]
        assert 0 < use["cpu_utilisation"] < 1.5
        assert use["memory_bytes"] > 50e6
    assert lines[0]["use"]["first_call_seconds"] > 0
    assert lines[1]["use"]["first_call_seconds"] == 0
    assert lines[1]["use"]["checkpoint_seconds"] > 0  # the one after the first epoch
    assert all(line["use"]["validation_seconds"] > 0 for line in lines)
