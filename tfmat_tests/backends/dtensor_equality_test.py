"""DTensor ends with the weights of a plain Keras loop; each mesh in a process of its own, whose devices are fixed."""

import itertools
import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys
mesh, stage, name, precision = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
from tfmat.backends.mesh import MeshShape
from tfmat.launch.runtime import prepare_tensorflow
prepare_tensorflow(virtual_devices=MeshShape.parse(mesh).num_devices)
import keras
import numpy as np
from tfmat.backends import BackendOptions, make_backend
from tfmat.backends.step import per_example_function
from tfmat.config import default_config
from tfmat.models import build_model
from tfmat.optimizers import make_functional
keras.config.set_floatx(precision)
keras.config.set_dtype_policy(precision)
make_optimizer = {
    "nesterov": lambda: keras.optimizers.SGD(0.02, momentum=0.9, nesterov=True),
    "adam": lambda: keras.optimizers.Adam(1e-3),
    "adamw": lambda: keras.optimizers.AdamW(1e-3, weight_decay=0.01),
}[name]
random = np.random.default_rng(0)
features = random.normal(size=(400, 48, 3)).astype(precision)
labels = random.uniform(size=(400, 2)).astype(precision)
indices = np.array([random.permutation(400)[:75] for _ in range(20)], np.int32)
weights = np.ones(indices.shape, np.float32)
weights[13, 60:] = 0  # a partial batch; and 75 divides by no even axis
def model():
    config = default_config().model
    config.conv_filters, config.hidden_units = (4, 6), (24,)
    return build_model(config, num_outputs=2, num_points=48, seed=3)
plain = model()
plain.compile(make_optimizer(), loss="mse")
for rows, row_weights in zip(indices, weights):
    rows = rows[row_weights > 0]
    plain.train_on_batch(features[rows], labels[rows])
ours = model()
backend = make_backend("dtensor", BackendOptions(mesh=mesh, zero_stage=stage))
backend.build(ours, make_functional(make_optimizer()), per_example_function("mse"), {})
data = backend.place((features, labels))
for part in (slice(0, 7), slice(7, 20)):
    backend.train(data, indices[part], weights[part], weights[part].sum(axis=1))
backend.sync_model()
for reference, found in zip(plain.get_weights(), ours.get_weights(), strict=True):
    error = np.linalg.norm(found - reference) / np.linalg.norm(reference)
    assert error < (1e-9 if precision == "float64" else 1e-4), error
np.testing.assert_allclose(
    backend.predict(features[:7]), plain.predict(features[:7], verbose=0), rtol=1e-3, atol=1e-5
)
held = {part: max(values) for part, values in backend.bytes_per_device().items() if values}
whole = sum(weight.nbytes for weight in plain.get_weights())
# What one backend saved, another goes on with.
single = make_backend("single")
single.build(model(), make_functional(make_optimizer()), per_example_function("mse"), {})
single.write(backend.read())
for key, array in single.read().items():
    np.testing.assert_array_equal(array, backend.read()[key])
backend.write(single.read())
print("HELD", held["weights"] / whole, held["slots"] / whole)
"""

MESHES = ("batch:1,model:1", "batch:2", "model:2", "batch:2,model:2", "batch:4,model:2")
SAMPLE = {
    ("batch:2,model:2", 0, "nesterov", "float64"),
    ("batch:2,model:2", 3, "adam", "float64"),
    ("batch:4,model:2", 1, "adamw", "float64"),
    ("batch:2", 2, "adam", "float32"),
}
MATRIX = itertools.product(
    MESHES, (0, 1, 2, 3), ("nesterov", "adam", "adamw"), ("float64", "float32")
)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case, id="-".join(map(str, case)), marks=[] if case in SAMPLE else pytest.mark.large
        )
        for case in MATRIX
    ],
)
def test_weights_of_a_plain_keras_loop(case):
    mesh, stage, _, _ = case
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, case)],
        capture_output=True,
        text=True,
        timeout=180,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    weights, slots = map(float, done.stdout.split("HELD")[1].split())
    if "model:2" in mesh:
        assert weights < 0.75  # the hidden layer is most of it
    if stage == 3 and "batch:2,model:2" in mesh:
        assert weights < 0.45
    if stage == 0 and mesh == "batch:1,model:1":
        assert weights == 1 and slots >= 1
