"""A run's folder as its report reads it: files, numbers, example records."""

import dataclasses
import math
import os
import pathlib
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Required, TypedDict, TypeVar

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tfmat.errors import InputError
from tfmat.files import (
    atomic_write,
    check_json,
    is_locked,
    make_folder,
    parse_json,
    read_json,
    write_json,
)
from tfmat.identification.results import (
    Bin,
    Count,
    Coverage,
    ErrorScores,
    Evaluation,
    NotNegative,
    ReferenceScores,
)
from tfmat.records.laboratory import OBSERVATION

if TYPE_CHECKING:
    from tfmat.report.figures import Corner

Kind = TypeVar("Kind")

# --------------------------------------------------------------------------------------------------
# The JSON files in a run's folder, as types that `tfmat.files.check_json` checks them against.
#
# A key with a default may be missing: an older tfmat did not write it, or the run has none. Others may be there.


class Status(Struct, kw_only=True):
    """`status.json`."""

    state: str | None = None
    reason: str = ""
    started: str = ""
    updated: str = "–"
    resumed_from_steps: list[int] = []


class Estimate(Struct):
    """A number with half the width of its interval."""

    value: float
    error: float


class Curvature(Struct):
    """The part of a landscape about the minimum itself."""

    eigenvalues: list[Estimate]
    trace: Estimate
    sharpness: Estimate
    adaptive_sharpness: Estimate


class LandscapeSettings(Struct):
    """How a landscape was measured."""

    kind: str
    runs: list[str]
    extent: float
    sam_rho: float


class LossesByPart(Struct):
    """[y][x] of each part of a data set."""

    train: list[list[float]]
    test: list[list[float]]


class Landscape(Struct, kw_only=True):
    """`landscape.json`."""

    settings: LandscapeSettings
    curves: dict[str, Count]
    x: list[float]
    y: list[float]
    loss: LossesByPart
    curvature: Curvature | None = None


class Optimizer(Struct, frozen=True):
    """The part `optimizer` of a config."""

    schedule: str = ""


class Model(Struct, frozen=True):
    """The part `model` of a config."""

    uncertainty: str = ""


class Configuration(Struct, kw_only=True):
    """`config.json`; what a run is trained with is checked where it is used."""

    law: str | None = None
    model: Model = Model()
    optimizer: Optimizer = Optimizer()
    num_examples: int | None = None
    total_steps: int | None = None
    data_dir: str | None = None
    data_id: str | None = None


class SavedParameter(Struct, kw_only=True):
    """A parameter of the network."""

    name: str
    unit: str
    low: float
    high: float
    scale: str = "linear"

    @property
    def width(self) -> float:
        """The width of its range, which is 1 on the scale of the labels; of a logarithmic one in e-folds."""
        return math.log(self.high / self.low) if self.scale == "log" else self.high - self.low


class Curves(Struct, kw_only=True):
    """The curves that the network was trained with, as far as a page tells of them; others are None."""

    noise_mpa: NotNegative | None = None
    noise_relative: NotNegative | None = None
    tests: Any = None
    strength_mpa: Any = None
    noise_of_maximum: Any = None
    noise_correlation: Any = None
    measured_points: Any = None
    strain_offset: Any = None
    stress_offset: Any = None
    toe: Any = None
    machine_stiffness: Any = None
    misfit: Any = None
    yield_spread: Any = None

    @property
    def are_observed(self) -> bool:
        """Whether they depart from their law as measured ones do."""
        return any(getattr(self, name) is not None for name in OBSERVATION)

    @property
    def likelihood_is_known(self) -> bool:
        """As `tfmat.identification.likelihood.unknown_likelihood`, which reads the law too."""
        ends = self.measured_points is not None and bool(self.strength_mpa)
        return bool(self.tests) and self.misfit is None and not ends


class Description(Struct, kw_only=True):
    """`model.json`."""

    parameters: list[SavedParameter] = []
    curves: Curves | None = None


class Git(Struct):
    """The program's revision."""

    revision: str | None = None
    changed: bool = False


class Machine(Struct):
    """The machine of a session."""

    gpus: list[str] | None = None


class Session(Struct, kw_only=True):
    """One start of a run."""

    started: str = ""
    command: str = ""
    versions: dict[str, Any] | None = None
    git: Git | None = None
    machine: Machine | None = None


class Provenance(Struct):
    """`provenance.json`."""

    sessions: list[Session] = []


class MetricsLine(Struct, kw_only=True):
    """A line of `metrics.jsonl`."""

    step: Count
    epoch: float | None = None
    seconds: NotNegative | None = None
    curves_per_second: NotNegative | None = None
    loss: float | None = None
    val_loss: float | None = None


