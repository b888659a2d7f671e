"""The posterior head and its splines against SciPy, automatic Jacobians and quadrature; its file."""

import itertools

import keras
import numpy as np
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf

from tfmat.config import apply_override, default_config
from tfmat.networks.factory import build_model
from tfmat.networks.flow import POSTERIOR, PosteriorFlow, RationalQuadraticSpline

# Splines: their knots by SciPy's softmax, their slopes, their inverse.


pytestmark = pytest.mark.usefixtures("double_precision")


def test_a_spline_goes_through_its_knots_with_their_slopes():
    random, bins = np.random.default_rng(0), 8
    spline = RationalQuadraticSpline(bins)
    shares, slopes = random.normal(size=(2, bins)), random.normal(size=(1, bins - 1))
    table = spline.table(shares, slopes)
    least = 1e-3
    sizes = 8.0 * (least + (1 - bins * least) * scipy.special.softmax(shares, axis=1))
    knots = np.concatenate([[[-4.0], [-4.0]], -4.0 + np.cumsum(sizes, axis=1)], axis=1)
    at = knots[0][:, None]
    values, log_slopes = (
        np.array(each)[:, 0] for each in spline(at, np.repeat(table, bins + 1, 0))
    )
    np.testing.assert_allclose(values, knots[1], atol=1e-12)
    expected = [1.0, *(1e-3 + np.logaddexp(0, slopes[0])), 1.0]
    np.testing.assert_allclose(np.exp(log_slopes), expected, rtol=1e-9)
    z = np.linspace(-6, 6, 500)[:, None]
    tables = np.repeat(table, 500, 0)
    values, log_slopes = (np.array(each) for each in spline(z, tables))
    assert (np.diff(values[:, 0]) > 0).all()
    beyond = np.abs(z) > 4
    np.testing.assert_array_equal(values[beyond], z[beyond])
    back, again = (np.array(each) for each in spline.inverse(values, tables))
    np.testing.assert_allclose(back, z, atol=1e-9)
    np.testing.assert_allclose(again, log_slopes, atol=1e-8)


# The posterior head: densities against SciPy, automatic Jacobians and quadrature, samples against both, its file.


def _flow(num_labels, seed=0, bent=0.1, **kwargs):
    """A flow with random weights, and the outputs of one record. Much more bent, a grid would miss its ridges."""
    random = np.random.default_rng(seed)
    flow = PosteriorFlow(num_labels, dtype="float64", **kwargs)
    flow.build((None, flow.columns))
    for weight in flow.weights:
        weight.assign(np.asarray(weight) + random.normal(0, bent, weight.shape))
    return flow, random.normal(0, 0.4, (1, flow.columns))


def _log_density(flow, labels, outputs):
    return np.array(flow.log_density(labels, np.repeat(outputs, len(labels), axis=0)))


def _sample(flow, outputs, normal):
    labels, density = flow.sample(np.repeat(outputs, len(normal), axis=0), normal)
    return np.array(labels), np.array(density)


def _assert_near_inside(labels, density, expected):
    """Of labels that are cut at the ends of their ranges the density is that of what was cut."""
    inside = ((labels > 1e-4) & (labels < 1 - 1e-4)).all(axis=1)
    assert inside.sum() > len(labels) / 2
    np.testing.assert_allclose(density[inside], expected[inside], atol=1e-7)


