"""JSON files with one place changed, removed or of another type, by a seed: what a hand or a disk makes of them."""

import copy
import json
import pathlib
import random
from collections.abc import Iterator
from typing import Any

_OTHERS: tuple[Any, ...] = (
    None, True, 0, -1, 3, 1.5, -2.5, 1e300, 2**62, "", "x", "0003", "../x", [], [1], ["a", None], [[]], {}, {"a": 1},
)  # fmt: skip


def damaged_texts(path: pathlib.Path, seed: int, count: int) -> Iterator[tuple[str, str]]:
    """(what was done, the file's new content), `count` times; a `.jsonl` file has one line changed."""
    draw = random.Random(f"{path.name} {seed}")
    lines = path.read_text("utf-8").splitlines() if path.suffix == ".jsonl" else []
    whole = None if lines else json.loads(path.read_text("utf-8"))
    for _ in range(count):
        if lines:
            number = draw.randrange(len(lines))
            what, content = damaged(json.loads(lines[number]), draw)
            changed = [*lines[:number], json.dumps(content), *lines[number + 1 :]]
            yield f"line {number + 1}, {what}", "\n".join(changed)
        else:
            what, content = damaged(whole, draw)
            yield what, json.dumps(content)


def damaged(content: Any, draw: random.Random) -> tuple[str, Any]:
    """(what was done, the content with one place changed)."""
    whole = {"": copy.deepcopy(content)}
    places = list(_places(whole, ""))
    # The places near the top are few beside the numbers of a long list.
    depth = draw.randint(0, max(name.count(".") for name, _, _ in places))
    name, holder, key = draw.choice([p for p in places if p[0].count(".") == depth] or places)
    if name and draw.random() < 0.25:
        del holder[key]
        return f"{name} removed", whole.get("")
    holder[key] = draw.choice([other for other in _OTHERS if other != holder[key]])
    return f"{name} = {holder[key]!r}", whole[""]


def _places(content: Any, name: str) -> Iterator[tuple[str, Any, Any]]:
    """(dotted name, dictionary or list, key) of everything inside."""
    keys = list(content) if isinstance(content, dict) else range(len(content))
    for key in keys:
        inner = f"{name}.{key}" if name else str(key)
        yield inner, content, key
        if isinstance(content[key], dict | list):
            yield from _places(content[key], inner)
