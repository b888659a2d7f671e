"""A normalizing flow: the density of a record's parameters, given its features."""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import layers, ops

from tfmat.materials.law import orders_of


class ArgumentsLayer(layers.Layer):
    """A layer that keeps its arguments as attributes, and gives outputs of its inputs' shape where it says no other.

    Attributes:
      arguments: names of those that make the layer again; files hold their values.
    """

    arguments: tuple[str, ...] = ()

    def compute_output_shape(self, input_shape: tuple[Any, ...], *_: Any) -> tuple[Any, ...]:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **{name: getattr(self, name) for name in self.arguments}}


# --------------------------------------------------------------------------------------------------
# Monotonic rational-quadratic splines and their inverses, as few operations of a graph as will do.
#
# J. A. Gregory, R. Delbourgo, Piecewise rational quadratic interpolation to monotonic data, IMA J. Numerical Analysis
# 2 (1982) 123-130; as layers of a flow, and the inverse: C. Durkan, A. Bekasov, I. Murray, G. Papamakarios, Neural
# spline flows, NeurIPS 2019, arXiv:1906.04032.


# The splines bend between these ends, where z is nearly always, and change nothing beyond.
_END = 4.0
# The least width and height of a bin, as shares of all bins', and the least slope: they keep a spline invertible in
# float32.
_LEAST_SHARE, _LEAST_SLOPE = 1e-3, 1e-3


class RationalQuadraticSpline:
    """Monotonic functions of z between -4 and 4 by their knots; beyond, z does not change.

    Args:
      bins: between knots.

    Attributes:
      columns: numbers that a spline is made of: a share of the width and of the height for each bin, and the slopes at
        the knots between them.
    """

    def __init__(self, bins: int):
        self.columns = 3 * bins - 1
        self._bins = bins
        # Sizes [bins] of widths or heights -> where each bin begins.
        self._before = np.triu(np.ones((bins, bins)), 1)
        # softplus of this is a slope of 1.
        self.straight = math.log(math.expm1(1.0 - _LEAST_SLOPE))

    def table(self, shares: Any, slopes: Any) -> Any:
        """The bins, from raw numbers [2 * splines, bins] and [splines, bins - 1].

        Returns:
          [splines, 7, bins]: beginning and width, in z and in value; slope at the beginning, how much more it is at
          the end, and the sum of both.
        """
        least = 2.0 * _END * _LEAST_SHARE
        sizes = least + (2.0 * _END - self._bins * least) * ops.softmax(shares)
        begins = ops.matmul(sizes, ops.cast(self._before, sizes.dtype)) - _END
        lengths = ops.reshape(ops.stack([begins, sizes], axis=1), (-1, 4, self._bins))
        slopes = _LEAST_SLOPE + ops.softplus(slopes)
        outside = ops.ones_like(slopes[:, :1])
        first = ops.concatenate([outside, slopes], axis=1)
        last = ops.concatenate([slopes, outside], axis=1)
        bends = ops.stack([first, last - first, first + last], axis=1)
        return ops.concatenate([lengths, bends], axis=1)

    def __call__(self, z: Any, table: Any) -> tuple[Any, Any]:
        """The splines' values at z [splines, 1], and the logarithms of their slopes: [splines, 1] each."""
        inside = ops.clip(z, -_END, _END)
        left, width, low, height, slope, rise, both = self._bin(inside, table, 0)
        per_width = ops.reciprocal(width)
        mean_slope, t = height * per_width, (inside - left) * per_width
        rest = 1.0 - t
        excess = (both - 2.0 * mean_slope) * (t * rest)
        share = mean_slope * ops.reciprocal(mean_slope + excess)
        value = low + (width * share) * (t * (mean_slope * t + slope * rest))
        log_slope = ops.log((slope + rise * t - excess) * ops.square(share))
        return ops.where(ops.equal(z, inside), value, z), log_slope

    def inverse(self, values: Any, table: Any) -> tuple[Any, Any]:
        """Where the splines have these values [splines, 1], and the logarithms of their slopes there."""
        inside = ops.clip(values, -_END, _END)
        left, width, low, height, slope, rise, both = self._bin(inside, table, 2)
        mean_slope = height / width
        above, excess = inside - low, both - 2.0 * mean_slope
        # The root of a t² + b t + c in the form that loses no digits; see Durkan et al., appendix A.3.
        a = height * (mean_slope - slope) + above * excess
        b = height * slope - above * excess
        c = -mean_slope * above
        root = ops.sqrt(ops.maximum(ops.square(b) - 4.0 * a * c, 0.0))
        t = 2.0 * c / (-b - root)
        excess = excess * (t * (1.0 - t))
        share = mean_slope / (mean_slope + excess)
        log_slope = ops.log((slope + rise * t - excess) * ops.square(share))
        at = left + t * width
        return ops.where(ops.equal(values, inside), at, values), log_slope

    def _bin(self, inside: Any, table: Any, row: int) -> list[Any]:
        """The rows of the table, [splines, 1] each, for the bin that each number [splines, 1] is in by that row."""
        above = ops.cast(inside >= table[:, row, :], table.dtype)
        # 1 up to the bin and 0 beyond -> 1 in the bin alone.
        chosen = above - ops.pad(above[:, 1:], ((0, 0), (0, 1)))
        ends = ops.sum(table * chosen[:, None, :], axis=2)
        return ops.split(ends, 7, axis=1)


