"""Horovod for Keras 3: `import tfmat.horovod as hvd` replaces `import horovod.tensorflow.keras as hvd`.

Horovod's own Keras wrapper stops at Keras 2. This one has its names and the order of its arguments; what differs, and
why, is in docs/horovod.md.
"""

from typing import Any

from tfmat.launch.processes import GET_HOROVOD

try:
    # The third-party package, not this one: imports are absolute.
    from horovod.tensorflow import (
        Average,
        Compression,
        Max,
        Min,
        Product,
        Sum,
        allgather_object,
        broadcast_object,
        ccl_built,
        cross_rank,
        cross_size,
        cuda_built,
        ddl_built,
        gloo_built,
        gloo_enabled,
        is_initialized,
        local_rank,
        local_size,
        mpi_built,
        mpi_enabled,
        mpi_threads_supported,
        nccl_built,
        rank,
        rocm_built,
        shutdown,
        size,
        start_timeline,
        stop_timeline,
    )
    from horovod.tensorflow.mpi_ops import (
        ProcessSet,
        add_process_set,
        global_process_set,
        remove_process_set,
    )
except ImportError as error:
    raise ImportError(f"tfmat.horovod needs Horovod ({error}); {GET_HOROVOD}") from error

import keras as _keras

if _keras.backend.backend() != "tensorflow":
    raise ImportError(
        f"tfmat.horovod is for Keras on TensorFlow, not on {_keras.backend.backend()}; set KERAS_BACKEND=tensorflow"
    )


from tfmat.horovod import callbacks
from tfmat.horovod.optimizer import (
    DistributedOptimizer,
    allgather,
    allreduce,
    broadcast,
    broadcast_variables,
    init,
    load_model,
    reducescatter,
)

# Names of Horovod's wrapper that are not here -> why.
_ABSENT = {
    "Adasum": "gradients are summed or averaged; use op=hvd.Average",
    "PartialDistributedOptimizer": "every variable is reduced; use hvd.DistributedOptimizer",
    "broadcast_global_variables": "TensorFlow 2 has no global collection; use hvd.broadcast_variables",
    "elastic": "a run has the same ranks from beginning to end; go on from a checkpoint with others",
}


def __getattr__(name: str) -> Any:
    if name in _ABSENT:
        raise AttributeError(f"tfmat.horovod has no {name}: {_ABSENT[name]}")
    raise AttributeError(f"module 'tfmat.horovod' has no attribute '{name}'")


__all__ = [
    "Average",
    "Compression",
    "DistributedOptimizer",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "broadcast",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_initialized",
    "load_model",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]
