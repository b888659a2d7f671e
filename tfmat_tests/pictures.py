"""Pictures are painted only for tests that look at them.

All panels are drawn, whoever asks. Their layout, and what Matplotlib makes of them, takes 3 processor seconds a run,
which is a third of a small one. Where the variable is set, as for all tests that are not marked `pictures`, a file
holds one white point in the place of that.
"""

import functools
import io
import os
import sys
from collections.abc import Callable
from typing import Any

BLANK = "TFMAT_TESTS_BLANK_PICTURES"


def may_be_blank() -> None:
    """From here on this process heeds the variable; nothing happens where it cannot draw (yet)."""
    drawing: Any = sys.modules.get("tfmat.report.figures")
    if drawing is None or hasattr(drawing._pixels, "__wrapped__"):
        return
    white: Any = sys.modules["numpy"].full((1, 1, 3), 255, "uint8")
    png = io.BytesIO()
    drawing.imsave(png, white, format="png")
    for name, blank in {
        "_lay_out": None,
        "_pixels": white,
        "png": png.getvalue(),
        "_svg": '<svg viewBox="0 0 1 1"></svg>',
    }.items():
        setattr(drawing, name, _or(blank, getattr(drawing, name)))


def _or(blank: Any, paint: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(paint)
    def chosen(*arguments: Any, **options: Any) -> Any:
        return blank if os.environ.get(BLANK) else paint(*arguments, **options)

    return chosen
