"""tools/benchmark --part=dtensor: what it computes from samples, which cases it runs. Never how fast anything is."""

import pytest


@pytest.fixture
def meshes(part):
    return part("meshes")


def sample(mesh, number, milliseconds):
    found = {
        "variant": f"default, {mesh}",
        "batch_size": 75,
        "round": number,
        "rate": 75e3 / milliseconds,
        "peak_bytes": 1,
    }
    if mesh == "single":
        return found
    held = {"weights": 1_000_000, "slots": 0, "gradients": 1_000_000}
    return {**found, "exchanges": {"tensors": 8, "bytes": 4_000_000}, "held": held}


def test_ratios_are_those_within_a_round(meshes):
    """The machine is twice as slow in the second round: times spread, ratios do not."""
    samples = [sample("single", 0, 2.0), sample("batch:2", 0, 6.0)]
    samples += [sample("single", 1, 4.0), sample("batch:2", 1, 12.0)]
    single, mesh = meshes.summarize_meshes(samples)
    assert [mesh["times"][key] for key in ("low", "value", "high")] == pytest.approx([3.0] * 3)
    assert [single["times"][key] for key in ("low", "value", "high")] == [1.0] * 3
    assert mesh["exchanges"]["tensors"] == 8 and single["held"] is None
    assert meshes.meshes_table([single, mesh]).row_count == 2


def test_cases_are_meshes_zero_stages_and_the_unfolded_convolution(meshes):
    names = list(meshes.cases(["default", "wide"]))
    assert len(names) == 10 + 8
    assert {"default, model:2, unfolded", "wide, batch:2, ZeRO 3", "wide, single"} <= set(names)