# --------------------------------------------------------------------------------------------------
# Tensors of a few columns, [batch, columns], as lists of columns [batch, 1], which graphs compute with cheaply.


def columns_of(values: Any) -> list[Any]:
    """[batch, columns] -> a [batch, 1] of each column."""
    return ops.split(values, values.shape[1], axis=1) if values.shape[1] > 1 else [values]


def joined(z: Sequence[Any], places: Iterable[int]) -> Any:
    """The columns at these places as [batch, places]."""
    chosen = [z[i] for i in places]
    return ops.concatenate(chosen, axis=1) if len(chosen) > 1 else chosen[0]


def flat(z: Sequence[Any], places: Sequence[int]) -> Any:
    """The columns at these places as [batch * places, 1]."""
    together = joined(z, places)
    return ops.reshape(together, (-1, 1)) if len(places) > 1 else together


def spread_out(values: Any, columns: int) -> Any:
    """[batch * columns, 1] -> [batch, columns]."""
    return ops.reshape(values, (-1, columns)) if columns > 1 else values


def put(z: list[Any], places: Sequence[int], values: Any) -> None:
    """Puts values, of the form that `flat` gives, at these places of the list."""
    for i, column in zip(places, columns_of(spread_out(values, len(places))), strict=True):
        z[i] = column


def in_falling_order(values: Any, terms: Sequence[Sequence[int]]) -> Any:
    """[batch, columns] with interchangeable terms so placed that the first column of each falls from term to term."""
    if not terms:
        return values
    z = columns_of(values)
    of_terms = list(zip(*terms, strict=True))
    places = ops.argsort(-joined(z, of_terms[0]), axis=1)
    for columns in of_terms:
        in_order = ops.take_along_axis(joined(z, columns), places, axis=1)
        put(z, columns, ops.reshape(in_order, (-1, 1)))
    return joined(z, range(len(z)))


def rows_below(correlations: Any, num_labels: int) -> Iterator[Any]:
    """The rows below a matrix' diagonal, of 1, 2, ... p - 1 columns, from [batch, p(p - 1)/2]."""
    start = 0
    for length in range(1, num_labels):
        yield correlations[:, start : start + length]
        start += length


