"""A trained network that answers: curves -> labels -> values; and its intervals made true after the training."""

import os

import keras
import numpy as np
import tensorflow as tf

import tfmat.models.factory  # noqa: F401  (registers the layers that a stored model may hold)
from tfmat.curves.records import RecordForm
from tfmat.curves.resampling import CurveTarget
from tfmat.curves.settings import CurveSettings
from tfmat.data.packed import PackedDataset
from tfmat.errors import InputError
from tfmat.identification.networks import Sidecar, model_files, read_sidecar
from tfmat.identification.uncertainty import Calibration
from tfmat.materials.law import Array, Law
from tfmat.materials.parameter import Parameter

# Large enough to keep the cores busy, small enough that the activations stay around 50 MB.
CURVES_PER_CALL = 4096
# With 50,000 errors the place of a 95 % interval's end is known to 0.1 % of coverage.
MOST_CURVES = 50_000
# Fewer say nothing of such an end.
FEWEST_CURVES = 200


class Identifier:
    """A network that turns curves into parameters.

    Attributes:
      parameters, settings, law, target, form, calibration: see `Sidecar`.
    """

    calibration: Calibration | None = None

    def __init__(self, model: keras.Model, sidecar: Sidecar):
        """Raises InputError where the model's shapes are not those that its sidecar describes."""
        self.parameters: tuple[Parameter, ...] = sidecar.parameters
        self.settings: CurveSettings | None = sidecar.settings
        self.law: Law | None = sidecar.law
        self.target: CurveTarget = sidecar.target
        self.form: RecordForm = sidecar.form
        self.calibration = sidecar.calibration
        columns = len(self.parameters) * (1 if sidecar.calibration is None else 2)
        expected = ((None, *self.form.shape), (None, columns))
        found = (model.input_shape, model.output_shape)
        if found != expected:
            raise InputError(
                f"the model maps {found[0]} to {found[1]}, but {sidecar.file} describes "
                f"{expected[0]} to {expected[1]}; train again"
            )
        # One traced function for any number of curves; a direct call would run op by op.
        self._predict = tf.function(
            lambda features: model(features, training=False),
            input_signature=[tf.TensorSpec([None, *self.form.shape], tf.float32)],
            autograph=False,
        )

    @classmethod
    def open(cls, workdir: str | os.PathLike) -> "Identifier":
        """Loads the best model of a run; raises InputError where there is none or it is damaged."""
        sidecar = read_sidecar(workdir)
        model_file = model_files(workdir)[0]
        try:
            model = keras.saving.load_model(model_file, compile=False)
        except (
            Exception
        ) as error:  # Keras raises anything, from OSError to KeyError, for a damaged file.
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise InputError(
                f"{model_file} cannot be loaded ({reason}); if it is damaged, train again"
            ) from error
        return cls(model, sidecar)

    def predict(self, features: np.ndarray) -> Array:
        """The network's own answers, unclipped.

        Args:
          features: [curves, points, 3], strain (-), stress (MPa), padding flag; for tests see `RecordForm`.

        Returns:
          [curves, identified parameters], labels scaled to 0-1.
        """
        return self._outputs(features)[:, : len(self.parameters)]

    def predict_with_std(self, features: np.ndarray) -> tuple[Array, Array | None]:
        """What `predict` gives, and the network's standard deviations, same shape; None where it gives none."""
        if self.calibration is None:
            return self.predict(features), None
        outputs, count = self._outputs(features), len(self.parameters)
        return outputs[:, :count], np.exp(0.5 * outputs[:, count:])

    def _outputs(self, features: np.ndarray) -> Array:
        count = len(self.parameters) * (1 if self.calibration is None else 2)
        outputs = np.empty((len(features), count))
        for start in range(0, len(features), CURVES_PER_CALL):
            block = np.asarray(features[start : start + CURVES_PER_CALL], np.float32)
            outputs[start : start + len(block)] = self._predict(tf.constant(block)).numpy()
        return outputs

    def values(self, labels: Array) -> Array:
        """Labels [curves, identified parameters] -> values in the parameters' units, same shape."""
        return np.stack(
            [p.from_unit_interval(labels[:, i]) for i, p in enumerate(self.parameters)], axis=1
        )


def calibrate(identifier: Identifier, dataset: PackedDataset) -> Calibration | None:
    """The calibration of the network's std on the last validation curves.

    They never train and, but for the choice of the best epoch on the first of them, are as good as new; the test curves
    stay untouched.

    Returns:
      None where the network has no uncertainty head, or the validation curves are too few.
    """
    count = min(dataset.num_validation, MOST_CURVES)
    if identifier.calibration is None or count < FEWEST_CURVES:
        return None
    end = dataset.num_train + dataset.num_validation
    rows = slice(end - count, end)
    labels, std = identifier.predict_with_std(dataset.features[rows])
    assert std is not None
    true_labels = np.asarray(dataset.labels[rows], np.float64)
    return Calibration.measured(true_labels, np.clip(labels, 0.0, 1.0), std)
