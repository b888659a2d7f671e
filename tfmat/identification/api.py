"""From files or arrays to answers: the kind of a test, its best law, `tfmat.identify` and `tfmat.network_answers`."""

import collections
import concurrent.futures
import dataclasses
import functools
import math
import numbers
import os
import pathlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import (
    Any,
    NamedTuple,
    TypedDict,
    Unpack,
    get_type_hints,
    overload,
)

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfmat.errors import InputError, nearest
from tfmat.identification.answer import Identification, completed
from tfmat.identification.answer import identify as identify_records
from tfmat.identification.caveats import unidentifiable
from tfmat.identification.least_squares import BETTER, EVIDENCE, comes_to_the_noise, conditioned
from tfmat.identification.networks import (
    Identifier,
    Sidecar,
    check_samples,
    find_network,
    in_units,
    law_alone,
    source_of,
)
from tfmat.identification.next_test import check_next_test
from tfmat.identification.results import Ranked
from tfmat.launch.processes import all_in_processes, prepare_tensorflow
from tfmat.materials.law import Array, Law
from tfmat.materials.registry import LAWS
from tfmat.records.cleaning import (
    CleaningOptions,
    clean,
    is_negative,
    take_first_loading,
    wanted_measures,
)
from tfmat.records.files import (
    FOR_ARRAYS,
    files_given,
    measured_records,
    named_tests,
    numbers_of,
    records_of_files,
)
from tfmat.records.plausibility import is_rubber
from tfmat.records.programmes import (
    CONCRETE,
    METAL,
    PROGRAMMES,
    expectation_of,
    refusal,
    takes_tests,
)
from tfmat.records.reading import RawCurve, ReadingOptions, read_curves
from tfmat.records.record import (
    CurveTarget,
    MeasuredRecord,
    MeasuredTest,
    holds_strain,
    holds_stress,
    resample,
)
from tfmat.records.simulation import features_of
from tfmat.records.tables import MINIMUM_POINTS, Frame, axis_unit, find_files, is_frame

# AUTO: stands for all laws that fit the kind of test, ranked.
AUTO = "auto"

# --------------------------------------------------------------------------------------------------
# The kind of a test, by its name, or by what its points and columns say.


class Kind(NamedTuple):
    """A kind of test: its title, and the laws for it."""

    title: str
    laws: tuple[str, ...]

    @property
    def tests(self) -> tuple[str, ...]:
        """The kinds of test that the laws take; a single one needs no name."""
        return tuple(dict.fromkeys(test for law in self.laws for test in LAWS[law].tests))

    @property
    def takes_one_file(self) -> bool:
        """Whether each file is a specimen of its own; else all files are tests of one material."""
        return all(len(LAWS[law].tests) == 1 for law in self.laws)


TENSION = Kind(
    "tension of a metal",
    (
        "voce",
        "swift",
        "hockett_sherby",
        "swift_voce",
        "ludwik",
        "hollomon",
        "ramberg_osgood",
    ),
)
CYCLIC = Kind("cyclic test of a metal", ("voce_chaboche", "voce_chaboche_1", "voce_chaboche_3"))
RUBBER = Kind(
    "rubber",
    ("neo_hooke", "mooney_rivlin", "yeoh", "arruda_boyce", "ogden_1", "ogden", "ogden_3"),
)
SHEAR = Kind("shear of a ply", ("hahn_tsai", "tanh_shear", "exponential_shear"))
CYCLIC_SHEAR = Kind("cyclic shear of a ply", ("ramberg_osgood_shear", "ladeveze_shear"))
CREEP = Kind("creep and relaxation of a metal", ("norton", "perzyna"))
RELAXATION = Kind("relaxation of a polymer", ("prony",))
COMPRESSION = Kind("compression of concrete", ("hognestad",))
KINDS = (
    TENSION,
    CYCLIC,
    RUBBER,
    SHEAR,
    CYCLIC_SHEAR,
    Kind("metal at several rates and temperatures", ("johnson_cook",)),
    CREEP,
    RELAXATION,
    COMPRESSION,
)
# _SECANT_AT: share of the largest stress at which a secant stands for the modulus.
_SECANT_AT = 0.3


def kind_of_tests(tests: Iterable[str]) -> Kind:
    """The kind of test by the names of the tests, with the laws that answer all of them.

    Raises:
      InputError: no law here answers them, or laws for different materials do.
    """
    names = list(dict.fromkeys(tests))
    for name in names:
        if name not in PROGRAMMES:
            raise InputError(f"there is no test '{name}'{nearest(name, PROGRAMMES)}")
    found = []
    own = [kind for kind in KINDS if any(set(names) <= set(LAWS[law].tests) for law in kind.laws)]
    for kind in own or KINDS:
        laws = tuple(
            law
            for law in kind.laws
            if all(refusal(PROGRAMMES[name](), LAWS[law]()) is None for name in names)
        )
        if laws:
            found.append(Kind(kind.title, laws))
    if not found:
        raise InputError(
            f"no law here answers {' and '.join(names)} together; say which: --law=NAME"
        )
    if len(found) > 1:
        choices = "; ".join(f"{kind.title}: {', '.join(kind.laws)}" for kind in found)
        raise InputError(
            f"{' and '.join(names)} may be of several materials; say --law ({choices})"
        )
    return found[0]


