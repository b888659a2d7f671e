"""A trained network that answers: records -> labels -> values."""

import contextlib
import dataclasses
import hashlib
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfmat.errors import InputError
from tfmat.identification.networks import Calibration, Sidecar, model_files, read_sidecar
from tfmat.identification.posterior import (
    Posterior,
    check_samples,
    even_normal,
    independent_normal,
    with_wider_half,
)
from tfmat.identification.results import COVERAGE
from tfmat.identification.side_by_side import all_in_processes, in_threads
from tfmat.materials.law import Array, Law, Parameter
from tfmat.networks.flow import POSTERIOR
from tfmat.networks.law_fit import LawFit
from tfmat.records.record import CurveTarget
from tfmat.records.simulation import CurveSettings, RecordForm

# --------------------------------------------------------------------------------------------------
# The outputs of a network around the law's fits: each record is fitted once, many of them by all processors.


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
        given = [(block, self.fit.graph_of_spectra(tf.constant(block)).numpy()) for block in blocks]
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


# --------------------------------------------------------------------------------------------------
# A trained network that answers: curves -> labels -> values.


# A thread's share of a call: what a block's operations leave for each other stays in the processor's cache.
_BLOCK = 1024
# Draws of each curve, for the mean, std and intervals of a whole posterior; the same ones for every curve.
_EVEN_DRAWS = 512
# Drawn in one call: small enough for a processor's cache.
_DRAWS_PER_CALL = 16_384


