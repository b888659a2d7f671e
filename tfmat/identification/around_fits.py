"""The outputs of a network around the law's fits: each record is fitted once, many of them by all processors."""

import contextlib
import hashlib
import itertools
from collections.abc import Iterator

import keras
import numpy as np
import tensorflow as tf

from tfmat.identification.side_by_side import all_in_processes
from tfmat.materials.law import Array
from tfmat.networks.law_fit import LawFit

# Records of one task of a fork: short NumPy calls pay for many at once, and all processors have some.
_TOGETHER = 128
# Records whose outputs are kept.
_MOST_KEPT = 65_536


class AroundFits:
    """Records -> outputs; means, draws and densities ask for the same ones.

    Args:
      model: whose first layer is `fit`.

    Attributes:
      fit: the layer.
    """

    def __init__(self, model: keras.Model, fit: LawFit):
        self.fit = fit
        behind = keras.Model(fit.output, model.outputs[0])
        self._behind = tf.function(
            lambda fits: behind(fits, training=False),
            input_signature=[tf.TensorSpec(fit.output.shape, tf.float32)],
            autograph=False,
        )
        # As a graph, which is what a training sees: rounding decides which points count as elastic.
        self._spectra_of = tf.function(
            fit.spectra_of,
            input_signature=[tf.TensorSpec(fit.input.shape, tf.float32)],
            autograph=False,
        )
        self._columns = behind.output_shape[-1]
        self._kept: dict[bytes, Array] = {}

    @classmethod
    def of(cls, model: keras.Model) -> "AroundFits | None":
        """The outputs of a model around fits; None where a model sees its records in another way."""
        fits = [each for each in model.layers if isinstance(each, LawFit)]
        return cls(model, fits[0]) if fits else None

    def outputs(self, features: np.ndarray) -> Array:
        """Answers records [records, points, channels] with [records, columns]; fits those that are not known yet."""
        keys = _digests(features)
        found = {key: self._kept[key] for key in keys if key in self._kept}
        if missing := [place for place, key in enumerate(keys) if key not in found]:
            fits = self._fitted(features[missing])
            found |= self._keep([keys[place] for place in missing], fits)
        return np.array([found[key] for key in keys]).reshape(len(keys), self._columns)

    def know(self, features: np.ndarray, fits: np.ndarray) -> None:
        """Takes what the layer says of these records, [records, numbers], whose outputs are asked for later."""
        self._keep(_digests(features), fits)

    @contextlib.contextmanager
    def afresh(self) -> Iterator[None]:
        """Within it all records are fitted, also those that are known already."""
        kept, self._kept = self._kept, {}
        try:
            yield
        finally:
            self._kept = kept

    def _fitted(self, features: np.ndarray) -> np.ndarray:
        # NumPy fits, and holds the interpreter: threads would wait for each other.
        starts = range(0, len(features), _TOGETHER)
        blocks = [np.asarray(features[i : i + _TOGETHER], np.float32) for i in starts]
        given = [(block, self._spectra_of(tf.constant(block)).numpy()) for block in blocks]
        if (
            len(given) == 1
        ):  # at once: for a few records processes would take longer to prepare than to fit
            return self.fit.fits(*given[0]).astype(np.float32)
        found = all_in_processes(lambda one: self.fit.fits(*one), given, len(given))
        return np.concatenate(found).astype(np.float32)

    def _keep(self, keys: list[bytes], fits: np.ndarray) -> dict[bytes, Array]:
        new = dict(zip(keys, self._behind(tf.constant(fits)).numpy(), strict=True))
        self._kept.update(new)
        too_many = max(0, len(self._kept) - _MOST_KEPT)
        for oldest in list(itertools.islice(self._kept, too_many)):
            del self._kept[oldest]
        return new


def _digests(features: np.ndarray) -> list[bytes]:
    """A number for each of the records."""
    records = np.ascontiguousarray(features, np.float32)
    return [hashlib.blake2b(each.data, digest_size=16).digest() for each in records]
