"""The checked-in study and the text of its page; made again by python -m tfmat_tests.scaling.golden."""

import dataclasses
import html.parser
import pathlib
import re

from tfmat.scaling.model import Analysis
from tfmat.scaling.report import pictures, scaling_page
from tfmat.scaling.study import Assumptions, Measurements, read_measurements, write_measurements
from tfmat_tests.scaling.synthetic import Truth, study

FOLDER = pathlib.Path(__file__).parent / "golden"
TEXT = FOLDER / "page.txt"
ASSUMPTIONS = Assumptions(price_per_hour=0.5, watts_a_worker=20.0)


class _Texts(html.parser.HTMLParser):
    """The words of a page, a line a piece, without those inside pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = 0
        self.lines: list[str] = []

    def handle_starttag(self, tag, attributes):
        self.inside += tag in ("svg", "style", "footer")

    def handle_endtag(self, tag):
        self.inside -= tag in ("svg", "style", "footer")

    def handle_data(self, data):
        text = " ".join(data.split())
        if text and not self.inside:
            self.lines.append(text)


def text_of(page: str) -> str:
    """The words of a page without its pictures and its date."""
    parser = _Texts()
    parser.feed(page)
    return "\n".join(parser.lines) + "\n"


def golden_text() -> str:
    """The words of the page on the checked-in study, as the program writes them now."""
    analysis = Analysis(read_measurements(FOLDER), ASSUMPTIONS)
    return text_of(scaling_page(analysis, pictures(analysis), "golden"))


def numbers_and_words(text: str) -> tuple[list[float], list[str]]:
    """What is compared closely, and what exactly."""
    pattern = r"-?\d[\d,]*\.?\d*(?:e-?\d+)?"
    found = [float(each.replace(",", "")) for each in re.findall(pattern, text)]
    return found, re.sub(pattern, "#", text).splitlines()


def golden_study() -> Measurements:
    """Two and four workers, and eight on four processors."""
    whole = study(Truth(), workers=(2, 4, 8), batches=(75, 150), rounds=3, trained=True)
    repetitions = []
    for each in whole.repetitions:
        if each.point.workers == 8:
            point = dataclasses.replace(each.point, oversubscribed=True)
            seconds = 2.2 * each.seconds
            each = dataclasses.replace(each, point=point, seconds=seconds, ranks=(), training=())
        repetitions.append(each)
    lines = [
        dataclasses.replace(each, oversubscribed=each.workers == 8) for each in whole.allreduces
    ]
    return dataclasses.replace(whole, repetitions=tuple(repetitions), allreduces=tuple(lines))


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    write_measurements(FOLDER, golden_study())
    TEXT.write_text(golden_text(), "utf-8")
