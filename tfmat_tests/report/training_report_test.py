"""The report on a run: what it says, also where parts of the run are missing."""

import json
from typing import Any

import pytest

from tfmat.errors import InputError
from tfmat.report.pages import training_page, write_training_report
from tfmat.report.run_files import read_run
from tfmat_tests.report.html_check import checked
from tfmat_tests.report.run_folder import (
    COVERAGE_OF_ONE,
    NO_PICTURES,
    PARAMETERS,
    POSTERIOR,
    SESSION,
    STATUS,
    evaluation,
    write_example_tests,
    write_run,
    write_samples,
    yardstick,
)

pytestmark = pytest.mark.pictures

NO_EVALUATION: dict[str, Any] = {**NO_PICTURES, "content": {}}
ONLY_EXAMPLE: dict[str, Any] = {**NO_EVALUATION, "example": True}


def page_of(folder) -> tuple[str, str]:
    """The page, and its text in one line; nothing is written."""
    page = training_page(read_run(folder))
    return page, in_a_line(page)


def written_page_of(folder) -> tuple[str, str]:
    """The same, and the folder has the page and its pictures."""
    page = write_training_report(folder).read_text("utf-8")
    return page, in_a_line(page)


def in_a_line(page: str) -> str:
    return " ".join(" ".join(checked(page).texts).split())


def test_a_whole_run(tmp_path):
    content = evaluation(yardstick=yardstick(), coverage={"G0": COVERAGE_OF_ONE})
    page, text = written_page_of(write_run(tmp_path / "mine", content=content, with_floor=True))
    for words in (
        "mine: a network for the law hahn_tsai", "finished", "2.5 times the least that any method can reach",
        "400 noisy test curves", "G0 (MPa)", "a (MPa⁻³)", "2.50 ± 0.10", "95 %, best possible", "grey band",
        "maximum strain (–)", "noise over maximum stress (–)", "network: RMSE 2.50 % of maximum stress",
        "least squares: RMSE 0.500 % of maximum stress", "take the least squares values", "the example is made up",
        "4.0 times as many curves per second", "25,000",
        "hold the truth as often as they say, to within 1.0 percentage",
        "training time (s)", "epoch", "30,000 curves/s", "after epoch 4", "tfmat train --workdir=run", "AMD EPYC",
        "git revision 0123456789abcdef, with changes", "optimizer.schedule", "cosine", "global_batch_size",
    ):  # fmt: skip
        assert words in text, words
    # One quantity is the same for all curves: no picture of it.
    assert page.count("<svg") == 4 + 4 + 1 + 2 + 2
    names = {file.name for file in (tmp_path / "mine" / "figures").iterdir()}
    assert names == {
        "predicted_against_true.png", "kinds_of_curves.png", "example.png", "losses.png", "calibration.png",
    }  # fmt: skip


def test_a_posterior_has_its_section(tmp_path):
    content = evaluation(posterior=POSTERIOR)
    folder = write_run(tmp_path, **{**ONLY_EXAMPLE, "content": content})
    write_samples(folder)
    page, text = written_page_of(folder)
    for words in (
        "94.9 % of the time instead of 95 %", "7.125 ± 0.010 nats", "all (TARP)", "-2.1 %", "Pareto's k",
        "above 0.7 for 4.5 % of the curves", "median 0.537, 95 % of 100 curves below 0.600", "1.050",
        "share of curves below, minus even (%)",
    ):  # fmt: skip
        assert words in text, words
    assert page.count('id="corner') and page.count('id="posterior-tarp')
    for name in ("posterior", "example_posterior"):
        assert (folder / "figures" / f"{name}.png").stat().st_size > 1000
    # An evaluation of an older tfmat has no curves to draw.
    old = {
        key: POSTERIOR[key] for key in POSTERIOR if key not in ("tarp", "band", "z_score", "exact")
    }
    page, text = page_of(write_run(folder, **NO_PICTURES, content=evaluation(posterior=old)))
    assert 'id="posterior-tarp' not in page and "7.125" in text


@pytest.mark.parametrize("values", [[], [[1.0]], [[1.0, None]]])
def test_damaged_samples_of_the_example_are_left_out(tmp_path, values):
    write_samples(write_run(tmp_path, **ONLY_EXAMPLE))
    file = tmp_path / "example_posterior.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "values": values}))
    page, text = page_of(tmp_path)
    assert 'id="corner' not in page and "example_posterior.json" in text


def test_an_example_of_tests_has_a_panel_each(tmp_path):
    write_example_tests(write_run(tmp_path, **ONLY_EXAMPLE))
    page, text = written_page_of(tmp_path)
    for words in (
        "One example: tests of one material", "1_cyclic", "2_relaxation, 0.001 1/s, RMSE 0.50 % of max.", "time (s)",
        "On the example tests the network alone is 4.5 %", "by least squares; dashed: by the network",
        "For these tests take the least squares values",
    ):  # fmt: skip
        assert words in text, words
    assert page.count('id="example-0') and page.count('id="example-1')
    assert (tmp_path / "figures" / "example.png").stat().st_size > 1000


