"""What speaks against a measured test: another kind of test, a stretch for a strain, another unit, a drift."""

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from tfmat.curves.axes import is_stretch
from tfmat.curves.cleaning import Caveat
from tfmat.curves.expectations import sampled_parameters
from tfmat.curves.loading_paths import drift_of_middle, half_cycles
from tfmat.curves.programme import Programme
from tfmat.curves.programmes import Compression, Creep, Cyclic, CyclicShear, Relaxation, Uniaxial
from tfmat.curves.reading import RawCurve
from tfmat.errors import InputError
from tfmat.materials.law import Law

if TYPE_CHECKING:
    from tfmat.curves.measured_tests import MeasuredTest

# Larger strains are none in plain numbers: of metals and plies, and of rubber.
_LARGEST_STRAIN, _LARGEST_STRETCH = 0.6, 20.0
# A stiffness outside of the law's by this factor is one of another unit or material; it is taken where the stress first
# reaches the share.
_STIFFNESS, _SHARE = 2.0, 0.2
_DRIFT = 0.03
NO_UNLOADING = "no unloading"


def stretch_to_strain(raw: RawCurve, law: Law) -> RawCurve:
    """The same test with stretch - 1 where its strain is a stretch; told, or refused where a unit says otherwise."""
    if law.strain_measure != "engineering" or len(raw.strain) == 0:
        return raw
    if raw.strain.min() <= -1.0:
        raise InputError(
            f"its strain goes down to {raw.strain.min():.3g}, and -1 is a length of nothing; a stretch is 1 at rest: "
            "is it a strain (--strain_unit=-), or are the columns exchanged?"
        )
    if not is_stretch(raw.strain, raw.stress_mpa):
        return raw
    at_rest = raw.strain[np.abs(raw.stress_mpa).argmin()]
    text = f"its strain is {at_rest:.3g} with hardly any stress, as a stretch is"
    if "strain" in raw.sure_units:
        return raw
    if not _is_assumed(raw):
        raise InputError(f"{text}; if it is one, say --strain_unit=stretch")
    assumed = tuple(a for a in raw.assumed if a != "strain in mm/mm")
    return dataclasses.replace(
        raw,
        strain=raw.strain - 1.0,
        steps=(*raw.steps, f"{text}: took 1 off (--strain_unit=- leaves it)"),
        assumed=(*assumed, "stretch and not strain"),
    )


def _is_assumed(raw: RawCurve) -> bool:
    return "strain in mm/mm" in raw.assumed


def check_test(test: "MeasuredTest", raw: RawCurve, law: Law) -> None:
    """Adds caveats to a test; raises InputError for one of another kind than it is said to be."""
    if (
        "strain" in raw.sure_units
        and law.strain_measure == "engineering"
        and is_stretch(raw.strain, raw.stress_mpa)
    ):
        text = (
            "its strain is about 1 with hardly any stress, as a stretch is, and was taken as given"
        )
        _warn(test, Caveat("stretch?", text, "if it is a stretch, say --strain_unit=stretch"))
    _check_size(test, raw, law)
    _check_direction(test, law)
    if isinstance(test.programme, Cyclic | CyclicShear):
        _check_cycles(test)
    if isinstance(test.programme, Relaxation | Creep):
        _check_hold(test)
    _check_stiffness(test, law)
    if raw.us_unit_hints:
        text = f"its stress has no unit and was taken as MPa, but {' and '.join(raw.us_unit_hints)}"
        _warn(test, Caveat("unit of the stress assumed", text, "say --stress_unit"))


def _warn(test: "MeasuredTest", caveat: Caveat) -> None:
    if all(caveat.kind != other.kind for other in test.curve.warnings):
        test.curve.warnings.append(caveat)


def _check_size(test: "MeasuredTest", raw: RawCurve, law: Law) -> None:
    largest = float(np.abs(test.curve.strain).max())
    limit = _LARGEST_STRETCH if law.strain_measure == "engineering" else _LARGEST_STRAIN
    if largest > limit and _is_assumed(raw):
        raise InputError(
            f"its strain goes to {float(np.abs(raw.strain).max()):.3g}; if it is in percent, say --strain_unit=%"
        )


