"""The picture of tests: a panel a test, time on a log axis, tests of one kind together."""

import numpy as np
import pytest

from tfmat.identification.results import DrawnTest, Fitted, TestsPicture
from tfmat.report.figures import record_figure

pytestmark = pytest.mark.pictures


def of_test(kind="cyclic", name="a", drives="strain", turns=True, time=None, settings=""):
    strain = np.sin(np.linspace(0.0, 9.0, 50))
    stress = 100.0 * strain
    answer = stress + 1.0 if drives == "strain" else strain + 0.01
    return DrawnTest(
        name=name, title=f"a test {kind}", kind=kind, drives=drives, turns=turns, strain=strain, stress_mpa=stress,
        time=time, answer=answer, other=None, rmse_percent=1.0, settings=settings,
    )  # fmt: skip


def drawn(*tests, **changes):
    known = {
        "name": "n",
        "law_title": "L",
        "parameters": {"E": (2.0, "MPa")},
        "intervals": {"E": (1.0, 3.0)},
    }
    figure = record_figure(TestsPicture(tests=list(tests), **(known | changes)))
    figure.draw_without_rendering()
    return figure


def test_loops_have_a_panel_each():
    figure = drawn(of_test(name="a"), of_test(name="b"))
    assert [len(panel.lines) for panel in figure.axes] == [2, 2]
    measured, answered = figure.axes[0].lines
    np.testing.assert_allclose(answered.get_ydata() - measured.get_ydata(), 1.0)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["measured", "least squares"]
    assert "E = 2.000 MPa   (95 %: 1.000 … 3.000)" in legend.get_title().get_text()


def test_the_other_answer_is_dashed_and_both_errors_are_told():
    test = of_test(name="a")
    test.other = test.answer + 5.0
    figure = drawn(
        test,
        other_method="network",
        rmse_percent=4.0,
        refined=Fitted(name="least squares", rmse_percent=1.0),
    )
    *_, other = figure.axes[0].lines
    assert other.get_linestyle() == "--"
    np.testing.assert_allclose(other.get_ydata(), test.other)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "measured", "least squares: RMSE 1.0 % of max.", "network: RMSE 4.0 % of max.",
    ]  # fmt: skip


def test_relaxation_and_creep_over_log_time():
    time = np.concatenate([[0.0], np.geomspace(1.0, 1e4, 49)])
    figure = drawn(
        of_test("relaxation", turns=False, time=time),
        of_test("creep", drives="stress", turns=False, time=time),
    )
    assert [panel.get_xscale() for panel in figure.axes] == ["log", "log"]
    assert [panel.get_ylabel() for panel in figure.axes] == ["stress (MPa)", "strain (–)"]
    # Time zero has no logarithm.
    assert all(len(line.get_xdata()) == 49 for panel in figure.axes for line in panel.lines)


def test_tests_of_one_kind_share_a_panel():
    tests = [
        of_test("rate_and_temperature", turns=False, settings=f"{rate} 1/s") for rate in (1, 10)
    ]
    figure = drawn(*tests, do_not_use=["no unloading"])
    (panel,) = figure.axes
    texts = [text.get_text() for text in panel.get_legend().get_texts()]
    assert texts == ["1 1/s: 1.0 %", "10 1/s: 1.0 %"]
    assert "DO NOT USE: no unloading" in figure.get_suptitle()


@pytest.mark.parametrize("count", [1, 3, 4, 7])
def test_any_number_of_tests(count):
    figure = drawn(*(of_test(name=f"{i}") for i in range(count)))
    assert sum(panel.get_visible() for panel in figure.axes) == count
