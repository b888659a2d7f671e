"""What a landscape is made of: the weights that are asked about, the directions, and the losses there."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfmat.data.packed import PackedDataset
from tfmat.errors import InputError
from tfmat.large_batch.directions import (
    Weights,
    filter_normalised,
    moved,
    orthogonal,
    random_directions,
)
from tfmat.large_batch.run_loss import EndedRun, RunLoss

if TYPE_CHECKING:
    import keras

    from tfmat.backends.collectives import Collectives
    from tfmat.large_batch.loss_at_weights import LossAtWeights

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
    from tfmat.large_batch.loss_at_weights import LossAtWeights, load_curves, pick_rows
    from tfmat.models import build_for
    from tfmat.workflow.fronts import parted
    from tfmat.workflow.train import losses_and_metrics

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
