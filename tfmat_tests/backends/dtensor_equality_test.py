"""DTensor ends with the weights of a plain Keras loop; each mesh in a process of its own, whose devices are fixed."""

import itertools

import pytest

MESHES = ("batch:1,model:1", "batch:2", "model:2", "batch:2,model:2", "batch:4,model:2")
# Blocks of 7 and 13 steps are then calls of 6 and of one; where nothing is said, each is one call.
STEPS_A_CALL = {"batch:2": {"TFMAT_MESH_STEPS_A_CALL": "6"}}
STAGES = (0, 1, 2, 3)
OPTIMIZERS = ("nesterov", "adam", "adamw", "lars", "larc", "novograd", "lamb")
# Two processes do 3-adam in dtensor_clients_test.py.
SAMPLE = [
    ("batch:2,model:2", "float64", ["2-lars-twice-sharp"]),
    ("batch:2", "float64", ["3-adam-flow-fit"]),
    ("batch:2", "float32", ["1-novograd"]),
]
# In float64 every optimizer in every stage on every mesh; in float32 each two of these three once.
MATRIX = [
    (mesh, "float64", [f"{stage}-{optimizer}" for optimizer in OPTIMIZERS])
    for mesh, stage in itertools.product(MESHES, STAGES)
]
PAIRS = [
    (mesh, "float32", [f"{(i + j) % len(STAGES)}-{name}" for j, name in enumerate(OPTIMIZERS)])
    for i, mesh in enumerate(MESHES)
]
IN_FLOAT32 = ("batch:2", "float32", ["0-nesterov-sharp", "0-novograd-flow"])


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("mesh", "precision", "cases"),
    [
        *(pytest.param(*each, id="-".join([*each[:2], *each[2]])) for each in SAMPLE),
        pytest.param(*IN_FLOAT32, id="batch:2-float32-heads", marks=pytest.mark.large),
        *(
            pytest.param(*each, id=f"{each[0]}-{each[1]}-stage{each[2][0][0]}", marks=pytest.mark.large)
            for each in MATRIX
        ),
        *(pytest.param(*each, id="-".join(each[:2]), marks=pytest.mark.large) for each in PAIRS),
    ],
)  # fmt: skip
def test_weights_of_a_plain_keras_loop(mesh, precision, cases, programs, plain_ends):
    program = ("-m", "tfmat_tests.backends.mesh_process", plain_ends)
    printed = programs.python(*program, mesh, precision, *cases, **STEPS_A_CALL.get(mesh, {}))
    held = [line.split()[1:] for line in printed.splitlines() if line.startswith("HELD")]
    assert [case for case, _, _ in held] == cases
    for case, *shares in held:
        weights, slots = map(float, shares)
        stage = int(case[0])
        if "flow" in case:
            continue  # most of its weights are the couplings', which stay whole
        if "model:2" in mesh:
            assert weights < 0.75  # the hidden layer is most of it
        if stage == 3 and "batch:2,model:2" in mesh:
            assert weights < 0.45
        if stage == 0 and mesh == "batch:1,model:1":
            assert weights == 1 and slots >= 1
