"""Several specimens of one material -> one answer, with the scatter between them."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import scipy.special

from tfmat.curves.cleaning import Caveat, MeasuredCurve
from tfmat.curves.measured_tests import MeasuredRecord, MeasuredTest
from tfmat.curves.tensile import Property, TensileProperties
from tfmat.errors import InputError
from tfmat.identification.answers import Identification
from tfmat.identification.caveats import stability_caveats
from tfmat.identification.record_fit import errors_of_tests, fit_record, rms_percent
from tfmat.identification.values import Value
from tfmat.materials.law import Array, Law

_COVERAGE = 0.95
# _SELDOM: probability below which scatter between specimens is no chance; one of 200 parameters warns for nothing.
_SELDOM = 0.005
# _CLEARLY: scatter over what the intervals say, or the inverse, that is worth a word; many specimens show less, too.
_CLEARLY = 1.5
# _MOST_SHARED: share of a standard deviation; by the shared error alone no interval is made.
_MOST_SHARED = 0.999
# Stands for a condition that a file does not say.
_UNKNOWN = "unknown"


def pool(results: Sequence[Identification], keys: Sequence[str] = ()) -> list[Identification]:
    """One answer for each material, or for each set of conditions that the specimens were tested under.

    `value` is the mean of the specimens' recommended values on the scale of the parameter (a geometric mean where that
    is logarithmic), `std` the standard deviation between the specimens, `ci95` the interval of the mean by Student's
    t, `next_specimen_ci95` the interval of one more specimen; `least_squares` fits one set of parameters to all.
    Where the specimens scatter more, or less, than their own intervals say, a warning names the parameters. Specimens
    whose answer must not be used are left out, and named. A parameter that no specimen tells has neither, and a
    warning.

    Args:
      results: what `identify` answered, all of one law.
      keys: conditions that tell groups apart, e.g. temperature and direction; none puts all specimens into one group.

    Returns:
      One answer a group, in the order of the specimens; groups of fewer than two usable specimens are left out where
      there are other groups.

    Raises:
      InputError: fewer than two specimens can be used, the law is not known, or no specimen has such a condition.
    """
    if len(results) < 2:
        raise InputError(f"--pool needs at least two curves; {len(results)} was given")
    if any(result.law is None for result in results):
        raise InputError("the network was trained on curves of no known law; nothing can be pooled")
    known = dict.fromkeys(key for result in results for key in result.curve.conditions)
    for key in keys:
        if key not in known:
            said = f"known are: {', '.join(known)}" if known else "no file says any"
            raise InputError(f"no curve says its {key}, so they cannot be pooled by it; {said}")
    groups: dict[tuple[str, ...], list[Identification]] = {}
    for result in results:
        group = tuple(result.curve.conditions.get(key, _UNKNOWN) for key in keys)
        groups.setdefault(group, []).append(result)
    pooled = []
    for values, members in groups.items():
        usable = [member for member in members if not member.do_not_use]
        if len(usable) > 1:
            pooled.append(_pooled(members, usable, dict(zip(keys, values, strict=True))))
    if not pooled:
        unusable = [result.curve.name for result in results if result.do_not_use]
        left_out = f" (not to be used: {', '.join(unusable)})" if unusable else ""
        raise InputError(f"--pool needs at least two usable curves of a kind{left_out}")
    return pooled


def _pooled(
    members: Sequence[Identification],
    usable: Sequence[Identification],
    conditions: dict[str, str],
) -> Identification:
    law = usable[0].law
    assert law is not None
    labels = law.sorted_labels(np.stack([result.labels for result in usable]))
    mean = labels.mean(axis=0)
    record = _of_all(usable, conditions)
    response = law.label_stress(record.driven, mean[None])[0]
    together = None
    if usable[0].method == "least_squares":
        together = fit_record(law, record).best.values
    left_out = [member for member in members if member.do_not_use]
    warnings = []
    if left_out:
        names = ", ".join(f"{m.curve.name} ({', '.join(m.do_not_use)})" for m in left_out)
        warnings.append(Caveat("specimens left out", f"left out of the pooled answer: {names}"))
    unknown = _open_in_all(usable)
    if unknown:
        text = f"{', '.join(unknown)} cannot be identified from any of the specimens"
        advice = "give it (--fix) if it is known; do not use its value alone"
        warnings.append(Caveat("cannot be identified", text, advice))
    warnings += _scatter_caveats(law, usable)
    warnings += stability_caveats(law, law.from_labels(mean[None])[0], record)
    method = "mean of specimens"
    return Identification(
        curve=record,
        law=law,
        method="mean of specimens",
        parameters=_values(law, labels, together, unknown),
        stress_mpa={method: response},
        errors_percent={method: rms_percent(errors_of_tests(record, response)[1])},
        warnings=warnings,
        labels=mean,
        covariance=np.atleast_2d(np.cov(labels, rowvar=False)),
    )


def scatter_over_intervals(values: Array, deviations: Array) -> tuple[float, float]:
    """Root of Cochran's Q over its degrees of freedom, 1 on average, and the probability of so large a Q.

    W. G. Cochran, The combination of estimates from different experiments, Biometrics 10 (1954) 101-129; the root is
    the Birge ratio, and R. DerSimonian, N. Laird, Controlled Clinical Trials 7 (1986) 177-188 test scatter between
    studies so.

    Args:
      values: [specimens]; deviations: their own standard deviations, [specimens].
    """
    weights = deviations**-2.0
    mean = np.sum(weights * values) / np.sum(weights)
    free = len(values) - 1
    heterogeneity = float(np.sum(weights * np.square(values - mean)))
    return float(np.sqrt(heterogeneity / free)), float(scipy.special.chdtrc(free, heterogeneity))


def _scatter_caveats(law: Law, usable: Sequence[Identification]) -> list[Caveat]:
    """Parameters whose scatter between the specimens contradicts the specimens' own intervals."""
    more, less = [], []
    for column, parameter in enumerate(law.identified):
        known = [
            (one.value, *one.ci95, 0.0 if result.shared_std is None else result.shared_std[column])
            for result in usable
            if (one := result.parameters[parameter.name]).std is not None and one.ci95
        ]
        labels = np.array([[parameter.to_unit_interval(v) for v in row[:3]] for row in known])
        if len(known) < 2 or not np.all(labels[:, 2] > labels[:, 1]):
            continue
        deviations = (labels[:, 2] - labels[:, 1]) / (2.0 * scipy.special.ndtri(0.975))
        ratio, chance = scatter_over_intervals(labels[:, 0], deviations)
        if chance < _SELDOM and ratio > _CLEARLY:
            more.append(f"{parameter.name} ({ratio:.2g} times)")
            continue
        # Errors of one extensometer or load cell are in every interval, and not between its specimens.
        shared = np.minimum([row[3] for row in known] / deviations, _MOST_SHARED)
        deviations = deviations * np.sqrt(1.0 - np.square(shared))
        ratio, chance = scatter_over_intervals(labels[:, 0], deviations)
        if 1.0 - chance < _SELDOM and ratio < 1.0 / _CLEARLY:
            less.append(f"{parameter.name} ({ratio:.2g} times)")
    found = []
    if more:
        text = (
            f"between the specimens these scatter more than each interval says: {', '.join(more)}"
        )
        advice = (
            "the interval of one specimen leaves out what differs between them: take the pooled one for the mean, and "
            "next_specimen_ci95 for another specimen"
        )
        found.append(Caveat("specimens disagree", text, advice))
    if less:
        text = (
            f"between the specimens these scatter less than each interval says: {', '.join(less)}"
        )
        advice = (
            "all may share an error, such as the law's, which the scatter and the pooled "
            "interval leave out: take the interval of one specimen for it"
        )
        found.append(Caveat("specimens agree too well", text, advice))
    return found


