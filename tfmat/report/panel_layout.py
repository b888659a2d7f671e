"""The place of the only panel of a figure: as large as its text allows."""

from matplotlib.figure import Figure

# Inches between text and the figure's edge.
_PAD = 0.04
Margins = tuple[float, float, float, float]  # left, right, bottom, top; inches
# Near what most panels need.
_GUESS: Margins = (0.7, 0.1, 0.5, 0.1)
_MOST_PASSES = 3


def lay_out_panel(figure: Figure) -> None:
    """As the constrained layout does with one panel, which measures all text twice.

    Here it is measured again only where the panel has other ticks in its new place, whose text needs another room.
    """
    ticks = place_panel(figure, _GUESS)
    for _ in range(_MOST_PASSES):
        before, ticks = ticks, place_panel(figure, _margins(figure))
        if ticks == before:
            return


def place_panel(figure: Figure, margins: Margins) -> list[list[float]]:
    """Puts the only panel between these margins; returns its ticks there."""
    (panel,) = figure.axes
    left, right, bottom, top = margins
    width, height = figure.get_size_inches()
    size = (width - left - right) / width, (height - bottom - top) / height
    panel.set_position((left / width, bottom / height, *size))
    panel.apply_aspect()
    axes = (panel.xaxis, panel.yaxis)
    return [list(axis.get_ticklocs(minor=minor)) for axis in axes for minor in (False, True)]


def room(figure: Figure) -> Margins:
    """Inches around the only panel."""
    (panel,) = figure.axes
    place = panel.get_position(original=True)
    width, height = figure.get_size_inches()
    return place.x0 * width, (1 - place.x1) * width, place.y0 * height, (1 - place.y1) * height


def _margins(figure: Figure) -> Margins:
    """Inches that the text of the only panel needs around it."""
    (panel,) = figure.axes
    text = panel.get_tightbbox(for_layout_only=True)
    assert text is not None
    box = panel.bbox
    pixels = (box.x0 - text.x0, text.x1 - box.x1, box.y0 - text.y0, text.y1 - box.y1)
    left, right, bottom, top = (one / figure.dpi + _PAD for one in pixels)
    return left, right, bottom, top
