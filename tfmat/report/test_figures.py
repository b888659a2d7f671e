"""Pictures of mechanical tests side by side: loops, modes of rubber, relaxation and creep over time."""

import dataclasses
from collections.abc import Sequence

from matplotlib.figure import Figure

from tfmat.report.drawing import COLOURS, MOST_SERIES, Array, complete, new_figure

_PANELS_PER_ROW = 3
_WIDTH, _HEIGHT = 4.0, 3.3  # inches


@dataclasses.dataclass(frozen=True)
class TestPanel:
    """What one test shows.

    Attributes:
      title: of the test.
      lines: (x, y) of every record, [points] each.
      xlabel, ylabel: with units.
      log: the logarithmic axes: `x`, `y`, `xy`, or none.
    """

    __test__ = False  # no case of pytest's

    title: str
    lines: Sequence[tuple[Array, Array]]
    xlabel: str
    ylabel: str
    log: str = ""


def tests_figure(title: str, panels: Sequence[TestPanel]) -> Figure:
    """One panel per test; a record has the same colour in all of them."""
    columns = min(len(panels), _PANELS_PER_ROW)
    rows = -(-len(panels) // columns)
    figure = new_figure(_WIDTH * columns, _HEIGHT * rows + 0.4)
    places = figure.subplots(rows, columns, squeeze=False).ravel()
    for place, panel in zip(places, panels, strict=False):
        for i, (x, y) in enumerate(panel.lines):
            place.plot(x, y, lw=1.2, color=COLOURS[i % MOST_SERIES])
        complete(place, panel.xlabel, panel.ylabel, log=panel.log)
        place.set_title(panel.title, fontsize=10)
    for place in places[len(panels) :]:
        place.set_visible(False)
    figure.suptitle(title)
    return figure