def _open_in_all(usable: Sequence[Identification]) -> list[str]:
    """Parameters that least squares could tell from no specimen: their scatter says nothing of the material."""
    return [
        name
        for name in usable[0].parameters
        if all(
            value.method == "least_squares" and value.std is None
            for value in (result.parameters[name] for result in usable)
        )
    ]


def _of_all(usable: Sequence[Identification], conditions: dict[str, str]) -> MeasuredRecord:
    """What was measured of all specimens: their tests, or of rising loadings one curve with all their points."""
    records = [result.curve for result in usable]
    curves = [record.curve for record in records if record.curve is not None]
    names = ", ".join(result.curve.name for result in usable)
    step = (
        f"pooled {len(usable)} specimens ({names}): values are means, std is the scatter between specimens, ci95 the "
        "interval of the mean; least squares fits all specimens together"
    )
    values = [f"{k} unknown" if v == _UNKNOWN else v for k, v in conditions.items()]
    name = f"pooled ({', '.join([*values, f'{len(usable)} specimens'])})"
    if curves:
        return MeasuredRecord.of(_joined(name, curves, conditions)).noted([step], [])
    return MeasuredRecord(name, _tests_of_all(records), own_steps=[step])


def _tests_of_all(records: Sequence[MeasuredRecord]) -> list[MeasuredTest]:
    """The tests of all specimens, with the specimens' names, and without what was said of each."""
    found = []
    for record in records:
        for test in record.tests:
            name = f"{record.name}: {test.curve.name}" if len(record.tests) > 1 else record.name
            curve = dataclasses.replace(test.curve, name=name, steps=[], warnings=[])
            found.append(dataclasses.replace(test, curve=curve))
    return found


