"""The rooms of the house: which may import which. BUILD and the test of imports read this table."""

# Modules of //tfmat itself that every room may use.
LEAVES = ["console", "errors", "files"]

# Room -> rooms that it may import, besides the leaves.
LAYERS = {
    "config": [],
    "materials": [],
    "records": ["materials"],
    "data": ["config", "records", "materials"],
    "networks": ["config", "records", "materials"],
    "optimizers": ["config"],
    "launch": ["config"],
    "backends": ["config", "launch", "networks", "optimizers"],
    "training": ["backends", "config", "data", "launch", "networks", "optimizers"],
    "specimens": ["config", "records", "data", "materials", "training"],
    "horovod": ["backends", "config", "launch", "networks", "optimizers"],
    "identification": ["config", "records", "data", "launch", "materials", "networks", "training"],
    "report": ["config", "identification", "launch", "records", "training"],
    "tuning": ["config", "launch", "report", "training"],
}
LAYERS["workflow"] = list(LAYERS)

# Studies: their data sets and runs are ordinary ones, so they stand on the main job.
LAYERS["scaling"] = [
    "backends",
    "config",
    "data",
    "launch",
    "networks",
    "optimizers",
    "report",
    "training",
    "workflow",
]
LAYERS["large_batch"] = LAYERS["scaling"]
LAYERS["cli"] = list(LAYERS)