# --------------------------------------------------------------------------------------------------
# A run's example, as types that `tfmat.files.check_json` checks its JSON files against.
#
# A key that is not `Required` may be missing: an older tfmat did not write it, or the example has none.


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
    """A reason to be careful with the example's answer."""

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
    """The content of both kinds of pictures."""

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


class Posterior(TypedDict, total=False):
    """`example_posterior.json`: arguments of `tfmat.report.figures.Corner`."""

    names: Required[list[str]]
    units: Required[list[str]]
    logarithmic: Required[list[bool]]
    values: Required[list[list[float]]]
    recommended: dict[str, float]
    title: str


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
    """`example_tests.json`: arguments of `tfmat.report.figures.record_figure`."""

    tests: Required[list[DrawnTest]]
    refined: Required[Fitted | None]
    method: Required[str]
    other_method: Required[str | None]


# --------------------------------------------------------------------------------------------------
# An evaluation in a run's folder: its numbers, and the answers that they were computed from.


Array = NDArray[np.floating]

ANSWERS_FILE = "test_answers.npz"


@dataclasses.dataclass(frozen=True)
class ScoredAnswers:
    """The network's answers to the test curves beside the truth: `test_answers.npz`.

    Attributes:
      true, identified: [curves, parameters], in the parameters' units.
      max_strain, max_stress_mpa: of each curve, [curves], - and MPa.
      floor_variance: variance of the scaled label that is left when all that a curve says is used (the posterior's, of
        which the Bayes risk is the mean), [first curves, parameters]; empty where it was not worked out.
    """

    true: Array
    identified: Array
    max_strain: Array
    max_stress_mpa: Array
    floor_variance: Array


def write_evaluation(
    workdir: str | os.PathLike,
    evaluation: Evaluation,
    true_values: Array,
    identified_values: Array,
    features: Array,
    floor_variance: Array | None = None,
) -> None:
    """Writes evaluation.json, and beside it the answers, from which the report draws its pictures.

    Args:
      true_values, identified_values: [curves, parameters], in the parameters' units.
      features: the test curves, [curves, points, 3]: strain (-), stress (MPa), flag of padded points, which are 0.
      floor_variance: see `ScoredAnswers`.
    """
    workdir = make_folder(workdir)
    arrays = {
        "true": true_values,
        "identified": identified_values,
        "max_strain": np.max(features[:, :, 0], axis=1),
        "max_stress_mpa": np.max(features[:, :, 1], axis=1),
        "floor_variance": np.empty((0, true_values.shape[1]))
        if floor_variance is None
        else floor_variance,
    }
    with atomic_write(workdir / ANSWERS_FILE) as file:
        kept: dict[str, Any] = {name: np.asarray(a, np.float32) for name, a in arrays.items()}
        np.savez(file, **kept)
    write_json(workdir / "evaluation.json", evaluation)


def read_evaluation(path: str | os.PathLike) -> Evaluation:
    """The content of an evaluation.json; InputError where it is missing or damaged."""
    content = read_json(path)
    if isinstance(content, dict) and "yardstick" in content:  # an older tfmat's name
        content["reference"] = content.get("reference") or content["yardstick"]
    found: Evaluation = check_json(content, Evaluation, path)
    return found


def read_answers(workdir: str | os.PathLike) -> ScoredAnswers | None:
    """The answers that `write_evaluation` left; None where they are missing or damaged."""
    try:
        with np.load(pathlib.Path(workdir) / ANSWERS_FILE, allow_pickle=False) as arrays:
            found = {
                field.name: arrays[field.name].astype(np.float64)
                for field in dataclasses.fields(ScoredAnswers)
            }
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
        return None
    return ScoredAnswers(**found)


# --------------------------------------------------------------------------------------------------
# A run's folder, read for a report: whatever is missing or damaged is None or empty, never an error.


# A folder with none of these is no run.
_MARKS = ("config.json", "status.json", "metrics.jsonl", "model.json", "evaluation.json")
# The example's picture, of a curve or of tests, and what is an array in it.
_PICTURE, _TESTS = "example_picture.json", "example_tests.json"
# Samples of the example's posterior.
_POSTERIOR = "example_posterior.json"
_ARRAYS = ("strain", "stress_mpa", "resimulated_mpa", "time", "answer", "other")


