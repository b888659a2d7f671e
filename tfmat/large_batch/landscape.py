"""The landscape of the loss about a trained network."""

import dataclasses
import hashlib
import pathlib
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from tfmat.data.dataset import PackedDataset
from tfmat.errors import InputError, Interrupted
from tfmat.files import as_json, make_folder, read_json, spreadsheet_text, write_json, write_text
from tfmat.large_batch import losses
from tfmat.large_batch.figures import save_png_and_svg
from tfmat.large_batch.losses import (
    EndedRun,
    RunLoss,
    Weights,
    filter_normalised,
    float_type,
    moved,
    orthogonal,
    random_directions,
)
from tfmat.report.figures import (
    COLOURS,
    MEASURED,
    MODEL,
    SECOND,
    finish,
    logarithmic,
    new_figure,
    worker_axis,
)

if TYPE_CHECKING:
    import keras

    from tfmat.backends.base import Collectives
    from tfmat.large_batch.losses import LossAtWeights

# --------------------------------------------------------------------------------------------------
# What a landscape is made of: the weights that are asked about, the directions, and the losses there.


PARTS = ("train", "test")


@dataclasses.dataclass(frozen=True)
class LandscapeOptions:
    """What is measured.

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
      directions: one or two.
      start, others: weights and other state at x = y = 0.
      change: of the other state, such as moving statistics, along x between two minima; else None.
      parts: of `PARTS`, name -> losses over its curves.
    """

    options: LandscapeOptions
    collectives: "Collectives"
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
    collectives: "Collectives",
) -> Field:
    """Loads the curves and makes the directions; every rank calls it.

    Args:
      run: that says which loss and which data set.
      options: checked.
      minima: one or two, as `EndedRun.arrays` gives them.
      collectives: to the other ranks.
    """
    from tfmat.large_batch.losses import LossAtWeights, load_curves, pick_rows
    from tfmat.networks import build_for
    from tfmat.workflow.job import losses_and_metrics, parted

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
    """The numbers of the whole network as those of its trained part, in this precision."""
    for variables, arrays in zip(
        (model.trainable_variables, model.non_trainable_variables), minimum, strict=True
    ):
        if [tuple(v.shape) for v in variables] != [a.shape for a in arrays]:
            raise InputError(
                f"{run.folder / 'final.keras'} does not fit its config.json; is the folder complete?"
            )
        for variable, array in zip(variables, arrays, strict=True):
            variable.assign(array)
    weights, others = (
        [np.array(variable.numpy()) for variable in variables]
        for variables in (trained.trainable_variables, trained.non_trainable_variables)
    )
    return weights, others


# --------------------------------------------------------------------------------------------------
# What a landscape becomes for people: pictures, tables in CSV and as text.


_LEVELS = 24
_NAMES = {"train": "training curves", "test": "test curves"}

COLUMNS = (
    "run", "batch", "train_loss", "train_error", "test_loss", "test_error", "eigenvalue",
    "eigenvalue_error", "trace", "trace_error", "sharpness", "sharpness_error", "adaptive_sharpness",
    "adaptive_sharpness_error", "gradient_norm",
)  # fmt: skip


def surface_table(content: Mapping[str, Any]) -> pd.DataFrame:
    """A row a point: x, y, and the loss with its standard error on both parts of the data."""
    x, y = np.meshgrid(content["x"], content["y"])
    columns: dict[str, Any] = {"x": x.ravel(), "y": y.ravel()}
    for part in _NAMES:
        columns[f"{part}_loss"] = np.ravel(content["loss"][part])
        columns[f"{part}_error"] = np.ravel(content["error"][part])
    return pd.DataFrame(columns)


