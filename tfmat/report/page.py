"""HTML pages: a template of `templates/` filled with plain data, in one file that loads nothing.

Every text is escaped, so that a file or a law may have any name. A page runs nothing but the one script that its
template names, if it names one, for what a reader can move.
"""

import base64
import dataclasses
import datetime
import functools
import hashlib
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import jinja2

import tfmat
from tfmat.report import formatting

# What numbers that are of the right type but cannot be do to arithmetic, pictures and templates.
SENSELESS = (ArithmeticError, LookupError, ValueError, jinja2.UndefinedError)


def _flatten(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(`model.filters`, value) of everything in a config."""
    for key, value in content.items():
        if isinstance(value, Mapping) and value:
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


@functools.cache
def templates() -> jinja2.Environment:
    """The folder of templates, with what they may call."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "bytes": formatting.bytes_text,
        "count": "{:,.0f}".format,
        "duration": formatting.duration_text,
        "flatten": _flatten,
        "percent": formatting.percent_text,
        "seconds": formatting.seconds_text,
        "spread": formatting.spread_text,
        "unbroken": formatting.unbroken,
        "value": formatting.format_value,
        "with_error": formatting.with_error,
        "with_unit": formatting.with_unit,
    }
    return environment


@dataclasses.dataclass(frozen=True)
class Finding:
    """One sentence with its level: `good`, `note`, `warn` or `bad`."""

    level: str
    text: str


def render_page(template: str, *, guarded: bool = False, **content: Any) -> str:
    """The whole file.

    A page's template sets `title`, `subtitle`, `badge` (level and word) and `source` (what the page was made from), and
    lists its macros, each of which is a section, as `sections`; `script` may name a file of `templates/`.
    An empty section is left out.

    Args:
      template: name of a file in `templates/`.
      guarded: a section whose numbers make no sense becomes a note; the first, the verdict, always raises.
      content: what the template draws.
    """
    page: Any = templates().get_template(template).make_module(content)
    first, *others = page.sections
    script = _script(getattr(page, "script", ""))
    sections = [first(), *(_whole_or_note(each) if guarded else each() for each in others)]
    return (
        templates()
        .get_template("base.html")
        .render(
            page=page,
            script=script,
            script_source=_source_of(script),
            sections=[section for section in sections if section.strip()],
            version=tfmat.__version__,
            now=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        )
    )


def _script(name: str) -> str:
    """A script of `templates/`; "" for none."""
    if not name:
        return ""
    return (pathlib.Path(__file__).parent / "templates" / name).read_text("utf-8").strip()


def _source_of(script: str) -> str:
    """What lets the browser run this script and no other (Content Security Policy Level 3, hash sources)."""
    if not script:
        return ""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"; script-src 'sha256-{digest}'"


def _whole_or_note(section: Any) -> str:
    try:
        return section()
    except SENSELESS as error:
        note: Any = templates().get_template("parts.html").module
        return note.left_out(section.name.replace("_", " "), f"{type(error).__name__}: {error}")
