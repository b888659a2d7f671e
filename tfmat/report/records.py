"""What is read of the JSON files in a run's folder, as types that `tfmat.files.check_json` checks them against.

A key that is not `Required` may be missing: an older tfmat did not write it, or the run has none. Others may be there.
"""

from typing import Annotated, Any, Literal, Required, TypedDict

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


class Evaluation(TypedDict, total=False):
    """`evaluation.json`."""

    law: str | None
    num_curves: Required[Count]
    parameters: Required[dict[str, Score]]
    rmse_percent: NotNegative | None
    rmse_over_noise: NotNegative | None
    curves_per_second: NotNegative | None
    coverage: dict[str, CoverageScores] | None
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


class ExampleParameter(TypedDict, total=False):
    """One parameter of the example's answer."""

    unit: Required[str]
    value: Required[float]
    fixed: bool
    method: str
    network: float | None
    least_squares: float | None
    ci95: tuple[float, float] | None


class ExampleWarning(TypedDict):
    """What should make the reader of the example's answer careful."""

    kind: str
    text: str
    advice: str


class Example(TypedDict, total=False):
    """An entry of `example.json`."""

    parameters: dict[str, ExampleParameter]
    warnings: list[str | ExampleWarning]


class Fitted(TypedDict):
    """The example's answer by least squares."""

    name: str
    rmse_percent: NotNegative


class Refined(Fitted, total=False):
    """The same of a curve; `values` were kept before, and are read no more."""

    stress_mpa: Required[list[float]]
    values: dict[str, float]


class _Picture(TypedDict, total=False):
    """What both kinds of pictures tell."""

    name: Required[str]
    law_title: Required[str]
    parameters: Required[dict[str, tuple[float, str]]]
    rmse_percent: Required[NotNegative | None]
    intervals: dict[str, tuple[float, float] | None]
    do_not_use: list[str]
    assumed: list[str]
    strain_label: str
    stress_label: str


class Picture(_Picture, total=False):
    """`example_picture.json`: arguments of `tfmat.report.figures.curve_figure`."""

    strain: Required[list[float]]
    stress_mpa: Required[list[float]]
    resimulated_mpa: Required[list[float] | None]
    refined: Required[Refined | None]
    recommended: str


class DrawnTest(TypedDict):
    """One test of `TestsPicture`."""

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


class TestsPicture(_Picture, total=False):
    """`example_tests.json`: arguments of `tfmat.report.record_figures.record_figure`."""

    tests: Required[list[DrawnTest]]
    refined: Required[Fitted | None]
    method: Required[str]
    other_method: Required[str | None]


class MetricsLine(TypedDict, total=False):
    """A line of `metrics.jsonl`."""

    step: Required[Count]
    epoch: float | None
    seconds: NotNegative | None
    curves_per_second: NotNegative | None
    loss: float | None
    val_loss: float | None
