"""tfmat.horovod under real mpirun: the checks that the ranks run (see rank.py), and Horovod's own example."""

import ast
import json
import pathlib
import re
import subprocess
import sys
import time

import keras
import numpy as np
import pytest

from tfmat_tests.mpi import PROJECT, command, mpirun
from tfmat_tests.processes import PATIENCE, rank_environment, real_python

# Three ranks do these, since they could do them otherwise than two, and two ranks the others; --all runs all with both.
WITH_THREE = {
    "check_arguments", "check_broadcast_of_all_state", "check_collectives", "check_embeddings",
    "check_lengths_are_compared", "check_metrics_over_unequal_shards", "check_process_set",
}  # fmt: skip
EXAMPLE = "docs/examples/horovod_keras_mnist.py"


def _checks():
    """Their names, without importing Horovod here."""
    files = sorted(pathlib.Path(__file__).parent.glob("*_checks.py"))
    parts = [part for file in files for part in ast.parse(file.read_text("utf-8")).body]
    names = [part.name for part in parts if isinstance(part, ast.FunctionDef)]
    return [name for name in names if name.startswith("check_")]


class Ranks:
    """One mpirun of all checks; a test waits for its own."""

    def __init__(self, number, folder, names):
        self.folder, self._err = folder, folder / "err.txt"
        self._said = [folder / f"{rank}.jsonl" for rank in range(number)]
        with open(self._err, "wb") as err:
            self.process = subprocess.Popen(
                command(number, "-m", "tfmat_tests.horovod.rank", str(folder), *names),
                stdout=subprocess.DEVNULL,
                stderr=err,
                cwd=PROJECT,
                env=rank_environment(),
            )

    def of(self, check):
        """Each rank's failure, which is empty where all is well."""
        deadline = time.monotonic() + PATIENCE
        while True:
            ended = self.process.poll() is not None
            said = [path.read_text() if path.exists() else "" for path in self._said]
            found = [dict(map(json.loads, text.splitlines())) for text in said]
            if all(check in each for each in found):
                return [each[check] for each in found]
            assert not ended, f"what was before it failed: {self._err.read_text()[-4000:]}"
            assert time.monotonic() < deadline, self._err.read_text()[-4000:]
            time.sleep(0.02)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory, run_all):
    """Number of ranks -> these ranks; they begin when they are asked for."""
    known = {}

    def of(number):
        if number not in known:
            names = [name for name in _checks() if run_all or (name in WITH_THREE) == (number == 3)]
            known[number] = Ranks(number, tmp_path_factory.mktemp(f"ranks-{number}"), names)
        return known[number]

    yield of
    for ranks in known.values():
        ranks.process.terminate()  # where not all checks were asked for
        ranks.process.wait(PATIENCE)


def _cases():
    for ranks in (2, 3):
        for check in _checks():
            large = (ranks == 3) != (check in WITH_THREE)
            yield pytest.param(ranks, check, marks=[pytest.mark.large] if large else [])


@pytest.mark.parametrize(("ranks", "check"), list(_cases()))
def test_checks(ranks, check, outcomes):
    for rank, failed in enumerate(outcomes(ranks).of(check)):
        assert not failed, f"rank {rank}: {failed}"


def test_saved_model_loads_without_horovod(outcomes, monkeypatch):
    """As the plain optimizer that was wrapped, with its slots."""
    ranks = outcomes(2)
    ranks.of("check_saved_model")
    monkeypatch.setitem(sys.modules, "horovod", None)  # an import of it fails
    model = keras.models.load_model(ranks.folder / "model.keras")
    assert type(model.optimizer) is keras.optimizers.Adam
    with np.load(ranks.folder / "model.npz") as saved:
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
from tfmat.launch.processes import prepare_tensorflow
prepare_tensorflow(processors=1)
import keras
import numpy as np
import tfmat.horovod as hvd
from tfmat.errors import InputError
hvd.init()
hvd.callbacks._PATIENCE = 0.5

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
    assert (
        "rank 0 stopped after 2 batches of epoch 1, and others did not within 0.5 s; give" in line
    )


def test_without_horovod_the_import_says_how_to_get_it():
    program = "import sys; sys.modules['horovod'] = None; import tfmat.horovod"
    ended = real_python("-c", program)
    assert ended.returncode == 1
    assert "`tfmat horovod install`" in ended.stderr.splitlines()[-1]
    assert ended.stderr.splitlines()[-1].startswith("ImportError: tfmat.horovod needs Horovod")
