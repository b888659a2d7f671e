"""tfmat.horovod under real mpirun: the checks that the ranks run (see rank.py), and Horovod's own example."""

import ast
import json
import pathlib
import re
import subprocess
import sys

import keras
import numpy as np
import pytest

from tfmat_tests.mpi import PROJECT, mpirun

# Three ranks do these, since they could do them otherwise than two, and two ranks the others; --all runs all with both.
WITH_THREE = {
    "check_arguments",
    "check_broadcast_of_all_state",
    "check_collectives",
    "check_embeddings",
    "check_lengths_are_compared",
    "check_metrics_over_unequal_shards",
    "check_process_set",
}
EXAMPLE = "docs/examples/horovod_keras_mnist.py"


def _checks():
    """Name -> file, without importing Horovod here."""
    found = {}
    for file in sorted(pathlib.Path(__file__).parent.glob("*_checks.py")):
        names = [
            n.name
            for n in ast.parse(file.read_text("utf-8")).body
            if isinstance(n, ast.FunctionDef)
        ]
        found |= {name: file.stem for name in names if name.startswith("check_")}
    return found


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory, run_all):
    """Number of ranks and file of a check -> folder with what each rank wrote, after one mpirun for each.

    Three ranks have so few checks that one takes all.
    """
    folders = {}

    def run(ranks, file):
        key = ranks, file if ranks == 2 or run_all else "all"
        if key not in folders:
            folders[key] = folder = tmp_path_factory.mktemp(f"ranks-{ranks}")
            names = [
                name
                for name, found in _checks().items()
                if key[1] in (found, "all") and (run_all or (name in WITH_THREE) == (ranks == 3))
            ]
            ended = mpirun(
                ranks, "-m", "tfmat_tests.horovod.rank", str(folder), *names, timeout=540
            )
            assert ended.returncode == 0, ended.stderr[-4000:]
        return folders[key]

    return run


def _cases():
    for ranks in (2, 3):
        for check in _checks():
            large = (ranks == 3) != (check in WITH_THREE)
            yield pytest.param(ranks, check, marks=[pytest.mark.large] if large else [])


@pytest.mark.parametrize(("ranks", "check"), list(_cases()))
def test_checks(ranks, check, outcomes):
    folder = outcomes(ranks, _checks()[check])
    for rank in range(ranks):
        result = json.loads((folder / f"{rank}.json").read_text())
        assert check in result["ran"], "a check before it failed"
        assert check not in result["failed"], f"rank {rank}: {result['failed'][check]}"


def test_saved_model_loads_without_horovod(outcomes, monkeypatch):
    """As the plain optimizer that was wrapped, with its slots."""
    folder = outcomes(2, "saving_checks")
    monkeypatch.setitem(sys.modules, "horovod", None)  # an import of it fails
    model = keras.models.load_model(folder / "model.keras")
    assert type(model.optimizer) is keras.optimizers.Adam
    with np.load(folder / "model.npz") as saved:
        found = [*model.get_weights(), *(each.numpy() for each in model.optimizer.variables)]
        assert len(found) == len(saved.files)
        for i, array in enumerate(found):
            # The ranks computed in float64.
            np.testing.assert_allclose(array, saved[f"arr_{i}"], rtol=1e-6, atol=1e-30)


def test_example_of_the_documentation(tmp_path):
    """It learns, and its checkpoints load without Horovod."""
    ended = mpirun(2, EXAMPLE, str(tmp_path))
    assert ended.returncode == 0, ended.stderr[-4000:]
    assert "Epoch 2: finished gradual learning rate warmup to 0.002." in ended.stdout
    (accuracy,) = re.findall(r"test accuracy ([0-9.]+)", ended.stdout)
    assert float(accuracy) > 0.9
    model = keras.models.load_model(tmp_path / "checkpoint-4.keras")
    assert model.optimizer.iterations == 4 * 50


STOPS_ALONE = """
from tfmat_tests import lean_keras
from tfmat.launch.runtime import prepare_tensorflow
prepare_tensorflow(processors=1)
import keras
import numpy as np
import tfmat.horovod as hvd
from tfmat.errors import InputError
hvd.init()
hvd.callbacks._PATIENCE = 3.0

def stop(batch, logs):
    model.stop_training = hvd.rank() == 0 and batch == 1

words = keras.Input((2,), dtype="int32")
answer = keras.layers.Dense(1)(keras.layers.Flatten()(keras.layers.Embedding(7, 3)(words)))
model = keras.Model(words, answer)
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    keras.callbacks.LambdaCallback(on_train_batch_end=stop),
]
try:
    model.fit(np.ones((9, 2)), np.ones((9, 1)), batch_size=3, verbose=0, callbacks=callbacks)
except InputError as error:
    print(error, flush=True)
    raise
"""


def test_a_stop_within_an_epoch_of_an_embedding():
    """Horovod's join takes no part in the gathering of rows, for which the others wait."""
    ended = mpirun(2, "-c", STOPS_ALONE)
    assert ended.returncode != 0
    (line,) = (line for line in ended.stdout.splitlines() if line.startswith("rank"))
    assert "rank 0 stopped after 2 batches of epoch 1, and others did not within 3 s; give" in line


def test_without_horovod_the_import_says_how_to_get_it():
    program = "import sys; sys.modules['horovod'] = None; import tfmat.horovod"
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True
    )
    assert ended.returncode == 1
    assert "`tfmat horovod install`" in ended.stderr.splitlines()[-1]
    assert ended.stderr.splitlines()[-1].startswith("ImportError: tfmat.horovod needs Horovod")
