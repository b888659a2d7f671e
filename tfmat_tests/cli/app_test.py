"""The page of `tfmat app`: what it does without a browser, and a real server with a real browser."""

import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys

import numpy as np
import openpyxl
import pytest
import scipy.stats

import tfmat
from tfmat.cli import app as module
from tfmat.cli.app import Work
from tfmat.cli.main import main
from tfmat.errors import InputError
from tfmat.identification.api import KINDS, TENSION, rank
from tfmat.materials import LAWS, find_law
from tfmat.records.files import write_example_curve, write_example_tests
from tfmat.records.simulation import CurveSettings
from tfmat_tests.report.browser import open_chromium

EXAMPLE = pathlib.Path(tfmat.__file__).parent / "examples"
VOCE = EXAMPLE / "voce_simulated_E_200000_sigma0_300_Q_250_b_12.csv"
# PATIENCE: seconds for what takes one on an idle machine.
PATIENCE = 120


def add(work, name, content):
    path = work.place(name)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return work.add(path)


def fit(work, *laws):
    """The answers of each curve; `laws`: instead of all for the test."""
    work.laws = list(laws) or work.laws
    for file, law, identify in work.jobs():
        work.take(file, law, module._found_or_why(identify))
    return [*work.answers.values()]


@pytest.fixture
def work(tmp_path):
    work = Work(str(tmp_path))
    yield work
    work.close()
    assert list(tmp_path.iterdir()) == []


def test_page_answers_as_the_library_does_and_ranks_the_laws(work):
    add(work, "specimen 1.csv", VOCE.read_bytes())
    fit(work)
    assert work.errors == {}
    ((name, found),) = work.answers.items()
    (expected,) = tfmat.identify(str(work.folder / "specimen 1.csv"), law="voce")
    assert found["voce"].to_json() == expected.to_json()
    assert [each.law for each in work.ranking(name)][:2] == ["voce", "hockett_sherby"]
    assert json.loads(module.json_of([found["voce"]])) == json.loads(
        json.dumps([expected.to_json()])
    )


def test_known_values_hold_for_the_laws_that_have_them(work):
    add(work, "a.csv", VOCE.read_bytes())
    work.known = {"E": 190000.0, "b": 11.0}
    (found,) = fit(work, "voce", "swift")
    fixed = {law: [n for n, v in found[law].parameters.items() if v.fixed] for law in found}
    assert fixed == {"voce": ["E", "b"], "swift": ["E"]}


def test_evidence_is_the_ratio_of_the_likelihoods_less_the_price_of_parameters(work):
    """Against scipy's normal density at the noise that is likeliest, and Schwarz's price."""
    add(work, "a.csv", VOCE.read_bytes())
    (found,), scores = fit(work, "voce", "hollomon"), {}
    for law, answer in found.items():
        residual = answer.curve.stress_mpa - answer.resimulated_mpa
        noise = np.sqrt(np.mean(residual**2))
        likelihood = scipy.stats.norm.logpdf(residual, scale=noise).sum()
        scores[law] = 2 * likelihood - len(answer.parameters) * np.log(len(residual))
    first, second = rank({law: [answer] for law, answer in found.items()})
    assert (first.law, first.evidence, first.near_tie) == ("voce", 0.0, True)
    assert (second.law, second.near_tie) == ("hollomon", False)
    np.testing.assert_allclose(second.evidence, scores["hollomon"] - scores["voce"], rtol=1e-6)


