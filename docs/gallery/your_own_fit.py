# %% [markdown]
# # Horovod in your own `fit`, then a mesh
#
# With five more lines a Keras model of your own trains in several processes. The same model then trains on a mesh of
# devices.

# %%
import importlib.util
import pathlib
import subprocess
import sys

import keras
import numpy as np

import tfmat

# %% [markdown]
# ## Several processes
#
# The lines with `hvd` are all that Horovod asks for.

# %%
PROGRAM = """
import keras
import numpy as np

import tfmat.horovod as hvd

hvd.init()
keras.utils.set_random_seed(0)
random = np.random.default_rng(hvd.rank())  # each process has examples of its own
x = random.uniform(-3, 3, (2000, 2)).astype("float32")
y = np.sin(x[:, :1]) * x[:, 1:]
model = keras.Sequential([keras.layers.Dense(32, activation="tanh"), keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(1e-2)), "mean_squared_error")
first = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
history = model.fit(x, y, batch_size=50, epochs=4, callbacks=[first], verbose=0)
weights = np.concatenate([weight.ravel() for weight in model.get_weights()])
print(f"process {hvd.rank()} of {hvd.size()}: loss {history.history['loss'][-1]:.3f}, weights {weights.sum():.4f}")
"""
pathlib.Path("own_fit.py").write_text(PROGRAM)
if importlib.util.find_spec("horovod"):
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-bind-to", "none", "-np", "2"]
    command += [sys.executable]
    done = subprocess.run([*command, "own_fit.py"], capture_output=True, text=True, check=True)
    print(*sorted(done.stdout.splitlines()), sep="\n")
else:
    print("Horovod is not installed here: `tfmat horovod install`")

# %% [markdown]
# Both processes end with the same weights, although each saw other examples: the gradients were summed.
#
# ## A mesh
#
# `tfmat.mesh_backend` names the devices. `batch:2` divides each batch among two; `model:2` would divide the layers.
# Without two GPUs the processor stands for both.

# %%
keras.utils.set_random_seed(0)
random = np.random.default_rng(0)
x = random.uniform(-3, 3, (2000, 2)).astype("float32")
y = np.sin(x[:, :1]) * x[:, 1:]
results = {}
for name, backend in {"two devices": tfmat.mesh_backend("batch:2"), "one device": None}.items():
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.layers.Input((2,)),
            keras.layers.Dense(32, activation="tanh"),
            keras.layers.Dense(1),
        ]
    )
    options = {} if backend is None else {"backend": backend}
    trainer = tfmat.Trainer(
        model, loss="mean_squared_error", optimizer=keras.optimizers.Adam(1e-2), **options
    )
    trainer.fit(x, y, global_batch_size=50, train_for="4epochs")
    results[name] = trainer.evaluate(x, y)["loss"]
for name, loss in results.items():
    print(f"{name}: loss {loss:.5f}")

# %% [markdown]
# The losses agree up to rounding: a mesh changes where the work is done, not what is computed.
