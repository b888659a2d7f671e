"""Meshes and layouts: what is divided over what, and what is refused with the nearest that works."""

import pytest

from tfmat.backends.layouts import Weight, format_spec, make_plan
from tfmat.config import MeshShape, parse_rules
from tfmat.errors import InputError

WEIGHTS = [
    Weight("conv1/kernel", (7, 3, 16)),
    Weight("conv1/bias", (16,)),
    Weight("hidden/kernel", (1200, 124)),
    Weight("hidden/bias", (124,)),
    Weight("labels/kernel", (124, 2)),
    Weight("labels/bias", (2,)),
]


def _specs(mesh, rules="", stage=0, part="compute", weights=WEIGHTS):
    plan = make_plan(weights, MeshShape.parse(mesh), parse_rules(rules), stage)
    return {
        layout.weight.path: format_spec(getattr(layout, part))
        for layout in plan.layouts
        if any(getattr(layout, part))
    }


def test_dense_layers_by_columns_then_rows():
    assert _specs("batch:2,model:2") == {
        "hidden/kernel": "-,model",
        "hidden/bias": "model",
        "labels/kernel": "model,-",
    }
    assert _specs("batch:4") == {}


def test_125_units_stay_whole_with_a_notice():
    weights = [
        Weight("hidden/kernel", (1200, 125)),
        Weight("hidden/bias", (125,)),
        Weight("labels/kernel", (125, 2)),
    ]
    plan = make_plan(weights, MeshShape.parse("model:2"))
    assert not any(any(layout.compute) for layout in plan.layouts)
    assert (
        "125 units do not divide by model:2 (the nearest that do: 124 and 126)" in plan.notices[0]
    )


def test_an_axis_that_divides_nothing_is_told():
    def told(mesh, rules=""):
        return make_plan(WEIGHTS, MeshShape.parse(mesh), parse_rules(rules), 0).notices

    (notice,) = told("batch:2,pipe:2")
    assert "axis pipe of mesh batch:2,pipe:2 divides nothing" in notice
    assert not told("batch:2,pipe:2", "hidden/kernel=-,pipe")
    assert not told("batch:2,model:2")
    assert not told("batch:8")


def test_a_head_beside_the_labels_takes_the_divided_features_too():
    head = [
        Weight("uncertainty_hidden/kernel", (124, 32)),
        Weight("uncertainty_hidden/bias", (32,)),
    ]
    end = Weight("log_variance/kernel", (32, 2))
    specs = _specs("model:2", weights=[*WEIGHTS[:4], *head, *WEIGHTS[4:], end])
    assert specs["labels/kernel"] == specs["uncertainty_hidden/kernel"] == "model,-"
    assert "log_variance/kernel" not in specs and "uncertainty_hidden/bias" not in specs


def test_the_first_rule_that_matches_holds():
    assert (
        _specs("model:2", "hidden/kernel=model,-;hidden=replicated")["hidden/kernel"] == "model,-"
    )


@pytest.mark.parametrize(
    ("mesh", "rules", "message"),
    [
        ("batch:2", "hidden/kernl=-,batch", "matches no variable; did you mean 'hidden/kernel'"),
        ("batch:2", "hidden/kernel=-,modl", "axis 'modl', which mesh batch:2 has not"),
        ("model:16", "hidden/kernel=-,model", "124, which does not divide by model:16; .* 112 and 128"),
        ("model:2", "hidden/kernel=model", "1 dimensions, hidden/kernel has 2"),
        ("model:2", "hidden=replicated;hidden/bias=model", "never holds: earlier rules"),
        ("model:2", "hidden", "is no rule"),
        ("batch:2,batch:2", "", "names the axis batch twice"),
        ("batch:0", "", "'batch:0' is no axis"),
    ],
)  # fmt: skip
def test_what_cannot_be_followed_is_refused(mesh, rules, message):
    with pytest.raises(InputError, match=message):
        _specs(mesh, rules)


def test_a_mesh_larger_than_the_devices_is_refused_with_one_that_fits():
    with pytest.raises(InputError, match=r"needs 8 devices, there are 4 GPU .* batch:2,model:2"):
        MeshShape.parse("batch:4,model:2").check_devices(4, "GPU")
