"""The loss of a run at weights other than its own, and its landscape about a trained network: `tfmat landscape`."""

import contextlib
import copy
import dataclasses
import hashlib
import os
import pathlib
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from msgspec import Struct
from numpy.typing import NDArray

from tfmat.backends.base import Collectives
from tfmat.config import Config, load_saved_config
from tfmat.data.dataset import PackedDataset, is_dataset
from tfmat.errors import InputError, Interrupted
from tfmat.files import (
    as_json,
    check_json,
    make_folder,
    plain,
    read_json,
    spreadsheet_text,
    write_json,
    write_text,
)
from tfmat.report.figures import (
    COLOURS,
    MEASURED,
    MODEL,
    SECOND,
    finish,
    new_figure,
    save_png_and_svg,
    worker_axis,
)
from tfmat.report.run_files import (
    Curvature,
    Estimate,
    Landscape,
    LandscapeSettings,
    LossesByPart,
)
from tfmat.training.run_folder import RunFolder, find_run_file

if TYPE_CHECKING:
    import keras

    from tfmat.networks.factory import Losses

# --------------------------------------------------------------------------------------------------
# Directions in the space of weights, as long in each filter as the filter itself.
#
# Li, Xu, Taylor, Studer and Goldstein 2018, Visualizing the loss landscape of neural nets, arXiv:1712.09913, section 4.
# A ReLU network computes the same when one layer's filters are doubled and the next one's are halved, so that a step of
# a given length means nothing in itself; filter by filter relative to the weights it does.


Weights = list[NDArray]


def filters(array: NDArray) -> NDArray:
    """[inputs, filters]: what feeds one output channel of a kernel [..., outputs] is a column."""
    return array.reshape(-1, array.shape[-1])


def filter_normalised(direction: Sequence[NDArray], weights: Sequence[NDArray]) -> Weights:
    """The direction with each filter as long as the weights' own.

    A filter feeds one output: of a convolution's kernel [points, channels, filters] and of a dense layer's [inputs,
    units] a slice along the last axis. Biases, and scales and shifts of normalisation layers, which have one axis, do
    not move (zero), as in the authors' figures.

    Args:
      direction: arrays of the shapes of `weights`.
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
            # The rounding that is left of a filter along the others is no direction.
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
    """A run of the main job that has come to its end."""

    folder: pathlib.Path
    config: Config
    data_dir: pathlib.Path

    @classmethod
    def read(cls, folder: str | os.PathLike, data_dir: str | None = None) -> "EndedRun":
        """Reads the run's files; needs no TensorFlow.

        Args:
          data_dir: of the data set, where it has moved.

        Raises:
          InputError: no run of the main job, not ended, diverged, or its data set is not there.
        """
        folder = pathlib.Path(folder)
        if not folder.is_dir():
            raise InputError(f"{folder} is not there; name the folder of a run")
        config, beside = load_saved_config(find_run_file(folder, "config.json"))
        state = RunFolder(folder).status().state
        if state != "done":
            raise InputError(
                f"the run in {folder} is {state or 'of an unknown state'}, not done: it has no minimum yet; end it "
                f"first: tfmat train --workdir={folder}"
            )
        find_run_file(folder, "final.keras")
        own = data_dir or beside.data_dir
        if own is None:
            raise InputError(
                f"{folder} is no run of tfmat train: its config.json names no data set"
            )
        if not is_dataset(own):
            raise InputError(
                f"the data set {own} of the run in {folder} is not there; give its folder with --data_dir"
            )
        return cls(folder, config, pathlib.Path(own))

    def arrays(self) -> tuple[Weights, Weights]:
        """Trainable and other numbers of final.keras, in the order of the network's variables."""
        import keras

        import tfmat.networks.factory  # noqa: F401  registers its layers

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


def assign(variables: Sequence[Any], arrays: Sequence[Any], source: str) -> None:
    """Sets variables; InputError where arrays, which `source` (with its verb) held, are None or of other shapes."""
    if [tuple(v.shape) for v in variables] != [None if a is None else a.shape for a in arrays]:
        raise InputError(f"{source} not fit its config.json; is the folder complete?")
    for variable, array in zip(variables, arrays, strict=True):
        variable.assign(np.asarray(array))


