"""One mesh of the DTensor benchmark in a process of its own: `python mesh_worker.py JSON`; says one JSON line.

The JSON is {"mesh": "batch:2" or "single", "zero_stage": 0, "network": "default" or "wide", "convolution": "direct",
"batch_sizes": [75], "seconds": 2}. The answer holds milliseconds a step for each batch size, bytes a device, the
exchanges by arithmetic, and the memory that the process took at its peak in the steps.
"""

import json
import pathlib
import re
import statistics
import sys
import time
from typing import Any

CURVES, CALLS = 3_000, 3


def main(spec: dict[str, Any]) -> None:
    """Measures one mesh."""
    from tfmat.backends.mesh import MeshShape
    from tfmat.launch.runtime import prepare_tensorflow

    single = spec["mesh"] == "single"
    devices = 1 if single else MeshShape.parse(spec["mesh"]).num_devices
    prepare_tensorflow(one_thread_an_operation=True, virtual_devices=devices)
    import numpy as np

    random = np.random.default_rng(0)
    features = random.normal(size=(CURVES, 200, 3)).astype(np.float32)
    labels = random.uniform(size=(CURVES, 2)).astype(np.float32)
    before = _memory("VmRSS")
    backend = _backend(spec)
    data = backend.place((features, labels))
    answer: dict[str, Any] = {"milliseconds": {}, "exchanges": {}}
    for batch_size in spec["batch_sizes"]:
        answer["milliseconds"][str(batch_size)] = _measure(
            backend, data, batch_size, spec["seconds"]
        )
        if not single:
            answer["exchanges"][str(batch_size)] = _exchanges(backend, batch_size)
    answer["peak_bytes"] = _memory("VmHWM") - before
    if not single:
        answer["bytes_per_device"] = {
            k: max(v or [0]) for k, v in backend.bytes_per_device().items()
        }
        answer["gradient_bytes"] = sum(
            layout.bytes(layout.gradient, backend.plan.mesh) for layout in backend.plan.layouts
        )
    print(json.dumps(answer), flush=True)


def _backend(spec: dict[str, Any]) -> Any:
    import keras

    from tfmat.backends import BackendOptions, make_backend
    from tfmat.backends.losses import per_example_function
    from tfmat.config import default_config
    from tfmat.models import build_model
    from tfmat.optimizers import make_functional

    config = default_config().model
    # As configs/wide.py; and the default network with units that two devices can divide.
    config.hidden_units = (4096, 4096, 4096) if spec["network"] == "wide" else (124,)
    config.convolution = spec["convolution"]
    if spec["mesh"] == "single":
        backend = make_backend("single")
    else:
        options = BackendOptions.on_mesh(spec["mesh"], zero_stage=spec["zero_stage"])
        backend = make_backend("dtensor", options)
    backend.start()
    model = build_model(config, num_outputs=2)
    optimizer = make_functional(keras.optimizers.Adam(1e-4))
    backend.build(model, optimizer, per_example_function("mse"), {})
    return backend


def _measure(backend: Any, data: Any, batch_size: int, seconds: float) -> float:
    """The median of a few calls, after one that compiles."""
    import numpy as np

    random = np.random.default_rng(1)

    def milliseconds(steps: int) -> float:
        indices = random.integers(0, CURVES, (steps, batch_size)).astype(np.int32)
        weights = np.ones(indices.shape, np.float32)
        started = time.perf_counter()
        sums = backend.train(data, indices, weights, weights.sum(axis=1))
        elapsed = time.perf_counter() - started
        if not np.isfinite(sums).all():
            raise RuntimeError("the loss is not finite")
        return elapsed / steps * 1e3

    milliseconds(2)
    trial = milliseconds(5)
    steps = max(3, int(seconds * 1e3 / trial / CALLS))
    return statistics.median(milliseconds(steps) for _ in range(CALLS))


def _exchanges(backend: Any, batch_size: int) -> dict[str, int]:
    from tfmat.backends.collectives_of_step import collectives_of_step

    found = collectives_of_step(backend.plan, batch_size)
    return {
        "tensors": sum(one.tensors for one in found),
        "bytes": sum(one.bytes for one in found),
        "sent_in_ring": sum(one.sent_in_ring for one in found),
    }


def _memory(name: str) -> int:
    """Bytes of this process: VmRSS now, VmHWM at most so far."""
    text = pathlib.Path("/proc/self/status").read_text("ascii")
    return int(re.findall(rf"{name}:\s+(\d+) kB", text)[0]) * 1024


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
    main(json.loads(sys.argv[1]))