def _joined(
    name: str, curves: Sequence[MeasuredCurve], conditions: dict[str, str]
) -> MeasuredCurve:
    """All points in one curve, in the order of their strain (it is only looked at and compared)."""
    strain = np.concatenate([curve.strain for curve in curves])
    stress = np.concatenate([curve.stress_mpa for curve in curves])
    order = np.argsort(strain, kind="stable")
    return MeasuredCurve(
        name,
        strain[order],
        stress[order],
        assumed=list(dict.fromkeys(text for curve in curves for text in curve.assumed)),
        conditions=conditions,
        tensile=_mean_tensile([curve.tensile for curve in curves]),
    )


def _mean_tensile(each: Sequence[TensileProperties | None]) -> TensileProperties | None:
    """The mean of every property over the specimens that have it; None where no specimen has any."""
    known = [tensile for tensile in each if tensile is not None]
    if not known:
        return None
    means = {}
    for field in dataclasses.fields(TensileProperties):
        found: list[Property] = [getattr(tensile, field.name) for tensile in known]
        values = [one.value for one in found if one.value is not None]
        if not values:
            means[field.name] = found[0]
            continue
        scatter = f", scatter (std) {np.std(values, ddof=1):.3g}" if len(values) > 1 else ""
        means[field.name] = Property(
            float(np.mean(values)),
            f"mean of {len(values)} specimens{scatter}",
            any(one.at_least for one in found if one.value is not None),
        )
    return TensileProperties(**means)


def _values(
    law: Law, labels: Array, together: Array | None, unknown: Sequence[str]
) -> dict[str, Value]:
    mean = labels.mean(axis=0)
    values = law.from_labels(labels)
    half = (
        scipy.special.stdtrit(len(labels) - 1, 0.5 + _COVERAGE / 2)
        * labels.std(axis=0, ddof=1)
        / np.sqrt(len(labels))
    )
    further = np.sqrt(1.0 + len(labels))
    low, middle, high, next_low, next_high = (
        law.from_labels((mean + side * half)[None])[0] for side in (-1, 0, 1, -further, further)
    )
    found, column = {}, 0
    for i, parameter in enumerate(law.parameters):
        if parameter.fixed is not None:
            found[parameter.name] = Value(parameter.fixed, parameter.unit, "given")
            continue
        found[parameter.name] = Value(
            float(middle[i]),
            parameter.unit,
            "mean of specimens",
            std=None if parameter.name in unknown else float(values[:, i].std(ddof=1)),
            ci95=None if parameter.name in unknown else (float(low[i]), float(high[i])),
            least_squares=None if together is None else float(together[column]),
            next_specimen_ci95=(
                None if parameter.name in unknown else (float(next_low[i]), float(next_high[i]))
            ),
        )
        column += 1
    return found
