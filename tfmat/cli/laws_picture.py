"""Draws some simulated records of a law, as its networks are trained on them."""

import numpy as np
from numpy.typing import NDArray

from tfmat.curves.records import FLAG, STRAIN, STRESS
from tfmat.curves.settings import CurveSettings
from tfmat.curves.simulate import Simulator
from tfmat.report.figures import TestPanel, save_figure, tests_figure

_RECORDS = 6
# A driven value that stands still for this share of its points is held, and its test is one over time.
_HELD_SHARE = 0.5


def draw_records(spec: str, path: str) -> None:
    """Writes a picture with a panel for each kind of test of the law that `spec` names."""
    simulator = Simulator(CurveSettings(law=spec), seed=0)
    law, form = simulator.law, simulator.form
    features = simulator.curves(0, _RECORDS).features.astype(np.float64)
    labels = f"strain ({law.strain_measure})", f"{law.stress_measure} stress (MPa)"
    if not form.programmes:
        panels = [_panel("", features, labels, None, "strain")]
    else:
        kinds = {one.name: i for i, one in reversed(list(enumerate(form.programmes)))}
        time = form.channels.index("time") if "time" in form.channels else None
        panels = [
            _panel(form.programmes[i].title, features[:, form.part(i)], labels, time, drives)
            for i in sorted(kinds.values())
            for drives in (form.programmes[i].drives,)
        ]
    save_figure(tests_figure(f"{law.title}: {_RECORDS} simulated records", panels), path)


def _panel(
    title: str,
    features: NDArray[np.float64],
    labels: tuple[str, str],
    time: int | None,
    drives: str,
) -> TestPanel:
    """The records of one test; the answer over log time where the driven value is held, else stress over strain."""
    records = [record[record[:, FLAG] == 0] for record in features]
    driven, answer = (STRAIN, STRESS) if drives == "strain" else (STRESS, STRAIN)
    still = [np.mean(np.diff(record[:, driven]) == 0.0) for record in records if len(record) > 1]
    if time is None or not still or np.median(still) < _HELD_SHARE:
        lines = [(record[:, STRAIN], record[:, STRESS]) for record in records]
        return TestPanel(title, lines, *labels)
    after = [record[(record[:, time] > 0) & (record[:, answer] > 0)] for record in records]
    lines = [(record[:, time], record[:, answer]) for record in after]
    # Creep goes over decades, as time does.
    return TestPanel(title, lines, "time (s)", labels[answer], "xy" if drives == "stress" else "x")
