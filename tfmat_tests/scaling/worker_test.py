"""The network that a launch measures takes its steps as the config says."""

import types

import numpy as np
import pytest

from tfmat.config import default_config
from tfmat.errors import InputError
from tfmat.launch.processes import find_processes
from tfmat.records.simulation import RecordForm
from tfmat.scaling.measure import Group, Order, Task, Variant, _Bench, make_variant_backend
from tfmat.scaling.study import load_matrix
from tfmat.workflow import curve_settings
from tfmat_tests.scaling.studies import START


def test_a_launch_heeds_how_steps_are_computed(tmp_path):
    config = default_config()
    config.accumulate, config.offload, config.precision = 3, "slots", "bfloat16"
    config.model.recompute = "every:1"
    config.model.hidden_units = (64, 64)

    def order(backend, mesh=""):
        group = Group(Variant("steps", backend, 1, mesh=mesh))
        return Order(group, config.to_dict(), "", 1.0)

    form = RecordForm.of(curve_settings(config))
    dataset = types.SimpleNamespace(
        settings=None,
        features=np.ones((90, *form.shape), np.float32),
        labels=np.ones((90, 2), np.float32),
        parameters=("one", "other"),
        form=form,
        input_scale=(1.0, 1.0, 1.0),
        shard_size=1024,
    )
    with make_variant_backend(order("single"), find_processes(), tmp_path) as backend:
        options = backend.options
        assert (options.accumulate, backend.settings.model.recompute) == (3, "every:1")
        assert (options.offload, backend.folder) == ("slots", str(tmp_path))
        bench = _Bench(90, config, dataset, backend, lambda: None)
        bench._build(Task(30, 30))
        assert [layer.name for layer in backend._step._bfloat16] == ["hidden1", "hidden2"]
        assert f"slots are in a temporary file in {tmp_path.resolve()}" in backend.note
    on_mesh = make_variant_backend(order("dtensor", "batch:1"), find_processes(), tmp_path)
    assert on_mesh.settings.model.recompute == "every:1"


def test_steps_that_not_all_backends_of_a_study_would_take_are_refused(tmp_path):
    """Numbers of steps of two kinds would stand side by side."""
    path = tmp_path / "study.py"
    for runs, key, value, backends in (
        ("Runs('dtensor', mesh='batch:2', global_batch_size=75)", "precision", "auto", "dtensor"),
        ("Runs('dtensor', mesh='batch:2', global_batch_size=75)", "offload", "slots", "dtensor"),
        ("Runs(('single', 'dtensor'), mesh='batch:2', global_batch_size=75)", "accumulate", "3", "dtensor"),
    ):  # fmt: skip
        path.write_text(START + f"Matrix(runs=[{runs}])\n")
        with pytest.raises(InputError, match=f"{key}={value} is not heeded by {backends},"):
            load_matrix(path, [(key, value)])
    path.write_text(
        START + "Matrix(runs=[Runs('dtensor', mesh='batch:2', global_batch_size=75)])\n"
    )
    load_matrix(path, [("model.recompute", "every:1")])
    path.write_text(START + "Matrix(runs=[Runs(('single', 'horovod'), global_batch_size=75)])\n")
    for key, value in (("representation", "fit"), ("uncertainty", "flow")):
        said = f"model.{key}={value}, .* does not work with tfmat scale"
        with pytest.raises(InputError, match=said):
            load_matrix(path, [(f"model.{key}", value)])
    load_matrix(path, [("precision", "auto"), ("offload", "slots"), ("accumulate", "3")])
