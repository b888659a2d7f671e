"""Matplotlib figures as SVG that lies inside an HTML page and takes its colours from the page's style sheet."""

import html
import io
import re
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from tfmat.report.figures import BAND, GRID, INK, MEASURED, MODEL, SECOND

# Colours of the figures -> what the page's style sheet calls them.
_VARIABLES = {
    INK: "ink",
    GRID: "line",
    MEASURED: "measured",
    MODEL: "model",
    SECOND: "second",
    BAND: "band",
    "#ffffff": "surface",
    "#000000": "ink",
}
_SETTINGS: Any = {
    "svg.fonttype": "none",  # letters of the page, which can be searched and scale well
    "svg.hashsalt": "tfmat",
}


def inline_svg(figure: Figure, name: str, description: str) -> str:
    """The figure as an `<svg>` element, as wide as the page allows.

    Args:
      name: unlike that of any other figure on the page; begins every id in it.
      description: what it shows, for those who cannot see it.
    """
    text = io.StringIO()
    with matplotlib.rc_context(_SETTINGS):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None}, dpi=160)
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # Would hold for the whole page; the page's own style sheet says it for its figures.
    svg = re.sub(r"<style[^>]*>.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(href="|url\()#', rf"\1#{name}-", svg)
    svg = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", svg)
    for colour, variable in _VARIABLES.items():
        svg = re.sub(colour, f"var(--{variable})", svg, flags=re.IGNORECASE)
    box = re.search(r'viewBox="[^"]*"', svg)
    assert box is not None
    opening = (
        f'<svg class="plot" {box[0]} role="img" aria-label="{html.escape(description)}" '
        'xmlns:xlink="http://www.w3.org/1999/xlink">'
    )
    return opening + svg[svg.index(">") + 1 :].strip()
