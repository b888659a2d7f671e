"""Whole searches with trials that sleep: what they find, and what kills and signals cost."""

import collections
import os
import pathlib
import re
import signal
import urllib.error
import urllib.request

import pytest

from tfmat_tests.tuning.synthetic_trial import known_function


def test_a_search_ends_does_nothing_again_and_can_be_extended(search):
    done = search.finish(search.start())
    assert done.status == 0, done.err
    search.check(6)
    state = search.state()
    for trial in state.trials.values():
        # The last epoch is the best of a synthetic trial.
        expected = known_function(trial.values) * (1 + 2.718281828459045**-4)
        assert trial.value == pytest.approx(expected, rel=1e-9)
    assert state.best().value == min(trial.value for trial in state.trials.values())
    # Trials of one's own: so is what trains with the best values.
    command = rf"synthetic_trial.py {search.workdir}/best.py WORKDIR 0.15\b"
    written = [(search.workdir / name).read_text() for name in ("best.py", "tuning.html")]
    assert all(re.search(command, said) for said in (done.err, *written))
    assert len((search.workdir / "trials.csv").read_text().splitlines()) == 7

    before = {path: path.stat().st_mtime_ns for path in files(search.workdir)}
    again = search.finish(search.start())
    assert again.status == 0 and "is finished" in again.err
    assert {path: path.stat().st_mtime_ns for path in files(search.workdir)} == before

    more = search.finish(search.start("--max_trials=8"))
    assert more.status == 0, more.err
    search.check(8)
    assert list(search.state().trials)[:6] == list(state.trials)


def test_served_page_follows_a_search_and_answers_its_user_alone(search):
    with search.held():
        program = search.start()
        program.wait_for(lambda: search.running() == 2)
        page = search.tune("--status", "--serve", "--nobrowser")
        page.wait_for(lambda: "Ctrl-C" in page.printed())
        address = re.search(r"http://localhost:\d+/\S+", page.printed())[0]
        for url, headers in (
            (address + "x", {}),
            (address, {"Origin": "http://evil.example"}),
            (address, {"Host": "evil.example:80"}),
        ):
            with pytest.raises(urllib.error.HTTPError, match="40[34]"):
                urllib.request.urlopen(urllib.request.Request(url, headers=headers))
        with urllib.request.urlopen(address) as early:
            assert "going on" in early.read().decode() and early.headers["Refresh"]
    assert search.finish(program).status == 0
    with urllib.request.urlopen(address) as last:
        text = last.read().decode()
        assert last.headers["Refresh"] is None
    assert "finished" in text and all(trial in text for trial in search.state().trials)
    page.kill(signal.SIGINT)
    ended = page.wait()
    assert ended.status == 0 and ended.err == ""


def files(folder: pathlib.Path) -> list[pathlib.Path]:
    """All but those of the lock, which every look at the search takes."""
    return [p for p in folder.rglob("*") if p.is_file() and p.parent.name != "lock"]


def test_killed_worker_is_started_again_and_its_trial_goes_on(search):
    with search.held():
        program = search.start(epoch=0.4)
        program.wait_for(lambda: search.running() == 2)
        os.kill(search.worker_pid("0"), signal.SIGKILL)
    ended = search.finish(program)
    assert ended.status == 0, ended.err
    assert "worker 0 ended with status -9" in ended.err
    search.check(6, repeated=1)
    assert sum(trial.lost for trial in search.state().trials.values()) == 1


def test_killed_supervisor_leaves_nobody_and_costs_no_trial(search):
    program = search.start(epoch=0.4)
    program.wait_for(lambda: search.running() == 2 and len(search.state().end_order) > 0)
    program.kill()
    program.wait()
    search.check_nobody_left()
    before = search.state()
    values = {trial_id: before.trials[trial_id].value for trial_id in before.end_order}
    ended = search.finish(search.start())
    assert ended.status == 0, ended.err
    search.check(6, repeated=2)
    assert {i: search.state().trials[i].value for i in values} == values


def test_signal_saves_every_trial_and_the_same_command_goes_on(search):
    with search.held():
        program = search.start()
        program.wait_for(lambda: search.running() == 2)
        program.kill(signal.SIGTERM)
        ended = search.finish(program)
    assert ended.status == 75 and "start the same command again" in ended.err
    search.check_nobody_left()
    assert {trial.state for trial in search.state().trials.values()} <= {"done", "waiting"}
    assert search.finish(search.start()).status == 0
    search.check(6, repeated=2)
    assert all(trial.lost == 0 for trial in search.state().trials.values())


def test_trials_that_fail_end_the_search_in_order(make_search):
    search = make_search("failing")
    fails = "--config.optimizer.clip_norm=0.123"
    ended = search.finish(search.start(fails, num_workers=1))
    assert ended.status == 2
    assert "3 trials in a row failed" in ended.err and "this trial always fails" in ended.err
    assert "Traceback" in (search.workdir / "trials" / "0000" / "log.txt").read_text()
    search.check(3)
    again = search.finish(search.start(fails, num_workers=1))
    assert again.status == 2 and "3 trials in a row failed" in again.err
    search.check(3)


def test_a_living_workers_name_is_refused(search):
    with search.held():
        program = search.start()
        program.wait_for(lambda: search.running() == 2)
        second = search.finish(search.start())
    assert second.status == 2 and "of this search runs already" in second.err
    assert search.finish(program).status == 0
    search.check(6)


def test_hyperband_goes_on_where_the_lower_rung_stopped(make_search):
    search = make_search("hyperband", SEARCH_ALGORITHM="hyperband")
    ended = search.finish(search.start(epoch=0.2))
    assert ended.status == 0, ended.err
    state = search.state()
    promoted = [trial for trial in state.trials.values() if trial.folder != trial.trial_id]
    assert promoted and all(trial.fraction == 1 for trial in promoted)
    search.check(len(state.trials), repeated=len(promoted))


def test_hopeless_trials_are_stopped_and_counted(make_search):
    search = make_search("hopeless", SEARCH_STOPS_HOPELESS="yes")
    ended = search.finish(search.start("--max_trials=14", epoch=0.25))
    assert ended.status == 0, ended.err
    stopped = search.state().with_state("stopped")
    assert stopped
    done = search.state().with_state("done")
    assert all(trial.value > min(other.value for other in done) for trial in stopped)
    search.check(14)


@pytest.mark.large
def test_two_machines_share_a_search(search):
    """Two supervisors, each with a worker of its own name, as the elements of a job array."""
    programs = [
        search.start("--first_worker=0", num_workers=1),
        search.start("--first_worker=1", num_workers=1),
    ]
    assert [search.finish(program).status for program in programs] == [0, 0]
    search.check(6)
    assert {trial.worker for trial in search.state().trials.values()} == {"0", "1"}


@pytest.mark.large
@pytest.mark.parametrize(("algorithm", "trials"), [("random", 64), ("hyperband", None)])
def test_eight_workers_are_busy(make_search, algorithm, trials):
    """All work at the same time, and none has less than half of its share; counted, as a busy host has no times."""
    search = make_search(algorithm, SEARCH_ALGORITHM=algorithm, SEARCH_ITERATIONS="2")
    flags = [f"--max_trials={trials}"] if trials else ["--config.train_for=27epochs"]
    assert search.finish(search.start(*flags, num_workers=8, epoch=0.5)).status == 0
    runs = [run for trial in search.state().trials.values() for run in trial.intervals]
    share = collections.Counter(worker for worker, _, _ in runs)
    assert len(share) == 8 and min(share.values()) >= len(runs) / 16
    assert max(sum(start <= at < end for _, start, end in runs) for _, at, _ in runs) == 8
