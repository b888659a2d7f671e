"""The loss of a run at weights other than its own: along directions, and its curvature."""

import contextlib
import copy
import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tfmat.config import Config, load_saved_config
from tfmat.data.dataset import PackedDataset, is_dataset
from tfmat.errors import InputError
from tfmat.files import read_json
from tfmat.training.run_folder import find_run_file

if TYPE_CHECKING:
    import keras

    from tfmat.backends.base import Collectives

# --------------------------------------------------------------------------------------------------
# Directions in the space of weights, as long in each filter as the filter itself.
#
# Li, Xu, Taylor, Studer and Goldstein 2018, Visualizing the loss landscape of neural nets, arXiv:1712.09913, section
# 4. A
# ReLU network computes the same when one layer's filters are doubled and the next one's are halved, so that a step of
# a
# given length means nothing in itself; filter by filter relative to the weights it does.


Weights = list[NDArray]


def filters(array: NDArray) -> NDArray:
    """[inputs, filters]: what feeds one output channel of a kernel [..., outputs] is a column."""
    return array.reshape(-1, array.shape[-1])


def filter_normalised(direction: Sequence[NDArray], weights: Sequence[NDArray]) -> Weights:
    """The direction with each filter as long as that of the weights.

    A filter is what feeds one output: of a convolution's kernel [points, channels, filters] and of a dense layer's
    [inputs, units] a slice along the last axis. Biases, and scales and shifts of normalisation layers, which have one
    axis, do not move (zero), as in the authors' figures.

    Args:
      direction: arrays of the shapes of `weights`.
      weights: of the network.
    """
    found = []
    for d, w in zip(direction, weights, strict=True):
        if w.ndim < 2:
            found.append(np.zeros_like(d))
            continue
        length = np.linalg.norm(filters(d), axis=0)
        scale = np.linalg.norm(filters(w), axis=0) / np.where(length > 0, length, 1.0)
        found.append(d * scale.astype(d.dtype))
    return found


def random_directions(weights: Sequence[NDArray], seed: int) -> Iterator[Weights]:
    """Filter-normalised Gaussian directions one after the other, each orthogonal in every filter to those before.

    A filter of one number has no second direction: it stands still there.

    Args:
      weights: of the network.
      seed: of the draw.
    """
    random = np.random.default_rng(seed)
    before: list[Weights] = []
    while True:
        drawn = [random.standard_normal(w.shape) for w in weights]
        direction = filter_normalised(orthogonal(drawn, before), weights)
        before.append(direction)
        yield [d.astype(w.dtype) for d, w in zip(direction, weights, strict=True)]


def orthogonal(direction: Sequence[NDArray], others: Sequence[Sequence[NDArray]]) -> Weights:
    """The direction without its parts along `others`, which are orthogonal among themselves, filter by filter."""
    found = []
    for i, d in enumerate(direction):
        if d.ndim >= 2:
            columns = filters(d).astype(np.float64)
            length = np.linalg.norm(columns, axis=0)
            for other in others:
                along = filters(np.asarray(other[i], np.float64))
                square = np.sum(along**2, axis=0)
                share = np.sum(columns * along, axis=0) / np.where(square > 0, square, 1.0)
                columns = columns - along * share
            # What rounding leaves of a filter that lay along the others is no direction.
            rest = np.linalg.norm(columns, axis=0)
            columns = np.where(rest > 1e-6 * length, columns, 0.0)
            d = columns.reshape(d.shape)
        found.append(np.asarray(d))
    return found


def moved(weights: Sequence[NDArray], *steps: tuple[float, Sequence[NDArray]]) -> Weights:
    """The weights plus each direction times its number."""
    found = [np.array(w) for w in weights]
    for size, direction in steps:
        for w, d in zip(found, direction, strict=True):
            w += w.dtype.type(size) * d
    return found


# --------------------------------------------------------------------------------------------------
# A run's trained network and the loss that it was trained with, as a function of weights and curves.


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

        import tfmat.networks  # noqa: F401  registers its layers

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


# --------------------------------------------------------------------------------------------------
# Losses, gradients and products with the Hessian over curves that lie ready, at any weights: what a landscape asks.


BLOCKS = 20


