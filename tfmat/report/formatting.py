"""Numbers as people read them, in tables, pictures and sentences."""

import math
import re
from typing import Protocol

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_SECONDS = (
    (5400.0, 3600.0, "h"), (90.0, 60.0, "min"), (1.0, 1.0, "s"), (1e-3, 1e-3, "ms"), (0.0, 1e-6, "µs"),
)  # fmt: skip
_BYTES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
# Quantities that errors are binned by, in evaluation.json's own words and for people.
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


def with_error(value: float | None, error: float | None) -> str:
    """`2.41 ± 0.13`; the value alone where its error is not known."""
    if error is None:
        return format_value(value, 3)
    return f"{format_value(value, 3)} ± {format_value(error, 2)}"


class Spread(Protocol):
    """A value and the limits between which it lies."""

    @property
    def low(self) -> float: ...
    @property
    def value(self) -> float: ...
    @property
    def high(self) -> float: ...


def spread_text(spread: Spread | None, scale: float = 1.0) -> str:
    """`2.31 (2.20 – 2.44)`; without brackets where there is no spread; `–` for None."""
    if spread is None:
        return "–"
    low, value, high = (
        format_value(scale * number, 3) for number in (spread.low, spread.value, spread.high)
    )
    return value if low == high else f"{value} ({low} – {high})"


def duration_text(seconds: float) -> str:
    """A waiting time for people: `58 s`, `3 min 12 s`, `2 h 5 min`."""
    seconds = round(seconds)
    if seconds < 100:
        return f"{seconds} s"
    minutes, rest = divmod(seconds, 60)
    if minutes < 100:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def seconds_text(seconds: float) -> str:
    """A measured time: `12.3 ms`, `45.1 µs`, `2.10 h`."""
    _, divisor, unit = next(each for each in _SECONDS if seconds >= each[0])
    return f"{format_value(seconds / divisor, 3)} {unit}"


def bytes_text(number: float) -> str:
    """`614 kB`: powers of a thousand."""
    divisor, unit = next((each for each in _BYTES if number >= each[0]), _BYTES[-1])
    return f"{number / divisor:.3g} {unit}"


def percent_text(share: float) -> str:
    """`87 %`; one decimal below 10 %."""
    percent = 100 * share
    return f"{percent:.0f} %" if abs(percent) >= 10 or percent == 0 else f"{percent:.1f} %"


def unbroken(name: str) -> str:
    """A name that breaks only after its commas, so that a narrow table does not stack single words."""
    return name.replace(" ", "\u00a0").replace(",\u00a0", ", ")
