"""Whether a page is whole and well-formed, with the parser of the standard library."""

import html.parser
import re

_VOID = {"meta", "link", "br", "img", "input", "hr"}


class Checker(html.parser.HTMLParser):
    """Every tag is closed in turn, and no id stands twice."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag, attributes):
        self.ids += [value for name, value in attributes if name == "id"]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.ids += [value for name, value in attributes if name == "id"]

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (self.open[-3:], tag)
        self.open.pop()

    def handle_data(self, data):
        self.texts.append(data)


def checked(page: str) -> Checker:
    """Parses a page; fails where it is no HTML, or where it would load something."""
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    assert len(checker.ids) == len(set(checker.ids))
    # A link in the text is fine, an address that is loaded is not; and those of namespaces are names.
    loaded = re.findall(r'(?:src|href|data|action)="([^"]*)"|url\(([^)]*)\)|@import', page)
    assert all((one or other).startswith(("#", "data:")) for one, other in loaded), loaded
    assert "<script" not in page
    return checker