@dataclasses.dataclass(frozen=True)
class Curves:
    """Examples of one part of a data set, in blocks of equal size, so that every mean comes with its error.

    Attributes:
      features: tensor [blocks, curves of a block, ...], as the trained part of the network takes them.
      labels: tensor [blocks, curves of a block, outputs].
    """

    features: Any
    labels: Any

    @property
    def count(self) -> int:
        """All curves."""
        return int(self.labels.shape[0] * self.labels.shape[1])


def pick_rows(first: int, available: int, wanted: int, seed: int) -> NDArray[np.int64]:
    """Rows of a part of a data set, [BLOCKS, rows of a block], drawn without replacement.

    Args:
      first, available: the part's first row, and how many it has.
      wanted: rows; where the part has fewer, all of it, and always a multiple of BLOCKS.
      seed: of the draw.
    """
    width = min(wanted, available) // BLOCKS
    rows = np.random.default_rng(seed).permutation(available)[: width * BLOCKS]
    return first + np.sort(rows.reshape(BLOCKS, width), axis=1)


def load_curves(
    dataset: PackedDataset,
    rows: NDArray[np.int64],
    front: "keras.Model | None",
    collectives: "Collectives",
    dtype: str,
) -> Curves:
    """The rows [blocks, width] of a data set, seen through the network's front where it has one."""
    import tensorflow as tf

    from tfmat.workflow.job import represented

    features = np.ascontiguousarray(dataset.features[rows.ravel()])
    if front is not None:
        features = represented(front, features, collectives, dataset.kept)
    features = features.reshape(*rows.shape, *features.shape[1:])
    return Curves(
        tf.constant(features.astype(dtype)), tf.constant(dataset.labels[rows].astype(dtype))
    )


class LossAtWeights:
    """Losses, gradients and products with the Hessian of a loss over some curves, at any weights; each traced once.

    Args:
      loss: of the network.
      others: its other variables, such as moving statistics.
      curves: over which the loss is a mean.

    Attributes:
      blocks, curves: how many there are.
    """

    def __init__(self, loss: RunLoss, others: Weights, curves: Curves):
        import tensorflow as tf

        self._loss, self._others = loss, others
        self._take(curves)
        # Blocks that are under way at once; each operation has one thread (see `prepare_tensorflow`).
        self._parallel = tf.config.threading.get_inter_op_parallelism_threads() or 2
        self._functions = {
            name: tf.function(function, autograph=False)
            for name, function in (
                ("losses", self._losses),
                ("gradient", self._gradient),
                ("product", self._product),
            )
        }

    def _take(self, curves: Curves) -> None:
        self.blocks, self.curves = int(curves.labels.shape[0]), curves.count
        self._curves = curves.features, curves.labels

    def over(self, curves: Curves) -> "LossAtWeights":
        """The same over other curves; as many in blocks of the same size need no further tracing."""
        other = copy.copy(self)
        other._take(curves)
        return other

    def part(self, rank: int, ranks: int) -> "LossAtWeights":
        """The same over this rank's blocks: rank, rank + ranks, ..."""
        features, labels = (tensor[rank::ranks] for tensor in self._curves)
        return self.over(Curves(features, labels))

    def losses(self, weights: Weights, others: Weights | None = None) -> NDArray:
        """[blocks], the mean loss of each block."""
        states = self._others if others is None else others
        found: NDArray = self._functions["losses"](weights, states, *self._curves).numpy()
        return found.astype(np.float64)

    def gradient(self, weights: Weights) -> tuple[NDArray, NDArray]:
        """[numbers], the sum over the blocks of the gradients of their losses; [blocks], these losses."""
        total, losses = self._functions["gradient"](weights, self._others, *self._curves)
        return _flat(total), losses.numpy().astype(np.float64)

    def product(self, weights: Weights, vector: NDArray) -> tuple[NDArray, NDArray]:
        """The Hessians of the blocks' losses times a vector (Pearlmutter 1994).

        Args:
          weights: where.
          vector: [numbers], in the order of the weights.

        Returns:
          [numbers], the sum over the blocks; [blocks], the vector times each block's product.
        """
        direction, place = [], 0
        for w in weights:
            direction.append(vector[place : place + w.size].reshape(w.shape).astype(w.dtype))
            place += w.size
        total, quotients = self._functions["product"](
            weights, direction, self._others, *self._curves
        )
        return _flat(total), quotients.numpy().astype(np.float64)

    def _losses(self, weights: Any, others: Any, x: Any, y: Any) -> Any:
        return self._each(lambda a, b: ([], self._loss(weights, others, a, b)), [], x, y)[1]

    def _gradient(self, weights: Any, others: Any, x: Any, y: Any) -> Any:
        return self._each(
            lambda a, b: self._gradient_of_block(weights, others, a, b), weights, x, y
        )

    def _gradient_of_block(self, weights: Any, others: Any, x: Any, y: Any) -> Any:
        import tensorflow as tf

        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(weights)
            loss = self._loss(weights, others, x, y)
        zero = tf.UnconnectedGradients.ZERO
        return tape.gradient(loss, weights, unconnected_gradients=zero), loss

    def _product(self, weights: Any, direction: Any, others: Any, x: Any, y: Any) -> Any:
        import tensorflow as tf

        def product(a: Any, b: Any) -> Any:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(weights)
                gradient, _ = self._gradient_of_block(weights, others, a, b)
                slope = _dot(gradient, direction)
            zero = tf.UnconnectedGradients.ZERO
            found = tape.gradient(slope, weights, unconnected_gradients=zero)
            return found, _dot(found, direction)

        return self._each(product, weights, x, y)

    def _each(self, function: Any, like: Any, x: Any, y: Any) -> Any:
        """The sums over the blocks of the first that `function` gives, tensors as `like`, and [blocks] the second."""
        import tensorflow as tf

        count = tf.shape(y)[0]

        def body(i: Any, totals: Any, numbers: Any) -> Any:
            found, number = function(x[i], y[i])
            totals = [total + each for total, each in zip(totals, found, strict=True)]
            return i + 1, totals, numbers.write(i, number)

        _, totals, numbers = tf.while_loop(
            lambda i, *_: i < count,
            body,
            (tf.constant(0), [tf.zeros_like(t) for t in like], tf.TensorArray(y.dtype, count)),
            parallel_iterations=self._parallel,
        )
        return totals, numbers.stack()