def kind_of_files(
    given: Sequence[str | Frame], reading: ReadingOptions, cleaning: CleaningOptions
) -> Kind:
    """The kind of test that files, TEST=FILE or tables of tests are; InputError where they are of several kinds.

    A file that cannot be read says nothing here: who reads it for a law names it.
    """
    frames: list[str | Frame] = [each for each in given if isinstance(each, Frame)]
    tests, plain = named_tests([each for each in given if isinstance(each, str)])
    return (
        kind_of_tests(tests)
        if tests
        else kind_of_plain([*frames, *find_files(plain)], reading, cleaning)
    )


def kind_of_plain(
    files: Sequence[str | Frame], reading: ReadingOptions, cleaning: CleaningOptions
) -> Kind:
    """The kind of test of files of which nothing is said; raises and passes over as `kind_of_files` does."""
    kinds: dict[Kind, str] = {}
    # Two gauges of a laminate of ±45° are read as the shear that they tell.
    measures = wanted_measures(law_alone("voce").target) | {"shear": "engineering"}
    for file in files:
        try:
            raws = read_curves(file, reading, measures, of_test=True)
        except InputError:
            continue
        for raw in raws:
            kinds.setdefault(kind_of_curve(raw, cleaning), raw.name)
    if len(kinds) > 1:
        said = ", ".join(f"{name} is {kind.title}" for kind, name in kinds.items())
        raise InputError(f"{said}; give each kind by itself, or say --law")
    return next(iter(kinds), TENSION)


def kind_of_curve(raw: RawCurve, cleaning: CleaningOptions | None = None) -> Kind:
    """The kind of test that a curve is as it was read, by the names of its columns and by its points.

    Raises:
      InputError: its strain is held, and several materials relax; or its stress is, and several tests tell creep.
    """
    known = np.isfinite(raw.strain + raw.stress_mpa)
    strain, stress = raw.strain[known], raw.stress_mpa[known]
    compressed = is_negative(strain) and is_negative(stress)
    if compressed:
        strain, stress = -strain, -stress
    raw = dataclasses.replace(raw, strain=strain, stress_mpa=stress)
    # `epsilon` without indices may be any strain.
    shear = raw.is_shear or raw.shear_strain in ("engineering", "tensor")
    shear = shear or bool(raw.laminate_in_head)
    if not len(stress) or stress.max() <= 0:
        return TENSION
    if raw.time is not None and holds_strain(raw.time[known], strain, stress):
        raise InputError(
            f"{raw.name} holds its strain while the stress falls: a relaxation test. Say the test and the law, "
            f"--law={RELAXATION.laws[0]} relaxation=FILE for a polymer, --law={CREEP.laws[0]} for a metal"
        )
    if raw.time is not None and holds_stress(raw.time[known], strain, stress):
        raise InputError(
            f"{raw.name} holds its stress while the strain grows: a creep test. Say the test and the law, "
            f"--law={CREEP.laws[0]} creep=FILE, with all tests of the material"
        )
    if is_rubber(raw) and not shear:
        return RUBBER
    high = (cleaning or CleaningOptions()).bounds()[1]
    try:
        take_first_loading(MeasuredTest.of(raw), high, shear)
    except InputError:
        return CYCLIC_SHEAR if shear else CYCLIC
    if shear:
        return SHEAR
    if compressed or raw.compression_in_head:
        loaded = int(np.flatnonzero((stress >= _SECANT_AT * stress.max()) & (strain > 0))[:1].sum())
        modulus = float(stress[loaded] / strain[loaded]) if strain[loaded] > 0 else math.inf
        seen = modulus, float(stress.max()), float(strain.max())
        if all(0 < value < math.inf for value in seen):
            return COMPRESSION if CONCRETE.distance(*seen) < METAL.distance(*seen) else TENSION
    return TENSION


# --------------------------------------------------------------------------------------------------
# The laws of a kind of test by their evidence.


# _MORE_PARAMETERS: laws with at most so many parameters more than the smallest for the kind are fitted first.
_MORE_PARAMETERS = 1