def test_files_of_several_tests_are_one_material(work):
    """Rubber after Treloar's closed forms of the neo-Hookean law, G = 0.4 MPa (Physics of Rubber Elasticity, 1975)."""
    stretch = np.linspace(1.0, 1.8, 60)
    powers = {"uniaxial": -2, "equibiaxial": -5, "planar": -3}
    noise = np.random.default_rng(1)
    for test, power in powers.items():
        stress = 0.4 * (stretch - stretch**power) + 1e-3 * noise.standard_normal(60)
        rows = (f"{e:.6f},{s:.6f}\n" for e, s in zip(stretch - 1.0, stress, strict=True))
        # The first has the name that a table of tests has elsewhere.
        name = "tests.csv" if test == "uniaxial" else f"lab 3 {test}.csv"
        add(work, name, "strain [-],stress [MPa]\n" + "".join(rows))
    # The name of the first promises a table of tests.
    work.find_kind()
    assert (work.kind.title, work.question) == ("rubber", "")
    # Its name does not say which test it is, and nobody guesses.
    assert (work.files["tests.csv"].test, work.jobs()) == ("", [])
    work.files["tests.csv"].test = "uniaxial"
    assert [file.test for file in work.files.values()] == list(powers)
    (found,) = fit(work, "neo_hooke")
    answer = found["neo_hooke"]
    assert work.errors == {}
    assert (work.folder / "tests.csv").is_file()
    assert [test.programme.name for test in answer.curve.tests] == list(powers)
    ((_, modulus),) = answer.parameters.items()
    assert modulus.value == pytest.approx(0.4, rel=0.01)
    assert len(module.chart_of(answer)["series"]) == 3 * len(powers)


def test_each_file_of_one_material_is_read_by_its_own_menus(work):
    """Rubber of G = 0.4 MPa, whose stress is in MPa in one file and in ksi in the other."""
    work.choose(next(kind for kind in KINDS if kind.title == "rubber"))
    stretch = np.linspace(1.0, 1.8, 60)
    for test, power, unit in (("uniaxial", -2, "MPa"), ("planar", -3, "ksi")):
        stress = 0.4 * (stretch - stretch**power) / (6.894757 if unit == "ksi" else 1.0)
        rows = (f"{e:.6f},{s:.8f}\n" for e, s in zip(stretch - 1.0, stress, strict=True))
        file = add(work, f"{test}.csv", "strain [-],stress\n" + "".join(rows))
        file.options = {"stress_unit": unit}
    (found,) = fit(work, "neo_hooke")
    ((_, modulus),) = found["neo_hooke"].parameters.items()
    assert modulus.value == pytest.approx(0.4, rel=0.001)
    assert "in MPa (as given)" in work.files["uniaxial.csv"].read
    assert "in ksi (as given)" in work.files["planar.csv"].read


def test_tests_at_several_rates_are_one_material(work):
    """Two tests that harden, at rates a factor of 10,000 apart."""
    strain = np.linspace(0, 0.1, 80)
    for rate in (0.01, 100.0):
        yield_stress = 400 * (1 + 0.02 * np.log(rate)) + 1500 * strain
        stress = np.minimum(200000 * strain, yield_stress)
        rows = (f"{e:.6f},{s:.4f}\n" for e, s in zip(strain, stress, strict=True))
        add(work, f"test {rate:g}.csv", "true strain [-],true stress [MPa]\n" + "".join(rows))
    work.choose(next(kind for kind in KINDS if "rates" in kind.title))
    for rate, file in zip((0.01, 100.0), work.files.values(), strict=True):
        file.rate, file.temperature = rate, 20.0
    fit(work)
    assert work.errors == {}
    ((name, found),) = work.answers.items()
    assert name == "material"
    assert [test.rate for test in found["johnson_cook"].curve.tests] == [0.01, 100.0]


def test_files_that_do_not_say_what_was_tested_are_asked_for_it(work):
    """A relaxation may be a polymer's or a metal's, and files of two kinds are not one material's."""
    time = np.concatenate([np.linspace(0, 1, 10), np.geomspace(1.5, 1000, 60)])
    stress = 100 * np.minimum(time, 1) * np.exp(-np.maximum(time - 1, 0) / 500)
    rows = zip(time, np.minimum(time, 1) / 100, stress, strict=True)
    text = "".join(f"{t:.4f},{e:.6f},{s:.4f}\n" for t, e, s in rows)
    add(work, "relax.csv", f"time [s],strain [-],stress [MPa]\n{text}")
    work.find_kind()
    assert work.question.startswith(
        "relax holds its strain while the stress falls: a relaxation test; choose what"
    )
    assert work.jobs() == []
    work.choose(next(kind for kind in KINDS if kind.title == "relaxation of a polymer"))
    assert (work.question, len(work.jobs())) == ("", 1)