class Identifier:
    """A network that turns curves into parameters.

    Attributes:
      around_fits: the network's outputs where it answers around the law's fits; None in others.
      parameters, settings, law, target, form, calibration, uncertainty, spread: see `Sidecar`.
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
        self.uncertainty = sidecar.uncertainty
        self.spread = sidecar.spread
        self._columns = len(self.parameters) * (1 if sidecar.calibration is None else 2)
        if self.uncertainty == "flow":
            flows = [each for each in model.layers if each.name == POSTERIOR]
            if [getattr(each, "num_labels", 0) for each in flows] != [len(self.parameters)]:
                raise InputError(
                    f"the model has no posterior of {len(self.parameters)} parameters, which {sidecar.file} describes; "
                    "train again"
                )
            self._flow: Any = flows[0]
            self._columns = self._flow.columns
            self._draw = tf.function(
                self._drawn,
                input_signature=[
                    tf.TensorSpec([None, self._columns], tf.float32),
                    tf.TensorSpec([None, None, len(self.parameters)], tf.float32),
                    tf.TensorSpec([], tf.float32),
                ],
                autograph=False,
            )
        expected = ((None, *self.form.shape), (None, self._columns))
        found = (model.input_shape, model.output_shape)
        if found != expected:
            raise InputError(
                f"the model maps {found[0]} to {found[1]}, but {sidecar.file} describes "
                f"{expected[0]} to {expected[1]}; train again"
            )
        self.around_fits = AroundFits.of(model)
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
        if self.uncertainty == "flow":
            return self._even_draws(features).mean
        return self._outputs(features)[:, : len(self.parameters)]

    def predict_with_std(self, features: np.ndarray) -> tuple[Array, Array | None]:
        """The values of `predict`, and the network's standard deviations, same shape; None where it gives none."""
        if self.uncertainty == "flow":
            draws = self._even_draws(features)
            return draws.mean, draws.std
        if self.calibration is None:
            return self.predict(features), None
        outputs, count = self._outputs(features), len(self.parameters)
        return outputs[:, :count], np.exp(0.5 * outputs[:, count:])

    def answers(
        self, features: np.ndarray, coverages: Sequence[float] = (COVERAGE,)
    ) -> tuple[Array, Array | None, Array | None]:
        """Values, standard deviations, and intervals that hold the true labels with these probabilities.

        With a variance head both are calibrated. Intervals of a whole posterior, which has its spread, are of highest
        density.

        Returns:
          [curves, p], [curves, p] and [coverages, curves, p, 2]; None for both where the network gives neither.
        """
        if self.uncertainty == "flow":
            draws = self._even_draws(features)
            return draws.mean, draws.std, draws.intervals(coverages)
        labels, std = self.predict_with_std(features)
        if std is None or self.calibration is None:
            return labels, None, None
        cut = np.clip(labels, 0.0, 1.0)
        limits = [self.calibration.interval(cut, std, coverage) for coverage in coverages]
        return labels, self.calibration.std(std), np.stack(limits)

    def draws(self, features: np.ndarray, samples: int, *, seed: int = 0) -> Posterior:
        """Samples of the posterior of each curve's labels.

        Densities of a variance head are independent Gaussians, which know nothing of how parameters trade against each
        other.

        Args:
          features: see `predict`.
          samples: of each curve.
          seed: of the draw; a curve's samples also depend on its place among the curves.

        Raises:
          InputError: the network has no uncertainty head.
        """
        check_samples(samples, self.uncertainty)
        if self.uncertainty == "gaussian":
            labels, std, _ = self.answers(features)
            assert std is not None
            drawn = independent_normal(np.clip(labels, 0.0, 1.0), std, samples, seed)
            return dataclasses.replace(drawn, parameters=self.parameters)
        return self.draws_of(features, self._normal(len(features), samples, seed))

    def proposals(self, features: np.ndarray, samples: int) -> Posterior:
        """The `draws` of a whole posterior, and behind them as many wider ones, to be weighed by a likelihood.

        Weights of a network's own draws have a heavy tail where its posteriors end a little too early.
        """
        normal, proposed = with_wider_half(self._normal(len(features), 2 * samples))
        found = self.draws_of(features, normal)
        assert found.label_log_density is not None
        return dataclasses.replace(found, proposed=found.label_log_density + proposed)

    def _normal(self, curves: int, samples: int, seed: int = 0) -> np.ndarray:
        shape = (curves, samples, len(self.parameters))
        return np.random.default_rng(seed).standard_normal(shape, np.float32)

    def log_density(self, features: np.ndarray, labels: Array) -> Array:
        """Logarithm of the posterior density of labels, of a whole posterior.

        Labels [curves, p] have [curves]; several of each curve, [curves, labels, p], have [curves, labels].
        """
        outputs = np.asarray(self._outputs(features), np.float32)
        rows = np.asarray(labels, np.float32).reshape(-1, labels.shape[-1])
        told = np.repeat(outputs, len(rows) // max(len(outputs), 1), axis=0)
        density = self._flow.log_density(rows, told, self.spread.value)
        return np.asarray(density).reshape(labels.shape[:-1])

    def standardized(self, features: np.ndarray, labels: Array) -> Array:
        """Labels [curves, p] in the base space: standard normal where a posterior without its spread is right."""
        outputs = np.asarray(self._outputs(features), np.float32)
        return np.asarray(self._flow.standardized(np.asarray(labels, np.float32), outputs))

    def _even_draws(self, features: np.ndarray) -> Posterior:
        normal = even_normal(_EVEN_DRAWS, len(self.parameters)).astype(np.float32)
        return self.draws_of(features, np.broadcast_to(normal, (len(features), *normal.shape)))

    def draws_of(self, features: np.ndarray, normal: np.ndarray) -> Posterior:
        """Samples of a whole posterior, made of numbers [curves, samples, p] from a standard normal distribution."""
        outputs = np.asarray(self._outputs(features), np.float32)
        labels, log_density = np.empty(normal.shape), np.empty(normal.shape[:2])

        def draw(start: int) -> None:
            rows = slice(start, start + block)
            labels[rows], log_density[rows] = (
                each.numpy() for each in self._draw(outputs[rows], normal[rows], spread)
            )

        block, spread = max(1, _DRAWS_PER_CALL // normal.shape[1]), np.float32(self.spread.value)
        # TensorFlow lets other threads run while it computes.
        list(in_threads(draw, range(0, len(outputs), block)))
        return Posterior(labels, log_density, parameters=self.parameters)

    def _drawn(
        self, outputs: tf.Tensor, normal: tf.Tensor, spread: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Labels [curves, samples, p] and the logarithms of their densities from normal numbers of the same shape."""
        curves, samples, columns = tf.unstack(tf.shape(normal))
        labels, log_density = self._flow.sample(
            tf.repeat(outputs, samples, axis=0),
            tf.reshape(normal, [-1, len(self.parameters)]),
            spread,
        )
        shape = [curves, samples]
        return tf.reshape(labels, [*shape, columns]), tf.reshape(log_density, shape)

    def afresh(self) -> contextlib.AbstractContextManager[None]:
        """Answers within it take their time, also where they are known already."""
        return self.around_fits.afresh() if self.around_fits else contextlib.nullcontext()

    def _outputs(self, features: np.ndarray) -> Array:
        if self.around_fits is not None:
            return self.around_fits.outputs(features)
        outputs = np.empty((len(features), self._columns))

        def answer(start: int) -> None:
            rows = slice(start, start + _BLOCK)
            block = np.ascontiguousarray(features[rows], np.float32)
            outputs[rows] = self._predict(tf.constant(block)).numpy()

        list(in_threads(answer, range(0, len(features), _BLOCK)))
        return outputs

    def values(self, labels: Array) -> Array:
        """Labels [curves, identified parameters] -> values in the parameters' units, same shape."""
        return np.stack(
            [p.from_unit_interval(labels[:, i]) for i, p in enumerate(self.parameters)], axis=1
        )
