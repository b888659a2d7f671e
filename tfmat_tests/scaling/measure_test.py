"""Rounds of launches: what is kept, what is given up, and real processes at the end of it."""

import os
import pathlib

from tfmat.errors import InputError
from tfmat.files import write_json
from tfmat.scaling.measure import Launch, Spec, answer_file, measure, run_locally


class Notes:
    """A journal that remembers."""

    def __init__(self):
        self.added, self.left_out_of = [], []

    def add(self, launch, answers):
        self.added.append((launch.name, launch.round, answers))
        if "unusable" in answers[0]:
            raise InputError("unusable")
        return "measured"

    def leave_out(self, launch, reason, log):
        self.left_out_of.append((launch.name, launch.round, reason, log))


def launches(folder: pathlib.Path, names: str, number: int, **spec) -> list[Launch]:
    told = Spec(**{"program": "program:answer", **spec})
    return [Launch(name, name, number, folder / f"{number}-{name}", told) for name in names]


def answering(failing: str = "", silent: str = "", unusable: str = ""):
    def run(ready, finished):
        for launch in ready:
            if launch.name in failing:
                finished(launch, ("ended with status 1", "the end of its log"))
                continue
            if launch.name not in silent:
                answer = {"unusable": 1} if launch.name in unusable else {"seconds": 1.0}
                write_json(answer_file(launch.folder, 0), answer)
            finished(launch, None)

    return run


def test_a_variant_that_failed_twice_is_given_up_and_the_others_go_on(tmp_path, capsys):
    notes = Notes()
    rounds = [launches(tmp_path, "abcd", i) for i in range(4)]
    failed = measure(rounds, answering("b", "c", "d"), notes)
    assert [entry[:2] for entry in notes.added if entry[0] == "a"] == [("a", i) for i in range(4)]
    reasons = {name: [r for n, _, r, _ in notes.left_out_of if n == name] for name in "bcd"}
    assert reasons == {
        "b": ["ended with status 1"] * 2,
        "c": ["its answer cannot be used: not every process answered"] * 2,
        "d": ["its answer cannot be used: unusable"] * 2,
    }
    assert failed == 6
    assert not (tmp_path / "0-a").exists() and (tmp_path / "0-b" / "spec.json").exists()
    assert capsys.readouterr().err.startswith("16 launches, about ")


def test_real_processes_say_what_their_program_returns(tmp_path):
    (tmp_path / "program.py").write_text(
        "import os\n"
        "def answer(order, processes, folder):\n"
        "    if order == 'fail': raise SystemExit('in vain')\n"
        "    return {'rank': processes.rank, 'own': os.environ['OWN'], 'bound': len(os.sched_getaffinity(0))}\n"
    )
    spec = {"path": (str(tmp_path),), "environment": {"OWN": "value"}, "watch": os.getpid()}
    good = launches(tmp_path, "a", 0, **spec)
    bad = launches(tmp_path, "b", 0, order="fail", **spec)
    notes = Notes()
    assert measure([[*good, *bad]], run_locally, notes) == 1
    assert notes.added == [("a", 0, [{"rank": 0, "own": "value", "bound": 1}])]
    assert notes.left_out_of == [("b", 0, "ended with status 1", "in vain")]
