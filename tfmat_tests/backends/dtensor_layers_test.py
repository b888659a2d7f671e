"""Every activation, layer and optimizer that a config can name runs on a mesh and agrees with the single backend."""

import pytest

PROGRAM = """
import sys
mesh = sys.argv[1]
from tfmat.config import MeshShape
from tfmat.launch.processes import prepare_tensorflow
prepare_tensorflow(virtual_devices=MeshShape.parse(mesh).num_devices)
import numpy as np
from tfmat.backends import make_backend
from tfmat.config import default_config
from tfmat.config import ACTIVATIONS, OPTIONS
from tfmat.networks.factory import build_model
from tfmat.networks.factory import squared_error_of_mean
from tfmat.optimizers import build_optimizer
random = np.random.default_rng(0)
arrays = random.normal(size=(100, 48, 3)).astype("f"), random.uniform(size=(100, 2)).astype("f")
indices, weights = random.integers(0, 100, (1, 20)).astype(np.int32), np.ones((1, 20), np.float32)

def sums(name, **changes):
    config = default_config()
    config.model.conv_filters, config.model.hidden_units = (4, 6), (24,)
    config.optimizer.clip_norm = 1.0
    config.model.update({k: v for k, v in changes.items() if k != "optimizer"})
    config.optimizer.name = changes.get("optimizer", "adam")
    model = build_model(config.model, num_outputs=2, num_points=48, seed=3)
    optimizer = build_optimizer(config.optimizer)
    backend = make_backend(name, mesh=mesh if name == "dtensor" else "batch:1")
    backend.build(model, optimizer, squared_error_of_mean(2), {})
    data = backend.place(arrays)
    for _ in range(2):
        backend.train(data, indices, weights, weights.sum(axis=1))
    return backend.evaluate(data, indices, weights, weights.sum(axis=1))

changes = [{"activation": name} for name in ACTIVATIONS]
changes += [{"optimizer": name} for name in OPTIONS["optimizer.name"].choices]
changes += [{"batch_normalization": "synchronized"}, {"pool_size": 1}, {"uncertainty": "gaussian"}]
for change in changes:
    np.testing.assert_allclose(sums("dtensor", **change), sums("single", **change), rtol=1e-3, err_msg=str(change))
assert np.isfinite(sums("dtensor", dropout=0.2)).all()
print("TRACED", len(changes) + 1)
"""


@pytest.mark.large
@pytest.mark.parametrize("mesh", ["batch:2", "batch:2,model:2"])
def test_all_that_a_config_can_name_runs_on_a_mesh(mesh, programs):
    assert int(programs.python("-c", PROGRAM, mesh).split("TRACED")[1]) >= 20


NOISE = """
import tfmat
mesh = tfmat.mesh_backend("batch:2,model:2")
import keras
import numpy as np
from tfmat.backends import make_backend
layers, random = keras.layers, np.random.default_rng(0)
x = random.normal(size=(16, 4)).astype("f")
found = []
for backend in (mesh, make_backend("single")):
    with backend:
        keras.utils.set_random_seed(1)
        model = keras.Sequential([
            layers.Input((4,)),
            layers.Dense(8, activation="tanh"),
            layers.Dropout(0.2, seed=1),
            layers.Dense(8, activation="tanh"),
            layers.GaussianNoise(0.3, seed=2),
            layers.Dense(1),
        ])
        trainer = tfmat.Trainer(
            model, loss="mse", optimizer=keras.optimizers.SGD(0.1), backend=backend, quiet=True
        )
        trainer.fit(x, x[:, :1], global_batch_size=16, train_for="3steps")
        backend.check_replicas(3)
        found.append(model.get_weights())
for one, other in zip(*found):
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
print("ALIKE")
"""


def test_noise_behind_divided_and_whole_layers(programs):
    """The masks are those of one device."""
    assert "ALIKE" in programs.python("-c", NOISE)
