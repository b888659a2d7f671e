"""The examples in docs/ run as they stand there; the site builds, hangs together and fits on a telephone."""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import urllib.parse
from collections.abc import Iterator
from html.parser import HTMLParser

import numpy as np
import pytest

from tfmat.cli.main import COMMANDS, main
from tfmat.config import OPTIONS, Settings, load_config
from tfmat.errors import InputError
from tfmat.materials import LAWS, History, find_law
from tfmat.records.files import find_records, load_records
from tfmat.records.record import CurveTarget
from tfmat_tests.imports_test import LAYERS, LEAVES
from tfmat_tests.processes import ForkServer, rank_environment
from tfmat_tests.what_works import what_works

PROJECT = pathlib.Path(__file__).resolve().parents[1]
DOCS = PROJECT / "docs"


def test_your_own_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (DOCS / "your_own_model.md").read_text("utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    for _ in range(2):  # started again, it finds the run done and ends the same way
        namespace: dict = {}
        exec(compile(program, "your_own_model.md", "exec"), namespace)
    # The variance of sin(x) y on this square is 1.6: the model has learnt it.
    assert namespace["trainer"].evaluate(namespace["x"], namespace["y"])["loss"] < 0.02
    status = json.loads((tmp_path / "runs" / "sine" / "status.json").read_text())
    assert status["state"] == "done"


def test_dtensor(tmp_path, monkeypatch, capsys):
    text = (DOCS / "dtensor.md").read_text("utf-8")
    monkeypatch.chdir(DOCS.parent)
    assert main(["layouts", "--config=configs/wide.py", "--config.mesh=model:2"]) == 0
    shown = [line.strip() for line in text.splitlines()]
    printed = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert [line for line in printed if line not in shown] == []

    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "mesh").mkdir(parents=True)
    held = {"mesh": "batch:2", "bytes_per_device": {"weights": [8, 8]}, "notices": []}
    (tmp_path / "runs" / "mesh" / "devices.json").write_text(json.dumps(held))
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(program, "dtensor.md", "exec"), {})
    assert capsys.readouterr().out == "weights [8, 8]\n"


def _copies(page: str, folder: str) -> str:
    """The page's text, of lines that are whole, once its `cp` has filled the present folder."""
    text = (DOCS / page).read_text("utf-8").replace("\\\n", "")
    assert f"    cp docs/examples/{folder}/*.csv .\n" in text
    for path in (DOCS / "examples" / folder).glob("*.csv"):
        shutil.copy(path, path.name)
    return text


def test_cyclic_shear_of_a_ply(tmp_path, monkeypatch, capsys):
    """The files follow the law of CompDam, and the page's commands, one after the other, print what it shows."""
    monkeypatch.chdir(tmp_path)
    text = _copies("cyclic.md", "plies").partition("## Plies")[2]
    strain, stress = np.loadtxt("im7_8552.csv", delimiter=",", skiprows=1)[:25].T
    plastic = 4.412e-10 * np.sign(stress) * np.abs(stress) ** 5.934  # γ = (τ + a·τⁿ)/G0
    assert np.std(stress - (5290.0 * strain - plastic)) < 2.0
    commands = re.findall(r"^    tfmat (identify .*)$", text, re.MULTILINE)
    assert len(commands) == 5
    for command in commands:
        assert main(command.split()) == 0
    printed = capsys.readouterr().out
    rows = re.findall(r"^    (│.*│)$", text, re.MULTILINE)
    assert len(rows) == 10 and [row for row in rows if row not in printed] == []
    told = " ".join(re.sub(r"^    ", "", text, flags=re.MULTILINE).split())
    for warning in re.findall(r"^warning: (.{60})", printed, re.MULTILINE):
        if "cannot be identified from this test" in warning and "dmax" not in warning:
            assert warning in told
    assert "DO NOT USE THIS ANSWER: no unloading" in printed
    names = {path.name for path in (tmp_path / "cards").iterdir()}
    assert names == {"im7_8552.abaqus.inp", "im7_8552.ls_dyna.k"}


