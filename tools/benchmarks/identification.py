"""Identification: how fast arrays are answered."""

import functools
import os
import pathlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.rounds import quantity
from tfmat.records.simulation import CurveSettings, Simulator

# RATE, RATE_OF_RECORDS: curves and records a second that are wanted.
RATE, RATE_OF_RECORDS = 50_000.0, 20_000.0
OWN_LAW, RECORDS_LAW = "hahn_tsai", "voce_chaboche"


def measure_rate(num_curves: int, rounds: int, workdir: pathlib.Path | None) -> dict[str, Any]:
    """Curves a second of `tfmat.network_answers` for stored arrays, as float32 and float64, padded behind by NaN.

    Also records a second of the network for `voce_chaboche` that comes with tfmat.
    """
    import tfmat
    from tfmat.identification.api import opened
    from tfmat.identification.networks import find_network

    where = f"{len(os.sched_getaffinity(0))} processors"
    quantities, samples = [], {}

    def measured(name: str, what: str, answer: Callable[[], Any], number: int, goal: float) -> None:
        answer()  # loads, traces
        rates = []
        for _ in range(rounds):
            started = time.perf_counter()
            answer()
            rates.append(number / (time.perf_counter() - started))
        samples[name] = rates
        found = quantity(f"{what}, {where}", float(np.median(rates)), "a second", "≥", goal)
        quantities.append(found)

    features = Simulator(CurveSettings(), seed=0).curves(0, num_curves).features
    padded = features[:, :, 2] > 0
    stored = [np.where(padded, np.nan, features[:, :, i]) for i in (0, 1)]
    for kind in ("float32", "float64"):
        arrays = [array.astype(kind) for array in stored]
        answer = functools.partial(tfmat.network_answers, *arrays, law=OWN_LAW, workdir=workdir)
        measured(kind, f"tfmat.network_answers, {kind}, curves", answer, num_curves, RATE)
    folder = find_network(None, RECORDS_LAW)
    assert folder is not None  # it comes with tfmat
    identifier = opened(folder)
    settings = CurveSettings(RECORDS_LAW, num_points=identifier.form.shape[0])
    features = Simulator(settings, seed=0).curves(0, num_curves // 10).features
    what = "cyclic records of 400 points, plastic spectrum"
    answer = functools.partial(identifier.answers, features)
    measured("records", what, answer, num_curves // 10, RATE_OF_RECORDS)
    return {"quantities": quantities, "samples": samples, "num_curves": num_curves}