@dataclasses.dataclass(frozen=True)
class RunFiles:
    """One run, from its files.

    Attributes:
      workdir: the folder.
      config, status, model: the JSON files' contents, their defaults where missing; configuration: the whole config.
      evaluation: None where it is missing.
      metrics: lines of metrics.jsonl.
      sessions: of provenance.json, the oldest first.
      answers: the network's answers to the test curves, or None.
      example: the example's answer as `tfmat identify --json` tells it, or {}.
      example_picture: arguments of `answer_figure` for it, or None.
      example_posterior: the corner plot of its posterior's samples, or None.
      landscape, landscape_between: what `tfmat landscape` measured around the minimum and to another one.
      running: a process is training in the folder now.
      damaged: files that are there and cannot be used, one line each.
    """

    workdir: pathlib.Path
    config: Configuration
    configuration: dict[str, Any]
    status: Status
    model: Description | None
    evaluation: Evaluation | None
    metrics: list[MetricsLine]
    sessions: list[dict[str, Any]]
    answers: ScoredAnswers | None
    example: dict[str, Any]
    example_picture: dict[str, Any] | None
    example_posterior: "Corner | None"
    running: bool
    damaged: tuple[str, ...] = ()
    landscape: Landscape | None = None
    landscape_between: Landscape | None = None

    @property
    def done(self) -> bool:
        """The training came to its end."""
        return (self.status.state or "done") == "done"

    @property
    def reference(self) -> ReferenceScores | None:
        """Errors of the best possible answer and of least squares, with which the network is compared."""
        return self.evaluation.reference if self.evaluation else None


def read_run(workdir: str | os.PathLike) -> RunFiles:
    """Reads a run's folder; raises InputError where it is none."""
    folder = pathlib.Path(workdir)
    if not any((folder / name).is_file() for name in _MARKS):
        what = "holds no run" if folder.is_dir() else "does not exist"
        raise InputError(
            f"{folder} {what}; name a run's folder with --workdir, or train one: tfmat train --workdir={folder}"
        )
    files = _Files(folder)
    config = files.checked("config.json", Configuration)
    provenance = files.checked("provenance.json", Provenance)
    examples = files.content("example.json", list[Example], empty=[])
    lines = read_metrics(folder / "metrics.jsonl")
    run = RunFiles(
        workdir=folder,
        config=Configuration() if config is None else config[0],
        configuration={} if config is None else config[1],
        status=files.read("status.json", Status) or Status(),
        model=files.read("model.json", Description),
        evaluation=files.evaluation(),
        metrics=msgspec.convert(lines, list[MetricsLine]),
        sessions=[] if provenance is None else provenance[1].get("sessions", []),
        answers=read_answers(folder),
        example=examples[0] if examples else {},
        example_picture=_picture(files),
        example_posterior=_posterior(files),
        running=is_locked(folder),
        landscape=_landscape(files, "landscape.json"),
        landscape_between=_landscape(files, "landscape_between.json"),
    )
    return dataclasses.replace(run, damaged=tuple(files.damaged))


