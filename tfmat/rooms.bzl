"""The rooms of the house: which may import which. The test of imports reads this table too."""

load("@rules_python//python:defs.bzl", "py_library")

# Modules of //tfmat itself that every room may use.
LEAVES = ["console", "errors", "files"]

# Room -> rooms that it may import, besides the leaves.
LAYERS = {
    "config": [],
    "materials": [],
    "cards": ["materials"],
    "curves": ["materials"],
    "data": ["config", "curves", "materials"],
    "simulators": ["config", "curves", "data", "materials"],
    "models": ["config", "curves", "materials"],
    "optimizers": ["config"],
    "ranks": [],
    "launch": ["config", "ranks"],
    "backends": ["config", "launch", "models", "optimizers", "ranks"],
    "training": ["backends", "config", "data", "models", "optimizers", "ranks"],
    "horovod": ["backends", "config", "launch", "models", "optimizers", "ranks"],
    "identification": ["cards", "config", "curves", "data", "materials", "models", "training"],
    "report": ["config"],
    "tuning": ["config", "launch", "report", "training"],
    "scaling": [
        "backends",
        "config",
        "data",
        "launch",
        "models",
        "optimizers",
        "ranks",
        "report",
        "training",
    ],
}
LAYERS["workflow"] = list(LAYERS)

# Its runs are ordinary ones, so it stands on the main job.
LAYERS["large_batch"] = [
    "backends",
    "config",
    "data",
    "launch",
    "models",
    "optimizers",
    "report",
    "training",
    "workflow",
]
LAYERS["cli"] = list(LAYERS)

# Rooms that are modules of //tfmat and have no folder.
_MODULES = LEAVES + ["config"]

def room(name):
    """The library of a folder of tfmat/, with the deps and the visibility that LAYERS says.

    Args:
      name: the folder's name.
    """
    py_library(
        name = name,
        srcs = native.glob(["*.py"]),
        # The pages of the report.
        data = native.glob(["templates/*"]),
        visibility = ["//tfmat:__pkg__", "//tfmat_tests:__subpackages__"] + [
            "//tfmat/%s:__pkg__" % user
            for user, below in LAYERS.items()
            if name in below
        ],
        deps = [
            ("//tfmat:" if other in _MODULES else "//tfmat/") + other
            for other in LEAVES + LAYERS[name]
        ],
    )