@pytest.mark.parametrize("tests", [[], [{"name": "a"}], [{"strain": [1.0]}]])
def test_a_damaged_example_of_tests_is_left_out(tmp_path, tests):
    write_example_tests(write_run(tmp_path, **ONLY_EXAMPLE), tests=tests)
    page, text = page_of(tmp_path)
    assert 'id="example-0' not in page and "example_tests.json is damaged" in text


def test_pictures_of_an_earlier_evaluation_go(tmp_path):
    write_run(tmp_path, **NO_PICTURES, content=evaluation(coverage={"G0": COVERAGE_OF_ONE}))
    write_training_report(tmp_path)
    assert (tmp_path / "figures" / "calibration.png").exists()
    write_run(tmp_path, **NO_PICTURES)
    write_training_report(tmp_path)
    assert not (tmp_path / "figures" / "calibration.png").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (NO_PICTURES, "left out because they take a minute or more for this law. Add them with: tfmat evaluate"),
        ({**NO_PICTURES, "content": evaluation(rmse_over_noise=None)}, "the test curves have no noise"),
        (NO_EVALUATION, "Measure it with: tfmat evaluate"),
        ({**NO_EVALUATION, "status": {**STATUS, "state": "interrupted"}}, "comes after the training"),
        ({**NO_EVALUATION, "status": {**STATUS, "state": "running"}}, "No epoch has been finished yet"),
        ({**NO_EVALUATION, "provenance": None}, "were not recorded"),
        ({"config": None, "status": None, "provenance": None, **NO_PICTURES}, "How accurate it is"),
        ({"config": None, "status": None, "model": None, "example": False}, "pictures come with: tfmat evaluate"),
        (
            {"model": {"parameters": PARAMETERS, "curves": None}, **NO_PICTURES, "content": evaluation(law=None)},
            "the curves were not simulated here",
        ),
    ],
)  # fmt: skip
def test_what_is_missing_is_said_in_words(tmp_path, arguments, words):
    _, text = page_of(write_run(tmp_path, **arguments))
    assert words in text


def test_damaged_files_are_as_good_as_missing(tmp_path):
    write_run(tmp_path, metrics=[])
    for name in (
        "provenance.json",
        "example.json",
        "example_picture.json",
        "model.json",
        "test_answers.npz",
    ):
        (tmp_path / name).write_text("{")
    _, text = page_of(tmp_path)
    assert "were not recorded" in text
    (tmp_path / "example_picture.json").write_text('{"strain": [1, 2]}')
    (tmp_path / "status.json").write_text("[]")
    written_page_of(tmp_path)


def test_a_run_that_went_on_elsewhere_tells_both_machines(tmp_path):
    machine = {**SESSION["machine"], "name": "cluster", "gpus": ["NVIDIA H200"]}
    sessions = [SESSION, SESSION, {**SESSION, "machine": machine, "git": None}]
    status = {**STATUS, "resumed_from_steps": [30, 60]}
    provenance = {"sessions": sessions}
    folder = write_run(tmp_path, content={}, example=False, provenance=provenance, status=status)
    _, text = page_of(folder)
    for words in (
        "command (1 of 3",
        "command (3 of 3",
        "cluster",
        "NVIDIA H200",
        "not run from a git checkout",
        "2 times",
    ):
        assert words in text
    assert text.count("lab: AMD EPYC") == 1


def test_every_name_of_a_user_s_files_is_shown_as_text(tmp_path):
    """The law, the parameters, the example, the command, the machine: wherever a name or a reason is read."""
    evil = "<script>alert('x')</script>"
    run = write_run(tmp_path / "<run>", content=evaluation(yardstick=yardstick()), metrics=[])
    for file in run.glob("*.json"):
        names = ("hahn_tsai", "example", "a", "all 120 steps done", "lab", "quadrature")
        content = file.read_text("utf-8")
        for name in names:
            content = content.replace(json.dumps(name), json.dumps(evil))
        file.write_text(content, "utf-8")
    page, text = page_of(run)
    assert evil not in page
    assert text.count(evil) >= 18
    for heading in ("How accurate", "Which curves", "One example", "classical", "How the training"):
        assert heading in text


def test_a_reference_is_read_under_both_of_its_names(tmp_path):
    found = yardstick()
    del found["bins"]["noise_to_signal"]  # one row of pictures tells enough
    texts = [
        page_of(write_run(tmp_path / "run", **NO_PICTURES, content=evaluation(**{key: found})))[1]
        for key in ("yardstick", "reference")
    ]
    assert "2.50 ± 0.10" in texts[0] and "4.0 times as many curves" in texts[0]
    assert texts[0].rpartition("Made by")[0] == texts[1].rpartition("Made by")[0]


def test_the_same_files_give_the_same_page(tmp_path):
    write_run(tmp_path, answers=False)
    pages = [page_of(tmp_path)[0].rpartition("Made by")[0] for _ in range(2)]
    assert pages[0].count("<svg") == 3 and pages[0] == pages[1]


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no run"):
        write_training_report(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        write_training_report(tmp_path / "none")
    assert not list(tmp_path.iterdir())
