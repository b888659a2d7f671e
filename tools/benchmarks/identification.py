"""Identification: how fast arrays are answered."""

import os
import pathlib
import time
from typing import Any

import numpy as np

from benchmarks.rounds import quantity
from tfmat.curves.settings import CurveSettings
from tfmat.curves.simulate import Simulator

# RATE, RATE_OF_RECORDS: curves and records a second that are wanted.
RATE, RATE_OF_RECORDS = 50_000.0, 20_000.0
OWN_LAW, RECORDS_LAW = "hahn_tsai", "voce_chaboche"


def measure_rate(num_curves: int, rounds: int, workdir: pathlib.Path | None) -> dict[str, Any]:
    """Curves a second of `tfmat.network_answers` for stored arrays, as float32 and float64, padded behind by NaN."""
    import tfmat

    features = Simulator(CurveSettings(), seed=0).curves(0, num_curves).features
    padded = features[:, :, 2] > 0
    stored = [np.where(padded, np.nan, features[:, :, i]) for i in (0, 1)]
    quantities, samples = [], {}
    for kind in (np.float32, np.float64):
        strain, stress = (array.astype(kind) for array in stored)
        tfmat.network_answers(
            strain[:5000], stress[:5000], law=OWN_LAW, workdir=workdir
        )  # loads, traces
        rates = []
        for _ in range(rounds):
            started = time.perf_counter()
            tfmat.network_answers(strain, stress, law=OWN_LAW, workdir=workdir)
            rates.append(num_curves / (time.perf_counter() - started))
        samples[kind.__name__] = rates
        what = f"tfmat.network_answers, {kind.__name__}, {len(os.sched_getaffinity(0))} processors"
        quantities.append(quantity(what, float(np.median(rates)), "curves/s", "≥", RATE))
    rates = _record_rates(num_curves // 10, rounds)
    what = (
        f"cyclic records of 400 points, plastic spectrum, {len(os.sched_getaffinity(0))} processors"
    )
    quantities.append(quantity(what, float(np.median(rates)), "records/s", "≥", RATE_OF_RECORDS))
    samples["records"] = rates
    return {"quantities": quantities, "samples": samples, "num_curves": num_curves}


def _record_rates(num_records: int, rounds: int) -> list[float]:
    """Records a second of the network for `voce_chaboche` that comes with tfmat, once in each round."""
    from tfmat.identification.arrays import opened
    from tfmat.identification.networks import find_network

    folder = find_network(None, RECORDS_LAW)
    assert folder is not None  # it comes with tfmat
    identifier = opened(folder)
    settings = CurveSettings(RECORDS_LAW, num_points=identifier.form.shape[0])
    features = Simulator(settings, seed=0).curves(0, num_records).features
    identifier.answers(features)  # traces
    rates = []
    for _ in range(rounds):
        started = time.perf_counter()
        identifier.answers(features)
        rates.append(num_records / (time.perf_counter() - started))
    return rates