def test_relaxation_and_creep(tmp_path, monkeypatch):
    """The page's files are the tests which its command names, of the parameters that it tells."""
    monkeypatch.chdir(tmp_path)
    text = _copies("rates.md", "creep")
    (command,) = re.findall(r"^    tfmat identify (relaxation=\S+ +creep.*)$", text, re.MULTILINE)
    files = [word for word in command.split() if not word.startswith("--")]
    law = find_law("perzyna")
    (record,), errors = load_records(find_records(files, law), CurveTarget.of_tests(law))
    assert errors == [] and record.warnings == []
    told = "E 200 GPa, σ0 150 MPa, Q 120 MPa, b 25, K 220 and n 6"
    assert told in " ".join(text.split())
    truth = np.array([[200e3, 150.0, 120.0, 25.0, 220.0, 6.0]])
    for test in record.tests:
        noise = 1.0 if test.programme.drives == "strain" else 1e-5
        residual = law.respond(test.history, truth)[0] - test.response
        assert np.std(residual) == pytest.approx(noise, rel=0.3)


def test_a_cyclic_law_of_your_own():
    """Linear kinematic hardening in closed form: slope E·C/(E + C) beyond yield, elastic over 2·σ0 after a turn."""
    name = f"{DOCS / 'examples' / 'prager.py'}:Prager"
    law = find_law(name)
    modulus, yield_stress, slope = 200e3, 300.0, 5000.0
    tangent = modulus * slope / (modulus + slope)
    turn = 0.02 - 2 * yield_stress / modulus  # where it yields again
    top = yield_stress + tangent * (0.02 - yield_stress / modulus)
    below = top - 2 * yield_stress
    history = History("uniaxial", strain=np.array([[0.0, 0.02, turn, -0.02]]))
    found = law.respond(history, np.array([[modulus, yield_stress, slope]]))
    np.testing.assert_allclose(found[0], [0.0, top, below, below - tangent * (turn + 0.02)])
    assert main(["laws", name]) == 0


def test_trials_of_your_own(programs, tmp_path):
    text = (DOCS / "tuning.md").read_text("utf-8")
    _, program, search = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "my_trial.py").write_text(program)
    (tmp_path / "own_search.py").write_text(search)
    command = f"{programs.python_command} my_trial.py {{config}} {{workdir}} {{seed}}"
    short = ("--config.train_for=2epochs", "--max_trials=1")
    flags = ("--config=own_search.py", "--workdir=mine", f"--trial_command={command}", *short)
    ended = programs.start("tune", *flags, cwd=tmp_path, load=["tfmat.tuning.oracle"]).wait()
    assert ended.status == 0, ended.err
    lines = (tmp_path / "mine" / "trials" / "0000" / "seed-0" / "metrics.jsonl").read_text()
    losses = [json.loads(line)["val_loss"] for line in lines.splitlines()]
    assert len(losses) == 2
    assert f"best: trial 0000, val_loss {min(losses):.4g}" in ended.err
    best = load_config(tmp_path / "mine" / "best.py")
    assert 1e-6 <= best.own.decay <= 1e-2
    with pytest.raises(InputError, match="own.decay is for a program of your own"):
        Settings.of(best)


def test_contributing_says_the_same_layers():
    text = (PROJECT / "CONTRIBUTING.md").read_text("utf-8").partition("## Layers")[2]
    said: dict[str, set[str]] = {}
    for room, below in re.findall(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|$", text, re.MULTILINE):
        said[room] = (
            set(said) if "every room above" in below else set(re.findall(r"`(\w+)`", below))
        )
    assert said == {room: below for room, below in LAYERS.items() if room not in LEAVES}


def test_contributing_names_what_is_there():
    """Each name in a row of its tables of places stands in one of the files that the row names."""
    text = (PROJECT / "CONTRIBUTING.md").read_text("utf-8").partition("## Where is")[2]
    missing = []
    for row in re.findall(r"^\| (.*) \|$", text.partition("## Layers")[0], re.MULTILINE):
        quoted = re.findall(r"`([^`]+)`", row)
        files = {name for name in quoted if (PROJECT / name).is_file()}
        source = "".join((PROJECT / name).read_text("utf-8") for name in files)
        names = {name for name in quoted if re.fullmatch(r"\w+(\.\w+)?", name)} - files
        missing += [name for name in names if not re.search(rf"\b{name.split('.')[-1]}\b", source)]
    assert missing == []


# MOST_PAGES, MOST_WORDS: pages of the site and words in them, besides what CONTRIBUTING calls generated reference.
MOST_PAGES = 25
MOST_WORDS = 30_000
# LONGEST_GUIDE: words outside code that a guide may have; a reader finishes them in five minutes.
LONGEST_GUIDE = 900
# LONGEST_SENTENCE: words that no sentence of a page exceeds.
LONGEST_SENTENCE = 40
# MOST_FOUND: share of sentences that may be hard to read (`_hard_to_read`).
MOST_FOUND = 0.06


def _without_code(text: str) -> str:
    text = re.sub(r"```.*?```|<!--.*?-->", "", text, flags=re.DOTALL)
    return re.sub(r"^ {4}.*$", "", text, flags=re.MULTILINE)


def _sentences(page: pathlib.Path) -> Iterator[str]:
    """The sentences of a page's paragraphs and lists: no code, tables, headings or pictures; a link is its text."""
    text = re.sub(r"^(\||#|!\[).*$", "", _without_code(page.read_text("utf-8")), flags=re.MULTILINE)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "`code`", text))
    for paragraph in re.split(r"\n\s*\n|\n\s*(?:[*-]|\d+\.)\s", text):
        yield from re.split(r"(?<=[.:?!])\s+(?=[A-Z`*(])", " ".join(paragraph.split()))


