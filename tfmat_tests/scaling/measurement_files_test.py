"""The file between measuring and analysing."""

import json

import pytest

from tfmat.errors import InputError
from tfmat.launch.machine import Session as Start
from tfmat.scaling.study import (
    FILE,
    LeftOut,
    Session,
    add_measurements,
    is_study,
    read_measurements,
    write_measurements,
)
from tfmat_tests.scaling.synthetic import SESSION, Truth, study

STUDY = study(Truth(), workers=(2,), batches=(75,), rounds=2, trained=True)


def test_what_is_written_is_read_again(tmp_path):
    assert not is_study(tmp_path)
    write_measurements(tmp_path, STUDY)
    assert is_study(tmp_path)
    assert read_measurements(tmp_path) == STUDY
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_entries_are_added_one_by_one(tmp_path):
    add_measurements(tmp_path, [SESSION])
    for repetition in STUDY.repetitions:
        add_measurements(tmp_path, [repetition])
    add_measurements(tmp_path, STUDY.allreduces)
    found = read_measurements(tmp_path)
    assert found.repetitions == STUDY.repetitions
    assert (found.allreduces, found.sessions, found.label) == (STUDY.allreduces, (SESSION,), "")


def test_a_line_that_a_killed_process_left_unfinished_is_not_there(tmp_path):
    add_measurements(tmp_path, [SESSION, *STUDY.repetitions[:2]])
    path = tmp_path / FILE
    path.write_bytes(path.read_bytes()[:-40])
    assert read_measurements(tmp_path).repetitions == STUDY.repetitions[:1]
    add_measurements(tmp_path, STUDY.repetitions[1:3])
    assert read_measurements(tmp_path).repetitions == STUDY.repetitions[:3]
    # A whole line that only lacks its end, as another program may leave it, stays.
    path.write_bytes(path.read_bytes()[:-1])
    add_measurements(tmp_path, STUDY.repetitions[3:4])
    assert read_measurements(tmp_path).repetitions == STUDY.repetitions[:4]


def test_failures_are_taken_back_and_what_cannot_be_had_is_of_the_last_session(tmp_path):
    failed = [LeftOut("horovod", "ended with status 1", i, "its log") for i in (0, 1)]
    add_measurements(tmp_path, [SESSION, LeftOut("nccl", "no GPU"), *failed])
    assert len(read_measurements(tmp_path).left_out) == 3
    later = Session(1, Start())
    add_measurements(tmp_path, [later, LeftOut("horovod", "", 0, session=1)])
    assert read_measurements(tmp_path).left_out == (failed[1],)


def test_a_line_says_only_what_is_not_the_default(tmp_path):
    write_measurements(tmp_path, STUDY)
    lines = [json.loads(line) for line in (tmp_path / FILE).read_text("utf-8").splitlines()]
    first = next(line for line in lines if line["kind"] == "repetition")
    assert first["point"]["backend"] == "single"
    assert "mesh" not in first["point"]
    assert lines[0] == {"kind": "format", "format": 1, "label": STUDY.label}


# What a line says, what it says instead, and what is said of that.
MISTAKES = """
"steps": 200 | "steps": 0 | steps is 0; expected more than 0
"steps": 200 | "steps": "200" | steps: Expected `int`, got `str`
"steps": 200 | "steps": true | steps: Expected `int`, got `bool`
"steps": 200 | "step": 200 | unknown key 'step'; did you mean 'steps'
"steps": 200, | | missing required field `steps`
"scaling": "weak" | "scaling": "week" | scaling is 'week'
"rank": 0, | "rank": 0, "waiting": NaN, | NaN is no finite number
"transport": "shared memory" | "mesh": "batch" | mesh 'batch'
"kind": "repetition" | "kind": "run" | kind is 'run'
"kind": "repetition", | "kind": | Expecting
"""


@pytest.mark.parametrize("mistake", MISTAKES.strip().splitlines())
def test_a_wrong_line_is_named_with_what_was_expected(tmp_path, mistake):
    old, new, message = (part.strip() for part in mistake.split("|"))
    write_measurements(tmp_path, STUDY)
    lines = (tmp_path / FILE).read_text("utf-8").splitlines()
    number = next(
        i for i, line in enumerate(lines) if old in line and '"kind": "repetition"' in line
    )
    lines[number] = lines[number].replace(old, new, 1)
    (tmp_path / FILE).write_text("\n".join(lines), "utf-8")
    with pytest.raises(InputError) as raised:
        read_measurements(tmp_path)
    assert message in str(raised.value)
    assert f"line {number + 1}:" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        read_measurements(tmp_path)
    for content, message in (("", "is empty"), ('{"kind": "format", "format": 2}', "format 2")):
        (tmp_path / FILE).write_text(content)
        with pytest.raises(InputError, match=message):
            read_measurements(tmp_path)
