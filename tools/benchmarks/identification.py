"""Identification: how fast arrays are answered, and whether curves of other laws are told apart.

When does a curve of another law differ "by more than three times the noise"? Here: when the curve without its noise is
more than three standard deviations away from its best Hahn-Tsai least-squares fit at the point where it is furthest
away. That is the reading that asks for most: the root mean square over the curve is smaller than its largest value, so
that it would leave out the curves that are hardest to tell.
"""

import os
import pathlib
import time
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.rounds import quantity
from tfmat.curves.records import split_features
from tfmat.curves.settings import CurveSettings
from tfmat.curves.simulate import Simulator
from tfmat.identification.least_squares import fit
from tfmat.identification.other_laws import LawComparison, compare_laws
from tfmat.materials import find_law

RATE, AUROC, FALSE_ALARMS = 50_000.0, 0.95, 0.02
RATE_OF_RECORDS = 20_000.0
TIMES_THE_NOISE = 3.0
RECORDS_LAW = "voce_chaboche"
OWN_LAW, OTHER_LAWS = "hahn_tsai", ("tanh_shear", "exponential_shear")
_OWN_SEED, _OTHER_SEED = 7, 8


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


def measure_other_laws(num_curves: int) -> dict[str, Any]:
    """How well curves of the other shear laws are told from Hahn-Tsai ones, noise 1 MPa.

    All curves come from the laws' own ranges and break off at the same strengths, so that their length tells nothing.
    The score of a curve is the greatest evidence for any other law; a warning is what `tfmat identify` says.

    Args:
      num_curves: of the own law; of each other law as many are simulated as give as many that differ.
    """
    own = find_law(OWN_LAW)
    scores, comparison = _scores(
        Simulator(CurveSettings(OWN_LAW), _OWN_SEED).curves(0, num_curves).features
    )
    alarms = sum(found is not None for found in comparison.better()) / num_curves
    quantities = [quantity("false alarms", alarms, "of curves", "≤", FALSE_ALARMS)]
    strength = CurveSettings(OWN_LAW).resolved().strength_mpa
    for name in OTHER_LAWS:
        settings = CurveSettings(name, strength_mpa=strength)
        silent = CurveSettings(name, strength_mpa=strength, noise_mpa=0.0)
        different: list[np.ndarray] = []
        start, found = 0, 0
        while found < num_curves:
            rows = slice(start, start + num_curves)
            strain, stress, valid = split_features(
                Simulator(silent, _OTHER_SEED).curves(rows.start, rows.stop).features
            )
            model = own.stress(strain, fit(own, strain, stress, valid).values)
            distance = np.where(valid, np.abs(model - stress), 0.0).max(axis=1)
            noise = settings.resolved().noise_mpa or 0.0
            noisy = Simulator(settings, _OTHER_SEED).curves(rows.start, rows.stop).features
            different.append(noisy[distance > TIMES_THE_NOISE * noise])
            start, found = rows.stop, found + len(different[-1])
        other_scores, comparison = _scores(np.concatenate(different)[:num_curves])
        named = [better is not None and better[0] == name for better in comparison.better()]
        quantities += [
            quantity(f"AUROC, {name}", auroc(scores, other_scores), "", "≥", AUROC),
            {
                "what": f"warned of, by name, {name}",
                "value": float(np.mean(named)),
                "unit": "of curves",
            },
        ]
    return {"quantities": quantities, "num_curves": num_curves}


def auroc(negative: np.ndarray, positive: np.ndarray) -> float:
    """Area under the receiver operating characteristic: P(positive > negative), ties count half."""
    return float(stats.mannwhitneyu(positive, negative).statistic / (len(positive) * len(negative)))


def _scores(features: np.ndarray) -> tuple[np.ndarray, LawComparison]:
    points = split_features(features)
    own = find_law(OWN_LAW)
    comparison = compare_laws(
        own,
        fit(own, *points).rmse_mpa,
        points[2].sum(axis=1),
        lambda other: fit(other, *points).rmse_mpa,
    )
    return np.max(list(comparison.evidence.values()), axis=0), comparison
