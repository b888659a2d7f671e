"""The pictures of a search: what they draw, against trials that are known."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from tfmat.report.figures import draw_parallel
from tfmat.report.tables import TrialRow

pytestmark = pytest.mark.pictures


def test_every_line_ends_at_its_trials_objective():
    """Also where the last hyper-parameter does not exist for the trial, which a dotted line passes."""
    unused = {
        "fraction": 1.0,
        "seconds": 1.0,
        "started": None,
        "worker": "0",
        "times_lost": 0,
        "folder": "",
        "reason": "",
    }
    values = {0.1: (1e-3, 0.9), 1.0: (1e-2, None), 10.0: (1e-1, 0.8)}
    rows = [
        TrialRow(
            trial=f"{i:04d}",
            state="done",
            value=objective,
            values={"rate": rate, "momentum": momentum},
            **unused,
        )
        for i, (objective, (rate, momentum)) in enumerate(values.items())
    ]
    panel = Figure().subplots()
    draw_parallel(panel, rows, {"rate": "log", "momentum": "linear"}, "val_loss")
    lines = [
        line for line in panel.lines if len(line.get_xdata()) > 2 or line.get_linestyle() == ":"
    ]
    dotted = [line.get_xydata() for line in lines if line.get_linestyle() == ":"]
    # On a logarithmic axis 0.1, 1 and 10 lie at the bottom, in the middle and on top.
    assert sorted(tuple(points[-1]) for points in dotted) == [(2, 0.0), (2, 0.5), (2, 1.0)]
    assert sorted(len(points) for points in dotted) == [2, 3, 3]
    solid = [line.get_ydata() for line in lines if line.get_linestyle() == "-"]
    assert sum(bool(np.isfinite(heights[-2:]).all()) for heights in solid) == 2