def changed_in_turns(num_labels: int) -> Iterator[tuple[int, ...]]:
    """The labels that each coupling changes: half of them, in an order that is riffled once all had their turn."""
    count, order = max(1, num_labels // 2), list(range(num_labels))
    waiting: list[int] = []
    while True:
        while len(waiting) < count:
            waiting += order
            middle = (num_labels + 1) // 2
            halves = itertools.zip_longest(order[:middle], order[middle:])
            order = [label for pair in halves for label in pair if label is not None]
        chosen = list(dict.fromkeys(waiting))[:count]
        for label in chosen:
            waiting.remove(label)
        yield tuple(sorted(chosen))


# --------------------------------------------------------------------------------------------------
# A posterior head: the whole joint density of the labels that a record leaves, as a normalizing flow.
#
# D. Rezende, S. Mohamed, Variational inference with normalizing flows, ICML 2015, arXiv:1505.05770; the splines and
# their inverse: C. Durkan, A. Bekasov, I. Murray, G. Papamakarios, Neural spline flows, NeurIPS 2019,
# arXiv:1906.04032.
#
# The labels, which lie between 0 and 1, become y = logit(label), so that no density leaves their ranges. A Gaussian
# of full covariance takes y to z; where it is to have heavy tails, an asinh takes them in. Couplings bend z until it
# is standard normal: each one changes some of the z by monotonic rational-quadratic splines whose knots depend on the
# record and on the other z.
#
# Interchangeable terms are told in falling order, where a smooth density has no edge and draws beyond it. So the
# flow's own density is folded there: draws are put in order, and the densities of all orders of a record's terms add
# up.


# Labels closer to an end of their range count as so far away from it.
_EDGE = 1e-6
# The logarithm of the Gaussian's scale stays between plus and minus this.
MOST_LOG_SCALE = 10.0
POSTERIOR = "posterior"


def with_posterior(features: Any, flow: "PosteriorFlow", told: Callable[[Any], Any]) -> Any:
    """The model's output: what a flow knows of a record, from its features [batch, units].

    `told` is called on what a dense layer makes of the features, and gives the inputs of the flow.
    """
    return flow(told(layers.Dense(flow.columns, name="posterior_parameters")(features)))


@keras.saving.register_keras_serializable(package="tfmat")
class PosteriorFlow(ArgumentsLayer):
    """The density of labels [batch, p], given the outputs [batch, columns] of the layer, which are its inputs.

    The layer's own weights are the parts of the couplings that see labels. The inputs are all that comes from the
    record: means, scales and correlations of the Gaussian, then each coupling's part of its hidden units.

    Args:
      num_labels: p.
      couplings: one after the other; a single label needs one.
      units: hidden units of each coupling.
      bins: of each spline.
      tail: from so many standard deviations on the Gaussian's tails are heavy: z becomes tail * asinh(z / tail). None
        leaves them as they are.
      terms: the labels' columns of each interchangeable term, first of them that which falls from term to term.

    Attributes:
      columns: of the inputs.
    """

    arguments = ("num_labels", "couplings", "units", "bins", "tail", "terms")

    def __init__(
        self,
        num_labels: int,
        couplings: int = 6,
        units: int = 32,
        bins: int = 8,
        tail: float | None = None,
        terms: Sequence[Sequence[int]] = (),
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.tail, self.terms = tail, [list(term) for term in terms]
        self._orders = orders_of(num_labels, self.terms)
        self.num_labels, self.units, self.bins = num_labels, units, bins
        self.couplings = couplings if num_labels > 1 else 1
        self._changed = list(itertools.islice(changed_in_turns(num_labels), self.couplings))
        self._gaussian = num_labels * (num_labels + 3) // 2
        self.columns = self._gaussian + self.couplings * units
        self._spline = RationalQuadraticSpline(bins)

    def build(self, input_shape: Any) -> None:
        """Makes the weights; the splines of a new layer change nothing."""
        changed = len(self._changed[0])
        given = self.num_labels - changed
        self._given_kernel = None
        if given:
            shape = (self.couplings, given, self.units)
            limit = math.sqrt(3.0 / given)
            self._given_kernel = self.add_weight(
                shape=shape,
                initializer=keras.initializers.RandomUniform(-limit, limit),
                name="given_labels",
            )
        shares, slopes = changed * 2 * self.bins, changed * (self.bins - 1)
        straight = np.concatenate([np.zeros(shares), np.full(slopes, self._spline.straight)])
        self._knots_kernel = self.add_weight(
            shape=(self.couplings, self.units, shares + slopes), initializer="zeros", name="knots"
        )
        self._knots_bias = self.add_weight(
            shape=(self.couplings, shares + slopes),
            initializer=lambda shape, dtype: ops.broadcast_to(ops.cast(straight, dtype), shape),
            name="knots_bias",
        )
        super().build(input_shape)

    def call(self, inputs: Any) -> Any:
        """The inputs: the rest of the density needs labels, see `log_density` and `sample`."""
        return inputs

    def log_density(self, labels: Any, outputs: Any, spread: float = 1.0) -> Any:
        """Logarithm of the density of labels [batch, p] in the unit cube, given the outputs: [batch].

        `spread` is the standard deviation of the normal distribution that the labels become; training takes 1.
        """
        z, logs = self._in_orders(labels, outputs, *self._tensors())
        spread = ops.convert_to_tensor(spread, dtype=z.dtype)
        return self._folded(_log_density(z / spread, logs) - self.num_labels * ops.log(spread))

    def standardized(self, labels: Any, outputs: Any) -> Any:
        """Labels [batch, p] in the flow's base space, given the outputs: standard normal for a right posterior.

        The order of interchangeable terms is the likeliest one.
        """
        z, logs = self._in_orders(labels, outputs, *self._tensors())
        likeliest = ops.argmax(ops.reshape(_log_density(z, logs), (-1, len(self._orders))), axis=1)
        z = ops.reshape(z, (-1, len(self._orders), self.num_labels))
        return ops.take_along_axis(z, likeliest[:, None, None], axis=1)[:, 0]

    def _in_orders(self, labels: Any, outputs: Any, *weights: Any, orders: Any = None) -> Any:
        """`_standardized` of [batch * orders, p]: these orders, or all, of one record after the other."""
        orders = self._orders if orders is None else orders
        if self.terms:
            labels = joined(columns_of(labels), np.concatenate(orders))
            labels = ops.reshape(labels, (-1, self.num_labels))
            outputs = joined([outputs] * len(orders), range(len(orders)))
            outputs = ops.reshape(outputs, (-1, self.columns))
        return self._standardized(labels, outputs, *weights)

    def _folded(self, heights: Any) -> Any:
        """Logarithms of densities [batch * orders], which add up: [batch]."""
        if len(self._orders) == 1:
            return heights
        return ops.logsumexp(ops.reshape(heights, (-1, len(self._orders))), axis=1)

    def _standardized(self, labels: Any, outputs: Any, *weights: Any) -> tuple[Any, list[Any]]:
        """z [batch, p], and the logarithms of its slopes in the labels, which add up: [batch, columns] each."""
        labels = ops.clip(labels, _EDGE, 1.0 - _EDGE)
        rest = 1.0 - labels
        mean, log_scale, correlations, hidden = self._parts(outputs)
        standardized = ops.exp(log_scale) * (ops.log(labels / rest) - mean)
        z = columns_of(standardized)
        for i, mixed in enumerate(rows_below(correlations, self.num_labels), start=1):
            z[i] = z[i] + ops.sum(mixed * ops.concatenate(z[:i], axis=1), axis=1, keepdims=True)
        logs = [log_scale - ops.log(labels * rest)]
        if self.tail is not None:
            for i, column in enumerate(z):
                z[i] = self.tail * ops.arcsinh(column / self.tail)
                logs.append(-0.5 * ops.log1p(ops.square(column / self.tail)))
        for changed, table in zip(self._changed, self._tables(hidden, weights), strict=True):
            bent, log_slope = self._spline(flat(z, changed), table(z))
            put(z, changed, bent)
            logs.append(spread_out(log_slope, len(changed)))
        return joined(z, range(self.num_labels)), logs

    def loss(self, labels: Any, outputs: Any) -> Any:
        """Minus the logarithm of the density of labels [batch, p]: [batch]."""
        return self._negative(labels, outputs, *self._tensors())

    def _negative(self, *tensors: Any) -> Any:
        return -self._folded(_log_density(*self._in_orders(*tensors)))

    def compiled_loss(self) -> Callable[[Any, Any], Any]:
        """`loss`, and its gradients, as one operation each, which XLA compiles: for graphs of TensorFlow on CPUs.

        Some hundred small operations otherwise take longer to start than to compute. The gradients compute the density
        anew, which costs less than handing over what they need of it.
        """
        import tensorflow as tf

        compiled = functools.partial(tf.function, jit_compile=True, autograph=False)
        negative = compiled(self._negative)

        @compiled
        def gradients_of(upstream: Any, *tensors: Any) -> Any:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(tensors)
                values = self._negative(*tensors)
            return tape.gradient(values, tensors, output_gradients=upstream)

        @tf.custom_gradient
        def loss(*tensors: Any) -> Any:
            return negative(*tensors), lambda upstream: gradients_of(upstream, *tensors)

        def of_batch(labels: Any, outputs: Any) -> Any:
            return loss(labels, outputs, *map(tf.convert_to_tensor, self._tensors()))

        return of_batch

    def sample(self, outputs: Any, normal: Any, spread: Any = 1.0) -> tuple[Any, Any]:
        """Labels drawn from the density, and the logarithm of the density there.

        Args:
          outputs: [batch, columns].
          normal: [batch, p], drawn from a standard normal distribution.
          spread: see `log_density`.

        Returns:
          Labels [batch, p], and [batch].
        """
        mean, log_scale, correlations, hidden = self._parts(outputs)
        normal = ops.convert_to_tensor(normal)
        spread = ops.convert_to_tensor(spread, dtype=normal.dtype)
        z = columns_of(normal * spread)
        logs = [_log_normal(normal) - ops.log(spread) + log_scale]
        tables = self._tables(hidden, self._tensors())
        for changed, table in reversed(list(zip(self._changed, tables, strict=True))):
            straight, log_slope = self._spline.inverse(flat(z, changed), table(z))
            put(z, changed, straight)
            logs.append(spread_out(log_slope, len(changed)))
        if self.tail is not None:
            for i, column in enumerate(z):
                z[i] = self.tail * ops.sinh(column / self.tail)
                logs.append(-0.5 * ops.log1p(ops.square(z[i] / self.tail)))
        straight = list(z)
        for i, mixed in enumerate(rows_below(correlations, self.num_labels), start=1):
            before = ops.concatenate(straight[:i], axis=1)
            z[i] = z[i] - ops.sum(mixed * before, axis=1, keepdims=True)
        y = mean + ops.exp(-log_scale) * ops.concatenate(z, axis=1)
        labels = ops.clip(ops.sigmoid(y), _EDGE, 1.0 - _EDGE)
        logs.append(-ops.log(labels * (1.0 - labels)))
        heights = ops.sum(ops.concatenate(logs, axis=1), axis=1, keepdims=True)
        if others := self._orders[1:]:
            z, logs = self._in_orders(labels, outputs, *self._tensors(), orders=others)
            of_others = _log_density(z / spread, logs) - self.num_labels * ops.log(spread)
            heights = ops.concatenate([heights, ops.reshape(of_others, (-1, len(others)))], axis=1)
        return in_falling_order(labels, self.terms), self._folded(ops.reshape(heights, (-1,)))

    def _parts(self, outputs: Any) -> tuple[Any, Any, Any, list[Any]]:
        """Mean, logarithm of the scale [batch, p], p(p - 1)/2 correlations, and hidden units of each coupling."""
        p, end = self.num_labels, self._gaussian
        log_scale = MOST_LOG_SCALE * ops.tanh(outputs[:, p : 2 * p] / MOST_LOG_SCALE)
        hidden = ops.split(outputs[:, end:], self.couplings, axis=1)
        return outputs[:, :p], log_scale, outputs[:, 2 * p : end], hidden

    def _tensors(self) -> list[Any]:
        """The weights' values: kernels and biases of the knots, and kernels of labels where there are several."""
        weights = [self._knots_kernel, self._knots_bias]
        if self._given_kernel is not None:
            weights.append(self._given_kernel)
        return [ops.convert_to_tensor(weight) for weight in weights]

    def _tables(
        self, hidden: Sequence[Any], weights: Sequence[Any]
    ) -> list[Callable[[Sequence[Any]], Any]]:
        """Each coupling's splines, as functions of the z [batch, 1] before it: of those that it does not change."""
        kernels, biases, *given = map(ops.unstack, weights)
        seen = given[0] if given else [None] * self.couplings
        parts = zip(self._changed, hidden, seen, kernels, biases, strict=True)
        return [functools.partial(self._table, *each) for each in parts]

    def _table(
        self, changed: tuple[int, ...], hidden: Any, seen: Any, kernel: Any, bias: Any, z: Any
    ) -> Any:
        if seen is not None:
            given = [column for i, column in enumerate(z) if i not in changed]
            hidden = hidden + ops.matmul(joined(given, range(len(given))), seen)
        raw = ops.matmul(ops.relu(hidden), kernel) + bias
        shares, slopes = ops.split(raw, [2 * self.bins * len(changed)], axis=1)
        shares = ops.reshape(shares, (-1, self.bins))
        return self._spline.table(shares, ops.reshape(slopes, (-1, self.bins - 1)))


def _log_normal(z: Any) -> Any:
    return -0.5 * ops.square(z) - 0.5 * math.log(2.0 * math.pi)


def _log_density(z: Any, logs: list[Any]) -> Any:
    """The logarithm of the density of what becomes z [batch, p], given the logarithms of its slopes: [batch]."""
    return ops.sum(ops.concatenate([*logs, _log_normal(z)], axis=1), axis=1)