def _words(sentence: str) -> int:
    return len(re.findall(r"[^\W\d][\w’'-]*", sentence))


def _hard_to_read(sentence: str) -> bool:
    """Whether a sentence is long or nested, or begins with a word that keeps its subject waiting."""
    return (
        _words(sentence) > 30
        or sentence.count(";") > 1
        or bool(re.match(r"(Of|By|What|Who|Which|That|Those) (?!.*\?$)", sentence))
        or bool(re.search(r"\b(that of|those of|than that|as it is|in place of)\b", sentence))
        or bool(re.search(r"\([^()]*\(", sentence))
    )


def test_pages_are_plain():
    pages = [PROJECT / "README.md", *DOCS.glob("*.md")]
    sentences = [(page.name, one) for page in pages for one in _sentences(page)]
    assert [found for found in sentences if _words(found[1]) > LONGEST_SENTENCE] == []
    hard = [found for found in sentences if _hard_to_read(found[1])]
    assert len(hard) <= MOST_FOUND * len(sentences), hard


def _menu(section: str, following: str) -> list[str]:
    """The pages of a section of the site's menu."""
    menu = (PROJECT / "mkdocs.yml").read_text("utf-8")
    part = menu.split(f"- {section}:")[1].split(f"- {following}:")[0]
    return re.findall(r": (\w+\.md)$", part, re.MULTILINE)


def test_pages_are_few():
    reference = _menu("Reference", "Results")
    texts = {page.name: page.read_text("utf-8") for page in DOCS.glob("*.md")}
    written = {
        name: len(text.split())
        for name, text in texts.items()
        if name not in reference or "<!-- generated:" not in text
    }
    assert len(written) <= MOST_PAGES and sum(written.values()) <= MOST_WORDS


def test_guides_are_short():
    names = _menu("Guides", "Gallery")
    words = {
        name: len(re.findall(r"\S*\w\S*", _without_code((DOCS / name).read_text("utf-8"))))
        for name in names
    }
    assert len(words) >= 12 and {k: v for k, v in words.items() if v > LONGEST_GUIDE} == {}


# Backends in the order of the columns; y: yes, r: refused, -: no effect.
WHAT_WORKS_WHERE = """
profile=true              single y  horovod y  mpi y  dtensor r  asynchronous r
accumulate=2              single y  horovod y  mpi y  dtensor r  asynchronous r
compression=powersgd      single -  horovod y  mpi y  dtensor r  asynchronous r
reduction=hierarchical    single -  horovod y  mpi y  dtensor r  asynchronous r
bucket_mb=1.0             single -  horovod y  mpi y  dtensor r  asynchronous r
offload=slots             single y  horovod y  mpi y  dtensor r  asynchronous r
zero_stage=2              single -  horovod y  mpi y  dtensor y  asynchronous r
local_steps=16            single -  horovod y  mpi y  dtensor r  asynchronous r
model.recompute=every:2   single y  horovod y  mpi y  dtensor y  asynchronous y
pipeline stages           single r  horovod y  mpi y  dtensor r  asynchronous r
averaging=true            single r  horovod r  mpi r  dtensor r  asynchronous y
quorum=2                  single r  horovod r  mpi r  dtensor r  asynchronous y
staleness_scaling=sqrt    single r  horovod r  mpi r  dtensor r  asynchronous y
"""


