"""Networks of a study and what Horovod can do here.

A process of its own: the study itself never loads TensorFlow, which would take its memory and processors.
"""

import contextlib
import dataclasses
import importlib.util
import math
import pathlib
from typing import Any

from tfmat.backends.layout_rules import Weight
from tfmat.backends.layouts import weights_of
from tfmat.config import Config, check_config
from tfmat.errors import InputError
from tfmat.files import check_json
from tfmat.ranks.processes import Processes
from tfmat.scaling.laboratory import launch_here, run_alone
from tfmat.scaling.matrix import COLLECTIVES
from tfmat.scaling.measurements import Model


def ask(
    models: dict[str, Any], num_outputs: int, folder: pathlib.Path
) -> tuple[dict[str, Model], set[str]]:
    """The networks, and what can sum here: Horovod's libraries, and `mpi4py`.

    Args:
      models: name -> config as a dictionary.
      num_outputs: of the data set.
      folder: for the files of the process.

    Raises:
      InputError: TensorFlow cannot be loaded, or a model cannot be built.
    """
    program = "tfmat.scaling.describe:describe"
    launch = launch_here("networks", 0, folder, program, models=models, num_outputs=num_outputs)
    try:
        (found,) = run_alone(launch)
    except InputError as error:
        raise InputError(f"the networks of the study cannot be built: {error}") from error
    networks = check_json(found["models"], dict[str, Model], launch.name)
    return networks, set(found["sums_with"])


def describe(spec: dict[str, Any], processes: Processes, folder: pathlib.Path) -> dict[str, Any]:
    """Called by the process, see worker.py: builds each model once."""
    from tfmat.launch.runtime import prepare_tensorflow

    prepare_tensorflow()
    models = {
        name: dataclasses.asdict(_describe(name, Config(content), spec["num_outputs"]))
        for name, content in spec["models"].items()
    }
    mpi4py = ["mpi4py"] if importlib.util.find_spec("mpi4py") else []
    return {"sums_with": [*_horovod(), *mpi4py], "models": models}


def _describe(name: str, config: Config, num_outputs: int) -> Model:
    from tfmat.models import build_model

    check_config(config)
    model = build_model(config.model, num_outputs=num_outputs, num_points=config.data.num_points)
    # What else is known of a weight is in no older study's points, which have to be the same.
    weights = tuple(Weight(each.path, each.shape, each.itemsize) for each in weights_of(model))
    gradient_bytes = sum(math.prod(weight.shape) * weight.itemsize for weight in weights)
    return Model(name, int(model.count_params()), gradient_bytes, weights)


def _horovod() -> list[str]:
    """Libraries that this Horovod can sum with; none where it cannot be loaded."""
    with contextlib.suppress(ImportError, InputError):
        from tfmat.backends.horovod import built_libraries

        return [library for library in built_libraries() if library in COLLECTIVES]
    return []
