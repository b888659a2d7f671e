"""tfmat: parameters of material laws from stress-strain curves, by networks trained in parallel."""

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from typing import Any

__version__ = "0.2.0"

# Name -> module. TensorFlow is imported when one of them is first used, not by `import tfmat`.
_PUBLIC = {
    "Trainer": "tfmat.training.run",
    "identify": "tfmat.identification.api",
    "mesh_backend": "tfmat.backends.registry",
    "network_answers": "tfmat.identification.api",
    "pool": "tfmat.identification.answer",
}

__all__ = [
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


def __dir__() -> list[str]:
    """For the Tab key of an interactive Python."""
    return __all__


# Modules that Python files of users name, because an older tfmat wrote them (`tfmat emulate`) or its pages said so
# (programmes, models and scripts of their own) -> where their content is now.
_FORMER = {
    "tfmat.curves": "tfmat.records",
    "tfmat.curves.paths": "tfmat.records.programmes",
    "tfmat.curves.programmes": "tfmat.records.programmes",
    "tfmat.launch.runtime": "tfmat.launch.processes",
    "tfmat.models": "tfmat.networks",
    "tfmat.models.normalization": "tfmat.networks.factory",
    "tfmat.scaling.matrix": "tfmat.scaling.study",
    "tfmat.simulators": "tfmat.specimens",
    "tfmat.simulators.forward": "tfmat.specimens.emulator",
}


class _FormerModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports what `_FORMER` names, with the names of the module that took its place."""

    def find_spec(
        self, fullname: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        """As Python asks, once no file has been found."""
        if fullname not in _FORMER:
            return None
        is_package = any(name.startswith(f"{fullname}.") for name in _FORMER)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=is_package)

    def exec_module(self, module: types.ModuleType) -> None:
        """Fills the module."""
        found = vars(importlib.import_module(_FORMER[module.__name__]))
        vars(module).update({name: each for name, each in found.items() if name[:2] != "__"})


sys.meta_path.append(_FormerModules())