class RunLoss:
    """The loss of a network, as a run of the main job trains it: a function of weights, other state, and examples.

    Layers with moving statistics or dropout are in inference mode. The auxiliary loss of a run is in it; decoupled
    weight decay belongs to the optimizer, and is not.

    Args:
      model: the network, or its part behind a front without weights (`parted`).
      losses: what `losses_and_metrics` returns for it.
    """

    def __init__(self, model: "keras.Model", losses: "Losses"):
        from tfmat.backends.losses import per_example_function

        self.model = model
        functions = losses.loss, losses.auxiliary_loss
        self._functions = [per_example_function(each) for each in functions if each is not None]

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
        # A loss may call a layer of the model, as the loss of a density does.
        scope = zip(self.model.trainable_variables, weights, strict=True)
        with keras.StatelessScope(scope):
            losses = [per_example_mean(function(y, outputs)) for function in self._functions]
        return tf.add_n([tf.reduce_mean(loss) for loss in losses])

    def gradient(self, weights: Sequence[Any], others: Sequence[Any], x: Any, y: Any) -> Any:
        """Gradients of the mean loss, like the weights, zero where it does not depend on them; and the loss."""
        import tensorflow as tf

        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(weights)
            loss = self(weights, others, x, y)
        zero = tf.UnconnectedGradients.ZERO
        return tape.gradient(loss, weights, unconnected_gradients=zero), loss


@contextlib.contextmanager
def float_type(name: str) -> Iterator[None]:
    """Keras makes variables and layers of this type inside: float32 or float64."""
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


# BLOCKS: of rows; the spread of their means gives the standard errors.
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
    """
    width = min(wanted, available) // BLOCKS
    rows = np.random.default_rng(seed).permutation(available)[: width * BLOCKS]
    return first + np.sort(rows.reshape(BLOCKS, width), axis=1)


def load_curves(
    dataset: PackedDataset,
    rows: NDArray[np.int64],
    front: "keras.Model | None",
    collectives: Collectives,
    dtype: str,
) -> Curves:
    """The rows [blocks, width] of a data set, seen through the network's front where it has one."""
    import tensorflow as tf

    from tfmat.workflow import represented

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
      others: its other variables, such as moving statistics.
      curves: over which the loss is a mean.
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
          vector: [numbers], in the order of the weights.

        Returns:
          [numbers], the sum over the blocks; [blocks], the vector times each block's product.
        """
        direction = [
            part.astype(w.dtype)
            for part, w in zip(_as_weights(vector, weights), weights, strict=True)
        ]
        total, quotients = self._functions["product"](
            weights, direction, self._others, *self._curves
        )
        return _flat(total), quotients.numpy().astype(np.float64)

    def _losses(self, weights: Any, others: Any, x: Any, y: Any) -> Any:
        return self._each(lambda a, b: ([], self._loss(weights, others, a, b)), [], x, y)[1]

    def _gradient(self, weights: Any, others: Any, x: Any, y: Any) -> Any:
        return self._each(lambda a, b: self._loss.gradient(weights, others, a, b), weights, x, y)

    def _product(self, weights: Any, direction: Any, others: Any, x: Any, y: Any) -> Any:
        import tensorflow as tf

        def product(a: Any, b: Any) -> Any:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(weights)
                gradient, _ = self._loss.gradient(weights, others, a, b)
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


# A vector [numbers] -> the product with the Hessian of the mean loss, and [blocks] the quadratic form of each block.
Product = Callable[[NDArray], tuple[NDArray, NDArray]]

# Relative tolerance of eigenvalues: further digits would be below what another sample of curves changes.
_TOLERANCE = 1e-3
_LEVEL = 0.95


def _half_width(values: NDArray) -> float:
    """Half of Student's interval of the mean of independent values [blocks]."""
    from scipy import stats

    factor = stats.t.ppf(0.5 + _LEVEL / 2, len(values) - 1)
    return float(factor * values.std(ddof=1) / np.sqrt(len(values)))


