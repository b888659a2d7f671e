"""Campaigns of a real program, a bar of two straight lines whose curve is known in closed form."""

import asyncio
import contextlib
import os
import pathlib
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

from tfmat.errors import InputError
from tfmat.specimens.campaign import draw, read_description, run_campaign, run_program, try_once
from tfmat_tests.specimens.bar import END, LENGTH, MODULUS, trouble


def run(folder, count=6, processes=2, **options):
    description = read_description(folder)
    drawn = draw(description, 0, count)
    store = folder.parent / "store"
    return run_campaign(description, store, range(count), drawn, processes=processes, **options)


def lines(folder, name):
    """The runs that the solver noted in its file `started` or `ended`."""
    path = folder.parent / "store" / name
    return path.read_text().splitlines() if path.exists() else []


def stress_of(strain, drawn):
    yields, slope = drawn
    elastic = np.minimum(strain, yields / MODULUS)
    return (MODULUS - slope) * elastic + slope * strain


def test_curves_are_those_of_the_program_and_nothing_runs_twice(bar):
    shown = []
    campaign = run(bar, progress=lambda *counts: shown.append(counts))
    assert campaign.new == 6 and campaign.complete == [*range(6)] and shown[-1] == (6, 0, 6)
    for drawn, outcome in zip(campaign.drawn, campaign.outcomes, strict=True):
        assert len(outcome.strain) == 41 and outcome.strain[-1] == pytest.approx(END / LENGTH)
        np.testing.assert_allclose(outcome.stress, stress_of(outcome.strain, drawn), rtol=1e-12)
    more = run(bar, 9)
    assert more.new == 3 and np.array_equal(more.drawn[:6], campaign.drawn)
    assert len(lines(bar, "started")) == len(set(lines(bar, "started"))) == 9
    # What a run is given decides, not when it was asked for: another limit of time is the same run, a file is not.
    description = (bar / "simulator.toml").read_text()
    (bar / "simulator.toml").write_text(description.replace("time_limit = 20", "time_limit = 30"))
    assert run(bar, 9).new == 0
    (bar / "solve.sh").write_text((bar / "solve.sh").read_text() + "\n")
    assert run(bar, 2).new == 2


def test_values_fill_their_ranges_evenly(bar):
    drawn = draw(read_description(bar), 3, 256)
    assert drawn[:, 0].min() >= 100 and drawn[:, 0].max() <= 300
    # Sobol points: each of 16 equal parts of a range holds 16 of 256, on the parameter's scale.
    for share in ((drawn[:, 0] - 100) / 200, np.log(drawn[:, 1] / 100) / np.log(100)):
        assert np.bincount((share * 16).astype(int), minlength=16).tolist() == [16] * 16
    assert not np.array_equal(draw(read_description(bar), 4, 256), drawn)


@pytest.mark.parametrize(
    ("does", "failure"),
    [
        ("exit 3", "exit status 3"),
        ("kill -9 $$", "ended by SIGKILL"),
        ("said=nothing", "did not print 'all done'"),
        ("{ echo 'no licence' >&2; exit 1; }", "exit status 1"),
    ],
)
def test_what_fails_is_kept_with_its_reason(bar, does, failure):
    mended = trouble(bar.parent / "store", f"if [ ${{slope%.*}} -ge 1000 ]; then {does}; fi")
    campaign = run(bar, 8)
    expected = [i for i in range(8) if campaign.drawn[i, 1] > 1000]
    assert 0 < len(expected) < 8 and campaign.failed == expected
    assert {campaign.outcomes[i].failure for i in expected} == {failure}
    if failure == "exit status 1":
        assert "no licence" in campaign.outcomes[expected[0]].log
    mended.unlink()
    again = run(bar, 8)
    assert again.new == 0 and again.failed == expected
    again = run(bar, 8, retry=True)
    assert again.new == len(expected) and again.failed == []


def test_what_fails_at_random_is_tried_again_where_that_is_asked_for(bar):
    # A licence that every second start is denied.
    trouble(bar.parent / "store", "if [ $(($(wc -l < ../../started) % 2)) = 1 ]; then exit 1; fi")
    text = (bar / "simulator.toml").read_text()
    (bar / "simulator.toml").write_text("retries = 1\n" + text)
    assert run(bar, 5, processes=1).failed == []
    assert len(lines(bar, "started")) == 10 and len(lines(bar, "ended")) == 5


def test_a_hanging_solver_is_ended_with_all_that_it_started(bar):
    trouble(bar.parent / "store", "sleep 987.6")
    text = (bar / "simulator.toml").read_text().replace("time_limit = 20", "time_limit = 0.5")
    (bar / "simulator.toml").write_text(text)
    campaign = run(bar, 2)
    assert [one.failure for one in campaign.outcomes] == ["not finished after 0.5 s"] * 2
    hanging = [
        one for one in psutil.process_iter(["cmdline"]) if "987.6" in (one.info["cmdline"] or [])
    ]
    # A process that was killed is there until it is its turn once more.
    assert not psutil.wait_procs(hanging, timeout=30)[1]


