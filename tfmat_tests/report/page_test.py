"""The shell of every report: text is escaped, and the tags are those of HTML."""

import re

from tfmat.report.figures import new_figure
from tfmat.report.page import (
    Columns,
    Details,
    Finding,
    Findings,
    Group,
    Page,
    Paragraph,
    Plot,
    Section,
    Table,
    Tile,
    Tiles,
)
from tfmat.report.svg import inline_svg
from tfmat_tests.report.html_check import checked

EVIL = "<script>alert(\"x\")</script> & 'quotes'"


def test_every_text_is_escaped():
    blocks = [
        Paragraph(EVIL),
        Paragraph(EVIL, quiet=True),
        Findings([Finding("bad", EVIL)]),
        Tiles([Tile(EVIL, EVIL, EVIL)]),
        Table([EVIL, EVIL], [[EVIL, EVIL]], EVIL),
        Columns([Group([Paragraph(EVIL)]), Plot("", EVIL)]),
        Details(EVIL, [Paragraph(EVIL)]),
    ]
    page = Page(EVIL, EVIL, ("warn", EVIL), [Section(EVIL, blocks, level="bad")], EVIL).html()
    checker = checked(page)
    assert checker.texts.count(EVIL) >= 16


def test_a_page_says_what_a_browser_must_know():
    page = Page("title", "subtitle", ("good", "done"), [], "footer").html()
    assert page.startswith('<!DOCTYPE html>\n<html lang="en">')
    for needed in (
        '<meta charset="utf-8">', "width=device-width", "default-src 'none'",
        "prefers-color-scheme: dark", "@media print",
    ):  # fmt: skip
        assert needed in page
    checked(page)


def test_pictures_on_one_page_have_ids_of_their_own_and_the_colours_of_the_page():
    figures = []
    for _ in range(2):
        figure = new_figure(3, 2)
        panel = figure.subplots()
        panel.plot([0, 1], [0, 1], label="<&>", rasterized=True)
        panel.set_title("<&> $x$", parse_math=False)
        figures.append(figure)
    plots = [Plot(inline_svg(figure, f"plot-{i}", '"<&>"')) for i, figure in enumerate(figures)]
    page = Page("t", "s", ("good", "g"), [Section("s", [Columns(plots)])], "f").html()
    checker = checked(page)
    assert "<&> $x$" in checker.texts
    svg = plots[0].svg
    assert "var(--ink)" in svg and "#000000" not in svg
    # References go to ids of the same picture.
    ids = set(checker.ids)
    for one, other in re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', svg):
        assert (one or other) in ids and (one or other).startswith("plot-0-")
    assert "<metadata" not in svg and "<style" not in svg
