"""tfmat: parameters of material laws from stress-strain curves, by networks trained in parallel."""

import importlib
from typing import Any

__version__ = "0.1.0"

# Name -> module. TensorFlow is imported when one of them is first used, not by `import tfmat`.
_PUBLIC = {
    "ParallelSteps": "tfmat.training.trainer",
    "Trainer": "tfmat.training.trainer",
    "identify": "tfmat.identification.api",
    "mesh_backend": "tfmat.backends.registry",
    "network_answers": "tfmat.identification.api",
    "pool": "tfmat.identification.answers",
}

__all__ = [
    "ParallelSteps",
    "Trainer",
    "__version__",
    "identify",
    "mesh_backend",
    "network_answers",
    "pool",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'tfmat' has no attribute '{name}'")
    return getattr(importlib.import_module(_PUBLIC[name]), name)
