"""The page on a study: its words on the checked-in one, its verdict and files, and what a user's mistake gets."""

import dataclasses
import shutil

import numpy as np
import pandas as pd
import pytest
from matplotlib.image import imread

from tfmat.cli.main import main
from tfmat.launch.machine import Machine
from tfmat.launch.machine import Session as Start
from tfmat.scaling.model import Analysis
from tfmat.scaling.report import judge, scaling_page, write_scaling_report
from tfmat.scaling.study import (
    FILE,
    Assumptions,
    LeftOut,
    Measurements,
    Session,
    write_measurements,
)
from tfmat_tests.report.html_check import checked
from tfmat_tests.scaling import golden
from tfmat_tests.scaling.synthetic import Truth, study


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """A small study and its page."""
    folder = tmp_path_factory.mktemp("study")
    write_measurements(
        folder, study(Truth(), workers=(2, 4), batches=(75,), rounds=2, trained=True)
    )
    write_scaling_report(folder, Assumptions(price_per_hour=2.0))
    return folder


def test_the_golden_study_has_the_golden_page():
    """Words exactly; numbers to 3 %, since sums are rounded otherwise on other processors."""
    numbers, words = golden.numbers_and_words(golden.golden_text())
    expected_numbers, expected_words = golden.numbers_and_words(golden.TEXT.read_text("utf-8"))
    assert words == expected_words
    np.testing.assert_allclose(numbers, expected_numbers, rtol=0.03, atol=0.011)


@pytest.mark.pictures
def test_the_page_is_whole_and_says_what_it_must(workdir):
    page = (workdir / "scaling_report.html").read_text("utf-8")
    checked(page)
    text = golden.text_of(page)
    assert "Parallelism pays only in part with horovod mpi, 75 a worker: 4 workers train" in text
    assert "These measurements are labelled: synthetic" in text
    assert "made by tfmat_tests/scaling/synthetic.py" in text
    assert "price_per_hour 2" in text
    assert len(page) < 4e6


@pytest.mark.pictures
def test_every_picture_is_also_a_png_and_an_svg(workdir):
    page = (workdir / "scaling_report.html").read_text("utf-8")
    drawn = {path.stem for path in (workdir / "figures").glob("*.png")}
    assert len(drawn) == page.count('<svg class="plot"') == 15
    assert {path.stem for path in (workdir / "figures").glob("*.svg")} == drawn
    for path in (workdir / "figures").glob("*.png"):
        assert imread(path)[:, :, :3].std() > 0.02, f"{path} is blank"


def test_the_tables_beside_it_hold_what_was_measured(workdir):
    points = pd.read_csv(workdir / "scaling_points.csv")
    assert len(points) == 6
    two = points[(points.workers == 2) & (points.scaling == "weak")].iloc[0]
    np.testing.assert_allclose(two.efficiency, two.speedup / 2)
    np.testing.assert_allclose(two.curves_per_second, 150 / two.step_seconds, rtol=0.02)
    names = ("forward_backward", "optimizer", "waiting", "moving", "host", "rest")
    parts = [two[f"{name}_seconds"] for name in names]
    np.testing.assert_allclose(sum(parts), two.step_seconds, rtol=0.02)
    assert len(pd.read_csv(workdir / "scaling_allreduces.csv")) == 36


