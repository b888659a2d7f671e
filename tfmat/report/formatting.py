"""Numbers as people read them in tables and pictures."""

import math
import re

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# What the yardstick is binned by, in evaluation.json's own words and for people.
BIN_TITLES = {
    "max_strain": "maximum strain (–)",
    "noise_to_signal": "noise over maximum stress (–)",
    "num_points": "points",
}


def format_value(value: float | None, digits: int = 4) -> str:
    """`digits` significant digits, plain where that is readable: 6964, 193000, 0.0123, 2.44e-8; `–` for None."""
    if value is None:
        return "–"
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    rounded = float(f"{value:.{digits - 1}e}")
    exponent = math.floor(math.log10(abs(rounded)))
    if -4 < exponent < 6:
        return f"{rounded:.{max(digits - 1 - exponent, 0)}f}"
    mantissa, _, power = f"{rounded:.{digits - 1}e}".partition("e")
    return f"{mantissa}e{int(power)}"


def format_power(value: float) -> str:
    """A place on a logarithmic axis: 0.01, 500, 10⁻⁵, 2·10⁶."""
    if 0.005 <= value < 20000:
        return f"{value:g}"
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    power = f"10{str(int(exponent)).translate(_SUPERSCRIPT)}"
    return power if mantissa == "1.0" else f"{mantissa.removesuffix('.0')}·{power}"


def format_limits(quantity: str, low: float, high: float, between: str, digits: int) -> str:
    """The limits of a bin of a quantity of `BIN_TITLES`: `0.01 – 0.02`, or one number where they are the same."""
    if quantity == "num_points":
        texts = [f"{limit:.0f}" for limit in (low, high)]
    else:
        texts = [format_value(limit, digits) for limit in (low, high)]
    return texts[0] if low == high else between.join(texts)


def format_unit(unit: str) -> str:
    """`MPa^-3` as MPa⁻³; nothing for a pure number."""
    if unit == "-":
        return ""
    return re.sub(r"\^(-?\d+)", lambda power: power[1].translate(_SUPERSCRIPT), unit)


def with_unit(name: str, unit: str) -> str:
    """`G0 (MPa)`; a pure number has no brackets."""
    unit = format_unit(unit)
    return f"{name} ({unit})" if unit else name
