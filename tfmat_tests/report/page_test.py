"""The shell of every report: text is escaped, and the tags are those of HTML."""

import re

import pytest

from tfmat.launch.machine import Machine, Session
from tfmat.report.figures import Picture
from tfmat.report.pages import Finding, templates
from tfmat_tests.report.html_check import checked

pytestmark = pytest.mark.pictures

EVIL = "<script>alert(\"x\")</script> & 'quotes'"
PARTS = """
{% import "parts.html" as p %}
{% call p.section(evil, "bad") %}
{{ p.quiet(evil) }}
{{ p.findings([finding]) }}
{% call p.tiles() %}{{ p.tile(evil, evil, evil) }}{% endcall %}
{% call p.table([evil, evil], evil) %}{{ p.row([evil, evil]) }}{{ p.rows([[evil, evil]]) }}{% endcall %}
{% call p.columns() %}{{ p.plot(picture, evil) }}{% endcall %}
{{ p.plots([picture]) }}
{% call p.details(evil) %}{{ p.program(session) }}{{ p.machine(session.machine) }}{% endcall %}
{% endcall %}
"""


class NoPicture:
    svg = "<svg></svg>"


def page_of(body: str = "", text: str = "text") -> str:
    """A page with these sections."""
    page = {"title": text, "subtitle": text, "badge": ("warn", text), "source": text}
    base = templates().get_template("base.html")
    return base.render(page=page, sections=[body], version="1", now="now")


def test_every_text_is_escaped():
    page = templates().from_string(PARTS)
    session = Session(versions={EVIL: EVIL}, machine=Machine(name=EVIL))
    body = page.render(evil=EVIL, finding=Finding("bad", EVIL), picture=NoPicture, session=session)
    checker = checked(f"<main>{body}</main>")
    assert " ".join(checker.texts).count(EVIL) == 18
    assert " ".join(checked(page_of(text=EVIL)).texts).count(EVIL) == 5


def test_a_name_that_a_template_mistypes_is_an_error():
    with pytest.raises(Exception, match="mistyped"):
        templates().from_string("{{ mistyped }}").render()


def test_a_page_says_what_a_browser_must_know():
    page = page_of()
    assert page.startswith('<!DOCTYPE html>\n<html lang="en">')
    for needed in (
        '<meta charset="utf-8">', "width=device-width", "default-src 'none'",
        "prefers-color-scheme: dark", "@media print",
    ):  # fmt: skip
        assert needed in page
    checked(page)


def test_pictures_on_one_page_have_ids_of_their_own_and_the_colours_of_the_page():
    def draw(panel):
        panel.plot([0, 1], [0, 1], label="<&>", rasterized=True)
        panel.set_title("<&> $x$", parse_math=False)

    pictures = [Picture(f"plot-{i}", '"<&>"', draw, 3, 2) for i in range(2)]
    body = templates().from_string('{% import "parts.html" as p %}{{ p.plots(pictures) }}')
    checker = checked(f"<main>{body.render(pictures=pictures)}</main>")
    assert "<&> $x$" in checker.texts
    svg = pictures[0].svg
    assert "var(--ink)" in svg and "#000000" not in svg
    # References go to ids of the same picture.
    ids = set(checker.ids)
    for one, other in re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', svg):
        assert (one or other) in ids and (one or other).startswith("plot-0-")
    assert "<metadata" not in svg and "<style" not in svg
