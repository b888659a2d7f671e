"""A run's trained network and the loss that it was trained with, as a function of weights and curves."""

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfmat.config import Config, load_saved_config
from tfmat.data.packed import is_dataset
from tfmat.errors import InputError
from tfmat.files import read_json
from tfmat.large_batch.directions import Weights
from tfmat.training.run_folder import find_run_file

if TYPE_CHECKING:
    import keras


@dataclasses.dataclass(frozen=True)
class EndedRun:
    """A run of the main job that has come to its end.

    Attributes:
      folder: of the run.
      config: as the run was started with.
      status: what status.json says.
      data_dir: folder of its data set.
    """

    folder: pathlib.Path
    config: Config
    status: dict[str, Any]
    data_dir: pathlib.Path

    @classmethod
    def read(cls, folder: str | os.PathLike, data_dir: str | None = None) -> "EndedRun":
        """Reads the run's files; needs no TensorFlow.

        Args:
          folder: of the run.
          data_dir: of the data set, where it has moved.

        Raises:
          InputError: no run of the main job, not ended, diverged, or its data set is not there.
        """
        folder = pathlib.Path(folder)
        if not folder.is_dir():
            raise InputError(f"{folder} is not there; name the folder of a run")
        config, extra = load_saved_config(find_run_file(folder, "config.json"))
        status = read_json(find_run_file(folder, "status.json"))
        state = status.get("state") if isinstance(status, dict) else None
        if state != "done":
            raise InputError(
                f"the run in {folder} is {state or 'of an unknown state'}, not done: it has no minimum yet; end it "
                f"first: tfmat train --workdir={folder}"
            )
        find_run_file(folder, "final.keras")
        own = data_dir or extra.get("data_dir")
        if not isinstance(own, str):
            raise InputError(
                f"{folder} is no run of tfmat train: its config.json names no data set"
            )
        if not is_dataset(own):
            raise InputError(
                f"the data set {own} of the run in {folder} is not there; give its folder with --data_dir"
            )
        return cls(folder, config, status, pathlib.Path(own))

    def arrays(self) -> tuple[Weights, Weights]:
        """Trainable and other numbers of final.keras, in the order of the network's variables."""
        import keras

        import tfmat.models  # noqa: F401  registers its layers

        try:
            model = keras.models.load_model(self.folder / "final.keras", compile=False)
        except Exception as error:  # zipfile, h5py, Keras: whatever a damaged file raises
            raise InputError(
                f"{self.folder / 'final.keras'} is damaged ({type(error).__name__}); train again"
            ) from error
        return (
            [np.asarray(variable) for variable in model.trainable_variables],
            [np.asarray(variable) for variable in model.non_trainable_variables],
        )


class RunLoss:
    """The loss of a network, as a run of the main job trains it: a function of weights, other state, and examples.

    Layers with moving statistics or dropout are in inference mode. What a run adds to its loss (`auxiliary_loss`) is in
    it; decoupled weight decay belongs to the optimizer, and is not.

    Args:
      model: the network, or its part behind a front without weights (`parted`).
      losses: what `losses_and_metrics` returns for it.

    Attributes:
      model: as given.
    """

    def __init__(self, model: "keras.Model", losses: Mapping[str, Any]):
        from tfmat.backends.losses import per_example_function

        self.model = model
        self._functions = [
            per_example_function(losses[name])
            for name in ("loss", "auxiliary_loss")
            if name in losses
        ]

    def __call__(self, weights: Sequence[Any], others: Sequence[Any], x: Any, y: Any) -> Any:
        """The mean loss of some examples: a scalar tensor.

        Args:
          weights, others: tensors like the network's trainable and other variables.
          x, y: features [examples, ...] and labels [examples, outputs].
        """
        import keras
        import tensorflow as tf

        from tfmat.backends.losses import per_example_mean

        outputs, _ = self.model.stateless_call(list(weights), list(others), x, training=False)
        # A loss may call a layer of the model, as that of a density does.
        scope = zip(self.model.trainable_variables, weights, strict=True)
        with keras.StatelessScope(scope):
            losses = [per_example_mean(function(y, outputs)) for function in self._functions]
        return tf.add_n([tf.reduce_mean(loss) for loss in losses])


@contextlib.contextmanager
def float_type(name: str) -> Iterator[None]:
    """What Keras makes inside is of this type: float32 or float64."""
    import keras

    before = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx(name)
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_floatx(before[0])
        keras.config.set_dtype_policy(before[1])