def test_what_was_read_of_a_file_is_told(work):
    add(work, "a.csv", VOCE.read_bytes())
    fit(work, "voce")
    assert work.files["a.csv"].read == (
        "strain from column 'true_strain' in - (from the header), "
        "stress from column 'true_stress' in MPa (from the header)"
    )


def test_menus_offer_the_sheet_of_the_curve_and_its_columns(work):
    """As machines write them: a sheet of settings and one of results stand before the specimens."""
    points = np.loadtxt(VOCE, delimiter=",", comments=("#", "t", "E"))
    path = work.place("lab.xlsx")
    book = openpyxl.Workbook()
    book.active.append(["Order", "A-17"])
    results = book.create_sheet("Results")
    results.append(["Specimen", "Rm", "Ag"])
    results.append([1, 500.0, 14.5])
    for name, factor in (("Specimen 1", 1.0), ("Specimen 2", 1.1)):
        sheet = book.create_sheet(name)
        sheet.append(["time [s]", "true strain [-]", "true stress [MPa]"])
        for time, (strain, stress) in enumerate(points):
            sheet.append([time, strain, factor * stress])
    book.save(path)
    file = work.add(path)
    assert file.columns == ["time [s]", "true strain [-]", "true stress [MPa]"]
    assert "sheet" in module.menus_for(TENSION, file)
    fit(work, "voce")
    assert sorted(work.answers) == ["lab_Specimen 1", "lab_Specimen 2"]
    work.answers.clear()
    file.options = {"sheet": "Specimen 2", "strain_column": "2", "stress_column": "3"}
    (found,) = fit(work)
    assert found["voce"].parameters["sigma0"].value == pytest.approx(330.0, rel=0.02)


def test_files_that_differ_in_their_endings_are_two_specimens(work):
    add(work, "a.csv", VOCE.read_bytes())
    add(work, "a.txt", VOCE.read_bytes())
    fit(work, "voce")
    assert sorted(work.answers) == ["a.csv", "a.txt"]


@pytest.mark.parametrize("law", ["voce", "voce_chaboche"])
def test_a_file_is_read_once_for_all_laws_and_again_for_other_menus(work, law, tmp_path_factory):
    """The file is gone after the first law; laws of cycles clean its points each in their own way."""
    folder = tmp_path_factory.mktemp("example")
    example = folder / "voce.csv"
    if law == "voce":
        write_example_curve(find_law(law), example)
    else:
        example = write_example_tests(CurveSettings(law=law), folder) / "1_cyclic.csv"
    file = add(work, "a.csv", example.read_bytes())
    work.find_kind()
    work.laws = work.laws[:2]
    (name, first, identify), (_, second, other) = work.jobs()
    work.take(name, first, identify())
    file.path.unlink()
    work.take(name, second, other())
    (found,) = work.answers.values()
    (expected,) = tfmat.identify(str(example), law=second)
    values = {name: value.value for name, value in expected.parameters.items()}
    assert {name: value.value for name, value in found[second].parameters.items()} == values
    file.options = {"stress_unit": "ksi"}
    with pytest.raises(InputError, match="no such file"):
        other()


def test_errors_do_not_speak_of_the_pages_own_folder(work):
    add(work, "bad.csv", VOCE.read_text().replace("true_stress [MPa]", "torque"))
    fit(work, "voce")
    assert work.errors["bad.csv", "voce"].startswith("bad.csv: column 'torque' is of a torsion")


def test_json_holds_the_ranking_as_the_commands_does(work):
    add(work, "a.csv", VOCE.read_bytes())
    fit(work, "voce", "swift")
    (entry,) = json.loads(module.json_of([work.ranked("a", "voce")]))
    assert [each["law"] for each in entry["ranking"]] == ["voce", "swift"]
    assert work.ranked("a", "voce").ranking == work.best()[0].ranking


def test_figure_says_which_strain_and_stress_it_shows(work):
    add(work, "a.csv", VOCE.read_bytes())
    fit(work, "voce")
    for chart in (module.chart_of(work.best()[0]), module.comparison_chart(work.best())):
        x = chart["xAxis"][-1] if isinstance(chart["xAxis"], list) else chart["xAxis"]
        assert x["name"] == "true strain [-]"
        assert "true stress [MPa]" in str(chart["yAxis"])