def test_a_disk_that_takes_no_more_ends_the_campaign_in_one_line(bar):
    """The kernel refuses to write more than ten bytes into a file, as it does on a full disk."""
    run(bar, 4)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(InputError, match=r"cannot write .*File too large"):
            run(bar, 6)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os.listdir(bar.parent / "store" / "running") == []
    assert run(bar, 6).new == 2


def test_a_damaged_curve_is_named(bar):
    run(bar, 4)
    stored = min((bar.parent / "store" / "runs").glob("*.npz"))
    for damage in (b"", stored.read_bytes()[:200]):
        stored.write_bytes(damage)
        with pytest.raises(InputError, match=rf"{stored.name} is damaged .*; delete it"):
            run(bar, 4)
    stored.unlink()
    assert run(bar, 4).new == 1


def test_the_first_runs_all_fail(bar):
    trouble(bar.parent / "store", "exit 7")
    with pytest.raises(InputError, match="first 20 runs all failed, most with: exit status 7"):
        run(bar, 64)
    assert 20 <= len(lines(bar, "started")) < 30
    with pytest.raises(InputError, match="middle of the ranges has no curve: exit status 7"):
        try_once(read_description(bar), bar.parent / "store")


RUNS = 60

# Forks a process for each line that it reads, which imports nothing anew, and says its number; waits for its end.
CAMPAIGNS = f"""
import os, pathlib, signal, sys
from tfmat_tests.specimens.campaign_test import run
for line in sys.stdin:
    process = os.fork()
    if not process:
        try:
            run(pathlib.Path(sys.argv[1]), {RUNS})
        finally:
            os._exit(0)
    print(process, flush=True)
    os.waitpid(process, 0)
    print("ended", flush=True)
"""


def test_killed_again_and_again_nothing_is_lost_or_repeated(bar):
    store = bar.parent / "store"
    random, kills = np.random.default_rng(0), 10

    def stored():
        return len(list((store / "runs").glob("*.npz")))

    with subprocess.Popen(
        [sys.executable, "-c", CAMPAIGNS, str(bar)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        bufsize=1,
    ) as campaigns:
        # As at the end of a job: all of its processes are told, and the solver's may be the first.
        trouble(store, "kill -TERM $$")
        campaigns.stdin.write("again\n")
        process = int(campaigns.stdout.readline())
        while not lines(bar, "started"):
            time.sleep(0.005)
        time.sleep(0.1)
        os.kill(process, signal.SIGINT)
        assert campaigns.stdout.readline() == "ended\n"
        assert os.listdir(store / "runs") == []
        # Four or five runs end before each kill, however late it comes, and the next ones wait for it. Two of those
        # that end may be the last campaign's, which a busy machine kills later.
        waits = "while [ $(wc -l < ../../ended) -ge $(cat ../../allowed) ]; do sleep 0.01; done"
        (store / "ended").touch()
        trouble(store, f"{waits}; sleep 0.02")
        for kill in range(kills):
            before = stored()
            (store / "allowed").write_text(str(len(lines(bar, "ended")) + 4))
            campaigns.stdin.write("again\n")
            process = int(campaigns.stdout.readline())
            while stored() < before + 2:
                time.sleep(0.005)
            time.sleep(random.uniform(0, 0.05))
            os.kill(process, signal.SIGKILL if kill % 2 else signal.SIGINT)
            assert campaigns.stdout.readline() == "ended\n"
        campaigns.stdin.close()
    ended_before = stored()
    assert 20 <= ended_before < RUNS
    (store / "trouble").unlink()
    campaign = run(bar, RUNS)
    assert campaign.complete == [*range(RUNS)] and campaign.new == RUNS - ended_before
    for drawn, outcome in zip(campaign.drawn, campaign.outcomes, strict=True):
        np.testing.assert_allclose(outcome.stress, stress_of(outcome.strain, drawn), rtol=1e-12)
    # Two at once: a kill costs at most the two that were running.
    assert len(lines(bar, "started")) <= RUNS + 2 * (kills + 1)
    assert os.listdir(store / "running") == [] and pathlib.Path(store / "runs").is_dir()


def test_a_program_is_cancelled_at_any_time_and_nothing_is_said(caplog):
    async def cancelled_after(seconds):
        task = asyncio.create_task(run_program("true", time_limit=60))
        await asyncio.sleep(seconds)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            assert await task == 0
        return task.cancelled()

    before = psutil.Process().children()
    # Two processes start and end in 2 to 5 ms, and on a busy machine a short sleep lasts as long.
    ends = [asyncio.run(cancelled_after(seconds)) for seconds in np.geomspace(1e-5, 0.01, 200)]
    assert sum(ends) >= 20 and not caplog.records
    assert psutil.Process().children() == before
