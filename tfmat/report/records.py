"""What is read of the JSON files in a run's folder, as types that `tfmat.files.check_json` checks them against.

A key that is not `Required` may be missing: an older tfmat did not write it, or the run has none. Others may be there.
"""

from typing import Annotated, Any, Required, TypedDict

import msgspec

NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
Decades = Annotated[float, msgspec.Meta(ge=-300, le=300)]
Count = Annotated[int, msgspec.Meta(ge=0)]


class Status(TypedDict, total=False):
    """`status.json`."""

    state: str
    reason: str
    started: str
    updated: str
    resumed_from_steps: list[int]


class Estimate(TypedDict):
    """A number with half the width of its interval."""

    value: float
    error: float


class Curvature(TypedDict):
    """What a landscape says of the minimum itself."""

    eigenvalues: list[Estimate]
    trace: Estimate
    sharpness: Estimate
    adaptive_sharpness: Estimate


class LandscapeSettings(TypedDict):
    """How a landscape was measured."""

    kind: str
    runs: list[str]
    extent: float
    sam_rho: float


class LossesByPart(TypedDict):
    """[y][x] of each part of a data set."""

    train: list[list[float]]
    test: list[list[float]]


class _Landscape(TypedDict):
    settings: LandscapeSettings
    curves: dict[str, Count]
    x: list[float]
    y: list[float]
    loss: LossesByPart


class Landscape(_Landscape, total=False):
    """`landscape.json`."""

    curvature: Curvature


class Optimizer(TypedDict, total=False):
    """The part `optimizer` of a config."""

    schedule: str


class Model(TypedDict, total=False):
    """The part `model` of a config."""

    uncertainty: str


class Configuration(TypedDict, total=False):
    """`config.json`; what a run is trained with is checked where it is used."""

    law: str | None
    model: Model
    optimizer: Optimizer
    num_examples: int
    total_steps: int
    data_dir: str | None
    data_id: str | None


class SavedParameter(TypedDict, total=False):
    """A parameter of the network."""

    name: Required[str]
    unit: Required[str]
    low: Required[float]
    high: Required[float]
    scale: str


class Curves(TypedDict, total=False):
    """The curves that the network was trained with."""

    noise_mpa: NotNegative | None
    noise_relative: NotNegative | None


class Sidecar(TypedDict, total=False):
    """`model.json`."""

    parameters: list[SavedParameter]
    curves: Curves | None


class Score(TypedDict, total=False):
    """The errors of one parameter."""

    unit: Required[str]
    mse: Required[NotNegative]
    mae: Required[NotNegative]
    mae_percent: NotNegative | None
    mae_decades: Decades | None
    r2: float | None


class CoverageCurve(TypedDict):
    """Shares of intervals that should and do hold the truth."""

    nominal: list[float]
    observed: list[float]


class SpreadBin(TypedDict):
    """Curves whose answers have similar error bars."""

    mean_std: NotNegative
    rms_error: NotNegative


# One parameter's; its shares are found by the percentage.
CoverageScores = TypedDict(
    "CoverageScores",
    {
        "50": float | None,
        "90": float | None,
        "95": float | None,
        "mean_width_95": float | None,
        "curve": CoverageCurve | None,
        "bins": list[SpreadBin] | None,
    },
    total=False,
)


class BestPossible(TypedDict, total=False):
    """One parameter's errors beside the least possible one."""

    bayes_risk: Required[NotNegative]
    eta: Required[NotNegative]
    eta_error: Required[NotNegative | None]
    least_squares_eta: Required[NotNegative]
    least_squares_eta_error: Required[NotNegative | None]
    interval_coverage: Required[float]
    unidentifiable_share: Required[float]


class BinErrors(TypedDict, total=False):
    """One parameter's errors in a group of curves."""

    network_mse: Required[NotNegative]
    least_squares_mse: NotNegative
    bayes_risk: NotNegative


class Bin(TypedDict):
    """A group of similar curves."""

    low: NotNegative
    high: NotNegative
    parameters: dict[str, BinErrors]


class Reference(TypedDict, total=False):
    """Network and least squares beside the best possible answer."""

    num_curves: Required[Count]
    num_left_out: int
    method: Required[str]
    least_squares_curves_per_second: Required[Positive]
    parameters: Required[dict[str, BestPossible]]
    bins: Required[dict[str, list[Bin]]]


class Uniformity(TypedDict, total=False):
    """Differences of a distribution from the uniform one."""

    largest_difference: Required[float]
    inside_band: Required[bool]
    difference: list[float]


class ZScore(TypedDict):
    """Errors over the posterior's standard deviations."""

    mean: float
    rms: NotNegative


class PosteriorScores(TypedDict, total=False):
    """How right the network's posterior is on average."""

    num_curves: Required[Positive]
    log_score: Required[float]
    log_score_error: Required[float | None]
    joint_coverage: Required[dict[str, float]]
    ranks: Required[dict[str, Uniformity]]
    tarp: Uniformity
    band: Positive
    contraction: Required[dict[str, float]]
    z_score: dict[str, ZScore]
    exact: dict[str, Any] | None


class Evaluation(TypedDict, total=False):
    """`evaluation.json`."""

    law: str | None
    num_curves: Required[Count]
    parameters: Required[dict[str, Score]]
    rmse_percent: NotNegative | None
    rmse_over_noise: NotNegative | None
    curves_per_second: NotNegative | None
    coverage: dict[str, CoverageScores] | None
    posterior: PosteriorScores | None
    yardstick: Reference | None
    reference: Reference | None


class Revision(TypedDict, total=False):
    """The program's revision."""

    revision: str | None
    changed: bool


class MachineRecord(TypedDict, total=False):
    """The machine of a session."""

    gpus: list[str] | None


class SessionRecord(TypedDict, total=False):
    """One start of a run."""

    started: str
    command: str
    versions: dict[str, Any] | None
    git: Revision | None
    machine: MachineRecord | None


class Provenance(TypedDict, total=False):
    """`provenance.json`."""

    sessions: list[SessionRecord]


class MetricsLine(TypedDict, total=False):
    """A line of `metrics.jsonl`."""

    step: Required[Count]
    epoch: float | None
    seconds: NotNegative | None
    curves_per_second: NotNegative | None
    loss: float | None
    val_loss: float | None