def _dot(a: Sequence[Any], b: Sequence[Any]) -> Any:
    import tensorflow as tf

    return tf.add_n([tf.reduce_sum(p * q) for p, q in zip(a, b, strict=True)])


def _flat(tensors: Sequence[Any]) -> NDArray:
    return np.concatenate([tensor.numpy().ravel().astype(np.float64) for tensor in tensors])


# --------------------------------------------------------------------------------------------------
# How sharp a minimum is: the Hessian's largest eigenvalues and trace, and how far the loss rises nearby.


# Of a vector [numbers]: the product with the Hessian of the mean loss, and [blocks] the quadratic form of each block.
Product = Callable[[NDArray], tuple[NDArray, NDArray]]

# Of eigenvalues, relative: further digits would be below what another sample of curves changes.
_TOLERANCE = 1e-3
_LEVEL = 0.95


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A number with half the width of its 95 % interval; what else there is to say of its error.

    Attributes:
      value: the number over all blocks.
      error: half the width of the interval that other curves would give, and with it whatever is random.
      residual: of an eigenvalue: the norm |Hv - λv|, within which the sample's Hessian has an eigenvalue.
    """

    value: float
    error: float
    residual: float | None = None

    def to_json(self) -> dict[str, float]:
        """The fields that are known."""
        return {k: v for k, v in dataclasses.asdict(self).items() if v is not None}


def of_blocks(values: NDArray) -> Estimate:
    """The mean of independent values [blocks], with Student's interval."""
    return Estimate(float(values.mean()), _half_width(values))


def _half_width(values: NDArray) -> float:
    from scipy import stats

    factor = stats.t.ppf(0.5 + _LEVEL / 2, len(values) - 1)
    return float(factor * values.std(ddof=1) / np.sqrt(len(values)))