def test_a_defect_at_one_file_is_told_beside_it(capsys):
    def broken():
        raise ZeroDivisionError("x")

    assert module._found_or_why(broken).startswith("a defect of tfmat (ZeroDivisionError: x)")
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (
            "say --stress_unit=kip or give it (--fix)",
            "say “unit of the stress or load: kip” or give it (“known values”)",
        ),
        ("--area=MM2; --window=,0.02", "“area [mm²]”; the command's --window=,0.02"),
        ("identify with --law=ludwik", "identify with “Ludwik 1909”"),
        ("choose --law=hahn_tsai", "choose “shear of a ply” and “Hahn–Tsai 1973”"),
    ],
)
def test_flags_in_warnings_become_the_words_of_the_menus(said, shown):
    assert module.in_menu_words(said) == shown


@pytest.mark.parametrize("name", ["../../a.csv", "/etc/a.csv", "C:\\lab\\a.csv", "a.csv"])
def test_names_from_a_browser_stay_in_the_folder(work, name):
    assert work.place(name) == work.folder / "a.csv"


def test_too_much_is_refused(work, monkeypatch):
    monkeypatch.setattr(module, "MOST_BYTES", 1000)
    monkeypatch.setattr(module, "MOST_FILES", 1)
    assert "more than" in add(work, "a.csv", VOCE.read_bytes()).error
    assert work.jobs() == []
    with pytest.raises(InputError, match="take some away"):
        work.place("b.csv")


# A server and a browser.


def test_a_port_that_cannot_be_had_is_one_line(capsys):
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert main(["app", f"--port={other.getsockname()[1]}"]) == 2
    assert "cannot be had: Address already in use" in capsys.readouterr().err
    assert main(["app", "--port=65536"]) == 2
    assert "65536 is not an integer in the range [0, 65535]" in capsys.readouterr().err


@contextlib.contextmanager
def served(folder):
    """The address of a page; the server ends in order."""
    command = [sys.executable, "-P", "-m", "tfmat", "app", "--nobrowser"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(folder)}
    ) as process:
        try:
            assert process.stdout is not None
            match = re.search(r"http://\S+", process.stdout.readline())
            assert match is not None
            yield match[0]
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 0
            assert list(folder.iterdir()) == []


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with served(tmp_path_factory.mktemp("page")) as address:
        yield address


@pytest.fixture(scope="module")
def browser():
    with open_chromium() as browser:
        yield browser


@pytest.fixture
def page(browser, address):
    """An open page that asks nobody else for anything, and complains of nothing."""
    with contextlib.closing(new_page(browser, address)) as page:
        yield page
        assert page.complaints == []
        assert {re.match(r"\w+://[^/]*", each)[0] for each in page.asked} <= {
            re.match(r"http://[^/]*", address)[0],
            *(each for each in page.asked if each.startswith(("data:", "blob:"))),
        }


