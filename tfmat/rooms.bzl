"""The rooms of the house: which may import which. BUILD and the test of imports read this table."""

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