def read_metrics(path: str | os.PathLike) -> list[dict[str, Any]]:
    """The lines of a `metrics.jsonl`, in order of their step; [] where the file is missing.

    A run that went on after a kill may have written some steps twice: the later line counts. A line that was cut
    off by the kill, or is damaged, is left out.
    """
    try:
        lines = pathlib.Path(path).read_text("utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    by_step: dict[int, dict[str, Any]] = {}
    for line in lines:
        try:
            content = parse_json(line, nan_is_none=True)
            check_json(content, MetricsLine, path)
        except ValueError:  # an InputError too
            continue
        by_step[content["step"]] = content
    return [by_step[step] for step in sorted(by_step)]


class _Files:
    """Reads the folder's JSON files, and remembers which of them cannot be used."""

    def __init__(self, folder: pathlib.Path):
        self._folder, self.damaged = folder, list[str]()

    def checked(self, name: str, kind: Any) -> tuple[Any, Any] | None:
        """A file's content as this type, and as read; None where the file is missing or damaged."""
        path = self._folder / name
        if not path.exists():
            return None
        try:
            content = read_json(path)
            return check_json(content, kind, path), content
        except InputError as error:
            self.damaged.append(str(error))
            return None

    def read(self, name: str, kind: type[Kind]) -> Kind | None:
        """A file's content as this type; None where the file is missing or damaged."""
        found = self.checked(name, kind)
        return None if found is None else found[0]

    def evaluation(self) -> Evaluation | None:
        """None where it is missing or damaged."""
        path = self._folder / "evaluation.json"
        try:
            return read_evaluation(path) if path.exists() else None
        except InputError as error:
            self.damaged.append(str(error))
            return None

    def content(self, name: str, kind: Any, empty: Any = None) -> Any:
        """A file's content; an empty one where the file is missing or damaged."""
        found = self.checked(name, kind)
        return found[1] if found else {} if empty is None else empty

    def refuse(self, name: str, why: str) -> None:
        """Notes a file that cannot be used."""
        self.damaged.append(f"{self._folder / name} is damaged: {why}")


def write_example_picture(workdir: str | os.PathLike, picture: Mapping[str, Any]) -> None:
    """Keeps the picture of the example's answer, arguments of `answer_figure`, in a run's folder."""
    name = _TESTS if "tests" in picture else _PICTURE
    content = _with(picture, lambda array: np.asarray(array).tolist())
    write_json(pathlib.Path(workdir) / name, content)


def write_example_posterior(workdir: str | os.PathLike, posterior: Mapping[str, Any]) -> None:
    """Keeps samples of the example's posterior, arguments of `Corner`, in a run's folder."""
    values = np.asarray(posterior["values"]).tolist()
    write_json(pathlib.Path(workdir) / _POSTERIOR, {**posterior, "values": values})


def _landscape(files: _Files, name: str) -> Landscape | None:
    """A landscape whose loss has a number for each point; None where it is missing or damaged."""
    found = files.read(name, Landscape)
    if found is None:
        return None
    shapes = {_shape(part) for part in (found.loss.train, found.loss.test)}
    if shapes != {(len(found.y), len(found.x))}:
        files.refuse(name, "its losses are not those of its points")
        return None
    return found


def _shape(rows: list[list[float]]) -> tuple[int, int] | None:
    """The shape of a table; None where rows are not alike."""
    lengths = {len(row) for row in rows}
    return (len(rows), lengths.pop()) if len(lengths) == 1 else None


def _posterior(files: _Files) -> "Corner | None":
    """The example's samples; None where they are missing or damaged."""
    content = files.content(_POSTERIOR, Posterior)
    if not content:
        return None
    names, units, flags, values = (
        content[key] for key in ("names", "units", "logarithmic", "values")
    )
    lengths = {len(row) for row in (units, flags, *values)}
    if not values or lengths != {len(names)} or not np.isfinite(values).all():
        files.refuse(_POSTERIOR, "its samples are not numbers of each parameter")
        return None
    # Matplotlib, which those that only read numbers need not wait for.
    from tfmat.report.figures import Corner

    return Corner(names, units, flags, np.asarray(values), content.get("recommended", {}))


def _picture(files: _Files) -> dict[str, Any] | None:
    """The example's picture as it was; None where it is missing or damaged."""
    kinds: dict[str, Any] = {
        _PICTURE: Picture,
        _TESTS: TestsPicture,
    }
    for name, kind in kinds.items():
        content = files.content(name, kind)
        if content:
            picture = _with(content, lambda values: np.asarray(values, np.float64))
            tests = picture.get("tests", [picture])
            if not tests or any(
                len(set(_lengths(test))) > 1 or not len(test["strain"]) for test in tests
            ):
                files.refuse(name, "its curves have different numbers of points")
                return None
            known = kind.__annotations__.keys()
            return {key: value for key, value in picture.items() if key in known}
    return None


def _lengths(curves: Mapping[str, Any]) -> list[int]:
    """The numbers of points of the arrays in a picture, or in one test of it."""
    inside = curves.get("refined") or {}
    return [
        len(each[name])
        for each in (curves, inside)
        for name in _ARRAYS
        if each.get(name) is not None
    ]


def _with(content: Mapping[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """The picture, or a part of it, its arrays changed."""
    found = dict(content)
    for name, value in content.items():
        if name in _ARRAYS and value is not None:
            found[name] = change(value)
        elif name == "tests":
            found[name] = [_with(test, change) for test in value]
        elif name == "refined" and value:
            found[name] = _with(value, change)
    return found


# --------------------------------------------------------------------------------------------------
# Numbers that pictures of a run are drawn from: answers parameter by parameter, and errors by the kind of curve.


_BINS = 5
Bins = dict[str, list[Bin]]


@dataclasses.dataclass(frozen=True)
class ParameterAnswers:
    """Answers to the test curves for one parameter.

    Attributes:
      name, unit: of the parameter.
      logarithmic: its labels are on a logarithmic scale.
      true, identified: [curves], in its unit.
      floor: standard deviation of the best possible answer to each of the first curves, [fewer curves], relative
        to the true value for a parameter on a linear scale, in decades on a logarithmic one; None where not known.
    """

    name: str
    unit: str
    logarithmic: bool
    true: Array
    identified: Array
    floor: Array | None = None

    @property
    def errors(self) -> Array:
        """[curves]: in decades on a logarithmic scale; else in % of the true value, in its unit where that can be 0."""
        if self.logarithmic:
            return np.log10(self.identified / self.true)
        if not self.in_percent:
            return self.identified - self.true
        return 100 * (self.identified - self.true) / self.true

    @property
    def in_percent(self) -> bool:
        """Whether `errors` are in %."""
        return not self.logarithmic and bool(np.all(self.true > 0))


def parameter_answers(run: RunFiles) -> list[ParameterAnswers]:
    """The network's answers to the test curves; [] where they are not on disk or not from this network."""
    entries, answers = run.model.parameters if run.model else [], run.answers
    if answers is None or answers.true.shape[1] != len(entries) or not len(answers.true):
        return []
    found = []
    for i, entry in enumerate(entries):
        logarithmic = entry.scale == "log"
        true = answers.true[:, i]
        floor = None
        if len(answers.floor_variance):
            floor = np.sqrt(answers.floor_variance[:, i]) * entry.width
            # To the units of the errors that it is drawn behind.
            if logarithmic:
                floor = floor / math.log(10.0)
            elif np.all(true > 0):
                floor = 100 * floor / true[: len(floor)]
        found.append(
            ParameterAnswers(
                entry.name, entry.unit, logarithmic, true, answers.identified[:, i], floor
            )
        )
    return found


def error_bins(run: RunFiles) -> Bins:
    """Errors by the kind of curve: of network, least squares and best possible, or of the network alone; or {}."""
    if run.reference:
        # A quantity that all curves share is no axis.
        return {name: bins for name, bins in run.reference.bins.items() if len(bins) > 1}
    answers = parameter_answers(run)
    if run.answers is None or run.model is None or not answers:
        return {}
    curves = run.model.curves or Curves()
    widths = {entry.name: entry.width for entry in run.model.parameters}
    noise = curves.noise_mpa or 0.0, curves.noise_relative or 0.0
    return _bins_of_answers(run.answers, answers, widths, noise)


def _bins_of_answers(
    answers: ScoredAnswers,
    parameters: Sequence[ParameterAnswers],
    widths: Mapping[str, float],
    noise: tuple[float, float],
) -> Bins:
    """The network's errors alone, in bins that hold as many curves each.

    Args:
      widths: parameter name -> width of its range; of its natural logarithm for a logarithmic one.
      noise: standard deviation in MPa, and as a fraction of the stress.
    """
    with np.errstate(divide="ignore"):
        noise_to_signal = np.hypot(noise[0] / answers.max_stress_mpa, noise[1])
    found: Bins = {}
    for name, quantity in (
        ("max_strain", answers.max_strain),
        ("noise_to_signal", noise_to_signal),
    ):
        edges, places = equal_bins(quantity, _BINS)
        if len(edges) < 3 or not np.isfinite(edges).all():
            continue
        found[name] = [
            Bin(
                low=float(edges[i]),
                high=float(edges[i + 1]),
                num_curves=int((places == i).sum()),
                parameters={
                    p.name: ErrorScores.of_network(_mse(p, widths[p.name], places == i))
                    for p in parameters
                },
            )
            for i in range(len(edges) - 1)
        ]
    return found


def equal_bins(values: Array, count: int) -> tuple[Array, Array]:
    """Edges [bins + 1] of bins with as many curves each, at most `count`, and each curve's bin [curves]."""
    edges = np.unique(np.quantile(values, np.linspace(0, 1, count + 1)))
    if len(edges) == 1:  # one value only
        edges = np.repeat(edges, 2)
    return edges, np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)


def _mse(answers: ParameterAnswers, width: float, rows: Array) -> float:
    """Mean squared error of scaled labels over some of the curves."""
    true, identified = answers.true[rows], answers.identified[rows]
    error = np.log(identified / true) if answers.logarithmic else identified - true
    return float(np.mean((error / width) ** 2))


def coverage_gap(coverage: Mapping[str, Coverage]) -> float:
    """Percentage points by which the network's intervals hold the truth more or less often than they say, at most."""
    return max(
        (
            abs(100 * share - level)
            for scores in coverage.values()
            for level, share in scores.held.items()
            if share is not None
        ),
        default=0.0,
    )


def more_accurate(reference: ReferenceScores) -> dict[str, list[str]]:
    """Method -> parameters whose η is clearly the smaller, by more than twice the standard error of the difference."""
    found: dict[str, list[str]] = {"network": [], "least_squares": []}
    for name, entry in reference.parameters.items():
        ahead = entry.least_squares_eta - entry.eta
        error = math.hypot(entry.eta_error or 0.0, entry.least_squares_eta_error or 0.0)
        if abs(ahead) > 2 * error:
            found["network" if ahead > 0 else "least_squares"].append(name)
    return found
