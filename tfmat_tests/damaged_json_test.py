"""Whatever is changed, removed or retyped in the JSON that tfmat keeps: it works, or one line names the file.

The files are made by what writes them; numbers in them are made up where a training would be needed.
"""

import pathlib
from collections.abc import Callable
from typing import TypedDict

import pytest

from tfmat.data.dataset import PackedDataset, generate_dataset
from tfmat.errors import InputError
from tfmat.files import check_json, parse_json, read_json
from tfmat.records.simulation import CurveSettings
from tfmat.report.pages import judge, training_page
from tfmat.report.run_files import read_run
from tfmat.scaling.model import Analysis
from tfmat.scaling.report import point_table, scaling_page
from tfmat.scaling.study import (
    Assumptions,
    read_assumptions,
    read_measurements,
    write_assumptions,
    write_measurements,
)
from tfmat.tuning.search import read_state, summarize, trial_rows, write_best, write_state
from tfmat.tuning.trials import take_name
from tfmat_tests.json_damage import damaged_texts
from tfmat_tests.report import run_folder
from tfmat_tests.scaling.synthetic import Truth, study
from tfmat_tests.tuning.results_test import make_state

SEED = 20240611


def check_all(
    files: list[pathlib.Path], read: Callable[[], object], folder: pathlib.Path, count: int
) -> int:
    """Damages each file `count` times; returns how often that was refused."""
    refused = 0
    for path in files:
        whole = path.read_text("utf-8")
        for what, text in damaged_texts(path, SEED, count):
            path.write_text(text, "utf-8")
            try:
                read()
            except InputError as error:
                refused += 1
                said = str(error)
            except Exception as error:
                raise AssertionError(f"{path.name}, {what}: {error!r}") from error
            else:
                continue
            assert str(folder) in said and "\n" not in said, f"{path.name}, {what}: {said}"
        path.write_text(whole, "utf-8")
        read()
    return refused


def test_a_search(tmp_path):
    write_state(tmp_path, make_state(6))
    take_name(tmp_path, "0", lease=60.0)

    def read() -> None:
        state = read_state(tmp_path)
        summarize(tmp_path, state)
        trial_rows(state)
        write_best(tmp_path, state)

    files = [tmp_path / "search.json", tmp_path / "workers" / "0.json"]
    assert check_all(files, read, tmp_path, 40) > 40


def test_a_scaling_study(tmp_path):
    write_measurements(tmp_path, study(Truth(), workers=(2,), batches=(75,), rounds=1))
    write_assumptions(tmp_path, Assumptions(price_per_hour=1.0))

    def read() -> None:
        measurements = read_measurements(tmp_path)
        assumptions = read_assumptions(tmp_path)
        if assumptions.baseline_hardware not in (None, "synthetic"):
            return  # the name of no machine: that has a line of its own
        analysis = Analysis(measurements, assumptions)
        scaling_page(analysis, {}, "study"), point_table(analysis)

    files = [tmp_path / "measurements.jsonl", tmp_path / "assumptions.json"]
    assert check_all(files, read, tmp_path, 12) > 12


def test_a_data_sets_manifest(tmp_path):
    settings = CurveSettings(num_points=20)
    folder = generate_dataset(
        settings, seed=0, num_curves=1024, num_test=64, data_dir=tmp_path
    ).folder
    files = [folder / "manifest.json"]
    assert check_all(files, lambda: PackedDataset.open(folder, verify=False), tmp_path, 150) > 75


def make_run(folder: pathlib.Path) -> pathlib.Path:
    """A finished run with all files that there can be."""
    coverage = {"G0": run_folder.COVERAGE_OF_ONE, "a": run_folder.COVERAGE_OF_ONE}
    content = run_folder.evaluation(yardstick=run_folder.yardstick(), coverage=coverage)
    return run_folder.write_run(folder, content=content, with_floor=True)


def test_a_runs_folder(tmp_path):
    """Nothing in it is needed for a page: what is damaged is left out, with a note."""
    folder = make_run(tmp_path / "run")
    damaged = 0

    def read() -> None:
        nonlocal damaged
        run = read_run(folder)
        damaged += len(run.damaged)
        assert all(run.workdir.name in line and "\n" not in line for line in run.damaged)
        judge(run)

    assert check_all(sorted(folder.glob("*.json*")), read, tmp_path, 40) == 0
    assert damaged > 80


@pytest.mark.parametrize(
    ("file", "old", "new", "note"),
    [
        ("evaluation.json", '"mse": 0.0001', '"mse": "small"', "parameters.G0.mse: Expected"),
        # Of the right type, and still no number that a picture on a logarithmic axis could show.
        ("model.json", '"low": 1e-09', '"low": -1e-09', "Left out: accuracy"),
    ],
)
def test_the_page_says_what_it_leaves_out(tmp_path, file, old, new, note):
    folder = make_run(tmp_path)
    path = folder / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    page = training_page(read_run(folder))
    assert note in page and "How the training went" in page


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[NaN]", "NaN is no finite number"),
        ("[-Infinity]", "Infinity is no finite number"),
        ("[1e999]", "1e999 is no finite number"),
        (f"[{10**25}]", "10000000000000000000000000 is more than"),
        ("[" * 100_000, "nested too deeply"),
        ("{", "Expecting property name"),
    ],
)
def test_what_json_should_not_hold(tmp_path, text, reason):
    path = tmp_path / "file.json"
    path.write_text(text)
    with pytest.raises(InputError, match=reason) as raised:
        read_json(path)
    assert str(path) in str(raised.value) and "\n" not in str(raised.value)


def test_numbers_that_are_none_where_a_line_may_hold_them():
    assert parse_json('{"a": NaN, "b": [1e999, 2]}', nan_is_none=True) == {
        "a": None,
        "b": [None, 2],
    }


def test_a_key_of_the_wrong_type_is_named():
    with pytest.raises(InputError, match=r"here is damaged: a\[1\]: Expected `int`, got `str`"):
        check_json({"a": [1, "2"]}, TypedDict("Content", {"a": list[int]}), "here")


def test_the_entry_of_a_dictionary_is_named_and_the_content_stays_as_it_was():
    content = {"a": {"x": {"y": [1]}, "z": {"y": [1, "2"]}}}
    kind = dict[str, dict[str, TypedDict("Inner", {"y": list[int]})]]
    said = r"here is damaged: a\.z\.y\[1\]: Expected `int`, got `str`"
    with pytest.raises(InputError, match=said):
        check_json(content, kind, "here")
    assert content == {"a": {"x": {"y": [1]}, "z": {"y": [1, "2"]}}}
    assert list(content["a"]) == ["x", "z"]
