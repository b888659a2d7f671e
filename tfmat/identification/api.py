"""`tfmat.identify`: from files or arrays to the whole answer, the same as the command's.

import tfmat

for answer in tfmat.identify("lab/*.csv", law="voce", stress_unit="ksi"):
    print(answer.curve.name, answer.parameters["sigma0"].value, answer.parameters["sigma0"].ci95)
    print(answer.do_not_use, *map(str, answer.warnings), sep="\\n  ")

answer = tfmat.identify(strain, stress, law="voce", strain_measure="true", stress_measure="true")

answer = tfmat.identify({"uniaxial": (stretch - 1, stress), "equibiaxial": "ET.txt"}, law="ogden")
"""

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike

from tfmat.curves.arrays_of_tests import measured_records, records_of_files
from tfmat.curves.axes import ReadingOptions
from tfmat.curves.cleaning import CleaningOptions
from tfmat.curves.measured import clean
from tfmat.curves.measured_tests import MeasuredRecord
from tfmat.curves.reading import RawCurve
from tfmat.curves.record_files import takes_tests
from tfmat.curves.resampling import CurveTarget
from tfmat.curves.units import axis_unit
from tfmat.errors import InputError, nearest
from tfmat.identification.answers import Identification
from tfmat.identification.arrays import opened
from tfmat.identification.further_tests import check_next_test
from tfmat.identification.identify import identify as identify_records
from tfmat.identification.networks import (
    Sidecar,
    find_network,
    law_alone,
    needs_network,
    read_sidecar,
)
from tfmat.materials.law import Array

if TYPE_CHECKING:
    from tfmat.identification.identifier import Identifier

# Options of reading that mean something for arrays too.
_FOR_ARRAYS = ("strain_unit", "stress_unit", "strain_measure", "stress_measure", "shear_strain")

Path = str | os.PathLike


@overload
def identify(
    curves: Mapping[str, Any],
    *,
    law: str | None = None,
    workdir: Path | None = None,
    fixed: Mapping[str, float] | None = None,
    least_squares: bool = True,
    samples: int = 0,
    correct: bool = True,
    details: bool = False,
    next_test: bool = False,
    predict: Sequence[str] = (),
    candidate: Sequence[str] = (),
    **options: Any,
) -> Identification: ...


@overload
def identify(
    curves: Path | Iterable[Path],
    *,
    law: str | None = None,
    workdir: Path | None = None,
    fixed: Mapping[str, float] | None = None,
    least_squares: bool = True,
    samples: int = 0,
    correct: bool = True,
    details: bool = False,
    next_test: bool = False,
    predict: Sequence[str] = (),
    candidate: Sequence[str] = (),
    **options: Any,
) -> list[Identification]: ...


@overload
def identify(
    curves: ArrayLike,
    stress: ArrayLike,
    *,
    law: str | None = None,
    workdir: Path | None = None,
    fixed: Mapping[str, float] | None = None,
    least_squares: bool = True,
    samples: int = 0,
    correct: bool = True,
    details: bool = False,
    next_test: bool = False,
    predict: Sequence[str] = (),
    candidate: Sequence[str] = (),
    **options: Any,
) -> Any: ...