def rank(answers: Mapping[str, Sequence[Identification]]) -> list[Ranked]:
    """The laws of one or several records by evidence, the best first; answers not to be used come after the others.

    The evidence is twice the logarithm of the likelihood, noise of unknown level, less the price of more parameters
    (G. Schwarz, Annals of Statistics 6 (1978) 461-464), summed over the records.

    Args:
      answers: law -> its answers for the same records.
    """
    known = {
        law: found
        for law, found in answers.items()
        if found and all(answer.rmse_percent is not None for answer in found)
    }
    if not known:
        return []
    percent = {law: np.array([_error_percent(a) for a in found]) for law, found in known.items()}
    points = np.array(
        [
            min(answer.curve.num_points for answer in each)
            for each in zip(*known.values(), strict=True)
        ]
    )

    def logarithm(law: str) -> np.ndarray:
        """The error's logarithm in each record, MPa; rounding ends it where a law leaves nothing."""
        largest = np.array([answer.curve.largest_mpa for answer in known[law]])
        return np.log(np.maximum(percent[law], 1e-9) / 100.0 * largest)

    errors = {law: float(points @ logarithm(law)) for law in known}
    evidence = {
        law: -2.0 * errors[law]
        - sum(
            sum(not value.fixed for value in answer.parameters.values()) * math.log(count)
            for answer, count in zip(found, points, strict=True)
        )
        for law, found in known.items()
    }
    refused = {law: sum(bool(a.do_not_use) for a in found) for law, found in known.items()}
    order = sorted(known, key=lambda law: (refused[law], -evidence[law]))
    first, total = order[0], float(points.sum())
    return [
        Ranked(
            law=law,
            evidence=evidence[law] - evidence[first],
            rmse_percent=float(np.sqrt(np.mean(np.square(percent[law])))),
            near_tie=math.exp((errors[first] - errors[law]) / total) >= BETTER
            or evidence[first] - evidence[law] <= EVIDENCE,
            do_not_use=list(dict.fromkeys(why for a in known[law] for why in a.do_not_use)),
        )
        for law in order
    ]


def _error_percent(answer: Identification) -> float:
    """The least error of a law in a record, all points alike, %: an answer's own weighs points by its law's slopes."""
    found = answer.rmse_percent or 0.0
    return found if answer.fitted is None else min(found, answer.fitted.percent)


@dataclasses.dataclass(frozen=True)
class Chosen:
    """The best law for records, and the answers of least squares by it.

    Attributes:
      law: its name; kind: what was tested.
      fixed: the known parameters that it has, name -> value in its unit.
      records, answers: as they were read and answered for it, with the ranking.
      not_needed: laws of more parameters that were not fitted, since a simpler one comes to the noise of the points.
    """

    law: str
    kind: Kind
    fixed: dict[str, float]
    records: list[MeasuredRecord]
    answers: list[Identification]
    not_needed: tuple[str, ...]


def read_as(source: Sidecar) -> Hashable:
    """All that a record's reading and cleaning knows of a law; the law's name where that is the law itself."""
    law = source.law
    assert law is not None
    expectation = None if takes_tests(law) else expectation_of(law)
    if expectation is None:
        return law.name
    return dataclasses.replace(source.target, law=None), law.compression, expectation


def _after(
    before: int, total: int, progress: Callable[[int, int], None] | None
) -> Callable[[int, int], None] | None:
    """A progress of some fits that counts those before them."""
    return None if progress is None else lambda done, _: progress(before + done, total)


