"""A run's folder as its report reads it: files, numbers, example records."""

import dataclasses
import math
import os
import pathlib
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tfmat.config import RunDetails
from tfmat.errors import InputError
from tfmat.files import (
    check_json,
    is_locked,
    make_folder,
    read_json,
    write_arrays,
    write_json,
)
from tfmat.identification.results import (
    Answer,
    Bin,
    Count,
    Coverage,
    CurvePicture,
    DrawnTest,
    ErrorScores,
    Evaluation,
    NotNegative,
    PosteriorPicture,
    ReferenceScores,
    ScoredAnswers,
    TestsPicture,
)
from tfmat.launch.machine import Session
from tfmat.records.laboratory import OBSERVATION
from tfmat.training.run_folder import MetricsLine, Status, read_metrics

if TYPE_CHECKING:
    from tfmat.report.figures import Corner


# --------------------------------------------------------------------------------------------------
# The JSON files in a run's folder, as types that `tfmat.files.check_json` checks them against.
#
# A key with a default may be missing: an older tfmat did not write it, or the run has none. Others may be there.


class Estimate(Struct, omit_defaults=True):
    """A number with half the width of its 95 % interval.

    Attributes:
      error: half the width of the interval that other curves would give, and with it whatever is random.
      residual: of an eigenvalue: the norm |Hv - λv|, within which the sample's Hessian has an eigenvalue.
    """

    value: float
    error: float
    residual: float | None = None


class Curvature(Struct):
    """The part of a landscape about the minimum itself."""

    eigenvalues: list[Estimate]
    trace: Estimate
    sharpness: Estimate
    adaptive_sharpness: Estimate
    gradient_norm: float | None = None


class LandscapeSettings(Struct, kw_only=True):
    """How a landscape was measured: the fields of `tfmat.large_batch.landscape.LandscapeOptions`, and the runs.

    Attributes:
      kind: `around` a minimum, or `between` two.
      data_id: of the data set.
      weights: digests of the minima.
    """

    num_curves: int | None = None
    points: int | None = None
    extent: float
    dimensions: int | None = None
    eigenvalues: int | None = None
    sam_rho: float
    precision: str | None = None
    seed: int | None = None
    kind: str
    runs: list[str]
    global_batch_sizes: list[int] = []
    data_id: str | None = None
    weights: list[str] = []


class LossesByPart(Struct):
    """[y][x] of each part of a data set."""

    train: list[list[float]]
    test: list[list[float]]

    def parts(self) -> dict[str, list[list[float]]]:
        """Keys are the names of the parts."""
        return {"train": self.train, "test": self.test}


class Landscape(Struct, kw_only=True, tag_field="format", tag=1, omit_defaults=True):
    """`landscape.json`."""

    settings: LandscapeSettings
    curves: dict[str, Count]
    x: list[float]
    y: list[float]
    loss: LossesByPart
    error: LossesByPart | None = None
    curvature: Curvature | None = None


class Optimizer(Struct, frozen=True):
    """The part `optimizer` of a config."""

    schedule: str = ""


class Model(Struct, frozen=True):
    """The part `model` of a config."""

    uncertainty: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Configuration(RunDetails):
    """`config.json`; what a run is trained with is checked where it is used."""

    law: str | None = None
    model: Model = dataclasses.field(default_factory=Model)
    optimizer: Optimizer = dataclasses.field(default_factory=Optimizer)


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


class Provenance(Struct):
    """`provenance.json`."""

    sessions: list[Session] = []


# --------------------------------------------------------------------------------------------------
# The files that an evaluation leaves in a run's folder: its numbers, and the answers that they were computed from.


Array = NDArray[np.floating]

ANSWERS_FILE = "test_answers.npz"


def write_evaluation(
    workdir: str | os.PathLike, evaluation: Evaluation, answers: ScoredAnswers
) -> None:
    """Writes evaluation.json, and beside it the answers, from which the report draws its pictures."""
    workdir = make_folder(workdir)
    arrays = {name: np.asarray(array, np.float32) for name, array in vars(answers).items()}
    write_arrays(workdir / ANSWERS_FILE, **arrays)
    write_json(workdir / "evaluation.json", evaluation)


def read_evaluation(path: str | os.PathLike) -> Evaluation:
    """The content of an evaluation.json; InputError where it is missing or damaged."""
    found: Evaluation = check_json(_with_reference(read_json(path)), Evaluation, path)
    return found