def test_a_new_flow_is_a_gaussian_of_the_logits():
    p, random = 4, np.random.default_rng(1)
    flow, outputs = _flow(p, bent=0.0)
    mean, log_scale, correlations = np.split(outputs[0, : p * (p + 3) // 2], [p, 2 * p])
    below = np.zeros((p, p))
    below[np.tril_indices(p, -1)] = correlations
    scale = np.exp(10 * np.tanh(log_scale / 10))
    to_normal = np.linalg.inv(np.eye(p) - below) @ np.diag(scale)
    covariance = np.linalg.inv(to_normal.T @ to_normal)
    labels = random.uniform(0.02, 0.98, (50, p))
    expected = scipy.stats.multivariate_normal.logpdf(
        scipy.special.logit(labels), mean, covariance
    ) - np.log(labels * (1 - labels)).sum(axis=1)
    np.testing.assert_allclose(_log_density(flow, labels, outputs), expected, rtol=1e-9)


def test_a_heavy_tail_is_that_of_the_transform_and_nearly_none_inside():
    """For x = 3 sinh(z / 3), z standard normal, it is log n(z) - log(cosh(z / 3)); far out that is no Gaussian's."""
    flow, outputs = _flow(1, bent=0.0, tail=3.0)
    mean, scale = outputs[0, 0], np.exp(10 * np.tanh(outputs[0, 1] / 10))
    x = np.array([0.0, 1.0, 2.0, 10.0, 11.0])
    labels = scipy.special.expit(mean + x / scale)
    z = 3 * np.arcsinh(x / 3)
    of_x = scipy.stats.norm.logpdf(z) - np.log(np.cosh(z / 3))
    expected = of_x + np.log(scale) - np.log(labels * (1 - labels))
    found = _log_density(flow, labels[:, None], outputs)
    np.testing.assert_allclose(found[labels < 1 - 1e-6], expected[labels < 1 - 1e-6], rtol=1e-7)
    gaussian = scipy.stats.norm.logpdf(x)
    np.testing.assert_allclose(of_x[:3], gaussian[:3], atol=0.1)
    assert (of_x[3:] > gaussian[3:] + 20).all()
    assert PosteriorFlow.from_config(flow.get_config()).tail == 3.0
    later = ("tail", "terms")
    older = {key: value for key, value in flow.get_config().items() if key not in later}
    assert (PosteriorFlow.from_config(older).tail, PosteriorFlow.from_config(older).terms) == (
        None,
        [],
    )


@pytest.mark.parametrize("tail", [None, 3.0])
@pytest.mark.parametrize("num_labels", [1, 2, 3, 5])
def test_the_density_of_samples_is_that_of_their_jacobian(num_labels, tail):
    flow, outputs = _flow(num_labels, seed=num_labels, tail=tail)
    normal = tf.constant(np.random.default_rng(2).normal(size=(40, num_labels)))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(normal)
        labels, density = flow.sample(np.repeat(outputs, 40, axis=0), normal)
        each = tf.unstack(labels, axis=1)
    jacobian = np.stack([tape.gradient(label, normal) for label in each], axis=1)
    labels, density = np.array(labels), np.array(density)
    # Not by differences: a coupling's units have kinks, and a narrow density's rounding errors are its digits.
    expected = scipy.stats.norm.logpdf(normal).sum(axis=1) - np.linalg.slogdet(jacobian)[1]
    _assert_near_inside(labels, density, expected)
    _assert_near_inside(labels, _log_density(flow, labels, outputs), density)


# Of two labels each; the fifth label changes no place.
_TERMS = [[1, 0], [5, 6], [3, 2]]


def _in_all_orders(labels):
    found = []
    for order in itertools.permutations(range(3)):
        found.append(labels.copy())
        for place, term in zip(_TERMS, order, strict=True):
            found[-1][:, place] = labels[:, _TERMS[term]]
    return found


def test_interchangeable_terms_have_the_densities_of_all_their_orders():
    """Those of the same flow without terms, at labels whose places are changed here by hand."""
    folded, outputs = _flow(7, seed=8, terms=_TERMS)
    plain, _ = _flow(7)
    plain.set_weights(folded.get_weights())
    random = np.random.default_rng(8)
    labels = random.uniform(0.02, 0.98, (60, 7))
    heights = [_log_density(plain, moved, outputs) for moved in _in_all_orders(labels)]
    assert len({tuple(height) for height in heights}) == 6
    expected = scipy.special.logsumexp(heights, axis=0)
    np.testing.assert_allclose(_log_density(folded, labels, outputs), expected, rtol=1e-10)
    np.testing.assert_allclose(
        folded.loss(labels, np.repeat(outputs, 60, axis=0)), -expected, rtol=1e-10
    )
    again = PosteriorFlow.from_config(folded.get_config())
    assert again.terms == _TERMS


def test_draws_of_interchangeable_terms_are_those_of_the_flow_put_in_order():
    folded, outputs = _flow(7, seed=9, bent=0.3, terms=_TERMS, couplings=2)
    plain, _ = _flow(7, couplings=2)
    plain.set_weights(folded.get_weights())
    normal = np.random.default_rng(9).normal(size=(300, 7))
    found, _ = _sample(folded, outputs, normal)
    drawn, _ = _sample(plain, outputs, normal)
    expected = drawn.copy()
    for row, label in zip(expected, drawn, strict=True):
        falling = sorted((tuple(label[term]) for term in _TERMS), reverse=True)
        for place, term in zip(_TERMS, falling, strict=True):
            row[place] = term
    assert (expected != drawn).any(axis=1).sum() > 100
    np.testing.assert_array_equal(found, expected)
    # That of the order that was drawn comes from the inverse, those of the others from the flow without terms.
    told = np.repeat(outputs, 300, axis=0)
    for spread in (1.0, 1.2):
        drawn, own = (np.array(each) for each in plain.sample(told, normal, spread))
        others = [plain.log_density(moved, told, spread) for moved in _in_all_orders(drawn)[1:]]
        of_all = scipy.special.logsumexp([own, *map(np.array, others)], axis=0)
        density = np.array(folded.sample(told, normal, spread)[1])
        np.testing.assert_allclose(density, of_all, rtol=1e-12)
    z = np.array(folded.standardized(found, np.repeat(outputs, 300, axis=0)))
    orders = _in_all_orders(found)
    likeliest = np.argmax([_log_density(plain, each, outputs) for each in orders], axis=0)
    assert len(set(likeliest)) > 1
    of_orders = [plain.standardized(each, np.repeat(outputs, 300, axis=0)) for each in orders]
    np.testing.assert_allclose(z, np.stack(of_orders)[likeliest, range(300)], rtol=1e-9)


@pytest.mark.parametrize(
    ("num_labels", "couplings", "terms"),
    [pytest.param(2, 2, [], marks=pytest.mark.large), (4, 2, [[1, 0], [2, 3]])],
)
def test_the_compiled_loss_has_the_gradients_of_its_differences(num_labels, couplings, terms):
    """Central differences of the loss that is not compiled, along a line through all of its arguments at once."""
    # Few couplings follow each other as six do, and take less time to compile.
    flow, _ = _flow(num_labels, seed=num_labels, terms=terms, couplings=couplings)
    random = np.random.default_rng(4)
    labels = tf.constant(random.uniform(0.1, 0.9, (30, num_labels)))
    outputs = tf.Variable(random.normal(0, 0.4, (30, flow.columns)))
    shares = tf.constant(random.uniform(size=30))  # of an example in the loss of a batch
    variables = [outputs, *(weight.value for weight in flow.weights)]

    def gradients(loss):
        with tf.GradientTape() as tape:
            each = loss(labels, outputs)
        return each, tape.gradient(each, variables, output_gradients=shares)

    plain, of_plain = gradients(flow.loss)
    compiled, of_compiled = tf.function(lambda: gradients(flow.compiled_loss()), autograph=False)()
    np.testing.assert_allclose(compiled, plain, rtol=1e-12)
    for found, expected in zip(of_compiled, of_plain, strict=True):
        scale = np.abs(expected).max()
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-11 * scale)
    line = [tf.constant(random.normal(size=variable.shape)) for variable in variables]
    ends, step = [], 1e-6
    for sign in (1, -2):
        for variable, direction in zip(variables, line, strict=True):
            variable.assign_add(sign * step * direction)
        ends.append(np.sum(shares * flow.loss(labels, outputs)))
    expected = (ends[0] - ends[1]) / (2 * step)
    found = sum(np.sum(a * b) for a, b in zip(of_compiled, line, strict=True))
    assert found == pytest.approx(expected, rel=1e-5)


def test_in_single_precision_the_compiled_loss_errs_no_more_than_the_other():
    """Both beside double precision; narrow densities have few digits left in single precision."""
    random, (double, _) = np.random.default_rng(5), _flow(4, seed=5, couplings=2)
    single = PosteriorFlow(4, dtype="float32", couplings=2)
    single.build((None, single.columns))
    for weight, exact in zip(single.weights, double.weights, strict=True):
        weight.assign(np.asarray(exact, np.float32))
        exact.assign(np.asarray(weight, np.float64))
    labels = random.uniform(0.05, 0.95, (600, 4)).astype("float32")
    outputs = random.normal(0, 0.4, (600, single.columns)).astype("float32")
    exact = np.array(double.loss(labels.astype(float), outputs.astype(float)))
    compiled = tf.function(single.compiled_loss(), autograph=False)(labels, outputs)
    errors = [np.abs(found - exact) for found in (np.array(compiled), single.loss(labels, outputs))]
    assert np.median(errors[0]) < 1e-6 * np.median(np.abs(exact))
    assert np.sqrt(np.mean(np.square(errors[0]))) < 2 * np.sqrt(np.mean(np.square(errors[1])))


def test_a_spread_widens_the_normal_distribution_that_the_density_is_bent_of():
    flow, outputs = _flow(3, seed=6)
    normal = np.random.default_rng(6).normal(size=(50, 3))
    outputs = np.repeat(outputs, len(normal), axis=0)
    labels, density = flow.sample(outputs, normal, 1.3)
    same, of_one = flow.sample(outputs, 1.3 * normal)
    np.testing.assert_array_equal(labels, same)
    at = scipy.stats.norm(scale=[[1.3], [1.0]])
    expected = np.diff(at.logpdf(np.array(1.3 * normal)[:, None]).sum(axis=2), axis=1)[:, 0]
    np.testing.assert_allclose(np.array(of_one) - density, expected, rtol=1e-9, atol=1e-9)
    inside = ((np.array(labels) > 1e-4) & (np.array(labels) < 1 - 1e-4)).all(axis=1)
    again = flow.log_density(labels, outputs, 1.3)
    np.testing.assert_allclose(np.array(again)[inside], np.array(density)[inside], atol=1e-7)
    np.testing.assert_allclose(
        np.array(flow.standardized(labels, outputs))[inside], 1.3 * normal[inside], atol=1e-7
    )


@pytest.mark.parametrize(("num_labels", "terms"), [(1, []), (2, []), (2, [[1], [0]])])
def test_the_density_holds_all_and_samples_follow_it(num_labels, terms):
    flow, outputs = _flow(num_labels, seed=7, bent=0.05, terms=terms, couplings=2)
    count = 20_000
    normal = np.random.default_rng(3).normal(size=(count, num_labels))
    drawn = _sample(flow, outputs, normal)[0]
    # Midpoints of cells that hold all samples and a margin.
    y = scipy.special.logit(drawn)
    low, high = y.min(axis=0) - 1, y.max(axis=0) + 1
    points = 2000 if num_labels == 1 else 400 if terms else 250  # terms have an edge
    axes = [
        np.linspace(*ends, points, endpoint=False) + 0.5 * np.subtract(*ends[::-1]) / points
        for ends in zip(low, high, strict=True)
    ]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, num_labels)
    if terms:  # What is not in order is nowhere.
        grid = grid[grid[:, 1] >= grid[:, 0]]
    labels = scipy.special.expit(grid)
    density = np.exp(_log_density(flow, labels, outputs)) * (labels * (1 - labels)).prod(axis=1)
    weights = density * np.prod((high - low) / points)
    assert weights.sum() == pytest.approx(1.0, abs=1e-3)
    mean = weights @ labels
    deviation = np.sqrt(weights @ (labels - mean) ** 2)
    # Five standard errors; those of a deviation are of tails that are heavier than the normal one's.
    error = 5 / np.sqrt(count)
    assert np.abs(drawn.mean(axis=0) - mean) / deviation == pytest.approx(0, abs=error)
    assert drawn.std(axis=0) == pytest.approx(deviation, rel=1.2 * error)