def comparison_table(contents: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """A row a run, by batch, with the columns COLUMNS: losses and curvature at the minimum.

    Errors of losses are standard errors, those of the others half the width of 95 % intervals.
    """
    rows = []
    for content in contents:
        settings, curvature = content["settings"], content.get("curvature", {})
        row: dict[str, Any] = {
            "run": pathlib.Path(settings["runs"][0]).name,
            "batch": settings["global_batch_sizes"][0],
            "gradient_norm": curvature.get("gradient_norm"),
        }
        for part in _NAMES:
            j, i = origin(content)
            row[f"{part}_loss"] = content["loss"][part][j][i]
            row[f"{part}_error"] = content["error"][part][j][i]
        found = {name: curvature.get(name) for name in ("trace", "sharpness", "adaptive_sharpness")}
        found["eigenvalue"] = curvature.get("eigenvalues", [None])[0]
        for name, estimate in found.items():
            row[name] = estimate["value"] if estimate else None
            row[f"{name}_error"] = estimate["error"] if estimate else None
        rows.append(row)
    return pd.DataFrame(rows, columns=COLUMNS).sort_values("batch", kind="stable")


def origin(content: Mapping[str, Any]) -> tuple[int, int]:
    """Row and column of the point x = y = 0, which is the (first) run's minimum."""
    j, i = (int(np.argmin(np.abs(content[axis]))) for axis in ("y", "x"))
    return j, i


def write_results(content: Mapping[str, Any], file: pathlib.Path) -> list[pathlib.Path]:
    """Writes the table and the pictures beside landscape.json: FILE.csv, figures/FILE.png and .svg."""
    table = file.with_suffix(".csv")
    write_text(table, spreadsheet_text(surface_table(content)))
    stem = make_folder(file.parent / "figures") / file.stem
    return [table, *save_png_and_svg(landscape_figure(content), stem)]


def write_comparison(
    contents: Sequence[Mapping[str, Any]], folder: pathlib.Path
) -> list[pathlib.Path]:
    """Writes landscapes.csv, .png and .svg of several runs."""
    table, stem = comparison_table(contents), make_folder(folder) / "landscapes"
    write_text(stem.with_suffix(".csv"), spreadsheet_text(table))
    figure = comparison_figure(contents, table)
    return [stem.with_suffix(".csv"), *save_png_and_svg(figure, stem)]


def landscape_figure(content: Mapping[str, Any]) -> Figure:
    """A line each of training and test curves, or, in two dimensions, contours of both side by side."""
    if len(content["y"]) == 1:
        figure = new_figure(6.4, 4.2)
        panel = figure.subplots()
        for part, colour in zip(_NAMES, (MODEL, SECOND), strict=True):
            panel.plot(
                content["x"], content["loss"][part][0], "o-", ms=3, color=colour, label=_NAMES[part]
            )
        finish(panel)
        _mark(panel, content)
        _logarithmic_if_positive(panel, content)
        panel.set_ylabel("loss")
        panel.legend(frameon=False)
        return figure
    figure = new_figure(10.4, 4.6)
    panels = figure.subplots(1, 2, sharey=True)
    values = np.array([content["loss"][part] for part in _NAMES])
    low, high = float(values.min()), float(values.max())
    norm: Normalize
    if low > 0:
        levels, norm = np.geomspace(low, high, _LEVELS), LogNorm(low, high)
    else:
        levels, norm = np.linspace(low, high, _LEVELS), Normalize(low, high)
    for panel, part, loss in zip(panels, _NAMES, values, strict=True):
        filled = panel.contourf(
            content["x"], content["y"], loss, levels, norm=norm, cmap="viridis", extend="both"
        )
        panel.contour(
            content["x"], content["y"], loss, levels[::3], colors="white", linewidths=0.6, alpha=0.7
        )
        _mark(panel, content)
        panel.set_title(_NAMES[part], loc="left", fontsize=11, fontweight="bold")
    panels[0].set_ylabel("second direction")
    ticks = levels[:: (_LEVELS - 1) // 4]
    bar = figure.colorbar(filled, ax=panels, label="loss", ticks=ticks, format="%.2g")
    bar.ax.minorticks_off()
    return figure


def comparison_figure(contents: Sequence[Mapping[str, Any]], table: pd.DataFrame) -> Figure:
    """Left: cuts through all minima; right: the largest eigenvalue over the batch, where it was measured."""
    figure = new_figure(10.4, 4.4)
    left, right = figure.subplots(1, 2)
    order = sorted(contents, key=lambda content: content["settings"]["global_batch_sizes"][0])
    for k, content in enumerate(order):
        colour, (row, _) = COLOURS[k % len(COLOURS)], origin(content)
        name = pathlib.Path(content["settings"]["runs"][0]).name
        loss = content["loss"]
        left.plot(content["x"], loss["train"][row], color=colour, lw=1.6, label=name)
        left.plot(content["x"], loss["test"][row], color=colour, lw=1.2, ls="--")
    finish(left)
    if all(np.min(content["loss"][part]) > 0 for content in contents for part in _NAMES):
        logarithmic(left.yaxis)
    left.set_xlabel("along a filter-normalised direction")
    left.set_ylabel("loss: training (solid), test (dashed)")
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
    finish(right)
    worker_axis(right.xaxis, sorted(table.batch.unique()))
    if (known.eigenvalue > 0).all():
        right.set_ylim(0, 1.25 * float(max(known.eigenvalue, default=1.0)))
    right.set_xlabel("global batch")
    right.set_ylabel("largest eigenvalue of the Hessian")
    return figure


def _mark(panel: Axes, content: Mapping[str, Any]) -> None:
    """The minima, and what the first axis is."""
    between = content["settings"]["kind"] == "between"
    names = [pathlib.Path(run).name for run in content["settings"]["runs"]]
    flat = len(content["y"]) == 1
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


def _logarithmic_if_positive(panel: Axes, content: Mapping[str, Any]) -> None:
    if all(np.min(content["loss"][part]) > 0 for part in _NAMES):
        logarithmic(panel.yaxis)


def describe_landscape(content: Mapping[str, Any]) -> str:
    """What was found, as text: losses at the minimum, curvature with its intervals, the barrier between two minima."""
    settings, loss, (j, i) = content["settings"], content["loss"], origin(content)
    lines = []
    if settings["kind"] == "between":
        last = int(np.argmin(np.abs(np.subtract(content["x"], 1.0))))
        for part, name in _NAMES.items():
            line = loss[part][j]
            between = line[i : last + 1]
            lines.append(
                f"{name}: {line[i]:.4g} and {line[last]:.4g} at the minima, at most {max(between):.4g} on the straight "
                f"line between them"
            )
        return "\n".join(lines)
    error = content["error"]
    lines += [
        f"loss at the minimum, {content['curves'][part]:,} {name}: {loss[part][j][i]:.4g} ± {error[part][j][i]:.2g}"
        for part, name in _NAMES.items()
    ]
    found = content.get("curvature")
    if found:
        shown = ", ".join(f"{e['value']:.4g} ± {e['error']:.2g}" for e in found["eigenvalues"])
        radius, relative = _with_error(found["sharpness"]), _with_error(found["adaptive_sharpness"])
        lines += [
            f"largest eigenvalues of the Hessian (95 %): {shown}",
            f"its trace: {_with_error(found['trace'])}",
            f"the loss rises within ρ = {settings['sam_rho']:g} by {radius}; relative to the filters by {relative}",
        ]
    return "\n".join(lines)


def _with_error(estimate: Mapping[str, float]) -> str:
    return f"{estimate['value']:.4g} ± {estimate['error']:.2g}"


# --------------------------------------------------------------------------------------------------
# The shape of the loss around a run's minimum, and between two: surfaces, curvature, sharpness; landscape.json.
#
# What is done is kept in landscape.unfinished.json, row by row, so that a call that was stopped goes on.


FORMAT = 1
_SIDECAR_KEYS = ("law", "parameters", "num_points", "input_scale", "uncertainty")
# done, all: points of the surface, or products with the Hessian.
Progress = Callable[[str, int, int], None]


def read_runs(
    folders: Sequence[str], data_dir: str | None, options: LandscapeOptions, between: bool
) -> list[EndedRun]:
    """The runs, all of which can be measured; refused before TensorFlow is loaded.

    Raises:
      InputError.
    """
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
    collectives: "Collectives",
    *,
    progress: Progress | None = None,
    stopped: Callable[[], int] = lambda: 0,
) -> dict[str, Any]:
    """The landscape around one run's minimum, or between those of two; every rank calls it.

    Args:
      runs: one or two, from `read_runs`.
      options: checked.
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
        if len(runs) == 2:
            _check_shapes(runs, minima)
        settings = _settings(runs, options, minima)
        kept = _Kept(file, settings, collectives, stopped)
        if kept.whole is None:
            field = build_field(runs[0], options, minima, collectives)
            surface = _surface(field, kept, progress)
            content = {
                "format": FORMAT,
                "settings": settings,
                "curves": {name: field.parts[name].curves for name in PARTS},
                "x": field.x.tolist(),
                "y": field.y.tolist(),
                **surface,
            }
            if len(runs) == 1 and options.eigenvalues:
                content["curvature"] = kept.once(
                    "curvature", lambda: _curvature(field, kept, progress)
                )
            kept.finish(content)
        return kept.whole or content


def _check_shapes(runs: Sequence[EndedRun], minima: Sequence[tuple[Weights, Weights]]) -> None:
    shapes = [[w.shape for part in minimum for w in part] for minimum in minima]
    if shapes[0] != shapes[1]:
        raise InputError(
            f"{runs[0].folder} and {runs[1].folder} are different networks: their weights have other shapes"
        )


def _settings(
    runs: Sequence[EndedRun],
    options: LandscapeOptions,
    minima: Sequence[tuple[Weights, Weights]],
) -> dict[str, Any]:
    """What the numbers depend on, and what a reader wants to know of the runs."""
    digests = []
    for minimum in minima:
        digest = hashlib.blake2b(digest_size=16)
        for part in minimum:
            for array in part:
                digest.update(np.ascontiguousarray(array).data)
        digests.append(digest.hexdigest())
    return {
        **dataclasses.asdict(options),
        "kind": "between" if len(runs) == 2 else "around",
        "runs": [str(run.folder) for run in runs],
        "global_batch_sizes": [run.config.global_batch_size for run in runs],
        "data_id": read_json(runs[0].data_dir / "manifest.json").get("id"),
        "weights": digests,
    }


class _Kept:
    """What is done already: in landscape.json as a whole, or in landscape.unfinished.json part by part.

    Attributes:
      whole: the finished file's content, where it is of these settings.
    """

    def __init__(
        self,
        file: pathlib.Path,
        settings: Mapping[str, Any],
        collectives: "Collectives",
        stopped: Callable[[], int],
    ):
        self._file, self._unfinished = file, file.with_suffix(".unfinished.json")
        self._settings, self._collectives, self._stopped = settings, collectives, stopped
        self.whole, self._parts = collectives.broadcast(
            self._read() if collectives.rank == 0 else None
        )

    def _read(self) -> tuple[dict[str, Any] | None, dict[str, Any]]:
        found = []
        for path in (self._file, self._unfinished):
            try:
                content = read_json(path) if path.is_file() else {}
            except InputError:  # then it is made again
                content = {}
            same = isinstance(content, dict) and content.get("settings") == as_json(self._settings)
            found.append(content if same else None)
        return found[0], (found[1] or {}).get("parts", {})

    def once(self, name: str, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What `measure` gives, on every rank the same; measured once, and kept."""
        if name not in self._parts:
            self._parts[name] = as_json(measure())
            if self._collectives.rank == 0:
                content = {"settings": self._settings, "parts": self._parts}
                write_json(self._unfinished, content)
            self.check()
        found: dict[str, Any] = self._parts[name]
        return found

    def check(self) -> None:
        """Interrupted on every rank where a signal asked one of them to stop."""
        received = self._collectives.maximum(self._stopped())
        if received:
            raise Interrupted(
                f"{signal.Signals(received).name} received; what is done is in {self._unfinished}: the same command "
                "goes on"
            )

    def finish(self, content: Mapping[str, Any]) -> None:
        """Writes the whole."""
        if self._collectives.rank == 0:
            write_json(self._file, content)
            self._unfinished.unlink(missing_ok=True)
        self._collectives.barrier()


def _surface(field: Field, kept: _Kept, progress: Progress | None) -> dict[str, Any]:
    """`loss` and `error` of each part: [y][x]; the ranks share the points of a row."""
    collectives, rows = field.collectives, []
    total = len(field.x) * len(field.y)
    for j, y in enumerate(field.y):

        def row(y: float = y) -> dict[str, Any]:
            mine = [field.losses(x, y) for x in field.x[collectives.rank :: collectives.size]]
            found = np.empty((len(field.x), len(PARTS), 2))
            for rank, theirs in enumerate(collectives.gather(mine)):
                found[rank :: collectives.size] = np.reshape(theirs, (-1, len(PARTS), 2))
            return {"points": found.tolist()}

        rows.append(kept.once(f"row {j}", row)["points"])
        if progress:
            progress("points", (j + 1) * len(field.x), total)
    numbers = np.array(rows)  # [y, x, parts, 2]
    return {
        key: {name: numbers[:, :, i, k].tolist() for i, name in enumerate(PARTS)}
        for k, key in enumerate(("loss", "error"))
    }


def _curvature(field: Field, kept: _Kept, progress: Progress | None) -> dict[str, Any]:
    """`eigenvalues`, `trace`, `sharpness` and `adaptive_sharpness`, of the loss over the training curves."""
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
    values, vectors, forms = losses.largest_eigenvalues(
        product, size, min(options.eigenvalues, size - 1), options.seed
    )
    steps = {
        "sharpness": losses.ascent(gradient, field.start, options.sam_rho),
        "adaptive_sharpness": losses.adaptive_ascent(gradient, field.start, options.sam_rho),
    }
    return {
        "eigenvalues": [value.to_json() for value in values],
        "trace": losses.trace(product, vectors, forms, seed=options.seed).to_json(),
        **{
            name: losses.rise(train.losses, field.start, step).to_json()
            for name, step in steps.items()
        },
        "gradient_norm": float(np.linalg.norm(gradient)),
    }
