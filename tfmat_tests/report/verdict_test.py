"""The verdict follows its stated rules, on numbers made for each."""

import fcntl

import msgspec
import numpy as np
import pytest

from tfmat.identification.results import Score
from tfmat.report.pages import error_text, judge, last_quarter
from tfmat.report.run_files import read_run
from tfmat.training.run_folder import MetricsLine
from tfmat_tests.report.run_folder import CONFIG, STATUS, evaluation, metrics, write_run, yardstick


def verdict(folder, **arguments):
    return judge(read_run(write_run(folder, **arguments)))


@pytest.mark.parametrize(
    ("eta", "level", "words"),
    [
        (1.3, "good", "Excellent"),
        (1.31, "good", "1.3 times the least"),
        (3.0, "good", "at its worst (for G0)"),
        (3.01, "warn", "take the least-squares values"),
    ],
)
def test_eta_decides_where_it_is_known(tmp_path, eta, level, words):
    # An error far above the noise does not matter then.
    content = evaluation(yardstick=yardstick(eta), rmse_over_noise=4.0)
    found = verdict(tmp_path, content=content)
    assert (found.level, found.state) == (level, "finished")
    assert words in found.headline


@pytest.mark.parametrize(
    ("changes", "level", "words"),
    [
        ({"rmse_over_noise": 1.1}, "good", "to within the noise"),
        (
            {"rmse_over_noise": 1.11, "rmse_percent": 4.8},
            "warn",
            "4.8 % of the maximum stress (1.1 times the noise)",
        ),
        ({"rmse_over_noise": 1.0, "rmse_percent": 5.1}, "bad", "Not usable yet"),
        ({"rmse_over_noise": None, "rmse_percent": None}, "warn", "explain 98 % of what a varies"),
        ({"yardstick": yardstick(1.0), "rmse_percent": 5.1}, "bad", "Not usable yet"),
    ],
)
def test_the_noise_decides_where_it_is_not_known(tmp_path, changes, level, words):
    found = verdict(tmp_path, content=evaluation(**changes))
    assert found.level == level
    assert words in found.headline


@pytest.mark.parametrize(
    ("status", "level", "state", "words"),
    [
        (
            {"state": "interrupted", "reason": "SIGTERM received"},
            "warn",
            "interrupted",
            "Interrupted after 120 of 120",
        ),
        ({"state": "diverged", "reason": "the loss is NaN"}, "bad", "diverged", "of no use"),
        ({"state": "failed", "reason": "OSError"}, "bad", "failed", "failed after 120"),
        ({"state": "running", "reason": ""}, "warn", "stopped", "Stopped without a word"),
    ],
)
def test_a_run_that_did_not_come_to_its_end_says_so(tmp_path, status, level, state, words):
    found = verdict(tmp_path, content={}, example=False, status={**STATUS, **status})
    assert (found.level, found.state) == (level, state)
    assert words in found.headline
    assert status["reason"] in found.findings[0].text


def test_a_run_that_goes_on_is_told_from_one_that_was_killed(tmp_path):
    """As the training room does: a process that trains holds the lock."""
    folder = write_run(tmp_path, content={}, status={**STATUS, "state": "running", "reason": ""})
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = judge(read_run(folder))
    assert (found.level, found.state) == ("note", "running")
    assert judge(read_run(folder)).state == "stopped"


def test_a_run_without_an_evaluation_names_the_command(tmp_path):
    found = verdict(tmp_path, content={})
    assert "not been measured" in found.headline
    assert f"tfmat evaluate --workdir={tmp_path}" in found.findings[0].text


def test_whether_it_still_improved(tmp_path):
    def lines(*losses):
        return msgspec.convert(metrics(losses), list[MetricsLine])

    assert last_quarter(lines(1.0, 0.5, 0.4, 0.3)) == pytest.approx(0.25)
    assert last_quarter(lines(1.0, 0.5, 0.4, 0.6)) == 0.0
    assert last_quarter(lines(1.0)) is None
    assert last_quarter([]) is None

    def texts(folder, losses, schedule):
        config = {**CONFIG, "optimizer": {"schedule": schedule}}
        found = verdict(tmp_path / folder, metrics=metrics(losses), config=config)
        return [
            (finding.level, finding.text) for finding in found.findings if "quarter" in finding.text
        ]

    ((level, text),) = texts("a", (1.0, 0.5, 0.4, 0.3), "constant")
    assert level == "warn" and "still improving at the end" in text and "25 %" in text
    ((level, text),) = texts("b", (1.0, 0.5, 0.4, 0.3), "cosine")
    assert level == "note" and "falls to zero" in text
    ((level, text),) = texts("c", (1.0, 0.5, 0.4, 0.39), "cosine")
    assert "nearly stopped improving" in text


def test_losses_of_a_posterior_count_as_squares_of_widths(tmp_path):
    """Half a nat less of two labels is a width of e^-0.25, a square of e^-0.5."""
    config = {**CONFIG, "model": {"uncertainty": "flow"}}
    lines = metrics((-2.0, -4.0, -5.0, -5.5))
    for line in lines:
        line["val_loss"] = line["loss"]
    lines[-1]["loss"] = -6.0
    found = verdict(tmp_path, content=evaluation(), metrics=lines, config=config)
    texts = [finding.text for finding in found.findings]
    share = 100 * (1 - np.exp(-0.5))
    assert any(f"lowered the validation loss by {share:.0f} %" in text for text in texts)
    assert any("validation loss is 1.6 times" in text for text in texts)


def test_overfitting_parameters_that_cannot_be_told_and_the_example_are_findings(tmp_path):
    lines = metrics()
    lines[-1]["val_loss"] = 1.6 * lines[-1]["loss"]
    content = evaluation(yardstick=yardstick())
    content["parameters"]["a"]["r2"] = 0.3
    content["yardstick"]["parameters"]["a"]["unidentifiable_share"] = 0.12
    texts = [finding.text for finding in verdict(tmp_path, content=content, metrics=lines).findings]
    for words in (
        "400 test curves",
        "overfits: the validation loss is 1.6 times",
        "a can hardly be told",
        "12 % of the curves say nothing of a",
        "2.5 % of the maximum stress off, least squares from its answer 0.50 %: take the least-squares",
    ):
        assert any(words in text for text in texts), words


def test_errors_in_words():
    modulus, other = msgspec.convert(list(evaluation()["parameters"].values()), list[Score])
    assert error_text(modulus) == "0.90 %"
    assert error_text(other) == "× 1.10 (0.040 decades)"
    assert error_text(msgspec.structs.replace(modulus, mae_percent=None)) == "46 MPa"
