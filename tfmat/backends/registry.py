"""The backends by name; each is imported only when it is asked for."""

import importlib

from tfmat.backends.base import Backend, BackendOptions
from tfmat.errors import InputError, nearest

# Name -> module and class.
BACKENDS = {
    "dtensor": ("tfmat.backends.dtensor", "DTensorBackend"),
    "single": ("tfmat.backends.single", "SingleBackend"),
    "horovod": ("tfmat.backends.horovod", "HorovodBackend"),
}


def check_backend(name: str) -> None:
    """Raises InputError where there is no such backend."""
    if name not in BACKENDS:
        raise InputError(f"unknown backend '{name}'{nearest(name, BACKENDS)}")


def make_backend(name: str, options: BackendOptions | None = None) -> Backend:
    """The backend called `name`; InputError where there is none."""
    check_backend(name)
    module, backend_class = BACKENDS[name]
    return getattr(importlib.import_module(module), backend_class)(options)