def test_the_command_finds_a_study_and_shows_what_was_said_as_text(workdir, tmp_path, capsys):
    folder = tmp_path / "study"
    shutil.copytree(workdir, folder)
    evil = "<script>alert('x')</script>"
    whole = study(Truth(), workers=(2,), batches=(75,), rounds=2)
    sessions = tuple(
        dataclasses.replace(each, content=Start(command=evil, machine=Machine(name=evil)))
        for each in whole.sessions
    )
    failed = LeftOut(evil, evil, 0, log=evil)
    changed = dataclasses.replace(whole, label=evil, sessions=sessions, left_out=(failed,))
    write_measurements(folder, changed)
    stale = folder / "figures" / "scaling_of_yesterday.png"
    stale.write_bytes(b"")
    assert main(["report", f"--workdir={folder}", "--watts_a_worker=100"]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{folder / 'scaling_report.html'}\n"
    page = (folder / "scaling_report.html").read_text("utf-8")
    assert evil not in page
    assert " ".join(checked(page).texts).count(evil) >= 7
    text = golden.text_of(page)
    assert "watts_a_worker 100" in text
    assert "price_per_hour 2" in text  # kept from before
    assert not stale.exists()


@pytest.mark.parametrize(
    ("flag", "content", "message"),
    [
        ("--price_per_hour=-1", None, "price_per_hour is -1"),
        ("--baseline_hardware=elsewhere", None, "no baseline was measured on 'elsewhere'"),
        ("--watts_a_worker=5", '{"kind": "no"}', "line 1: format none"),
    ],
)
def test_a_mistake_gets_one_line_and_changes_nothing(tmp_path, refused, flag, content, message):
    write_measurements(tmp_path, study(Truth(), workers=(2,), batches=(75,), rounds=1))
    if content is not None:
        (tmp_path / FILE).write_text(content)
    assert message in refused("report", f"--workdir={tmp_path}", flag)


def test_a_flag_of_studies_is_refused_for_a_run(tmp_path, refused):
    said = refused("report", f"--workdir={tmp_path}", "--price_per_hour=1")
    assert "--price_per_hour is for a scaling study" in said


def test_an_empty_study_has_a_page_that_says_so(tmp_path):
    write_measurements(tmp_path, Measurements())
    text = golden.text_of(write_scaling_report(tmp_path)[0].read_text("utf-8"))
    assert "Nothing can be said of scaling yet" in text


@pytest.mark.parametrize(
    ("factor", "rounds", "expected"),
    [(1.0, 2, "Parallelism pays"), (4.0, 2, "No verdict: repet"), (1.0, 1, "No verdict yet")],
)
def test_a_verdict_needs_repetitions_that_agree(factor, rounds, expected):
    whole = study(Truth(), workers=(2,), batches=(150,), rounds=rounds)
    first = next(e for e in whole.repetitions if e.point.workers == 2 and e.point.scaling == "weak")
    slow = dataclasses.replace(first, seconds=factor * first.seconds)
    repetitions = tuple(slow if each is first else each for each in whole.repetitions)
    found = Analysis(dataclasses.replace(whole, repetitions=repetitions), Assumptions())
    assert judge(found).text.startswith(expected)
    assert ("By the model" in scaling_page(found, {}, "study")) == (expected == "Parallelism pays")


def _slower(whole: Measurements, factor: float, batch: int) -> Measurements:
    """The same with slower steps of several workers at one batch a worker."""
    repetitions = tuple(
        dataclasses.replace(each, seconds=factor * each.seconds)
        if each.point.workers > 1 and each.point.batch_a_worker == batch
        else each
        for each in whole.repetitions
    )
    return dataclasses.replace(whole, repetitions=repetitions)


def test_a_model_that_misses_what_was_measured_predicts_nothing():
    whole = study(Truth(), workers=(2, 4), batches=(75, 150), rounds=2, trained=True)
    slow = Analysis(_slower(whole, 3.0, 75), Assumptions())
    worst = max(abs(check.error) for check in slow.checks)
    assert worst > 0.2
    for found, misses in ((Analysis(whole, Assumptions()), False), (slow, True)):
        text = golden.text_of(scaling_page(found, {}, "study"))
        said = (
            f"The model misses measured steps by up to {100 * worst:.0f} %, so nothing is predicted"
        )
        assert (said in text) == misses
        for words in (
            "By the model",
            "is done soonest by",
            "workers keep it, as predicted",
            "Predicted",
            "predictions beyond",
        ):
            assert (words in text) != misses, words


def test_a_verdict_names_the_way_that_pays_among_others():
    whole = study(Truth(), workers=(2, 4), batches=(75, 600), rounds=2)
    assert judge(Analysis(whole, Assumptions())).text.startswith("Parallelism pays")
    slow = judge(Analysis(_slower(whole, 4.0, 75), Assumptions()))
    assert slow.text.startswith("Parallelism does not pay with horovod mpi, 75 a worker: 4 workers")
    assert slow.text.endswith("Other series: 1 × pays, 1 × pays in part.")


def test_a_verdict_says_that_a_baseline_is_of_another_machine():
    """Two machines with processors of one name, of which the second is twice as slow: half of the speed-up is lost."""
    whole = study(Truth(), workers=(2, 4), batches=(75, 600), rounds=2)
    processor = whole.repetitions[0].point.hardware
    sessions = tuple(
        Session(number, Start(machine=Machine(name=name, processor=processor)))
        for number, name in enumerate(("one", "two"))
    )
    moved = tuple(
        dataclasses.replace(each, session=1, seconds=2 * each.seconds)
        if each.point.workers > 1
        else each
        for each in whole.repetitions
    )
    same = dataclasses.replace(whole, sessions=sessions)
    assert "machines" not in judge(Analysis(same, Assumptions())).text
    mixed = dataclasses.replace(same, repetitions=moved)
    assert "are of several machines (one, two)" in judge(Analysis(mixed, Assumptions())).text
