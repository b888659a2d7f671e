"""The kind of a test, the laws for it by their evidence, and those that are as good as the first."""

import dataclasses
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tfmat.errors import InputError, nearest
from tfmat.identification.answer import Identification, completed, identify
from tfmat.identification.least_squares import BETTER, EVIDENCE, comes_to_the_noise
from tfmat.identification.networks import Sidecar, law_alone
from tfmat.identification.results import Ranked
from tfmat.identification.side_by_side import all_in_processes
from tfmat.materials.registry import LAWS
from tfmat.records.cleaning import (
    CleaningOptions,
    is_negative,
    take_first_loading,
    wanted_measures,
)
from tfmat.records.files import named_tests, refusal, takes_tests
from tfmat.records.plausibility import is_rubber
from tfmat.records.programmes import CONCRETE, METAL, PROGRAMMES, expectation_of
from tfmat.records.reading import RawCurve, ReadingOptions, read_curves
from tfmat.records.record import MeasuredRecord, MeasuredTest
from tfmat.records.tables import Frame, find_files

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
# _HELD: share of the largest strain from which a strain is held.
_HELD = 0.98
# _MOST: share of the time that a relaxation test holds its strain, at the least.
_MOST = 0.5
# _FALLEN: share of the largest stress that is left at its end, at the most.
_FALLEN = 0.97
# _SLOWER: factor between the rates of strain at the loading and of creep.
_SLOWER = 10.0
# _ABOVE: factor by which noise may raise the stress behind the ramp.
_ABOVE = 1.02


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
    for file in files:
        try:
            raws = read_curves(
                file, reading, wanted_measures(law_alone("voce").target), of_test=True
            )
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
    if not len(stress) or stress.max() <= 0:
        return TENSION
    if raw.time is not None and _is_held(raw.time[known], strain, stress):
        raise InputError(
            f"{raw.name} holds its strain while the stress falls: a relaxation test. Say the test and the law, "
            f"--law={RELAXATION.laws[0]} relaxation=FILE for a polymer, --law={CREEP.laws[0]} for a metal"
        )
    if raw.time is not None and _creeps(raw.time[known], strain, stress):
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


def _is_held(time: np.ndarray, strain: np.ndarray, stress: np.ndarray) -> bool:
    """Whether a strain [points] is held for most of the time while the stress falls."""
    held = np.flatnonzero(strain >= _HELD * strain.max())
    if len(held) < 2 or not time[-1] > time[0]:
        return False
    first = held[0]
    share = (time[-1] - time[first]) / (time[-1] - time[0])
    stays = bool((strain[first:] >= _HELD * strain.max()).all())
    falls = (
        stress[-1] < _FALLEN * stress.max()
        and stress[first:].max() <= _ABOVE * stress[: first + 1].max()
    )
    return bool(stays and share > _MOST and falls)


def _creeps(time: np.ndarray, strain: np.ndarray, stress: np.ndarray) -> bool:
    """Whether a stress [points] is held for most of the time while the strain grows far slower than at the loading."""
    held = stress >= _HELD * stress.max()
    first = int(held.argmax())
    loading, hold = float(time[first] - time[0]), float(time[-1] - time[first])
    grown = float(strain[-1] - strain[first])
    # A metal that hardly hardens is stretched as fast behind its yield point.
    slower = abs(float(strain[first])) * hold > _SLOWER * grown * loading
    return bool(held[first:].all() and grown > 0.0 and hold > _MOST * (hold + loading) and slower)


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


def _read_as(source: Sidecar) -> Hashable:
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
        alike.setdefault(_read_as(source), []).append(law)
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
            return identify(sources[law], [record], fixed=known[law], effort="rough")[0]
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