def largest_eigenvalues(
    product: Product, size: int, count: int, seed: int = 0
) -> tuple[list[Estimate], NDArray, NDArray]:
    """The Hessian's algebraically largest eigenvalues, by the Lanczos method of scipy (ARPACK).

    The interval of an eigenvalue λ = v·Hv is that of the blocks' quadratic forms v·Hv: how λ changes with the sample to
    first order, in which the eigenvector stands still (Magnus 1985).

    Args:
      product: see Product.
      size: numbers of a vector.
      count: of eigenvalues, fewer than `size`.
      seed: of the first vector.

    Returns:
      The eigenvalues, falling; their vectors [numbers, count]; the blocks' quadratic forms [count, blocks].
    """
    from scipy.sparse.linalg import LinearOperator, eigsh

    start = np.random.default_rng(seed).standard_normal(size)
    operator = LinearOperator((size, size), matvec=lambda v: product(v.ravel())[0], dtype=float)
    basis = min(size, max(2 * count + 10, 20))
    values, vectors = eigsh(operator, count, which="LA", v0=start, ncv=basis, tol=_TOLERANCE)
    order = np.argsort(values)[::-1]
    values, vectors = values[order], vectors[:, order]
    found, forms = [], []
    for vector in vectors.T:
        times, blocks = product(vector)
        value = float(vector @ times)
        found.append(
            Estimate(value, _half_width(blocks), float(np.linalg.norm(times - value * vector)))
        )
        forms.append(blocks)
    return found, vectors, np.array(forms)


def trace(
    product: Product, vectors: NDArray, forms: NDArray, probes: int = 20, seed: int = 0
) -> Estimate:
    """The Hessian's trace: the known eigenvalues, and Hutchinson's estimate of the rest.

    Random signs z give z·Hz, whose expectation is the trace (Hutchinson 1990). Without the known eigenvectors in z the
    estimate varies less, as in Hutch++ (Meyer et al. 2021, arXiv:2010.09649).

    Args:
      product: see Product.
      vectors, forms: as `largest_eigenvalues` returns them; also none, [numbers, 0] and [0, blocks].
      probes: random vectors, 2 or more.
      seed: of the signs.

    Returns:
      With an interval that holds both the choice of the signs and that of the curves.
    """
    random = np.random.default_rng(seed)
    found = []
    for _ in range(probes):
        signs = random.choice([-1.0, 1.0], len(vectors))
        found.append(product(signs - vectors @ (vectors.T @ signs))[1])
    rest = np.array(found)  # [probes, blocks]
    blocks = forms.sum(axis=0) + rest.mean(axis=0)
    error = np.hypot(_half_width(rest.mean(axis=1)), _half_width(blocks))
    return Estimate(float(blocks.mean()), float(error))


def ascent(gradient: NDArray, weights: Sequence[NDArray], rho: float) -> Weights:
    """ρ g / |g|: to first order the loss rises most there within ρ (Foret et al. 2021, arXiv:2010.01412)."""
    length = float(np.linalg.norm(gradient)) or 1.0
    return _as_weights(gradient * (rho / length), weights)


def adaptive_ascent(gradient: NDArray, weights: Sequence[NDArray], rho: float) -> Weights:
    """ρ T²g / |Tg|: the same with distances relative to the weights' own size (Kwon et al. 2021, arXiv:2102.11600).

    T is the norm of a weight's filter, or the absolute value of a bias: scales that leave the network's function as it
    is, such as one layer times two and the next one halved, leave this measure as it is too.
    """
    sizes = np.concatenate([_sizes(w).ravel() for w in weights])
    length = float(np.linalg.norm(sizes * gradient)) or 1.0
    return _as_weights(gradient * sizes**2 * (rho / length), weights)


def _sizes(weight: NDArray) -> NDArray:
    if weight.ndim < 2:
        return np.abs(weight).astype(np.float64)
    norms = np.linalg.norm(filters(weight).astype(np.float64), axis=0)
    return np.broadcast_to(norms, weight.shape)


def _as_weights(flat: NDArray, weights: Sequence[NDArray]) -> Weights:
    places = np.cumsum([w.size for w in weights])[:-1]
    parts = np.split(flat, places)
    return [part.reshape(w.shape) for part, w in zip(parts, weights, strict=True)]


def rise(
    losses: Callable[[Weights], NDArray], weights: Weights, step: Sequence[NDArray]
) -> Estimate:
    """How much the loss rises by a step: the blocks' losses there minus those at the weights."""
    arrays: list[Any] = [np.asarray(s, w.dtype) for s, w in zip(step, weights, strict=True)]
    return of_blocks(losses(moved(weights, (1.0, arrays))) - losses(weights))
