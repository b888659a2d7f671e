"""`tfmat identify --card`: the files, what the terminal says, and what is refused."""

import dataclasses
import pathlib
import shutil

import numpy as np
import pytest

from tfmat.cli.identify import write_cards
from tfmat.identification.answer import Identification, Value
from tfmat.materials import find_law
from tfmat.records.files import example_curve
from tfmat.records.record import Caveat, MeasuredRecord, MeasuredTest

SOLVERS = "abaqus,ls_dyna,ansys,calculix,code_aster"


@pytest.fixture
def curve(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = example_curve("voce")
    assert path is not None
    return pathlib.Path(shutil.copy(path, tmp_path / "curve.csv"))


def test_cards_for_all_solvers_with_variants(curve, done):
    assert "cards in cards: 15 files" in done(
        "identify", "curve.csv", "--law=voce", f"--card={SOLVERS}", "--card_variants"
    )
    written = sorted(path.name for path in pathlib.Path("cards").iterdir())
    endings = ("abaqus.inp", "ansys.mac", "calculix.inp", "code_aster.comm", "ls_dyna.k")
    assert written == [f"curve{v}.{end}" for v in ("", "_5", "_95") for end in endings]
    texts = {v: pathlib.Path(f"cards/curve{v}.abaqus.inp").read_text() for v in ("", "_5", "_95")}
    rows = [float(text.split("*PLASTIC\n")[1].split(",")[0]) for text in texts.values()]
    assert rows[1] < rows[0] < rows[2]
    assert "NAME=CURVE_95\n" in texts["_95"]


def _identification(name, **changes):
    """An answer of the law Voce as `identify` gives it, with no uncertainty."""
    law = find_law("voce")
    values = dict(zip(("E", "sigma0", "Q", "b"), (200e3, 300.0, 250.0, 12.0), strict=True))
    found = {p.name: Value(values[p.name], p.unit, "least_squares") for p in law.parameters}
    curve = MeasuredTest(name, np.linspace(0, 0.1, 50), np.linspace(0, 500, 50))
    labels = law.to_labels([[*values.values()]])[0]
    record = MeasuredRecord.of(curve)
    answer = Identification(record, law, "least_squares", found, {}, {}, [], labels)
    return dataclasses.replace(answer, **changes)


def test_what_the_user_should_know_is_said_on_the_terminal(tmp_path):
    bad = Caveat("wrong unit", "it is ksi", blocks=True)
    answers = [_identification("a/1"), _identification("a 1", warnings=[bad])]
    said = write_cards(answers, ["calculix"], str(tmp_path / "new" / "cards"), variants=True)
    folder = tmp_path / "new" / "cards"
    assert [line for _, line in said] == [
        f"cards in {folder}: a_1.calculix.inp, a_1-2.calculix.inp",
        "warning: no variants of a/1: the covariance of its parameters is not known",
        "DO NOT USE THE CARDS OF a_1-2: wrong unit",
        "warning: no variants of a 1: the covariance of its parameters is not known",
    ]
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--law=voce", "--card=abacus"], "no card for a solver 'abacus'; did you mean 'abaqus'?"),
        (["--law=hahn_tsai", "--card=ls_dyna,abaqus"], "Abaqus has no card for law hahn_tsai"),
        (["--law=voce", "--card=abaqus", "--poisson_ratio=0.5"], "Poisson's ratio is 0.5"),
        (["--law=voce", "--card=abaqus", "--card_dir=curve.csv"], "curve.csv is a file"),
        (["--law=voce", "--card_variants"], "--card_variants says how cards are written"),
    ],
)
def test_a_wrong_call_gets_one_line_and_writes_nothing(flags, message, curve, refused):
    assert message in refused("identify", "curve.csv", *flags)