def _check_direction(test: "MeasuredTest", law: Law) -> None:
    """Compression under the name of tension, and the other way round."""
    programme, strain = test.programme, test.curve.strain
    low, high = float(strain.min()), float(strain.max())
    if isinstance(programme, Compression):
        if high > -low:
            raise InputError(
                f"its strain goes to {high:.3g}, which is tension, and it is called compression; say uniaxial=FILE, or "
                "give compression with negative strain and stress"
            )
    elif isinstance(programme, Uniaxial) and low < -0.02 * (high - low):
        if -low > high:
            advice = "say compression=FILE" if programme.name == "uniaxial" else "give tension"
            raise InputError(
                f"its strain goes to {low:.3g}, which is compression, and it is called {programme.name}; {advice}"
            )
        test.curve.steps.append(f"holds compression too, to strain {low:.3g}")
    elif _drives_one_loading(programme) and -low > high:
        raise InputError(
            f"its strain goes to {low:.3g}, which is compression, and a test {programme.name} is tension; give "
            "compression with positive numbers"
        )


def _drives_one_loading(programme: Programme) -> bool:
    return programme.drives == "strain" and "cycles" not in {s.name for s in programme.settings}


def _check_cycles(test: "MeasuredTest") -> None:
    curve, turns = test.curve, test.turns
    if not turns:
        what = (
            "isotropic hardening and backstresses"
            if test.programme.mode != "shear"
            else "damage and permanent strain"
        )
        _warn(
            test,
            Caveat(
                NO_UNLOADING,
                f"its strain never turns: it is one loading to {curve.strain[-1]:.3g}, which cannot tell {what} apart",
                f"measure {test.programme.title}; for one loading choose a law of one loading, e.g. --law="
                f"{'hahn_tsai' if test.programme.mode == 'shear' else 'voce'}",
                blocks=True,
            ),
        )
        return
    number = half_cycles(turns)
    ends = curve.strain[turns]
    curve.steps.append(
        f"{number} half cycles: the strain turns {len(turns)} times, between {ends.min():.4g} and {ends.max():.4g}"
    )
    drift, amplitude = drift_of_middle(curve.strain, turns)
    if abs(drift) > _DRIFT * amplitude > 0:
        _warn(
            test,
            Caveat(
                "drift",
                f"the middle of its cycles moves by strain {drift:.2g} from the first to the last, "
                f"{100 * abs(drift) / amplitude:.0f} % of the amplitude",
                "an extensometer that slips or drifts does that; the strain was left as it is",
            ),
        )


def _check_hold(test: "MeasuredTest") -> None:
    settings = test.settings
    if settings.get("hold", 0.0) <= 0 or np.ptp(test.response) == 0:
        raise InputError(
            f"its {test.programme.drives} is nowhere held, and its test is called {test.programme.name}; is it the "
            "right test, and the right column?"
        )


def _check_stiffness(test: "MeasuredTest", law: Law) -> None:
    """A stiffness at the start that the law has nowhere in its ranges."""
    if test.programme.drives != "strain":
        return
    strain, stress = test.curve.strain, test.curve.stress_mpa
    away = np.abs(stress) >= _SHARE * np.abs(stress).max()
    at = int((away & (strain != 0)).argmax())
    if strain[at] == 0 or stress[at] == 0:
        return
    measured = float(stress[at] / strain[at])
    history = test.history.changed(lambda array: array[:, : at + 1])
    try:
        with np.errstate(all="ignore"):
            answers = law.respond(history, sampled_parameters(law))[:, -1] / strain[at]
    except InputError:
        return
    answers = answers[np.isfinite(answers)]
    low, high = float(answers.min()), float(answers.max())
    if measured > 0 and low / _STIFFNESS <= measured <= high * _STIFFNESS:
        return
    relation = "below" if measured < low else "above"
    _warn(
        test,
        Caveat(
            "implausible stiffness",
            f"its first stress over strain is {measured:.3g} MPa, far {relation} the {low:.3g} to {high:.3g} MPa of "
            f"law {law.name}",
            "a unit is wrong (--strain_unit, --stress_unit), or the law is not for this material",
            blocks=True,
        ),
    )
