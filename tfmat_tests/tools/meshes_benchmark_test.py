"""tools/benchmark --part=dtensor: what it computes from samples, which cases it runs. Never how fast anything is."""

import pathlib
import sys

import pytest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"


@pytest.fixture
def meshes(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    from benchmarks import meshes

    yield meshes
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        del sys.modules[name]


def sample(mesh, number, milliseconds):
    return {
        "network": "default",
        "mesh": mesh,
        "zero_stage": 0,
        "convolution": "direct",
        "round": number,
        "milliseconds": {"75": milliseconds},
        "exchanges": {} if mesh == "single" else {"75": {"tensors": 8, "bytes": 4_000_000}},
        "peak_bytes": 1,
        "bytes_per_device": None if mesh == "single" else {"weights": 1_000_000, "slots": 0},
        "gradient_bytes": 1_000_000,
    }


def test_ratios_are_those_within_a_round(meshes):
    """The machine is twice as slow in the second round: times spread, ratios do not."""
    samples = [sample("single", 0, 2.0), sample("batch:2", 0, 6.0)]
    samples += [sample("single", 1, 4.0), sample("batch:2", 1, 12.0)]
    single, mesh = meshes.summarize_meshes(samples)
    assert mesh["milliseconds"] == [6.0, 12.0] and mesh["ratio"] == [3.0, 3.0]
    assert single["ratio"] == [1.0, 1.0] and mesh["exchanges"]["tensors"] == 8
    assert meshes.meshes_table([single, mesh]).row_count == 2


def test_cases_are_meshes_zero_stages_and_the_unfolded_convolution(meshes):
    names = [meshes._name(case) for case in meshes.cases(["default", "wide"])]
    assert len(set(names)) == len(names) == 10 + 8
    assert {"default, model:2, unfolded", "wide, batch:2, ZeRO 3", "wide, single"} <= set(names)
