"""The shape of the loss around a run's minimum, and between two: surfaces, curvature, sharpness; landscape.json.

What is done is kept in landscape.unfinished.json, row by row, so that a call that was stopped goes on.
"""

import dataclasses
import hashlib
import pathlib
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfmat.errors import InputError, Interrupted
from tfmat.files import as_json, read_json, write_json
from tfmat.large_batch import curvature
from tfmat.large_batch.directions import Weights
from tfmat.large_batch.landscape_field import PARTS, Field, LandscapeOptions, build_field
from tfmat.large_batch.run_loss import EndedRun, float_type

if TYPE_CHECKING:
    from tfmat.backends.collectives import Collectives

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
    values, vectors, forms = curvature.largest_eigenvalues(
        product, size, min(options.eigenvalues, size - 1), options.seed
    )
    steps = {
        "sharpness": curvature.ascent(gradient, field.start, options.sam_rho),
        "adaptive_sharpness": curvature.adaptive_ascent(gradient, field.start, options.sam_rho),
    }
    return {
        "eigenvalues": [value.to_json() for value in values],
        "trace": curvature.trace(product, vectors, forms, seed=options.seed).to_json(),
        **{
            name: curvature.rise(train.losses, field.start, step).to_json()
            for name, step in steps.items()
        },
        "gradient_norm": float(np.linalg.norm(gradient)),
    }
