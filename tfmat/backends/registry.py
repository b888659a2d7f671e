"""The backends by name, each imported only when it is asked for; and a mesh for programs of one's own."""

import importlib
import sys
from collections.abc import Mapping

from tfmat.backends.base import Backend
from tfmat.backends.options import BackendOptions, check_mesh, has_stages
from tfmat.errors import InputError, nearest
from tfmat.launch.runtime import make_virtual_devices, prepare_tensorflow

# Name -> module and class.
BACKENDS = {
    "asynchronous": ("tfmat.backends.asynchronous", "AsynchronousBackend"),
    "dtensor": ("tfmat.backends.dtensor", "DTensorBackend"),
    "single": ("tfmat.backends.single", "SingleBackend"),
    "horovod": ("tfmat.backends.horovod", "HorovodBackend"),
    "mpi": ("tfmat.backends.mpi", "MpiBackend"),
}


def check_backend(name: str) -> None:
    """Raises InputError where there is no such backend."""
    if name not in BACKENDS:
        raise InputError(f"unknown backend '{name}'{nearest(name, BACKENDS)}")


def make_backend(name: str, options: BackendOptions | None = None) -> Backend:
    """The backend called `name`, in stages where the options' mesh has them; InputError where there is none."""
    check_backend(name)
    options = options or BackendOptions()
    check_mesh(options, name)
    module, backend_class = BACKENDS[name]
    if name == "asynchronous" and options.averaging:
        module, backend_class = "tfmat.backends.asynchronous", "AveragingBackend"
    backend: Backend = getattr(importlib.import_module(module), backend_class)(options)
    if has_stages(options.mesh):
        from tfmat.backends.pipeline import PipelineBackend

        return PipelineBackend(name, options, backend.collectives)
    return backend


def mesh_backend(
    mesh: str, *, layouts: Mapping[str, str] | None = None, zero_stage: int = 0
) -> Backend:
    """Starts a mesh of devices. Call it first: before any Keras model or tensor is made.

    Without GPUs the devices are virtual ones of the CPU, which TensorFlow makes only when it starts.

    Examples:
      >>> backend = tfmat.mesh_backend(  # doctest: +SKIP
      ...     "batch:2,model:2", layouts={"mlp1/kernel": "-,model", "mlp2/kernel": "model,-"}
      ... )
      >>> trainer = tfmat.Trainer(model, backend=backend)  # doctest: +SKIP

    Args:
      mesh: named axes and their devices; the examples of a batch are divided over the axis `batch`.
      layouts: regular expressions over variable paths -> for each dimension an axis or `-`, or `replicated`; the first
        that matches holds. Without one, dense layers are divided over the axis `model` as in Megatron-LM.
      zero_stage: what is divided over `batch` as well: 1 the optimizer's slots, 2 and gradients, 3 and weights.

    Raises:
      InputError: no such mesh, or TensorFlow has started with fewer devices.
    """
    options = BackendOptions.on_mesh(
        mesh, layouts=tuple((layouts or {}).items()), zero_stage=zero_stage
    )
    num_processes = options.processes.size
    devices = options.mesh.devices_per_process(num_processes)
    if "tensorflow" not in sys.modules:
        prepare_tensorflow(virtual_devices=devices, start=num_processes == 1)
    import tensorflow as tf

    if not tf.config.list_physical_devices("GPU"):
        try:
            if devices > 1:
                make_virtual_devices(devices)
        except RuntimeError:
            pass  # it has started; the next lines say whether with enough devices
        # Several processes join before TensorFlow starts; `start` says whether it has.
        started = len(tf.config.list_logical_devices("CPU")) if num_processes == 1 else devices
        if started < devices:
            raise InputError(
                f"mesh {options.mesh} needs {devices} devices, and TensorFlow has started with {started}; call "
                "tfmat.mesh_backend before the first Keras model or tensor is made"
            )
    backend = make_backend("dtensor", options)
    backend.start()
    return backend
