"""Answers and evaluations as the JSON files hold them, typed once: for the writer, the reader, tables and figures.

`msgspec.to_builtins` makes JSON of a struct, and `tfmat.files.check_json` a struct of JSON. A field that is `UNSET` is
not in the file. Fields with a default may be missing in a file of an older tfmat.
"""

import dataclasses
import math
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import UNSET, Struct, UnsetType
from numpy.typing import NDArray

NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
Decades = Annotated[float, msgspec.Meta(ge=-300, le=300)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Interval = tuple[float, float]

# COVERAGE: probability (0-1) of the intervals that are reported, as engineers are used to.
COVERAGE = 0.95

# --------------------------------------------------------------------------------------------------
# The answer for one record: an entry of the list that `tfmat identify --json` writes.


Method = Literal["least_squares", "network", "given", "mean of specimens"]


class Value(Struct, frozen=True):
    """A parameter's answer, in its unit. None is not known, or not asked for.

    Attributes:
      value: the recommended value.
      method: how that was got; `given` for a parameter that was known before.
      std, ci95: standard deviation (to first order, where the scale is logarithmic) and 95 % interval of `value`.
      network, network_ci95: the network's own answer; its calibrated interval where the network gives one, and the
        curve follows the law as closely as the curves that it was calibrated on.
      least_squares, least_squares_ci95: the best fit.
      next_specimen_ci95: of pooled answers, where the value of one more specimen lies in 95 of 100 cases.
    """

    value: float
    unit: str
    method: str
    std: float | None = None
    ci95: Interval | None = None
    network: float | None = None
    network_ci95: Interval | None = None
    least_squares: float | None = None
    least_squares_ci95: Interval | None = None
    next_specimen_ci95: Interval | UnsetType = UNSET

    @property
    def fixed(self) -> bool:
        """Whether the value was given and not identified."""
        return self.method == "given"


class Warned(Struct, frozen=True):
    """A reason to be careful with an answer."""

    kind: str
    text: str
    advice: str = ""


class TensileValue(Struct, frozen=True):
    """A tensile property, how it was got, and whether it is only a bound."""

    symbol: str
    value: float | None
    unit: str
    how: str
    at_least: bool | UnsetType = UNSET


class Setting(Struct, frozen=True):
    """A setting of a test."""

    value: float
    unit: str


class AnsweredTest(Struct, frozen=True):
    """One test of a record: what it is, and how far the answer is from it."""

    name: str
    test: str
    mode: str
    drives: str
    settings: dict[str, Setting]
    half_cycles: int
    num_points: int
    rmse: float
    rmse_unit: str
    rmse_percent: float


class Sampled(Struct, frozen=True):
    """A parameter's samples of a posterior: mean, standard deviation and shortest 95 % interval."""

    unit: str
    mean: float
    std: float
    ci95: Interval


class SampledPosterior(Struct, frozen=True):
    """A posterior's certificate (`tfmat.identification.posterior.Certificate`) and what its samples say."""

    status: str
    reason: str
    pareto_k: float | None
    effective_draws: float | None
    posterior_predictive_p: float | None
    independent_noise_p: float | None
    r_hat: float | None
    parameters: dict[str, Sampled]


class Quantity(Struct, frozen=True):
    """A parameter or a prediction that tests narrow.

    Attributes:
      name, title, unit: a prediction is named as it is asked for, and titled in words.
      ci95: before a further test.
      compared_on: the scale that widths are compared on, `log` or `linear`.
    """

    name: str
    title: str
    unit: str
    ci95: Interval
    compared_on: str
    is_prediction: bool


class Narrowing(Struct, frozen=True):
    """The share of an interval's width that a test is expected to leave, and its Monte Carlo error."""

    ratio: float | None
    error: float | None


class TestGain(Struct, frozen=True):
    """A test that could come next, and what it is expected to tell."""

    __test__ = False  # no case of pytest's

    test: str
    name: str
    title: str
    again: bool
    settings: dict[str, float]
    gain_nats: float | None
    gain_error: float | None
    interval_ratio: dict[str, Narrowing]
    by: str
    pareto_k: float
    records: int
    failed: int
    doubtful: int

    @property
    def titled(self) -> str:
        """The test in words."""
        return f"{self.title}{' (again)' if self.again else ''}"


class NextTest(Struct, frozen=True):
    """The tests that could come next, those that tell most first."""

    effective_samples: float
    pareto_k: float | None
    noise_mpa: float
    noise_strain: float
    num_points: int
    quantities: list[Quantity]
    tests: list[TestGain]
    sentences: list[str]


class Ranked(Struct, frozen=True):
    """The place of a law among those for the kind of test.

    Attributes:
      law: its name.
      evidence: twice the logarithm of the likelihoods' ratio to the first law, less the price of more parameters; 0 for
        the first one.
      rmse_percent: root mean square residual over the largest stress, %.
      near_tie: whether the first law is not clearly better.
      do_not_use: why its answer must not be used; empty where it may be.
    """

    law: str
    evidence: float
    rmse_percent: float
    near_tie: bool
    do_not_use: list[str]


class Verified(Struct):
    """A run of the program at one draw: `failure` is empty, or why it has no curve."""

    values: dict[str, float]
    failure: str
    rmse_percent: float | None


class Answer(Struct):
    """The answer for one record; see `tfmat.identification.answer.Identification`."""

    curve: str
    law: str | None
    do_not_use: bool
    reasons: list[str]
    method: str
    parameters: dict[str, Value]
    rmse_percent: float | None
    rmse_percent_of: dict[str, float]
    conditions: dict[str, str]
    tensile: dict[str, TensileValue] | None
    assumed: list[str]
    num_points: int
    steps: list[str]
    warnings: list[Warned]
    tests: list[AnsweredTest] | UnsetType = UNSET
    next_test: NextTest | UnsetType = UNSET
    posterior: SampledPosterior | UnsetType = UNSET
    verification: list[Verified] | UnsetType = UNSET
    ranking: list[Ranked] | UnsetType = UNSET

    @property
    def is_pooled(self) -> bool:
        """Whether it is the answer for several specimens."""
        return self.method == "mean of specimens"


# --------------------------------------------------------------------------------------------------
# The pictures of an answer: `example_picture.json` or `example_tests.json`, and `example_posterior.json`.


class Fitted(Struct, kw_only=True):
    """The answer by least squares beside a network's: its error, %, and of a curve its stress, [points], MPa."""

    name: str
    rmse_percent: NotNegative
    stress_mpa: list[float] | UnsetType = UNSET


class Picture(Struct, kw_only=True):
    """The content of both kinds of pictures.

    Attributes:
      parameters: name -> (recommended value, unit); intervals: name -> its 95 % interval, where known.
      rmse_percent: root mean square residual of the network's answer over the largest response, %; None without one.
      refined: the answer by least squares, or None.
      do_not_use: why the answer must not be used.
      assumed: what was assumed of the files.
    """

    name: str
    law_title: str
    parameters: dict[str, tuple[float, str]]
    intervals: dict[str, Interval | None] = {}
    rmse_percent: NotNegative | None = None
    refined: Fitted | None = None
    do_not_use: list[str] = []
    assumed: list[str] = []
    strain_label: str = "strain"
    stress_label: str = "stress"

    @property
    def is_of_tests(self) -> bool:
        """Whether it shows tests and not one curve."""
        return isinstance(self, TestsPicture)


class CurvePicture(Picture, kw_only=True):
    """A curve and the curves of its answers, [points] each.

    Attributes:
      resimulated_mpa: stress with the network's parameters; None where no network answered.
      recommended: `network`, or the name of the refined answer.
    """

    strain: list[float]
    stress_mpa: list[float]
    resimulated_mpa: list[float] | None = None
    recommended: str = "network"


class DrawnTest(Struct, kw_only=True):
    """A test, measured and answered.

    Attributes:
      kind: its programme; turns: whether it does.
      strain, stress_mpa: as measured; time: s, or None. [points] each.
      answer, other: what the law answers by the one method and the other: MPa of a driven strain, - of a driven stress.
      rmse_percent: distance of the answer over the largest response, %.
      settings: in words.
    """

    name: str
    title: str
    kind: str
    drives: Literal["strain", "stress"]
    turns: bool
    strain: list[float]
    stress_mpa: list[float]
    time: list[float] | None
    answer: list[float]
    other: list[float] | None
    rmse_percent: NotNegative
    settings: str


class TestsPicture(Picture, kw_only=True):
    """The tests of a record; `method` gave the answer, `other_method` is the other one, drawn thin, or None."""

    __test__ = False  # no case of pytest's

    tests: list[DrawnTest]
    method: str = "least squares"
    other_method: str | None = None


class PosteriorPicture(Struct, kw_only=True):
    """Samples of a joint posterior.

    Attributes:
      names, units: of the p parameters; logarithmic: whether each one's range is.
      values: [samples, p], in the units.
      recommended: name -> the value that the answer recommends.
      do_not_use: why neither the answer nor the samples may be used; empty where they may be.
    """

    names: list[str]
    units: list[str]
    logarithmic: list[bool]
    values: list[list[float]]
    recommended: dict[str, float] = {}
    do_not_use: list[str] = []
    title: str = ""


# --------------------------------------------------------------------------------------------------
# How good a network is on test curves: `evaluation.json`.


class Score(Struct, kw_only=True):
    """Accuracy of one parameter.

    Attributes:
      mse: mean squared error of the label scaled to 0-1.
      mae: mean absolute error in the parameter's unit.
      mae_percent: mean of |error| / true value, %; for parameters on a linear scale that are positive.
      mae_decades: mean of |log10 error|; for parameters on a logarithmic scale.
      r2: coefficient of determination of the label scaled to 0-1; None where all true values are the same.
    """

    unit: str
    mse: NotNegative
    mae: NotNegative
    mae_percent: NotNegative | None = None
    mae_decades: Decades | None = None
    r2: float | None = None


class CoverageCurve(Struct):
    """Shares of intervals (0-1) that should and do hold the truth."""

    nominal: list[float]
    observed: list[float]


class SpreadBin(Struct, kw_only=True):
    """Curves whose answers have similar error bars."""

    mean_std: NotNegative
    rms_error: NotNegative
    num_curves: int = 0


class Coverage(Struct, kw_only=True):
    """How often one parameter's intervals hold the truth, all on the scale of the labels (0-1).

    Attributes:
      of_50, of_90, of_95: share (0-1) of the intervals of this nominal coverage (%) that hold the truth.
      z_std: root mean square of error / std, 1 is perfect.
      nll: mean negative log likelihood of the truth under a Gaussian of this mean and std.
      mean_width_95: of the 95 % interval, cut to the range.
      curve: observed over nominal coverage; bins: by predicted std.
    """

    of_50: float | None = msgspec.field(name="50", default=None)
    of_90: float | None = msgspec.field(name="90", default=None)
    of_95: float | None = msgspec.field(name="95", default=None)
    z_std: float = math.nan
    nll: float = math.nan
    mean_std: float = math.nan
    mean_width_95: float | None = None
    curve: CoverageCurve | None = None
    bins: list[SpreadBin] | None = None

    @property
    def held(self) -> dict[int, float | None]:
        """Nominal coverage, % -> share of the intervals that hold the truth."""
        return {50: self.of_50, 90: self.of_90, 95: self.of_95}


class Uniformity(Struct, kw_only=True):
    """Differences of a distribution from the uniform one, at even places between 0 and 1 without the ends."""

    largest_difference: float
    inside_band: bool
    difference: list[float] = []


class ZScore(Struct):
    """Mean and root mean square of (posterior mean - truth) / standard deviation; 0 and 1 for a right posterior."""

    mean: float
    rms: NotNegative


class Spread(Struct, kw_only=True):
    """The middle of some curves' numbers, and what 95 % of them are below."""

    median: float
    p95: float


class C2st(Struct, kw_only=True):
    """The accuracy with which a classifier tells draws of two posteriors; 0.5 is perfect."""

    num_curves: Count
    median: float
    p95: float


class Tails(Struct, kw_only=True):
    """Pareto's k of the weights of each curve's draws, and the share of curves where it is above 0.7."""

    median: float
    share_above: float


class Closeness(Struct, kw_only=True):
    """Distance of the means in exact standard deviations, and the ratio of standard deviations; medians."""

    mean_error: float
    std_ratio: float


class BesideExact(Struct, kw_only=True):
    """A network's posteriors beside exact ones; see `tfmat.identification.evaluate.compare_posteriors`."""

    num_curves: Count
    pareto_k: Tails
    effective_share: float
    best_classifier: Spread
    c2st: C2st | None = None
    log_score_gap: float | None = None
    log_score_gap_error: float | None = None
    parameters: dict[str, Closeness] = {}


class PosteriorScores(Struct, kw_only=True):
    """How right a network's posterior is on average.

    Attributes:
      log_score: mean log density of the true labels, nats, on the scale of the labels (0-1); higher is better.
      log_score_error: its standard error, None for a single curve; worst_log_score: of one curve.
      joint_coverage: share of the joint regions of highest density (%) that hold the truth.
      ranks: parameter -> how the true labels' ranks among the draws are distributed.
      tarp: the same of the share of the draws that are nearer to a random point than the truth is.
      band: standard errors that the distribution of a right posterior stays within at all places together, 19 of 20
        times.
      contraction: parameter -> 1 - mean posterior variance over the prior's variance.
    """

    num_curves: Annotated[int, msgspec.Meta(gt=0)]
    log_score: float
    log_score_error: float | None
    worst_log_score: float = math.nan
    joint_coverage: dict[str, float]
    ranks: dict[str, Uniformity]
    tarp: Uniformity | None = None
    band: Positive | None = None
    contraction: dict[str, float]
    z_score: dict[str, ZScore] = {}
    exact: BesideExact | UnsetType | None = UNSET


@dataclasses.dataclass(frozen=True)
class ScoredAnswers:
    """The network's answers to the test curves beside the truth: `test_answers.npz`.

    Attributes:
      true, identified: [curves, parameters], in the parameters' units.
      max_strain, max_stress_mpa: of each curve, [curves], - and MPa.
      floor_variance: variance of the scaled label that is left when all that a curve says is used (the posterior's, of
        which the Bayes risk is the mean), [first curves, parameters]; empty where it was not worked out.
    """

    true: NDArray[np.floating]
    identified: NDArray[np.floating]
    max_strain: NDArray[np.floating]
    max_stress_mpa: NDArray[np.floating]
    floor_variance: NDArray[np.floating]


class ErrorScores(Struct, kw_only=True):
    """One parameter's mean squared errors over some of the curves, beside the best that is possible.

    Attributes:
      bayes_risk, bayes_risk_error: the least possible one, and its standard error.
      eta, least_squares_eta: expected MSE / Bayes risk of network and least squares; with their standard errors.
    """

    bayes_risk: NotNegative
    bayes_risk_error: float | None
    network_mse: NotNegative
    least_squares_mse: NotNegative
    eta: NotNegative
    eta_error: NotNegative | None
    least_squares_eta: NotNegative
    least_squares_eta_error: NotNegative | None

    @classmethod
    def of_network(cls, mse: float) -> "ErrorScores":
        """The network's alone; the others are not known."""
        return cls(
            bayes_risk=math.nan,
            bayes_risk_error=None,
            network_mse=mse,
            least_squares_mse=math.nan,
            eta=math.nan,
            eta_error=None,
            least_squares_eta=math.nan,
            least_squares_eta_error=None,
        )


class BestPossible(ErrorScores, kw_only=True):
    """The same over all curves.

    Attributes:
      cramer_rao: mean Cramér-Rao bound.
      posterior_calibration: mean squared error of the posterior mean over its variance; 1 where the reference is right.
      interval_coverage: share of the fit's 95 % intervals that hold the truth.
      unidentifiable_share: share of the curves that do not tell the parameter.
    """

    cramer_rao: float | None = None
    posterior_calibration: float = math.nan
    interval_coverage: float
    unidentifiable_share: float


class Bin(Struct, kw_only=True):
    """A group of similar curves."""

    low: NotNegative
    high: NotNegative
    num_curves: int = 0
    parameters: dict[str, ErrorScores]


class ReferenceScores(Struct, kw_only=True):
    """Network and least squares beside the best possible answer.

    Attributes:
      num_curves: that all numbers are of; num_left_out: whose posterior has not converged.
      fewest_effective_samples: None for quadrature.
      bins: `max_strain`, `noise_to_signal`, `num_points` -> groups of curves.
    """

    num_curves: Count
    num_left_out: int = 0
    method: str
    fewest_effective_samples: float | None = None
    least_squares_curves_per_second: Positive
    parameters: dict[str, BestPossible]
    bins: dict[str, list[Bin]]


class Evaluation(Struct, kw_only=True):
    """Accuracy on the test curves.

    Attributes:
      mse: mean of the parameters' MSE (scaled labels).
      rmse_percent: distance of the re-simulated from the noisy test curve over its maximum stress, mean over the
        curves, %; rmse_percent_p95: exceeded by 5 % of the curves. None without a law.
      rmse_over_noise: the same distance over the noise, mean over the curves; 1 is perfect. None without noise,
        and with an observation model (see `CurveSettings`).
      curves_per_second: of the network alone, for curves in memory.
      coverage: of the network's intervals; None without an uncertainty head.
      posterior: None without a whole posterior.
      reference: the same network beside the best that is possible and beside least squares.
    """

    format: int = 2
    law: str | None = None
    num_curves: Count
    mse: float = math.nan
    rmse_percent: NotNegative | None = None
    rmse_percent_p95: float | None = None
    rmse_over_noise: NotNegative | None = None
    curves_per_second: NotNegative | None = None
    coverage: dict[str, Coverage] | None = None
    posterior: PosteriorScores | None = None
    parameters: dict[str, Score]
    reference: ReferenceScores | None = None