def new_page(browser, address, width=1280):
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.complaints, page.asked = [], []
    page.on("console", lambda m: page.complaints.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("request", lambda request: page.asked.append(request.url))
    page.set_default_timeout(PATIENCE * 1000)
    page.goto(address)
    page.get_by_text("Nothing leaves this computer").wait_for()
    return page


def drop(page, *files):
    """Files as (name, content), or paths; waits until all is fitted."""
    given = [
        {"name": each[0], "mimeType": "text/csv", "buffer": each[1].encode()}
        if isinstance(each, tuple)
        else str(each)
        for each in files
    ]
    with fitting(page):
        page.set_input_files("input[type=file]", given)


@contextlib.contextmanager
def fitting(page):
    """Waits until what is done inside has been fitted."""
    count = "Number(document.querySelector('[data-fitted]').dataset.fitted)"
    before = page.evaluate(count)
    yield
    page.wait_for_function(f"{count} > {before}")


def only(page, law):
    """Fits this law alone."""
    page.get_by_label("Laws").click()
    for title in (LAWS[name].title for name in TENSION.laws):
        if title != law:
            page.get_by_role("option", name=title).click()
    page.keyboard.press("Escape")


def value_of(page, name):
    """The text of a parameter's value."""
    row = page.locator("tr", has=page.get_by_role("cell", name=name, exact=True))
    return row.locator("td").nth(1).inner_text()


def test_from_a_file_to_a_card(page, tmp_path):
    only(page, "Voce 1948")
    drop(page, VOCE)
    (answer,) = tfmat.identify(str(VOCE), law="voce")
    assert value_of(page, "sigma0") == f"{answer.parameters['sigma0'].value:.1f}"
    page.locator("canvas").wait_for()
    strength = page.locator("table").last.locator("td").nth(2).inner_text()
    assert float(strength) == pytest.approx(
        answer.curve.tensile.tensile_strength_mpa.value, rel=1e-3
    )
    for name, begins in (
        ("Excel", b"PK"),
        ("CSV", b"curve,law"),
        ("JSON", b"["),
        ("Figure", b"\x89PNG"),
    ):
        with page.expect_download() as download:
            page.get_by_role("button", name=name, exact=True).click()
        assert pathlib.Path(download.value.path()).read_bytes().startswith(begins)
    with page.expect_download() as download:
        page.get_by_role("button", name="Abaqus card").click()
    card = pathlib.Path(download.value.path()).read_text()
    assert download.value.suggested_filename.endswith(".inp")
    assert [line for line in card.splitlines() if not line.startswith("**")] == [
        line for line in answer.card("abaqus").splitlines() if not line.startswith("**")
    ]


def test_a_unit_is_corrected_by_a_menu(page):
    only(page, "Voce 1948")
    rows = VOCE.read_text().splitlines()
    points = [line.split(",") for line in rows if re.match(r"[\d.-]+(e-?\d+)?,", line)]
    ksi = "".join(f"{e},{float(s) / 6.894757:.6f}\n" for e, s in points)
    drop(page, ("us.csv", "strain [-],stress [MPa]\n" + ksi))
    assert float(value_of(page, "sigma0")) == pytest.approx(300 / 6.894757, rel=0.02)
    page.get_by_role("button", name="Columns and units").click()
    page.get_by_label("unit of the stress or load").click()
    page.get_by_role("option", name="ksi", exact=True).click()
    with fitting(page):
        page.get_by_role("button", name="Read again").click()
    assert float(value_of(page, "sigma0")) == pytest.approx(300, rel=0.02)
    page.get_by_label("unit of the stress or load").wait_for()  # the menus are still open


def test_twenty_files_are_compared_and_a_damaged_one_is_named(page):
    only(page, "Voce 1948")
    text = VOCE.read_text()
    drop(
        page, *((f"specimen_{i}.csv", text) for i in range(20)), ("bad.csv", "strain,stress\n1,x\n")
    )
    page.get_by_text("it has 0 points; a curve needs at least 10").wait_for()
    page.get_by_role("button", name="Compare and pool").click()
    page.get_by_role("cell", name="specimen_19").wait_for()
    page.get_by_text("as one material").wait_for()


def test_two_tabs_know_nothing_of_each_other(page, browser, address):
    only(page, "Voce 1948")
    with contextlib.closing(new_page(browser, address)) as other:
        drop(page, VOCE)
        assert page.get_by_text(VOCE.name).count() == 1
        assert other.get_by_text(VOCE.name).count() == 0
        other.get_by_text("Drop one file or many").wait_for()


def test_a_keyboard_alone_shows_another_law_and_screen_readers_know_the_language(page):
    drop(page, VOCE)
    law = page.get_by_role("button", name="Swift 1952", exact=True)
    law.focus()
    page.keyboard.press("Enter")
    page.get_by_role("cell", name="epsilon0", exact=True).wait_for()
    page.wait_for_function("document.activeElement.innerText.includes('Swift 1952')")
    assert page.evaluate("document.documentElement.lang") == "en"
    assert page.get_by_role("button", name="● Swift 1952").get_attribute("aria-pressed") == "true"


def test_page_tells_how_a_file_was_read_and_what_was_assumed(page):
    only(page, "Voce 1948")
    text = VOCE.read_text().replace(" [-]", "").replace(" [MPa]", "")
    drop(page, ("a.csv", text))
    page.get_by_text("read: strain from column 'true_strain' in - (assumed)").wait_for()
    page.get_by_text("assumed: strain in mm/mm, stress in MPa").wait_for()
    page.get_by_role("columnheader", name="Ag (%)").wait_for()


def test_what_is_wrong_with_tests_of_one_material_is_told(page):
    drop(page, ("uniaxial.csv", VOCE.read_text().replace("true_stress [MPa]", "torque")))
    with fitting(page):
        page.get_by_label("What was tested").click()
        page.get_by_role("option", name="rubber").click()
    page.get_by_text("uniaxial.csv: column 'torque' is of a torsion or bending test").wait_for()


def test_page_asks_what_was_tested_where_files_do_not_say_it(page):
    """And fits what the user says, also the kind that the menu had before."""
    cyclic = "".join(
        f"{np.sin(x) / 100:.6f},{300 * np.sin(x + 0.5):.3f}\n" for x in np.arange(0, 30, 0.1)
    )
    only(page, "Voce 1948")
    page.set_input_files(
        "input[type=file]",
        [
            {"name": name, "mimeType": "text/csv", "buffer": text.encode()}
            for name, text in (
                ("a.csv", VOCE.read_text()),
                ("b.csv", "strain [-],stress [MPa]\n" + cyclic),
            )
        ],
    )
    page.get_by_text(
        "a is tension of a metal, b is cyclic test of a metal; choose what was tested"
    ).wait_for()
    page.get_by_text("There is no answer yet").wait_for()
    with fitting(page):
        page.get_by_label("What was tested").click()
        page.get_by_role("option", name="tension of a metal", exact=True).click()
    assert value_of(page, "sigma0").startswith("30")
    assert page.get_by_text("choose what was tested").count() == 0


def test_a_large_file_is_said_to_be_read(page):
    only(page, "Voce 1948")
    rows = "".join(f"{e:.8f},{s:.4f}\n" for e, s in np.random.default_rng(0).random((60_000, 2)))
    content = f"strain [-],torque [MPa]\n{rows}".encode()
    page.set_input_files(
        "input[type=file]", {"name": "large.csv", "mimeType": "text/csv", "buffer": content}
    )
    page.get_by_text("reading large.csv").wait_for()
    page.get_by_text("There is no answer yet").wait_for()
    assert page.get_by_text("reading large.csv").count() == 0


def test_a_file_that_is_no_table_is_refused_by_name(page):
    page.set_input_files(
        "input[type=file]", {"name": "a.exe", "mimeType": "text/csv", "buffer": b"x"}
    )
    page.get_by_text("refused: a.exe; give text, CSV or Excel").wait_for()


def test_page_fits_a_phone(browser, address):
    with contextlib.closing(new_page(browser, address, width=390)) as page:
        only(page, "Voce 1948")
        drop(page, VOCE)
        assert page.evaluate("document.documentElement.scrollWidth") == 390


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "evil.example:80"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"path": "/"}, 404),
        ({"path": "/openapi.json"}, 404),
    ],
)
def test_only_this_machine_and_only_who_knows_the_address_is_answered(address, headers, status):
    _, host, path = re.match(r"(http)://([^/]+)(/.*)", address).groups()
    connection = http.client.HTTPConnection(host, timeout=PATIENCE)
    path = headers.get("path", path)
    connection.request("GET", path, headers={k: v for k, v in headers.items() if k != "path"})
    assert connection.getresponse().status == status


def test_another_sites_socket_is_refused(address):
    host = re.match(r"http://([^/]+)", address)[1]
    connection = http.client.HTTPConnection(host, timeout=PATIENCE)
    headers = {
        "Origin": "http://evil.example", "Upgrade": "websocket", "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }  # fmt: skip
    connection.request("GET", "/_nicegui_ws/socket.io/?EIO=4&transport=websocket", headers=headers)
    assert connection.getresponse().status == 403
