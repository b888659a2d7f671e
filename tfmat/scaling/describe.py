"""`python -m tfmat.scaling.describe CONFIGS ANSWER`: networks of a study and what Horovod can do here, as JSON.

A process of its own: the study itself never loads TensorFlow, which would take its memory and processors.
"""

import importlib.util
import pathlib
import sys
from typing import Any

from tfmat.backends.layout_rules import Weight
from tfmat.backends.layouts import weights_of
from tfmat.config import Config, check_config
from tfmat.errors import InputError
from tfmat.files import read_json, write_json
from tfmat.scaling.measurements import Model

_LIBRARIES = ("mpi", "gloo", "nccl")


def main(configs: str, answer: str) -> None:
    """Builds each model once.

    Args:
      configs: JSON file: {"models": {name: config as a dictionary}, "num_outputs": 2}.
      answer: written: {"horovod": […], "mpi4py": false, "models": {name: {"parameters", "gradient_bytes", "weights"}}}.
    """
    from tfmat.launch.runtime import prepare_tensorflow

    prepare_tensorflow()
    asked = read_json(configs)
    models = {
        name: _describe(check_config(Config(content)), asked["num_outputs"])
        for name, content in asked["models"].items()
    }
    found = {
        "horovod": _horovod(),
        "mpi4py": importlib.util.find_spec("mpi4py") is not None,
        "models": models,
    }
    write_json(answer, found)


def _describe(config: Config, num_outputs: int) -> dict[str, Any]:
    from tfmat.models import build_model

    model = build_model(config.model, num_outputs=num_outputs, num_points=config.data.num_points)
    weights = weights_of(model)
    return {
        "parameters": int(model.count_params()),
        "gradient_bytes": sum(_numbers(weight) * weight.itemsize for weight in weights),
        "weights": [[weight.path, list(weight.shape), weight.itemsize] for weight in weights],
    }


def _numbers(weight: Weight) -> int:
    product = 1
    for length in weight.shape:
        product *= length
    return product


def _horovod() -> list[str]:
    """Libraries that this Horovod can sum with; none where it cannot be loaded."""
    try:
        from tfmat.backends.horovod import built_libraries
    except ImportError:
        return []
    try:
        return [library for library in built_libraries() if library in _LIBRARIES]
    except InputError:
        return []


def model_of(name: str, content: dict[str, Any]) -> Model:
    """A network of the answer."""
    weights = tuple(
        Weight(path, tuple(shape), itemsize) for path, shape, itemsize in content["weights"]
    )
    return Model(name, content["parameters"], content["gradient_bytes"], weights)


if __name__ == "__main__":
    main(*map(str, map(pathlib.Path, sys.argv[1:3])))