def test_what_works_where():
    """Written by hand; the page's table is made of what the program refuses."""
    found, pairs = what_works()
    words = {"y": "yes", "r": "refused", "-": "no effect"}
    lines = [re.split(r" {2,}", line) for line in WHAT_WORKS_WHERE.strip().splitlines()]
    assert found == {
        name: {backend: words[mark] for backend, mark in map(str.split, cells)}
        for name, *cells in lines
    }
    assert pairs["offload=slots"] == "zero_stage=2, local_steps=16"
    assert pairs["quorum=2"] == "averaging=true, staleness_scaling=sqrt"


@pytest.fixture(scope="module")
def site(programs: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The site, as strict as `tools/docs build`: a warning is an error. The gallery's programs are forks, too."""
    if os.environ.get("CI") != "true" and importlib.util.find_spec("mkdocs") is None:
        pytest.skip("the docs extra is not installed: ./tools/setup docs")
    folder = tmp_path_factory.mktemp("site")
    command = ("-m", "mkdocs", "build", "--strict", f"--site-dir={folder}")
    programs.python(*command, NO_MKDOCS_2_WARNING="1", **rank_environment())
    return folder


def _pages(site: pathlib.Path) -> list[pathlib.Path]:
    return sorted(set(site.rglob("*.html")) - {site / "404.html"})


class _Article(HTMLParser):
    """Collects the links in a page's own text: no menu's, which a telephone hides."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = self._inside or tag == "article"
        if self._inside and tag == "a":
            self.links.append(dict(attrs).get("href") or "")

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "article"


def _linked(page: pathlib.Path) -> set[pathlib.Path]:
    article = _Article()
    article.feed(page.read_text("utf-8"))
    paths = [urllib.parse.urlsplit(link) for link in article.links]
    return {(page.parent / url.path).resolve() for url in paths if not url.scheme and url.path}


def test_every_page_is_two_clicks_away(site):
    reached = {site / "index.html"}
    for _ in range(2):
        reached |= {
            target for page in reached if page.suffix == ".html" for target in _linked(page)
        }
    assert [page.name for page in _pages(site) if page not in reached] == []


def test_the_reference_is_complete(site):
    """Every command, key, law and public name has its place, made from the program itself."""
    headings = {
        name: set(re.findall(r'<h2 id="([^"]+)"', (site / f"{name}.html").read_text("utf-8")))
        for name in ("commands", "laws", "api")
    }
    assert headings["commands"] == {f"tfmat-{name}" for name in COMMANDS}
    assert headings["laws"] == set(LAWS)
    assert len(headings["api"]) >= 19
    keys = (site / "config.html").read_text("utf-8")
    assert [name for name in OPTIONS if f"<code>{name}</code>" not in keys] == []


def test_gallery_shows_what_its_programs_print(site):
    shown = {
        path.stem: (site / "gallery" / f"{path.stem}.html").read_text("utf-8")
        for path in (DOCS / "gallery").glob("*.py")
    }
    assert (
        "*PLASTIC" in shown["tension_to_card"]
        and "tension_to_card_1.png" in shown["tension_to_card"]
    )
    assert "*HYPERELASTIC, MOONEY-RIVLIN" in shown["rubber"] and "rubber_1.png" in shown["rubber"]
    assert re.search("status: (corrected|resampled|chains)", shown["posterior"])
    assert "epoch 3.0: validation loss" in shown["network"]
    losses = re.findall(r"(?:one device|two devices): loss ([\d.]+)", shown["your_own_fit"])
    assert len(losses) == 2 and float(losses[0]) == pytest.approx(float(losses[1]), rel=1e-3)
    if importlib.util.find_spec("horovod"):
        weights = re.findall(
            r"process \d of 2: loss [\d.]+, weights ([\d.-]+)", shown["your_own_fit"]
        )
        assert len(weights) == 2 and weights[0] == weights[1]


def test_pages_fit_and_ask_nobody(site, browser):
    """No page is wider than a desk's window or a telephone's, and none asks for what does not lie beside it."""
    wide = []
    seen = browser.open(site / "index.html")
    for page in _pages(site):
        browser.page.goto(page.as_uri())
        for width in (1280, 400):
            browser.page.set_viewport_size({"width": width, "height": 900})
            needed = browser.evaluate("document.documentElement.scrollWidth")
            if needed > width:
                wide.append((page.name, width, needed))
    asked = [url for url in seen.requests if not url.startswith((site.as_uri(), "data:"))]
    assert (wide, asked, seen.complaints) == ([], [], [])


def test_its_command_explains_itself():
    done = subprocess.run([PROJECT / "tools" / "docs", "biuld"], capture_output=True, text=True)
    assert done.returncode == 2 and "Usage: tools/docs build" in done.stderr