def largest_eigenvalues(
    product: Product, size: int, count: int, seed: int = 0
) -> tuple[list[Estimate], NDArray, NDArray]:
    """The Hessian's algebraically largest eigenvalues, by the Lanczos method of scipy (ARPACK).

    The interval of an eigenvalue λ = v·Hv comes from the blocks' quadratic forms v·Hv. So λ changes with the sample to
    first order, in which the eigenvector stands still (Magnus 1985).

    Args:
      count: of eigenvalues, fewer than `size`.

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
      vectors, forms: as `largest_eigenvalues` returns them; also none, [numbers, 0] and [0, blocks].
      probes: random vectors, 2 or more.

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

    T is the norm of a weight's filter, or the absolute value of a bias. Scales that do not change the network's
    function, such as one layer times two and the next one halved, do not change this measure either.
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
    rises = losses(moved(weights, (1.0, arrays))) - losses(weights)
    return Estimate(float(rises.mean()), _half_width(rises))


# --------------------------------------------------------------------------------------------------
# The parts of a landscape: the weights that are asked about, the directions, and the losses there.


PARTS = ("train", "test")


@dataclasses.dataclass(frozen=True)
class LandscapeOptions:
    """The settings of a landscape.

    Attributes:
      num_curves: of each part of the data set.
      points: of each axis; odd, so that the minimum is one, and 4 k + 1 between two minima.
      extent: how far an axis goes to either side, in the filters' own norms; between two minima, half the distance
        beyond each.
      dimensions: 1 or 2.
      eigenvalues: of the Hessian; 0 leaves curvature out.
      sam_rho: radius of the ball in which the loss is to rise, for the sharpness.
      precision: `float32` or `float64`.
      seed: of the directions, of the choice of curves and of the trace's signs.
    """

    num_curves: int = 10_000
    points: int = 25
    extent: float = 1.0
    dimensions: int = 2
    eigenvalues: int = 5
    sam_rho: float = 0.05
    precision: str = "float32"
    seed: int = 0

    def check(self, between: bool) -> None:
        """InputError where something cannot be measured."""
        step = 4 if between else 2
        if self.points < 3 or self.points % step != 1:
            kind = "5, 9, 13, ..., so that both minima are" if between else "odd, so that it is"
            raise InputError(f"--points={self.points}: it must be {kind} among the points")
        if self.dimensions not in (1, 2):
            raise InputError(f"--dimensions={self.dimensions}: give 1 or 2")
        for name, value in (("extent", self.extent), ("sam_rho", self.sam_rho)):
            if not (np.isfinite(value) and value > 0):
                raise InputError(f"--{name}={value:g}: it must be positive")
        if self.num_curves < 100:
            raise InputError(f"--num_curves={self.num_curves}: give 100 or more")


@dataclasses.dataclass(frozen=True)
class Field:
    """The weights that are asked about, and the losses there.

    Attributes:
      x, y: the axes; y is (0.0,) in one dimension.
      start, others: weights and other state at x = y = 0.
      change: of the other state, such as moving statistics, along x between two minima; else None.
      parts: of `PARTS`, name -> losses over its curves.
    """

    options: LandscapeOptions
    collectives: Collectives
    x: Any
    y: Any
    directions: Sequence[Weights]
    start: Weights
    others: Weights
    change: Weights | None
    parts: Mapping[str, "LossAtWeights"]

    def losses(self, x: float, y: float) -> list[tuple[float, float]]:
        """(mean, standard error) of each part of the data at a point."""
        directions = self.directions[: self.options.dimensions]
        weights = moved(self.start, *zip((x, y), directions, strict=False))
        others = None
        if self.change is not None:
            others = [
                (o + x * c).astype(o.dtype) if o.dtype.kind == "f" else o
                for o, c in zip(self.others, self.change, strict=True)
            ]
        found = []
        for name in PARTS:
            blocks = self.parts[name].losses(weights, others)
            found.append((blocks.mean(), blocks.std(ddof=1) / np.sqrt(len(blocks))))
        return found


def build_field(
    run: EndedRun,
    options: LandscapeOptions,
    minima: Sequence[tuple[Weights, Weights]],
    collectives: Collectives,
) -> Field:
    """Loads the curves and makes the directions; every rank calls it.

    Args:
      run: that says which loss and which data set.
      minima: one or two, as `EndedRun.arrays` gives them.
    """
    from tfmat.networks.factory import build_for, losses_and_metrics, parted

    dataset = PackedDataset.open(run.data_dir, verify=False)
    model = build_for(run.config, dataset)
    front, trained = parted(model)
    loss = RunLoss(trained, losses_and_metrics(run.config, dataset, model))
    inside = [_of_part(model, trained, minimum, run) for minimum in minima]
    start, others = inside[0]
    held = dataset.num_train + dataset.num_validation
    places = {"train": (0, dataset.num_train), "test": (held, dataset.num_test)}
    curves = {}
    for name, (first, available) in places.items():
        rows = pick_rows(first, available, options.num_curves, options.seed)
        curves[name] = load_curves(dataset, rows, front, collectives, options.precision)
    train = LossAtWeights(loss, others, curves["train"])
    parts = {"train": train, "test": train.over(curves["test"])}
    x = y = np.linspace(-options.extent, options.extent, options.points)
    drawn = random_directions(start, options.seed)
    change = None
    if len(minima) == 2:
        line, change = (
            [np.asarray(b - a, a.dtype) for a, b in zip(*pair, strict=True)]
            for pair in zip(*inside, strict=True)
        )
        across = filter_normalised(orthogonal(next(drawn), [line]), start)
        directions = [line, [a.astype(w.dtype) for a, w in zip(across, start, strict=True)]]
        x = np.linspace(-options.extent / 2, 1 + options.extent / 2, options.points)
    else:
        directions = [next(drawn) for _ in range(2)]
    y = y if options.dimensions == 2 else np.zeros(1)
    return Field(options, collectives, x, y, directions, start, others, change, parts)


def _of_part(
    model: "keras.Model", trained: "keras.Model", minimum: tuple[Weights, Weights], run: EndedRun
) -> tuple[Weights, Weights]:
    """The numbers of the whole network as numbers of its trained part, in this precision."""
    parts = model.trainable_variables, model.non_trainable_variables
    for variables, arrays in zip(parts, minimum, strict=True):
        assign(variables, arrays, f"{run.folder / 'final.keras'} does")
    weights, others = (
        [np.array(variable.numpy()) for variable in variables]
        for variables in (trained.trainable_variables, trained.non_trainable_variables)
    )
    return weights, others


# --------------------------------------------------------------------------------------------------
# A landscape for people: pictures, tables in CSV and as text.


# _LEVELS: of the contours.
_LEVELS = 24
_NAMES = {"train": "training curves", "test": "test curves"}

Surfaces = dict[str, list[list[float]]]

COLUMNS = (
    "run", "batch", "train_loss", "train_error", "test_loss", "test_error", "eigenvalue",
    "eigenvalue_error", "trace", "trace_error", "sharpness", "sharpness_error", "adaptive_sharpness",
    "adaptive_sharpness_error", "gradient_norm",
)  # fmt: skip


def surface_table(content: Landscape) -> pd.DataFrame:
    """A row a point: x, y, and the loss with its standard error on both parts of the data."""
    x, y = np.meshgrid(content.x, content.y)
    columns = {"x": x.ravel(), "y": y.ravel()}
    loss, error = _numbers(content)
    for part in _NAMES:
        columns[f"{part}_loss"] = np.ravel(loss[part])
        columns[f"{part}_error"] = np.ravel(error[part])
    return pd.DataFrame(columns)


def comparison_table(contents: Sequence[Landscape]) -> pd.DataFrame:
    """A row a run, by batch, with the columns COLUMNS: losses and curvature at the minimum.

    Errors of losses are standard errors, errors of the others half the width of 95 % intervals.
    """
    rows = []
    for content in contents:
        settings, curvature = content.settings, content.curvature
        row: dict[str, str | float | None] = {
            "run": pathlib.Path(settings.runs[0]).name,
            "batch": settings.global_batch_sizes[0],
        }
        (j, i), (loss, error) = origin(content), _numbers(content)
        for part in _NAMES:
            row[f"{part}_loss"], row[f"{part}_error"] = loss[part][j][i], error[part][j][i]
        if curvature:
            row["gradient_norm"] = curvature.gradient_norm
            for name, estimate in (
                ("eigenvalue", curvature.eigenvalues[0]),
                ("trace", curvature.trace),
                ("sharpness", curvature.sharpness),
                ("adaptive_sharpness", curvature.adaptive_sharpness),
            ):
                row[name], row[f"{name}_error"] = estimate.value, estimate.error
        rows.append(row)
    return pd.DataFrame(rows, columns=COLUMNS).sort_values("batch", kind="stable")


def _numbers(content: Landscape) -> tuple[Surfaces, Surfaces]:
    """Losses and their standard errors, [y][x] of each part."""
    assert content.error
    return content.loss.parts(), content.error.parts()


def origin(content: Landscape) -> tuple[int, int]:
    """Row and column of the point x = y = 0, which is the (first) run's minimum."""
    j, i = (int(np.argmin(np.abs(axis))) for axis in (content.y, content.x))
    return j, i