def identify(
    curves: Any,
    stress: ArrayLike | None = None,
    *,
    law: str | None = None,
    workdir: Path | None = None,
    fixed: Mapping[str, float] | None = None,
    least_squares: bool = True,
    samples: int = 0,
    correct: bool = True,
    details: bool = False,
    next_test: bool = False,
    predict: Sequence[str] = (),
    candidate: Sequence[str] = (),
    **options: Any,
) -> Any:
    """Reads, cleans and identifies measured curves, as `tfmat identify` does: same answers, intervals and warnings.

    Args:
      curves: files, folders or patterns, one or several; or strains: [points], [curves, points], or a list of arrays
        of different lengths. Shorter curves of an array end in NaN. Of a law that takes tests also all tests of one
        material by their names: a file, arrays (strain, stress) or (strain, stress, time), a mapping of `strain`,
        `stress`, `time` (s), `rate` (1/s) and `temperature` (°C), or a list of these for several tests of a kind.
      stress: with strains their stresses, of the same form; MPa if `stress_unit` says nothing else.
      law: name of the law, or `path/to/file.py:ClassName`; needed where no network is named, but for hahn_tsai.
      workdir: folder of the run whose network is asked too. Without it a network that comes with tfmat is loaded only
        where it has a part in the answer (see `needs_network`); least squares needs none.
      fixed: known parameters, name -> value in its unit.
      least_squares: False answers with the network alone.
      samples: to draw from the posterior of each curve: `answer.samples` (`Posterior`). They start from the network's
        where it says how sure it is, and else, or with `fixed`, from least squares.
      correct: corrects the network's posterior with the law's likelihood (`answer.posterior.certificate` says how well
        that went); False leaves it as it is.
      details: also what the network says of each parameter, `answer.parameters[name].network`; it loads TensorFlow.
      next_test: of a law of tests, also what further tests are expected to tell: `answer.next_test` (`NextTests`).
      predict, candidate: what further tests are to narrow, and which to choose from, each `TEST:SETTING=VALUE,...`.
      options: the fields of `ReadingOptions` and `CleaningOptions`, e.g. `stress_unit="ksi"` or `toe="off"`.

    Returns:
      One `Identification` a curve, in a list; for strains [points] and for tests by name the one itself. Its
      `parameters[name]` has `value`, `unit`, `ci95` and `method`; `do_not_use` and `warnings` say how far it can be
      trusted.

    Raises:
      InputError: a file or array that is no curve (all bad files at once), an option that is not known, or samples that
        neither a network nor a law can give.
    """
    reading, cleaning = _options(options, arrays=stress is not None)
    sampled = samples > 0 and not fixed
    folder = find_network(workdir, law, posterior=sampled)
    sidecar = law_alone(str(law)) if folder is None else read_sidecar(folder)
    source: Identifier | Sidecar = sidecar
    if folder is not None and needs_network(
        sidecar,
        named=workdir is not None,
        least_squares=least_squares,
        samples=sampled,
        details=details,
    ):
        source = opened(folder)
    if next_test:
        check_next_test(source.law, source.settings, predict, candidate)
    elif predict or candidate:
        raise InputError("predict and candidate are of next_test=True; give that too")
    if isinstance(curves, Mapping) or takes_tests(source.law):
        assert source.law is not None
        records = measured_records(curves, stress, source.law, reading, cleaning)
        single = isinstance(curves, Mapping) or stress is not None
    elif stress is None:
        records = records_of_files(curves, source.target, source.law, reading, cleaning)
        single = False
    else:
        records = [
            _cleaned(str(i), e, s, source.target, reading, cleaning)
            for i, (e, s) in enumerate(_arrays(curves, stress))
        ]
        single = _is_one(curves) and _is_one(stress)
    answers = identify_records(
        source, records, fixed=fixed, least_squares=least_squares, samples=samples, correct=correct
    )
    if next_test and source.settings is not None:
        settings, asked = source.settings, {"predict": predict, "candidate": candidate}
        answers = [answer.with_next_test(settings, **asked) for answer in answers]
    return answers[0] if single else answers


def _options(options: Mapping[str, Any], arrays: bool) -> tuple[ReadingOptions, CleaningOptions]:
    """Both kinds of options from keywords; InputError for one that neither has, or that says nothing of arrays."""
    kinds = (ReadingOptions, CleaningOptions)
    fields = [{field.name for field in dataclasses.fields(kind)} for kind in kinds]
    for name in options:
        if name not in fields[0] | fields[1]:
            raise InputError(
                f"tfmat.identify has no option '{name}'{nearest(name, [*fields[0], *fields[1]])}"
            )
        if arrays and name in fields[0] and name not in _FOR_ARRAYS:
            raise InputError(f"option '{name}' is for files; leave it out for arrays")
    of_kind = [{n: v for n, v in options.items() if n in names} for names in fields]
    return ReadingOptions(**of_kind[0]), CleaningOptions(**of_kind[1])


def _arrays(strain: Any, stress: Any) -> list[tuple[Array, Array]]:
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
    arrays = []
    for name, values in (("strain", strain), ("stress", stress)):
        array = np.asarray(values)
        if array.dtype.kind not in "fiu":
            raise InputError(f"{name} has type {array.dtype}; give numbers")
        arrays.append(array.astype(np.float64))
    if arrays[0].ndim != 1 or arrays[0].shape != arrays[1].shape:
        raise InputError(
            f"strain has shape {arrays[0].shape}, stress {arrays[1].shape}; give [points] or [curves, points]"
        )
    known = np.isfinite(arrays[0] + arrays[1])
    end = int(known.sum())
    if not known[:end].all():
        raise InputError("strain or stress holds NaN or infinity before the end of a curve")
    return arrays[0][:end], arrays[1][:end]


def _cleaned(
    name: str,
    strain: Array,
    stress: Array,
    target: CurveTarget,
    reading: ReadingOptions,
    cleaning: CleaningOptions,
) -> MeasuredRecord:
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
    raw = RawCurve(
        name=name,
        strain=strain,
        stress_mpa=stress,
        strain_measure=reading.strain_measure,  # type: ignore[arg-type]
        stress_measure=reading.stress_measure,  # type: ignore[arg-type]
        shear_strain=reading.shear_strain,  # type: ignore[arg-type]
        steps=tuple(steps),
        sure_units=reading.given_units,
    )
    return MeasuredRecord.of(clean(raw, target, cleaning))