def choose_law(
    kind: Kind,
    read: Callable[[Sidecar], list[MeasuredRecord]],
    *,
    fixed: Mapping[str, float] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Chosen:
    """Fits all laws for a kind of test and takes the best for all records together.

    Laws of many parameters come last. They are not fitted where a simpler law comes to the noise of all records, since
    none is clearly better.

    Args:
      read: gives the records for a law; it is called once for laws that read and clean them alike.
      fixed: parameters that are known; each law takes those that it has.
      progress: called with (done, total) after each fit, of which the chosen law has another one for its intervals.

    Raises:
      InputError: no law of the kind has such a parameter, or none has an answer: then the first one's reason.
    """
    sources = {law: law_alone(law) for law in kind.laws}
    known = {
        law: {n: v for n, v in (fixed or {}).items() if n in (p.name for p in LAWS[law].parameters)}
        for law in kind.laws
    }
    names = {parameter.name for law in kind.laws for parameter in LAWS[law].parameters}
    for name in fixed or {}:
        if name not in names:
            raise InputError(
                f"no law for {kind.title} has a parameter '{name}'{nearest(name, names)}"
            )
    records: dict[str, list[MeasuredRecord]] = {}
    errors: list[InputError] = []
    alike: dict[Hashable, list[str]] = {}
    for law, source in sources.items():
        alike.setdefault(read_as(source), []).append(law)
    for laws in alike.values():
        try:
            records |= dict.fromkeys(laws, read(sources[laws[0]]))
        except InputError as error:
            errors.append(error)
    # Evidence is compared on the same records: a law that some of them refuse is left out.
    most = max(map(len, records.values()), default=0)
    read_by = [law for law, found in records.items() if len(found) == most]
    count = {law: len(sources[law].parameters) for law in read_by}
    few = min(count.values(), default=0) + _MORE_PARAMETERS
    stages = [[law for law in read_by if (count[law] > few) is large] for large in (False, True)]

    def answered(job: tuple[str, MeasuredRecord]) -> Identification | InputError:
        law, record = job
        try:
            return identify_records(sources[law], [record], fixed=known[law], effort="rough")[0]
        except InputError as error:
            return error

    found: dict[str, list[Identification]] = {}
    # Each law once, and the chosen one again for its intervals.
    total, before = most * (len(read_by) + 1), 0
    not_needed: list[str] = []
    for laws in stages:
        if any(
            all(comes_to_the_noise(a.curve, a.rmse_percent or 0.0) for a in answers)
            and not any(a.do_not_use for a in answers)
            for answers in found.values()
            if len(answers) == most
        ):
            not_needed = laws
            before += most * len(laws)
            continue
        # The slow ones first, so that no processor waits for them at the end.
        jobs = [
            (law, r)
            for law in sorted(laws, key=count.__getitem__, reverse=True)
            for r in records[law]
        ]

        for (law, _), answer in zip(
            jobs,
            all_in_processes(answered, jobs, total, _after(before, total, progress)),
            strict=True,
        ):
            if isinstance(answer, InputError):
                errors.append(answer)
            else:
                found.setdefault(law, []).append(answer)
        before += len(jobs)
    ranking = rank({law: answers for law, answers in found.items() if len(answers) == most})
    if not ranking:
        raise errors[0]
    best = ranking[0].law
    answers = completed(sources[best], found[best], _after(before, total, progress))
    return Chosen(
        best,
        kind,
        known[best],
        records[best],
        [dataclasses.replace(answer, ranking=ranking) for answer in answers],
        tuple(not_needed),
    )


# --------------------------------------------------------------------------------------------------
# `tfmat.network_answers`: what the network says of very many curves that are already arrays, and nothing else.
#
#     import tfmat
#
#     answer = tfmat.network_answers(strain, stress, law="hahn_tsai")   # [curves, points], - and MPa
#     answer.values["G0"], answer.units["G0"]
#     answer.std["G0"], answer.ci95["G0"]              # of a network with an uncertainty head
#
# Arrays are taken as they are: the strain and stress measure of the network's law (`answer.law`), rising strain, no
# toe. Nothing is fitted, compared or warned about: that is for `tfmat.identify`.


# Curves that are prepared and answered together, a block on each processor: what is made for one stays in its cache.
_BLOCK = 1024


@dataclasses.dataclass(frozen=True)
class ArrayAnswer:
    """The network's answers, without least squares.

    Attributes:
      law: with its fixed parameters, or None where the network was trained on curves of no known law.
      values: parameter name -> value in its unit, an array [curves], or a number for a single curve.
      units: parameter name -> unit.
      labels: [curves, identified], scaled to 0-1; 0 and 1 are the ends of the trained ranges.
      std: parameter name -> standard deviation in its unit, as `values`; None where the network has no head for it.
      ci95: parameter name -> calibrated 95 % interval in its unit, [curves, 2], or [2] for a single curve; None with
        `std`.
      unidentifiable: parameter name -> whether the curve says next to nothing of it, as `values`; None with `std`.
    """

    law: Law | None
    values: dict[str, Array | float]
    units: dict[str, str]
    labels: Array
    std: dict[str, Array | float] | None = None
    ci95: dict[str, Array] | None = None
    unidentifiable: dict[str, NDArray[np.bool_] | bool] | None = None

    def stress(self, strain: ArrayLike) -> Array:
        """The re-simulated stress, MPa, at strains [points] or [curves, points].

        Returns:
          [curves, points], or [points] for a single curve.
        """
        if self.law is None:
            raise InputError(
                "the network was trained on curves of no known law; nothing can be re-simulated"
            )
        strain = np.atleast_2d(np.asarray(strain, np.float64))
        single = any(np.ndim(value) == 0 for value in self.values.values())
        stress = self.law.label_stress(strain, self.labels)
        return stress[0] if single else stress


def network_answers(
    strain: ArrayLike,
    stress: ArrayLike,
    *,
    law: str | None = None,
    workdir: str | os.PathLike | None = None,
) -> ArrayAnswer:
    """The network's answers for one curve or for many at once, a hundred thousand a second.

    Args:
      strain: [points] (of one curve, or the same for all) or [curves, points], -, rising.
      stress: [points] or [curves, points], MPa. Shorter curves of a set end in NaN.
      law: name of the law. None takes any, and hahn_tsai of the networks that come with tfmat.
      workdir: folder of the run whose network answers, an error where it is of another law. None is runs/quickstart,
        or, where there is none or of another law, the network that comes with tfmat.

    Raises:
      InputError: no network there, another law, or arrays that are no curves.
    """
    folder = find_network(workdir, law)
    if folder is None:
        raise InputError(
            f"no network for law {law} comes with tfmat; train one (tfmat train --law={law} --workdir=runs/{law}) and "
            "name its folder (workdir), or use tfmat.identify, which needs none"
        )
    identifier = opened(folder)
    strain, stress = _floating(strain, stress)
    single = stress.ndim == 1
    labels, std, limits = _answers(identifier, strain, np.atleast_2d(stress))

    def by_name(columns: NDArray[Any]) -> Any:
        rows = columns[0] if single else np.moveaxis(columns, 1, 0)
        return {
            p.name: row.item() if row.ndim == 0 else row
            for p, row in zip(identifier.parameters, rows, strict=True)
        }

    units = {p.name: p.unit for p in identifier.parameters}
    values = by_name(identifier.values(labels))
    if std is None or limits is None:
        return ArrayAnswer(identifier.law, values, units, labels)
    deviations, ends = in_units(identifier.parameters, labels, std, limits)
    known = map(by_name, (deviations, ends, unidentifiable(std, None)))
    return ArrayAnswer(identifier.law, values, units, labels, *known)


def opened(folder: pathlib.Path) -> Identifier:
    """The network in a folder, loaded once while it is not changed."""
    return _identifier(folder, _changed(folder))


def _answers(
    identifier: Identifier, strain: Array, stress: Array
) -> tuple[Array, Array | None, Array | None]:
    """The network's answers, cut to 0-1, std [curves, identified] each, and 95 % limits [..., 2] or None."""
    strain = np.broadcast_to(strain, stress.shape)
    labels = np.empty((len(stress), len(identifier.parameters)))
    known = identifier.uncertainty != "none"
    std = np.empty_like(labels) if known else None
    limits = np.empty((*labels.shape, 2)) if known else None

    def answer(start: int) -> None:
        rows = slice(start, start + _BLOCK)
        features = _features(strain[rows], stress[rows], identifier.target)
        labels[rows], block_std, block_limits = identifier.answers(features)
        if std is not None and limits is not None and block_limits is not None:
            std[rows], limits[rows] = block_std, block_limits[0]

    starts = range(0, len(stress), _BLOCK)
    threads = min(len(os.sched_getaffinity(0)), len(starts))
    if threads > 1:
        # NumPy and TensorFlow both let other threads run while they compute.
        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            collections.deque(pool.map(answer, starts), maxlen=0)
    else:
        collections.deque(map(answer, starts), maxlen=0)
    if not np.isfinite(labels).all():
        raise InputError("the model answers with NaN; its training diverged, train again")
    return np.clip(labels, 0.0, 1.0, out=labels), std, limits


def _floating(strain: ArrayLike, stress: ArrayLike) -> tuple[Array, Array]:
    """Both as floating point arrays; InputError for shapes that are no curves."""
    strain, stress = numbers_of("strain", strain), numbers_of("stress", stress)
    if stress.ndim not in (1, 2) or strain.shape not in (stress.shape, stress.shape[-1:]):
        raise _misshapen(strain, stress)
    if stress.shape[-1] < MINIMUM_POINTS:
        raise InputError(f"a curve needs at least {MINIMUM_POINTS} points")
    if strain.dtype.kind != "f" or stress.dtype.kind != "f":
        return strain.astype(np.float64), stress.astype(np.float64)
    return strain, stress


def _misshapen(strain: Array, stress: Array) -> InputError:
    shapes = f"strain has shape {strain.shape}, stress {stress.shape}"
    return InputError(f"{shapes}; give [points] or [curves, points]")


def _features(strain: Array, stress: Array, target: CurveTarget) -> Array:
    """[curves, num_points, 3] on the points of the trained curves; InputError for values that are no curves."""
    valid = _valid(strain, stress)
    if _on_the_grid(strain, stress, valid, target):
        return features_of(strain, stress, valid)
    if (np.diff(strain, axis=1) < 0).any() or np.any(strain[:, 0] < 0):
        raise InputError(
            "strain must rise from zero or more; clean the curves first (tfmat identify does)"
        )
    points = []
    for e, s, kept in zip(strain, stress, valid.copy(), strict=True):
        if target.max_strain is not None:
            kept &= e <= target.max_strain[1] * (1 + 1e-12)
        if target.max_stress_mpa is not None and (s[kept] > target.max_stress_mpa).any():
            kept[np.flatnonzero(kept & (s > target.max_stress_mpa))[0] + 1 :] = False
        if np.count_nonzero(kept) < 2:
            raise InputError(
                "a curve has fewer than two points in the trained range; are the units - and MPa?"
            )
        points.append(resample(e[kept], s[kept], target))
    return features_of(*(np.stack(arrays) for arrays in zip(*points, strict=True)))


def _valid(strain: Array, stress: Array) -> NDArray[np.bool_]:
    """False behind the end of a curve, [curves, points]; InputError where numbers are missing before it."""
    valid = np.isfinite(strain + stress)
    if not valid.all():
        if (valid[:, 1:] > valid[:, :-1]).any() or not valid[:, 0].all():
            raise InputError("strain or stress holds NaN or infinity before the end of a curve")
        if (valid.sum(axis=1) < MINIMUM_POINTS).any():
            raise InputError(f"a curve needs at least {MINIMUM_POINTS} points")
    return valid


def _on_the_grid(
    strain: Array, stress: Array, valid: NDArray[np.bool_], target: CurveTarget
) -> bool:
    """Whether every curve stands on the trained points already."""
    if target.max_strain is None or strain.shape[1] != target.num_points:
        return False
    low, high = target.max_strain
    grid = np.linspace(0.0, 1.0, target.num_points) ** target.strain_spacing
    grid = grid.astype(strain.dtype)
    # An early point tells the end that the grid was made for: a curve that broke off is padded behind.
    at = max(target.num_points // 16, 1)
    end = strain[:, at] / grid[at]
    if not (
        valid[:, at].all() and (end >= low * (1 - 1e-6)).all() and (end <= high * (1 + 1e-6)).all()
    ):
        return False
    difference = end[:, None] * grid
    difference -= strain
    np.abs(difference, out=difference)
    # NaN behind the end of a curve compares false.
    if (difference > (1e-5 * end)[:, None]).any():
        return False
    limit = target.max_stress_mpa
    return limit is None or not (stress > 1.1 * limit).any()


def _changed(workdir: pathlib.Path) -> int:
    """Changes when the run's model does; a run without one is refused later, with a reason."""
    file = workdir / "model.keras"
    return file.stat().st_mtime_ns if file.is_file() else 0


@functools.lru_cache(maxsize=4)
def _identifier(workdir: pathlib.Path, changed: int) -> Identifier:
    # TensorFlow is loaded when the first curve comes, not by `import tfmat`, and says nothing.
    prepare_tensorflow()
    return Identifier.open(workdir)


# --------------------------------------------------------------------------------------------------
# `tfmat.identify`: from files or arrays to the whole answer, the same as the command's.
#
# import tfmat
#
# for answer in tfmat.identify("lab/*.csv", law="voce", stress_unit="ksi"):
#     print(answer.curve.name, answer.parameters["sigma0"].value, answer.parameters["sigma0"].ci95)
#     print(answer.do_not_use, *map(str, answer.warnings), sep="\n  ")
#
# answer = tfmat.identify(strain, stress, law="voce", strain_measure="true", stress_measure="true")
#
# answer = tfmat.identify({"uniaxial": (stretch - 1, stress), "equibiaxial": "ET.txt"}, law="ogden")


Path = str | os.PathLike


class Options(TypedDict, total=False):
    """The options of `identify`: the fields of `Asked`, `ReadingOptions` and `CleaningOptions`."""

    law: str | None
    workdir: Path | None
    fixed: Mapping[str, float] | None
    least_squares: bool
    samples: int
    correct: bool
    details: bool
    next_test: bool
    predict: Sequence[str]
    candidate: Sequence[str]
    strain_column: str | None
    stress_column: str | None
    strain_unit: str | None
    stress_unit: str | None
    specimen_column: str | None
    sheet: str | None
    strain_measure: str | None
    stress_measure: str | None
    shear_strain: str | None
    area: float | None
    gauge_length: float | None
    decimal: str | None
    time_column: str | None
    time_unit: str | None
    toe: str
    cut_after_failure: bool
    envelope: bool
    window: str | Sequence[float | None] | None


@dataclasses.dataclass(frozen=True)
class Asked:
    """The question about tests, on the command line as in Python; `identify` says what each field means."""

    law: str | None = None
    workdir: Path | None = None
    fixed: Mapping[str, float] | None = None
    least_squares: bool = True
    samples: int = 0
    correct: bool = True
    details: bool = False
    next_test: bool = False
    predict: Sequence[str] = ()
    candidate: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.law == AUTO and (self.workdir is not None or not self.least_squares):
            other = "a network (workdir)" if self.workdir is not None else "no least squares"
            raise InputError(
                f"law=auto ranks laws by least squares, and {other} is asked for; leave one out"
            )

    @property
    def is_auto(self) -> bool:
        """Whether all laws for the kind of test are ranked: neither a law nor a network is named."""
        return self.law == AUTO or (
            self.law is None and self.workdir is None and self.least_squares
        )

    @property
    def is_sampled(self) -> bool:
        """Whether a network's posterior can be asked, which knows no given parameters."""
        return self.samples > 0 and not self.fixed

    def by(self, chosen: Chosen) -> "Asked":
        """The same of the law that was chosen."""
        return dataclasses.replace(self, law=chosen.law, fixed=chosen.fixed)

    def source(self, samples: bool = False) -> tuple[Sidecar, pathlib.Path | None]:
        """The source of answers, and the folder of the network that has a part.

        Args:
          samples: whether a posterior is needed, whatever is asked for.

        Raises:
          InputError: there is no such network, or it does not go with what is asked for.
        """
        found = source_of(
            self.law,
            self.workdir,
            least_squares=self.least_squares,
            samples=self.is_sampled or samples,
            details=self.details,
        )
        law, settings = found[0].law, found[0].settings
        if self.next_test:
            check_next_test(law, settings, self.predict, self.candidate)
        if self.samples:
            is_sampled = self.least_squares and self.correct and law is not None
            check_samples(
                self.samples, found[0].uncertainty, self.fixed or (), is_sampled=is_sampled
            )
        if self.fixed and law is not None:
            conditioned(law, self.fixed)
        return found

    def answers(
        self,
        source: "Sidecar | Identifier",
        records: Sequence[MeasuredRecord],
        chosen: Chosen | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[Identification]:
        """The answers for records.

        Args:
          source: the network, or what least squares alone needs.
          chosen: where the law was chosen; its answers hold where nothing but least squares is asked for.
        """
        if chosen and not self.samples and isinstance(source, Sidecar):
            return chosen.answers
        answers = identify_records(
            source,
            records,
            fixed=self.fixed,
            least_squares=self.least_squares,
            samples=self.samples,
            correct=self.correct,
            effort="compared" if chosen is None else "alone",
            progress=progress,
        )
        if chosen is None:
            return answers
        ranking = chosen.answers[0].ranking
        return [dataclasses.replace(answer, ranking=ranking) for answer in answers]


@overload
def identify(  # type: ignore[overload-overlap]
    curves: Mapping[str, Any], **options: Unpack[Options]
) -> Identification: ...


@overload
def identify(curves: Path | Iterable[Path], **options: Unpack[Options]) -> list[Identification]: ...


@overload
def identify(curves: Any, stress: ArrayLike | None = None, **options: Unpack[Options]) -> Any: ...


def identify(curves: Any, stress: ArrayLike | None = None, **options: Unpack[Options]) -> Any:
    """Reads, cleans and identifies measured curves, as `tfmat identify` does: same answers, intervals and warnings.

    Args:
      curves: files, folders or patterns, one or several; pandas DataFrames, whose columns are found by their names as
        those of a file; or strains: [points], [curves, points], or a list of arrays of different lengths. Shorter
        curves of an array end in NaN. Of a law that takes tests also all tests of one material by their names: a file,
        a DataFrame, arrays (strain, stress) or (strain, stress, time), a mapping of `strain`, `stress`, `time` (s),
        `rate` (1/s) and `temperature` (°C), or a list of these for several tests of a kind.
      stress: with strains their stresses, of the same form; MPa if `stress_unit` says nothing else.
      options: law: its name, `path/to/file.py:ClassName`, or `auto`, which is meant where neither a law nor a network
        is named: the laws for the kind of test are fitted, and the best for all records together answers
        (`answer.ranking`).
        workdir: folder of the run whose network is asked too. Without it a network that comes with tfmat is loaded only
        where it has a part in the answer; least squares needs none.
        fixed: known parameters, name -> value in its unit.
        least_squares: False answers with the network alone.
        samples: to draw from the posterior of each curve: `answer.samples` (`Posterior`). They start from the
        network's where it says how sure it is, and else, or with `fixed`, from least squares.
        correct: corrects the network's posterior with the law's likelihood (`answer.posterior.certificate` says how
        well that went); False leaves it as it is.
        details: also what the network says of each parameter, `answer.parameters[name].network`; it loads TensorFlow.
        next_test: of a law of tests, also what further tests are expected to tell: `answer.next_test` (`NextTests`).
        predict, candidate: what further tests are to narrow, and which to choose from, each `TEST:SETTING=VALUE,...`.
        And the fields of `ReadingOptions` and `CleaningOptions`, e.g. `stress_unit="ksi"` or `toe="off"`.

    Returns:
      A list with an `Identification` for each curve. Strains [points], tests by name, and a DataFrame with one curve
      give a single `Identification`. Its `parameters[name]` has `value`, `unit`, `ci95` and `method`; `do_not_use` and
      `warnings` say how far it can be trusted.

    Raises:
      InputError: a file or array that is no curve (all bad files at once), an option that is not known, or samples that
        neither a network nor a law can give.
    """
    asked, reading, cleaning = options_by_kind(options, arrays=stress is not None)
    if (asked.predict or asked.candidate) and not asked.next_test:
        raise InputError("predict and candidate are of next_test=True; give that too")

    def read(source: Sidecar) -> list[MeasuredRecord]:
        if isinstance(curves, Mapping) or takes_tests(source.law):
            assert source.law is not None
            return measured_records(curves, stress, source.law, reading, cleaning)
        if stress is None:
            return records_of_files(curves, source.target, source.law, reading, cleaning)
        return [
            MeasuredRecord.of(clean(_raw(str(i), *curve, reading), source.target, cleaning))
            for i, curve in enumerate(_curves(curves, stress))
        ]

    chosen = None
    if asked.is_auto:
        kind = _kind(curves, stress, reading, cleaning)
        chosen = choose_law(kind, read, fixed=asked.fixed)
        asked = asked.by(chosen)
    sidecar, folder = asked.source()
    source = sidecar if folder is None else opened(folder)
    records = chosen.records if chosen else read(sidecar)
    answers = asked.answers(source, records, chosen)
    if asked.next_test and source.settings is not None:
        settings, wanted = source.settings, {"predict": asked.predict, "candidate": asked.candidate}
        answers = [answer.with_next_test(settings, **wanted) for answer in answers]
    single = isinstance(curves, Mapping) or (is_frame(curves) and len(answers) == 1)
    if stress is not None:
        single = takes_tests(source.law) or (_is_one(curves) and _is_one(stress))
    return answers[0] if single else answers


def _kind(curves: Any, stress: Any, reading: ReadingOptions, cleaning: CleaningOptions) -> Kind:
    """The kind of test of what `identify` was given."""
    if isinstance(curves, Mapping):
        return kind_of_tests(map(str, curves))
    if stress is None:
        return kind_of_files(files_given(curves), reading, cleaning)
    kinds = {
        kind_of_curve(_raw(str(i), *curve, reading), cleaning)
        for i, curve in enumerate(_curves(curves, stress))
    }
    if len(kinds) > 1:
        raise InputError(
            f"the curves are of several kinds ({', '.join(kind.title for kind in kinds)}); give each kind by itself"
        )
    return kinds.pop() if kinds else TENSION


def options_by_kind(
    options: Mapping[str, Any], arrays: bool = False
) -> tuple[Asked, ReadingOptions, CleaningOptions]:
    """All kinds of options from keywords; InputError for one that none has, or that says nothing of arrays."""
    kinds = (Asked, ReadingOptions, CleaningOptions)
    fields = [{field.name for field in dataclasses.fields(kind)} for kind in kinds]
    for name in options:
        if name not in set().union(*fields):
            raise InputError(
                f"tfmat.identify has no option '{name}'{nearest(name, sorted(set().union(*fields)))}"
            )
        if arrays and name in fields[1] and name not in FOR_ARRAYS:
            raise InputError(f"option '{name}' is for files; leave it out for arrays")
    checked = {name: _checked(name, value) for name, value in options.items()}
    of_kind = [{n: v for n, v in checked.items() if n in names} for names in fields]
    return Asked(**of_kind[0]), ReadingOptions(**of_kind[1]), CleaningOptions(**of_kind[2])


# Types of options: what else is one, and what to give.
_TYPES: dict[type, tuple[type, str]] = {
    bool: (np.bool_, "True or False"),
    int: (numbers.Integral, "a whole number"),
    float: (numbers.Real, "a number"),
    str: (str, "a text"),
}


def _checked(name: str, value: Any) -> Any:
    """An option of the right type; InputError for another type: a text for a truth value would count as True."""
    if name.endswith("_column") and isinstance(value, numbers.Integral):
        return str(value)
    if name == "fixed" and value is not None:
        known = isinstance(value, Mapping)
        if not known or not all(isinstance(each, numbers.Real) for each in value.values()):
            raise InputError(
                f"option 'fixed' is {value!r}; give names and numbers in the parameters' units: {{'E': 210000}}"
            )
    hint = get_type_hints(Options)[name]
    for kind, (other, what) in _TYPES.items():
        # `toe` lists what it takes itself.
        asked = hint == kind if value is None else hint in (kind, kind | None)
        wrong = not isinstance(value, kind | other) or isinstance(value, bool) > (kind is bool)
        if asked and wrong and name != "toe":
            raise InputError(f"option '{name}' is {value!r}; give {what}")
    return value


def _curves(strain: Any, stress: Any) -> list[tuple[Array, Array]]:
    """Strain and stress of each curve, [points] each; InputError for what cannot be curves."""
    if _is_one(stress):
        pairs = [(strain, stress)]
    else:
        strains = [strain] * len(stress) if _is_one(strain) else list(strain)
        if len(strains) != len(stress):
            raise InputError(f"{len(strains)} strains and {len(stress)} stresses; give one of each")
        pairs = list(zip(strains, stress, strict=True))
    return [_pair(*pair) for pair in pairs]


def _is_one(values: Any) -> bool:
    """Whether these are the numbers of one curve and not curves."""
    if not hasattr(values, "__len__"):
        raise InputError("strain and stress are single numbers; give [points] or [curves, points]")
    return len(values) == 0 or np.ndim(values[0]) == 0


def _pair(strain: ArrayLike, stress: ArrayLike) -> tuple[Array, Array]:
    pairs = (("strain", strain), ("stress", stress))
    strain, stress = (numbers_of(name, values).astype(np.float64) for name, values in pairs)
    if strain.ndim != 1 or strain.shape != stress.shape:
        raise _misshapen(strain, stress)
    known = np.isfinite(strain + stress)
    end = int(known.sum())
    if not known[:end].all():
        raise InputError("strain or stress holds NaN or infinity before the end of a curve")
    return strain[:end], stress[:end]


def _raw(name: str, strain: Array, stress: Array, reading: ReadingOptions) -> RawCurve:
    """A curve of two arrays [points], in plain strain and MPa."""
    steps = [f"took {len(strain)} points of two arrays"]
    for axis, unit in (("strain", reading.strain_unit), ("stress", reading.stress_unit)):
        if unit is None:
            continue
        known = axis_unit(unit, axis)  # type: ignore[arg-type]
        if known.quantity != axis:
            raise InputError(f"--{axis}_unit={unit} is no unit of {axis}; convert the array first")
        if axis == "strain":
            strain = strain * known.factor - (1.0 if known.name == "stretch" else 0.0)
        else:
            stress = stress * known.factor
        steps.append(f"{axis} in {known.name}")
    return RawCurve(
        name=name,
        strain=strain,
        stress_mpa=stress,
        strain_measure=reading.strain_measure,  # type: ignore[arg-type]
        stress_measure=reading.stress_measure,  # type: ignore[arg-type]
        shear_strain=reading.shear_strain,  # type: ignore[arg-type]
        steps=tuple(steps),
        sure_units=reading.given_units,
    )
