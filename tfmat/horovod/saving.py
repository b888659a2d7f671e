"""Models that were saved, with an optimizer that reduces gradients again."""

from collections.abc import Iterable, Mapping
from typing import Any

import horovod.tensorflow as horovod
import keras

from tfmat.errors import InputError
from tfmat.horovod.optimizer import DistributedOptimizer


def load_model(
    filepath: Any,
    custom_optimizers: Iterable[type] | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    compression: Any = horovod.Compression.none,
    legacy_opts: bool = False,
) -> keras.Model:
    """Loads a model with its optimizer's state, and makes that optimizer a DistributedOptimizer. For every rank.

    Args:
      filepath: as for `keras.models.load_model`.
      custom_optimizers: classes of optimizers that are not Keras's own.
      custom_objects: name -> class or function, as for `keras.models.load_model`.
      compression: see DistributedOptimizer.
      legacy_opts: not supported: Keras 3 has no legacy optimizers.

    Raises:
      InputError: `legacy_opts` was given.
    """
    if legacy_opts:
        raise InputError("legacy_opts is not supported: Keras 3 has no legacy optimizers")
    objects = {each.__name__: each for each in custom_optimizers or ()}
    model = keras.models.load_model(filepath, custom_objects={**objects, **(custom_objects or {})})
    if getattr(model, "optimizer", None) is not None:
        model.optimizer = DistributedOptimizer(model.optimizer, compression=compression)
    return model