def test_labels_at_the_ends_of_their_ranges_have_a_density():
    flow, outputs = _flow(2)
    labels = np.array([[0.0, 1.0], [1.0, 0.5], [0.5, 0.0]])
    assert np.isfinite(_log_density(flow, labels, outputs)).all()
    drawn, density = _sample(flow, 30 * outputs, np.random.default_rng(0).normal(size=(500, 2)))
    assert ((drawn > 0) & (drawn < 1)).all() and np.isfinite(density).all()


def test_a_model_with_a_posterior_is_saved_whole(tmp_path):
    keras.config.set_floatx("float32")
    config = default_config()
    for key, text in {"uncertainty": "flow", "conv_filters": "4,6", "hidden_units": "20"}.items():
        apply_override(config, f"model.{key}", text)
    model = build_model(config.model, num_outputs=3, seed=3)
    random = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(weight + random.normal(0, 0.1, weight.shape))
    model.save(tmp_path / "model.keras")
    found = keras.saving.load_model(tmp_path / "model.keras", compile=False)
    curves = random.uniform(0, 1, (4, 200, 3)).astype("float32")
    labels = random.uniform(0, 1, (4, 3)).astype("float32")
    assert model.output_shape == (None, model.get_layer(POSTERIOR).columns)
    assert not model.non_trainable_variables  # with one a batch would not go in pieces
    for name in ("log_density", "sample"):
        expected, again = (
            getattr(each.get_layer(POSTERIOR), name)(*arguments)
            for each in (model, found)
            for outputs in [each(curves)]
            for arguments in [(labels, outputs) if name == "log_density" else (outputs, labels)]
        )
        np.testing.assert_array_equal(np.array(expected[0]), np.array(again[0]))
