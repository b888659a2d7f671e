"""The network that a launch measures takes its steps as the config says."""

import types

import numpy as np

from tfmat.config import default_config
from tfmat.curves.records import RecordForm
from tfmat.ranks.processes import find_processes
from tfmat.scaling.step_times import _Bench, make_variant_backend
from tfmat.workflow import curve_settings


def test_a_launch_heeds_how_steps_are_computed(tmp_path):
    config = default_config()
    config.accumulate, config.offload, config.precision = 3, "slots", "bfloat16"
    config.model.recompute = "every:1"
    config.model.hidden_units = (64, 64)
    variant = {"backend": "single", "mesh": "", "zero_stage": 0}
    spec = {"config": config.to_dict(), "variant": variant, "dataset_size": 90}
    form = RecordForm.of(curve_settings(config))
    dataset = types.SimpleNamespace(
        features=np.ones((90, *form.shape), np.float32),
        labels=np.ones((90, 2), np.float32),
        parameters=("one", "other"),
        form=form,
        input_scale=(1.0, 1.0, 1.0),
        shard_size=1024,
    )
    with make_variant_backend(spec, find_processes(), tmp_path) as backend:
        options = backend.options
        assert (options.accumulate, options.recompute) == (3, "every:1")
        assert (options.offload, options.folder) == ("slots", str(tmp_path))
        bench = _Bench(spec, config, dataset, backend, lambda: None)
        bench._build({"batch_a_worker": 30})
        assert [layer.name for layer in backend._step._bfloat16] == ["hidden1", "hidden2"]
        assert f"slots are in a temporary file in {tmp_path.resolve()}" in backend.note
    mesh = {"backend": "dtensor", "mesh": "batch:1", "zero_stage": 0}
    assert (
        make_variant_backend(
            {**spec, "variant": mesh}, find_processes(), tmp_path
        ).options.recompute
        == "every:1"
    )