def _with_reference(content: Any) -> Any:
    """An older tfmat called the reference a yardstick."""
    if not isinstance(content, dict):
        return content
    return {"reference": content.get("yardstick"), **content}


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
# The example's picture, of a curve or of tests.
_PICTURE, _TESTS = "example_picture.json", "example_tests.json"
# Samples of the example's posterior.
_POSTERIOR = "example_posterior.json"
# Entries that an answer of an older tfmat may lack.
_ABSENT: dict[str, Any] = {
    "curve": "", "law": None, "do_not_use": False, "reasons": [], "method": "network", "parameters": {},
    "rmse_percent": None, "rmse_percent_of": {}, "conditions": {}, "tensile": None, "assumed": [], "num_points": 0,
    "steps": [], "warnings": [],
}  # fmt: skip


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
      example: the example's answer, or None; example_picture: of it.
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
    sessions: list[Session]
    answers: ScoredAnswers | None
    example: Answer | None
    example_picture: CurvePicture | TestsPicture | None
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
    config = files.read("config.json", Configuration)
    provenance = files.read("provenance.json", Provenance)
    examples = files.read("example.json", list[Answer], _of_today) or [None]
    lines = read_metrics(folder / "metrics.jsonl")
    run = RunFiles(
        workdir=folder,
        config=config or Configuration(),
        configuration=read_json(folder / "config.json") if config else {},
        status=files.read("status.json", Status) or Status(),
        model=files.read("model.json", Description),
        evaluation=files.read("evaluation.json", Evaluation, _with_reference),
        metrics=msgspec.convert(lines, list[MetricsLine]),
        sessions=provenance.sessions if provenance else [],
        answers=read_answers(folder),
        example=examples[0],
        example_picture=_picture(files),
        example_posterior=_posterior(files),
        running=is_locked(folder),
        landscape=_landscape(files, "landscape.json"),
        landscape_between=_landscape(files, "landscape_between.json"),
    )
    return dataclasses.replace(run, damaged=tuple(files.damaged))


class _Files:
    """Reads the folder's JSON files, and remembers which of them cannot be used."""

    def __init__(self, folder: pathlib.Path):
        self._folder, self.damaged = folder, list[str]()

    def read(
        self, name: str, kind: Any, of_today: Callable[[Any], Any] = lambda content: content
    ) -> Any:
        """A file's content as this type; None where the file is missing or damaged.

        Args:
          of_today: what an older tfmat wrote -> the same in today's form.
        """
        path = self._folder / name
        try:
            return check_json(of_today(read_json(path)), kind, path) if path.exists() else None
        except InputError as error:
            self.damaged.append(str(error))
            return None

    def refuse(self, name: str, why: str) -> None:
        """Notes a file that cannot be used."""
        self.damaged.append(f"{self._folder / name} is damaged: {why}")


def write_example_picture(workdir: str | os.PathLike, picture: CurvePicture | TestsPicture) -> None:
    """Keeps the picture of the example's answer in a run's folder."""
    write_json(pathlib.Path(workdir) / (_TESTS if picture.is_of_tests else _PICTURE), picture)


def write_example_posterior(workdir: str | os.PathLike, posterior: PosteriorPicture) -> None:
    """Keeps samples of the example's posterior in a run's folder."""
    write_json(pathlib.Path(workdir) / _POSTERIOR, posterior)


def _of_today(answers: Any) -> Any:
    """Answers of an older tfmat, which kept the network's value, least squares beside it, and sentences alone."""
    return [_answer_of_today(each) for each in answers] if isinstance(answers, list) else answers


def _answer_of_today(answer: Any) -> Any:
    if not isinstance(answer, dict):
        return answer
    answer = {**_ABSENT, **answer}
    values, warnings = answer["parameters"], answer["warnings"]
    if isinstance(values, dict):
        answer["parameters"] = {name: _value_of_today(value) for name, value in values.items()}
    if isinstance(warnings, list):
        answer["warnings"] = [
            {"kind": "", "text": each} if isinstance(each, str) else each for each in warnings
        ]
    return answer


def _value_of_today(value: Any) -> Any:
    if not isinstance(value, dict) or "method" in value:
        return value
    own, fitted = value.get("value"), value.get("least_squares")
    method = "network" if fitted is None else "least_squares"
    return {
        **value,
        "value": fitted or own,
        "network": own,
        "method": "given" if value.get("fixed") else method,
    }


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
    found: PosteriorPicture | None = files.read(_POSTERIOR, PosteriorPicture)
    if found is None:
        return None
    lengths = {len(found.units), len(found.logarithmic), *map(len, found.values)}
    finite = all(math.isfinite(value) for row in found.values for value in row)
    if not found.values or lengths != {len(found.names)} or not finite:
        files.refuse(_POSTERIOR, "its samples are not numbers of each parameter")
        return None
    # Matplotlib, which those that only read numbers need not wait for.
    from tfmat.report.figures import Corner

    return Corner(msgspec.structs.replace(found, title=""))


def _picture(files: _Files) -> CurvePicture | TestsPicture | None:
    """The example's picture; None where it is missing or damaged."""
    kinds: tuple[tuple[str, Any], ...] = ((_PICTURE, CurvePicture), (_TESTS, TestsPicture))
    for name, kind in kinds:
        found = files.read(name, kind)
        if found is not None:
            if not all(map(_is_drawable, found.tests if found.is_of_tests else [found])):
                files.refuse(name, "its curves have different numbers of points")
                return None
            if found.is_of_tests and not found.tests:
                files.refuse(name, "it has no tests")
                return None
            return found
    return None


def _is_drawable(drawn: CurvePicture | DrawnTest) -> bool:
    """Whether its arrays have one length, which is not zero."""
    if isinstance(drawn, DrawnTest):
        arrays: list[list[float] | None] = [drawn.time, drawn.answer, drawn.other]
    else:
        fitted = drawn.refined.stress_mpa if drawn.refined else None
        arrays = [drawn.resimulated_mpa, fitted or None]
    lengths = {len(each) for each in (drawn.stress_mpa, *arrays) if each is not None}
    return lengths <= {len(drawn.strain)} and len(drawn.strain) > 0


# --------------------------------------------------------------------------------------------------
# Numbers that pictures of a run are drawn from: answers parameter by parameter, and errors by the kind of curve.


# _BINS: of curves, by one quantity, each with as many curves.
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
