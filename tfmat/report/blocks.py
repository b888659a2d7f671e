"""One HTML page in one file: sections of paragraphs, tables and pictures. Any report is built from these parts.

Nothing is loaded from anywhere and no script runs, so that the page opens offline, in an e-mail or in an archive. Every
text is escaped; light and dark follow the reader's system, and paper is white.
"""

import dataclasses
import html
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tfmat.report.page import Finding, style

# Of a finding, a tile or a badge: what it is called for those who see no colour.
LEVELS = {"good": "✓", "note": "•", "warn": "!", "bad": "✗"}
_LEVEL_WORDS = {"good": "good", "note": "note", "warn": "careful", "bad": "bad"}


class Block(Protocol):
    """A part of a page."""

    def html(self) -> str:
        """Its HTML, every text escaped."""
        ...


@dataclasses.dataclass(frozen=True)
class Paragraph:
    """Plain text; `quiet` for what only explains."""

    text: str
    quiet: bool = False

    def html(self) -> str:
        """A `<p>`."""
        return (
            f'<p class="quiet">{_text(self.text)}</p>'
            if self.quiet
            else f"<p>{_text(self.text)}</p>"
        )


@dataclasses.dataclass(frozen=True)
class Findings:
    """A list of findings."""

    findings: Sequence[Finding]

    def html(self) -> str:
        """A list, the level as a sign and as a word for screen readers."""
        items = "".join(
            f'<li class="{finding.level}"><span class="sign" role="img" '
            f'aria-label="{_LEVEL_WORDS[finding.level]}">{LEVELS[finding.level]}</span>'
            f"<span>{_text(finding.text)}</span></li>"
            for finding in self.findings
        )
        return f'<ul class="findings">{items}</ul>'


@dataclasses.dataclass(frozen=True)
class Tile:
    """A number that matters: `value` in large letters, what it is above, and a remark below."""

    label: str
    value: str
    remark: str = ""
    level: str = "note"


@dataclasses.dataclass(frozen=True)
class Tiles:
    """Numbers side by side."""

    tiles: Sequence[Tile]

    def html(self) -> str:
        """A description list."""
        items = "".join(
            f'<div class="tile {tile.level}"><dt>{_text(tile.label)}</dt><dd class="value">{_text(tile.value)}</dd>'
            f'<dd class="quiet">{_text(tile.remark)}</dd></div>'
            for tile in self.tiles
        )
        return f'<dl class="tiles">{items}</dl>'


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of texts; columns after the first stand to the right, or all to the left in a table of words."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    words: bool = False

    def html(self) -> str:
        """A table that scrolls by itself on a narrow screen."""
        head = "".join(f'<th scope="col">{_text(heading)}</th>' for heading in self.headings)
        body = "".join(
            f'<tr><th scope="row">{_text(row[0])}</th>{"".join(f"<td>{_text(cell)}</td>" for cell in row[1:])}</tr>'
            for row in self.rows
        )
        kind = ' class="words"' if self.words else ""
        head = f"<thead><tr>{head}</tr></thead>" if self.headings else ""
        # A box that scrolls must be reachable with the keyboard.
        table = (
            f'<div class="wide" tabindex="0"><table{kind}>{head}<tbody>{body}</tbody></table></div>'
        )
        return table + (Paragraph(self.note, quiet=True).html() if self.note else "")


@dataclasses.dataclass(frozen=True)
class Plot:
    """A picture with the sentence below it: `svg` is what `tfmat.report.drawing.inline_svg` made."""

    svg: str
    caption: str = ""

    def html(self) -> str:
        """A `<figure>`."""
        caption = f"<figcaption>{_text(self.caption)}</figcaption>" if self.caption else ""
        return f"<figure>{self.svg}{caption}</figure>"


@dataclasses.dataclass(frozen=True)
class Group:
    """Blocks below each other, where one is wanted."""

    blocks: Sequence[Block]

    def html(self) -> str:
        """A `<div>`."""
        return f"<div>{''.join(block.html() for block in self.blocks)}</div>"


@dataclasses.dataclass(frozen=True)
class Columns:
    """Blocks side by side where there is room, below each other on a telephone; `columns` (1 to 3) at the most."""

    blocks: Sequence[Block]
    columns: int = 2

    def html(self) -> str:
        """A grid."""
        inside = "".join(block.html() for block in self.blocks)
        return f'<div class="columns columns-{self.columns}">{inside}</div>'


@dataclasses.dataclass(frozen=True)
class Details:
    """What is shown on a click."""

    summary: str
    blocks: Sequence[Block]

    def html(self) -> str:
        """A `<details>`."""
        inside = "".join(block.html() for block in self.blocks)
        return f"<details><summary>{_text(self.summary)}</summary>{inside}</details>"


@dataclasses.dataclass(frozen=True)
class Section:
    """A heading and what stands below it; `level` colours the edge of a section that is a verdict."""

    title: str
    blocks: Sequence[Block]
    level: str = ""

    def html(self) -> str:
        """A `<section>`."""
        kind = f' class="verdict {self.level}"' if self.level else ""
        inside = "".join(block.html() for block in self.blocks)
        return f"<section{kind}><h2>{_text(self.title)}</h2>{inside}</section>"


@dataclasses.dataclass(frozen=True)
class Page:
    """A report.

    Attributes:
      title: of the page and of the browser's tab.
      subtitle: one line below it.
      badge: (level, word) beside the title, such as the state of a run.
      sections: from top to bottom; the verdict first.
      footer: one line.
    """

    title: str
    subtitle: str
    badge: tuple[str, str]
    sections: Sequence[Section]
    footer: str

    def html(self) -> str:
        """The whole file."""
        level, word = self.badge
        body = "\n".join(section.html() for section in self.sections)
        # The policy makes the browser itself refuse whatever a mistake of ours would load.
        return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{_text(self.title)}</title>
<link rel="icon" href="data:,">
<style>{style()}</style>
</head>
<body>
<header>
<h1>{_text(self.title)} <span class="badge {level}">{_text(word)}</span></h1>
<p class="quiet">{_text(self.subtitle)}</p>
</header>
<main>
{body}
</main>
<footer><p class="quiet">{_text(self.footer)}</p></footer>
</body>
</html>
"""


def _text(text: str) -> str:
    return html.escape(text, quote=True)


def program_text(session: Mapping[str, Any]) -> str:
    """Versions and git revision of a session, as `tfmat.launch.provenance.describe_session` tells them."""
    versions = ", ".join(
        f"{name} {version}" for name, version in (session.get("versions") or {}).items()
    )
    git = session.get("git")
    if not git:
        return f"{versions}; not run from a git checkout"
    changed = ", with changes that are not in it" if git.get("changed") else ""
    return f"{versions}; git revision {git.get('revision')}{changed}"


def machine_text(machine: Mapping[str, Any]) -> str:
    """Name, processors, memory, GPUs and system of a session's machine."""
    gpus = ", ".join(machine.get("gpus") or []) or "no GPU"
    return (
        f"{machine.get('name', '–')}: {machine.get('processor', '–')}, "
        f"{machine.get('usable_processors', '–')} processors, "
        f"{machine.get('memory_gib', '–')} GiB, {gpus}; {machine.get('system', '–')}"
    )
