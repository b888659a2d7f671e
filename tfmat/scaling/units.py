"""Seconds, bytes and shares as people read them."""

from tfmat.report.formatting import format_value
from tfmat.scaling.summary import Estimate

_SECONDS = (
    (5400.0, 3600.0, "h"), (90.0, 60.0, "min"), (1.0, 1.0, "s"), (1e-3, 1e-3, "ms"), (0.0, 1e-6, "µs"),
)  # fmt: skip
_BYTES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))


def seconds_text(seconds: float, digits: int = 3) -> str:
    """`12.3 ms`, `45.1 µs`, `2.10 h`."""
    _, divisor, unit = next(each for each in _SECONDS if seconds >= each[0])
    return f"{format_value(seconds / divisor, digits)} {unit}"


def bytes_text(number: float, digits: int = 3) -> str:
    """`614 kB`: powers of a thousand."""
    divisor, unit = next((each for each in _BYTES if number >= each[0]), _BYTES[-1])
    return f"{number / divisor:.{digits}g} {unit}"


def percent_text(share: float) -> str:
    """`87 %`; one decimal below 10 %."""
    percent = 100 * share
    return f"{percent:.0f} %" if abs(percent) >= 10 or percent == 0 else f"{percent:.1f} %"


def spread_text(estimate: Estimate | None, scale: float = 1.0, digits: int = 3) -> str:
    """`2.31 (2.20 – 2.44)`; without brackets where there is no spread; `–` for None."""
    if estimate is None:
        return "–"
    low, value, high = (
        format_value(scale * number, digits)
        for number in (estimate.low, estimate.value, estimate.high)
    )
    return value if low == high else f"{value} ({low} – {high})"


def unbroken(name: str) -> str:
    """A name that breaks only after its commas, so that a narrow table does not stack single words."""
    return name.replace(" ", "\u00a0").replace(",\u00a0", ", ")
