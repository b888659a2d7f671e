"""Runs a page of docs/gallery and writes it with its output: `python tools/gallery.py PAGE.py FOLDER`.

A page is a program with cells: `# %% [markdown]` begins text, `# %%` code, as in Jupyter and VS Code. What a code cell
prints stands below it, and so does each figure that it shows. FOLDER gets PAGE.md and PAGE_1.png, PAGE_2.png, ...
"""

import contextlib
import io
import os
import pathlib
import re
import sys
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot


def cells(program: str) -> list[tuple[bool, str]]:
    """Whether each cell is text, and its content."""
    _, *found = re.split(r"^# %%( \[markdown\])?\n", program, flags=re.MULTILINE)
    return [
        (bool(mark), re.sub(r"^# ?", "", body, flags=re.MULTILINE) if mark else body)
        for mark, body in zip(found[::2], found[1::2], strict=True)
    ]


def page(script: pathlib.Path, folder: pathlib.Path) -> str:
    """The page's Markdown, after its program has run here."""
    names: dict[str, Any] = {"__name__": "__main__"}
    parts = []
    pictures = 0
    for is_text, content in cells(script.read_text("utf-8")):
        if is_text:
            parts.append(content.strip())
            continue
        parts.append(f"```python\n{content.strip()}\n```")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(content, str(script), "exec"), names)
        if printed.getvalue().strip():
            parts.append(f"```text\n{printed.getvalue().rstrip()}\n```")
        for number in pyplot.get_fignums():
            pictures += 1
            name = f"{script.stem}_{pictures}.png"
            pyplot.figure(number).savefig(folder / name, dpi=110)
            parts.append(f"![figure {pictures} of this page]({name})")
        pyplot.close("all")
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    source, target = (pathlib.Path(word).resolve() for word in sys.argv[1:])
    (target / f"{source.stem}.md").write_text(page(source, target), "utf-8")