def write_results(content: Landscape, file: pathlib.Path) -> list[pathlib.Path]:
    """Writes the table and the pictures beside landscape.json: FILE.csv, figures/FILE.png and .svg."""
    table = file.with_suffix(".csv")
    write_text(table, spreadsheet_text(surface_table(content)))
    stem = make_folder(file.parent / "figures") / file.stem
    return [table, *save_png_and_svg(landscape_figure(content), stem)]


def write_comparison(contents: Sequence[Landscape], folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes landscapes.csv, .png and .svg of several runs."""
    table, stem = comparison_table(contents), make_folder(folder) / "landscapes"
    write_text(stem.with_suffix(".csv"), spreadsheet_text(table))
    figure = comparison_figure(contents, table)
    return [stem.with_suffix(".csv"), *save_png_and_svg(figure, stem)]


def landscape_figure(content: Landscape) -> Figure:
    """A line each of training and test curves, or, in two dimensions, contours of both side by side."""
    if len(content.y) == 1:
        figure = new_figure(6.4, 4.2)
        panel = figure.subplots()
        for part, colour in zip(_NAMES, (MODEL, SECOND), strict=True):
            panel.plot(
                content.x,
                content.loss.parts()[part][0],
                "o-",
                ms=3,
                color=colour,
                label=_NAMES[part],
            )
        finish(panel, ylabel="loss", log=_log_axis([content]))
        _mark(panel, content)
        panel.legend(frameon=False)
        return figure
    figure = new_figure(10.4, 4.6)
    panels = figure.subplots(1, 2, sharey=True)
    values = np.array([content.loss.parts()[part] for part in _NAMES])
    low, high = float(values.min()), float(values.max())
    norm: Normalize
    if low > 0:
        levels, norm = np.geomspace(low, high, _LEVELS), LogNorm(low, high)
    else:
        levels, norm = np.linspace(low, high, _LEVELS), Normalize(low, high)
    for panel, part, loss in zip(panels, _NAMES, values, strict=True):
        filled = panel.contourf(
            content.x, content.y, loss, levels, norm=norm, cmap="viridis", extend="both"
        )
        panel.contour(
            content.x, content.y, loss, levels[::3], colors="white", linewidths=0.6, alpha=0.7
        )
        _mark(panel, content)
        panel.set_title(_NAMES[part], loc="left", fontsize=11, fontweight="bold")
    panels[0].set_ylabel("second direction")
    ticks = levels[:: (_LEVELS - 1) // 4]
    bar = figure.colorbar(filled, ax=panels, label="loss", ticks=ticks, format="%.2g")
    bar.ax.minorticks_off()
    return figure


def comparison_figure(contents: Sequence[Landscape], table: pd.DataFrame) -> Figure:
    """Left: cuts through all minima; right: the largest eigenvalue over the batch, where it was measured."""
    figure = new_figure(10.4, 4.4)
    left, right = figure.subplots(1, 2)
    order = sorted(contents, key=lambda content: content.settings.global_batch_sizes[0])
    for k, content in enumerate(order):
        colour, (row, _) = COLOURS[k % len(COLOURS)], origin(content)
        name = pathlib.Path(content.settings.runs[0]).name
        loss = content.loss
        left.plot(content.x, loss.train[row], color=colour, lw=1.6, label=name)
        left.plot(content.x, loss.test[row], color=colour, lw=1.2, ls="--")
    loss_label = "loss: training (solid), test (dashed)"
    finish(left, "along a filter-normalised direction", loss_label, _log_axis(contents))
    left.legend(frameon=False, fontsize=8)
    known = table[table.eigenvalue.notna()]
    right.errorbar(
        known.batch,
        known.eigenvalue,
        known.eigenvalue_error,
        fmt="o-",
        ms=4,
        color=MODEL,
        capsize=3,
    )
    finish(right, "global batch", "largest eigenvalue of the Hessian")
    worker_axis(right.xaxis, sorted(table.batch.unique()))
    if (known.eigenvalue > 0).all():
        right.set_ylim(0, 1.25 * float(max(known.eigenvalue, default=1.0)))
    return figure


def _mark(panel: Axes, content: Landscape) -> None:
    """The minima, and what the first axis is."""
    between = content.settings.kind == "between"
    names = [pathlib.Path(run).name for run in content.settings.runs]
    flat = len(content.y) == 1
    for x, name in zip((0.0, 1.0), names, strict=False):
        if flat:
            panel.axvline(x, color=MEASURED, lw=1.0, ls="--")
        else:
            panel.plot(
                [x], [0.0], "P", ms=8, mfc="white", mec="black", label=name, ls="none", mew=0.8
            )
    if between:
        panel.set_xlabel(f"from {names[0]} (0) to {names[1]} (1)")
    else:
        panel.set_xlabel("along a filter-normalised direction; 0: the minimum")


def _log_axis(contents: Sequence[Landscape]) -> str:
    """The axis of losses, where it can be logarithmic."""
    losses = (loss for content in contents for loss in content.loss.parts().values())
    return "y" if all(np.min(loss) > 0 for loss in losses) else ""


def describe_landscape(content: Landscape) -> str:
    """The findings as text: losses at the minimum, curvature with its intervals, the barrier between two minima."""
    settings, (loss, error), (j, i) = content.settings, _numbers(content), origin(content)
    lines = []
    if settings.kind == "between":
        last = int(np.argmin(np.abs(np.subtract(content.x, 1.0))))
        for part, name in _NAMES.items():
            line = loss[part][j]
            between = line[i : last + 1]
            lines.append(
                f"{name}: {line[i]:.4g} and {line[last]:.4g} at the minima, at most {max(between):.4g} on the straight "
                f"line between them"
            )
        return "\n".join(lines)
    lines += [
        f"loss at the minimum, {content.curves[part]:,} {name}: {loss[part][j][i]:.4g} ± {error[part][j][i]:.2g}"
        for part, name in _NAMES.items()
    ]
    found = content.curvature
    if found:
        shown = ", ".join(f"{_with_error(e)}" for e in found.eigenvalues)
        radius, relative = _with_error(found.sharpness), _with_error(found.adaptive_sharpness)
        lines += [
            f"largest eigenvalues of the Hessian (95 %): {shown}",
            f"its trace: {_with_error(found.trace)}",
            f"the loss rises within ρ = {settings.sam_rho:g} by {radius}; relative to the filters by {relative}",
        ]
    return "\n".join(lines)


def _with_error(estimate: Estimate) -> str:
    return f"{estimate.value:.4g} ± {estimate.error:.2g}"


# --------------------------------------------------------------------------------------------------
# The shape of the loss around a run's minimum, and between two: surfaces, curvature, sharpness; landscape.json.
#
# Finished rows are kept in landscape.unfinished.json, so that a call that was stopped goes on.


_SIDECAR_KEYS = ("law", "parameters", "num_points", "input_scale", "uncertainty")
# done, all: points of the surface, or products with the Hessian.
Progress = Callable[[str, int, int], None]


def read_runs(
    folders: Sequence[str], data_dir: str | None, options: LandscapeOptions, between: bool
) -> list[EndedRun]:
    """The runs, all of which can be measured; refused before TensorFlow is loaded."""
    options.check(between)
    runs = [EndedRun.read(folder, data_dir) for folder in folders]
    if len({run.folder.resolve() for run in runs}) < len(runs):
        raise InputError("the same run is named twice; name each once")
    if not between:
        return runs
    if len(runs) != 2:
        raise InputError(f"--between is for two runs, not for {len(runs)}; name two")
    first, second = (run.folder / "model.json" for run in runs)
    one, other = read_json(first), read_json(second)
    for key in _SIDECAR_KEYS:
        if one.get(key) != other.get(key):
            raise InputError(
                f"the networks of {runs[0].folder} and {runs[1].folder} do not answer the same question: {key} in "
                "model.json differs; take two runs of one data set"
            )
    one, other = (as_json(run.config.model.to_dict()) for run in runs)
    for key in one:
        if one[key] != other[key]:
            raise InputError(
                f"{runs[0].folder} and {runs[1].folder} are different networks: model.{key} is {one[key]} and "
                f"{other[key]}; there is no straight line between them"
            )
    return runs


def measure_landscape(
    runs: Sequence[EndedRun],
    options: LandscapeOptions,
    file: pathlib.Path,
    collectives: Collectives,
    *,
    progress: Progress | None = None,
    stopped: Callable[[], int] = lambda: 0,
) -> Landscape:
    """The landscape around one run's minimum, or between two minima; every rank calls it.

    Args:
      runs: one or two, from `read_runs`.
      file: landscape.json, which rank 0 writes; where it holds the same already, nothing is computed.
      collectives: to the other ranks, which share the points and the blocks of curves.
      progress: called on every rank with (what, done, all).
      stopped: the signal that asks this process to stop, 0 for none.

    Returns:
      What the file holds.

    Raises:
      InputError, Interrupted.
    """
    with float_type(options.precision):
        minima = [run.arrays() for run in runs]
        shapes = [[w.shape for part in minimum for w in part] for minimum in minima]
        if shapes[0] != shapes[-1]:
            raise InputError(
                f"{runs[0].folder} and {runs[1].folder} are different networks: their weights have other shapes"
            )
        settings = _settings(runs, options, minima)
        kept = _Kept(file, settings, collectives, stopped)
        if kept.whole is None:
            field = build_field(runs[0], options, minima, collectives)
            loss, error = _surface(field, kept, progress)
            curvature = None
            if len(runs) == 1 and options.eigenvalues:
                curvature = kept.once(
                    "curvature", lambda: _curvature(field, kept, progress), Curvature
                )
            kept.finish(
                Landscape(
                    settings=settings,
                    curves={name: field.parts[name].curves for name in PARTS},
                    x=field.x.tolist(),
                    y=field.y.tolist(),
                    loss=loss,
                    error=error,
                    curvature=curvature,
                )
            )
        assert kept.whole is not None
        return kept.whole


def _settings(
    runs: Sequence[EndedRun],
    options: LandscapeOptions,
    minima: Sequence[tuple[Weights, Weights]],
) -> LandscapeSettings:
    """The settings of the numbers, and facts about the runs for a reader."""
    digests = []
    for minimum in minima:
        digest = hashlib.blake2b(digest_size=16)
        for part in minimum:
            for array in part:
                digest.update(np.ascontiguousarray(array).data)
        digests.append(digest.hexdigest())
    return LandscapeSettings(
        **dataclasses.asdict(options),
        kind="between" if len(runs) == 2 else "around",
        runs=[str(run.folder) for run in runs],
        global_batch_sizes=[run.config.global_batch_size for run in runs],
        data_id=read_json(runs[0].data_dir / "manifest.json").get("id"),
        weights=digests,
    )


_T = TypeVar("_T")


class _Kept:
    """The finished part: in landscape.json as a whole, or in landscape.unfinished.json part by part.

    Attributes:
      whole: the finished file's content, where it is of these settings, or once it was finished.
    """

    def __init__(
        self,
        file: pathlib.Path,
        settings: LandscapeSettings,
        collectives: Collectives,
        stopped: Callable[[], int],
    ):
        self._file, self._unfinished = file, file.with_suffix(".unfinished.json")
        self._settings, self._collectives, self._stopped = plain(settings), collectives, stopped
        self.whole: Landscape | None
        whole, self._parts = collectives.broadcast(self._read() if collectives.rank == 0 else None)
        self.whole = whole and check_json(whole, Landscape, file)

    def _read(self) -> tuple[Any, dict[str, Any]]:
        """The content of the finished file, None where there is none, and the parts of the other one."""
        found = []
        for path in (self._file, self._unfinished):
            try:
                content = read_json(path) if path.is_file() else {}
            except InputError:  # then it is made again
                content = {}
            same = isinstance(content, dict) and content.get("settings") == self._settings
            found.append(content if same else None)
        return found[0], (found[1] or {}).get("parts", {})

    def once(self, name: str, measure: Callable[[], _T], kind: type[_T]) -> _T:
        """The result of `measure`, on every rank the same; measured once, and kept."""
        if name not in self._parts:
            self._parts[name] = plain(measure())
            if self._collectives.rank == 0:
                content = {"settings": self._settings, "parts": self._parts}
                write_json(self._unfinished, content)
            self.check()
        found: _T = check_json(self._parts[name], kind, self._unfinished)
        return found

    def check(self) -> None:
        """Interrupted on every rank where a signal asked one of them to stop."""
        received = self._collectives.maximum(self._stopped())
        if received:
            raise Interrupted(
                f"{signal.Signals(received).name} received; what is done is in {self._unfinished}: the same command "
                "goes on"
            )

    def finish(self, content: Landscape) -> None:
        """Writes the whole."""
        self.whole = content
        if self._collectives.rank == 0:
            write_json(self._file, content)
            self._unfinished.unlink(missing_ok=True)
        self._collectives.barrier()


class _Row(Struct):
    """[x, parts, 2]: loss and its standard error."""

    points: list[list[list[float]]]


def _surface(
    field: Field, kept: _Kept, progress: Progress | None
) -> tuple[LossesByPart, LossesByPart]:
    """Losses and their standard errors; the ranks share the points of a row."""
    collectives, rows = field.collectives, []
    total = len(field.x) * len(field.y)
    for j, y in enumerate(field.y):

        def row(y: float = y) -> _Row:
            mine = [field.losses(x, y) for x in field.x[collectives.rank :: collectives.size]]
            found = np.empty((len(field.x), len(PARTS), 2))
            for rank, theirs in enumerate(collectives.gather(mine)):
                found[rank :: collectives.size] = np.reshape(theirs, (-1, len(PARTS), 2))
            return _Row(found.tolist())

        rows.append(kept.once(f"row {j}", row, _Row).points)
        if progress:
            progress("points", (j + 1) * len(field.x), total)
    numbers = np.array(rows)  # [y, x, parts, 2]
    loss, error = (
        LossesByPart(**{name: numbers[:, :, i, k].tolist() for i, name in enumerate(PARTS)})
        for k in range(2)
    )
    return loss, error


def _curvature(field: Field, kept: _Kept, progress: Progress | None) -> Curvature:
    """The curvature of the loss over the training curves."""
    train, collectives, options = field.parts["train"], field.collectives, field.options
    mine = train.part(collectives.rank, collectives.size)
    size = sum(w.size for w in field.start)
    done = 0

    def gathered(vector: np.ndarray, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        nonlocal done
        kept.check()
        total, numbers = np.zeros(size), np.empty(train.blocks)
        for rank, (part, theirs) in enumerate(collectives.gather((vector, blocks))):
            total += part
            numbers[rank :: collectives.size] = theirs
        done += 1
        if progress:
            progress("products", done, 0)
        return total / train.blocks, numbers

    def product(vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return gathered(*mine.product(field.start, vector))

    gradient, _ = gathered(*mine.gradient(field.start))
    values, vectors, forms = largest_eigenvalues(
        product, size, min(options.eigenvalues, size - 1), options.seed
    )
    sharpness, adaptive_sharpness = (
        rise(train.losses, field.start, step(gradient, field.start, options.sam_rho))
        for step in (ascent, adaptive_ascent)
    )
    return Curvature(
        values,
        trace(product, vectors, forms, seed=options.seed),
        sharpness,
        adaptive_sharpness,
        float(np.linalg.norm(gradient)),
    )
