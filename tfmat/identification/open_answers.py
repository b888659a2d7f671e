"""What the tests of a material leave open: parameters that they cannot tell, other tests that they do not predict.

And which test would tell it. A further test is imagined at the best parameters; what it adds to JᵀJ says how well each
parameter would be known with it.
"""

import numpy as np

from tfmat.curves.cleaning import Caveat
from tfmat.curves.measured_tests import MeasuredRecord
from tfmat.curves.programmes import programme_class
from tfmat.errors import InputError
from tfmat.identification.further_tests import (
    FurtherTest,
    half_way,
    last_answer,
    middle_of,
    other_tests,
)
from tfmat.identification.likelihood import PRIOR_VARIANCE
from tfmat.identification.record_fit import RecordFit, repeated, residuals_of
from tfmat.materials.law import Array, Law

# Parameters whose sum of squares is within this factor of the best are as good as the best to anyone who looks at it.
_AS_GOOD = 1.1
# From the best fit along each axis of its covariance, so many standard deviations to both sides.
_WALK = np.geomspace(0.25, 64.0, 17)
# Predictions that differ by more than this, of their middle, are open.
_OPEN = 0.4
# A further test makes a parameter known where its standard deviation falls to this share at least.
_TELLS = 0.6


def open_caveats(law: Law, record: MeasuredRecord, fitted: RecordFit) -> list[Caveat]:
    """Parameters that the tests cannot tell, with the test that would; tests whose answer is open."""
    with np.errstate(all="ignore"):
        return [*_open_parameters(law, record, fitted), *_open_tests(law, record, fitted)]


def _open_parameters(law: Law, record: MeasuredRecord, fitted: RecordFit) -> list[Caveat]:
    best = fitted.best
    names = [p.name for p in law.identified]
    one_sided = best.is_open.sum(axis=1) == 1  # said by `caveats.one_sided_caveats`
    unknown = np.flatnonzero(best.unidentifiable & ~one_sided).tolist()
    if not unknown:
        return []
    known = residuals_of(law, record)
    labels = np.clip(best.labels, 0.0, 1.0)[None]
    information = known.normal_equations(labels)[0][0]
    freedom = max(record.num_points - len(names), 1)
    # No test is as exact as a perfect fit of few points makes it look.
    least = law.noise_mpa**2 if record.deviation(law) is None else 1.0
    variance = max(float(np.square(known.values(labels)).sum()) / freedom, least)
    before = _deviations(information / variance)
    tellers: dict[str, list[int]] = {}
    offers = [
        (candidate, _offer(law, candidate, labels, variance))
        for candidate in other_tests(law, record)
    ]
    for i in unknown:
        found = [
            (after[i], candidate.text)
            for candidate, added in offers
            if added is not None
            and (after := _deviations(information / variance + added))[i]
            < max(_TELLS * before[i], 1e-12)
        ]
        teller = min(found)[1] if found else ""
        tellers.setdefault(teller, []).append(i)
    caveats = []
    for teller, members in tellers.items():
        which = ", ".join(names[i] for i in members)
        tests = "these tests" if len(record.tests) > 1 else "this test"
        caveats.append(
            Caveat(
                "cannot be identified",
                f"{which} cannot be identified from {tests}: "
                f"{'its' if len(members) == 1 else 'each'} 95 % interval is as wide as its range"
                + (f"; {teller} would tell" if teller else ""),
                "give it (--fix) if it is known; do not use its value alone",
            )
        )
    return caveats


def _deviations(information: Array) -> Array:
    """Standard deviation of each label, [p], beside what its range says."""
    prior = np.eye(len(information)) / PRIOR_VARIANCE
    return np.asarray(np.sqrt(np.diag(np.linalg.pinv(information + prior, hermitian=True))))


def _offer(law: Law, candidate: FurtherTest, labels: Array, variance: float) -> Array | None:
    """What a further test adds to JᵀJ over the variance, [p, p]; None where the law does not answer it."""
    try:
        slopes = law.label_derivatives(candidate.tests(), labels)[0]
    except InputError:
        return None
    found = slopes.T @ slopes / variance
    return found if np.isfinite(found).all() else None


def _open_tests(law: Law, record: MeasuredRecord, fitted: RecordFit) -> list[Caveat]:
    """Other modes that parameters which fit the tests as well answer in different ways."""
    done = {test.programme.name for test in record.tests}
    others = [name for name in dict.fromkeys(law.tests) if name not in done]
    if not others:
        return []
    labels = _as_good(fitted)
    caveats = []
    for name in others:
        programme = programme_class(name)()
        end = half_way(programme, record)
        where = f" at strain {end['max_strain']:.3g}" if end else ""
        test = FurtherTest("", programme, middle_of(programme) | end)
        try:
            answers = last_answer(law, test, labels)
        except InputError:
            continue
        answers = answers[np.isfinite(answers)]
        if not len(answers):
            continue
        low, high = float(answers.min()), float(answers.max())
        if high - low <= _OPEN * max(abs(float(answers[0])), 1e-300):
            continue
        caveats.append(
            Caveat(
                f"{name} is open",
                f"parameters that fit {'these tests' if len(done) > 1 else 'this test'} as well answer "
                f"{programme.title}{where} with {low:.3g} to {high:.3g} MPa",
                f"do not rely on the law in such a test; one, {name}=FILE, would tell",
            )
        )
    return caveats


def _as_good(fitted: RecordFit) -> Array:
    """Labels [any, p], the best first, as near as the best: rivals, and along the axes of the covariance."""
    best = fitted.best
    values, axes = np.linalg.eigh(best.label_covariance)
    steps = np.sqrt(np.maximum(values, 0.0))[:, None] * axes.T
    walk = np.concatenate([-_WALK, _WALK])
    tried = np.concatenate(
        [best.labels[None], fitted.rivals, *(best.labels + walk[:, None] * step for step in steps)]
    )
    searched = fitted.searched
    cost = np.square(repeated(searched, len(tried)).values(tried)).sum(axis=1)
    near = cost <= _AS_GOOD * cost[: 1 + len(fitted.rivals)].min()
    near[0] = True
    return tried[near]
