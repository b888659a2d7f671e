"""From runs of a simulation to its forward network: trained by the loop that trains everything, written as a law."""

import dataclasses
import hashlib
import pathlib
from typing import Any

import keras
import numpy as np

from tfmat.data.dataset import plain_name
from tfmat.data.imported import PARTS
from tfmat.errors import InputError
from tfmat.materials.law import Array
from tfmat.specimens.campaign import Campaign, parts_of, runs_folder
from tfmat.specimens.emulator import Facts, ForwardNetwork, inputs_of, write_law
from tfmat.training.trainer import Trainer

# FEWEST_RUNS: from which a forward network is learned. TRAIN_FOR: its default length.
FEWEST_RUNS = 50
TRAIN_FOR = "24000steps"
# Principal components until they leave this share of the curves, root mean square, and no more than so many.
_LEFT, _MOST_COMPONENTS = 1e-4, 24
_MEMBERS, _UNITS, _BATCH, _RATE = 4, 128, 64, 8e-3
# Another form is another run.
_FORM = (_MEMBERS, _UNITS, _BATCH, _RATE, "gelu")
# An epoch has so many steps at least, so that validation takes little.
_STEPS = 1000


@dataclasses.dataclass(frozen=True)
class Emulator:
    """A forward network and how far it is off, as shares of each run's largest stress.

    Attributes:
      law: its file and class, as --law takes them.
      runs: that trained; error: root mean square on the runs that validate; test_error: on those that test, and
        worst: the largest error of any point of these.
    """

    law: str
    network: ForwardNetwork
    runs: int
    error: float
    test_error: float
    worst: float


def emulate(
    campaign: Campaign,
    data_dir: str | pathlib.Path,
    *,
    seed: int = 0,
    train_for: str = TRAIN_FOR,
    quiet: bool = False,
) -> Emulator:
    """Trains the forward network of a simulation on its runs, and writes it as a law into `data_dir`.

    Args:
      campaign: the runs; which of them train, validate and test is what `generate --simulator` makes of them.
      seed: that the runs were drawn with; of the networks' weights too.
      train_for: a duration, as everywhere.
    """
    description = campaign.description
    numbers = campaign.complete
    if len(numbers) < FEWEST_RUNS:
        raise InputError(
            f"{len(numbers)} runs have a curve; a forward network needs {FEWEST_RUNS} at least, and hundreds to be "
            "good (--num_runs)"
        )
    strain, stress = _on_grid(campaign)
    inputs = inputs_of(description.drawn, campaign.drawn[numbers])
    part = np.array(parts_of(len(campaign.outcomes), seed))[numbers]
    train, validate, test = (part == name for name in PARTS)
    mean, components, targets = _principal(stress, train)

    content = hashlib.sha256(
        inputs.tobytes() + stress.tobytes() + f"{seed} {train_for} {_FORM}".encode()
    )
    folder = runs_folder(description, data_dir) / "forward" / content.hexdigest()[:8]
    model = _model(inputs.shape[1], targets.shape[1], seed)
    trainer = Trainer(
        model,
        loss="mean_squared_error",
        optimizer=lambda steps, _: keras.optimizers.Adam(
            keras.optimizers.schedules.CosineDecay(_RATE, steps)
        ),
        workdir=str(folder),
        seed=seed,
        checkpoint_every="3000steps",
        keep_checkpoints=1,
        quiet=quiet,
    )
    features, labels = (
        array.astype(np.float32) for array in (inputs, np.tile(targets, (1, _MEMBERS)))
    )
    repeats = -(-_STEPS * _BATCH // int(train.sum()))
    trainer.fit(
        np.tile(features[train], (repeats, 1)),
        np.tile(labels[train], (repeats, 1)),
        global_batch_size=_BATCH,
        train_for=train_for,
        validation=(features[validate], labels[validate]),
    )
    network = _network(model, strain, mean, components)
    off = (network.curves(inputs) - stress) / np.abs(stress).max(axis=1, keepdims=True)
    error, test_error = (float(np.sqrt(np.mean(off[rows] ** 2))) for rows in (validate, test))
    facts = Facts(
        name=plain_name(description.name),
        title=description.title or description.name,
        source=f"{int(train.sum())} runs of {' '.join(description.command)}",
        error=error,
        peak=float(np.median(np.abs(stress).max(axis=1))),
        max_strain=description.laboratory.max_strain or (0.5 * strain[-1], float(strain[-1])),
        material=description.material,
        constants=description.constants,
    )
    # A network of more runs is another law: what was trained with this one goes on with it.
    path = pathlib.Path(data_dir) / f"{facts.name}_{len(campaign.outcomes)}.py"
    law = write_law(path, network, description.drawn, description.laboratory, facts)
    return Emulator(
        law, network, int(train.sum()), error, test_error, float(np.abs(off[test]).max())
    )


def _on_grid(campaign: Campaign) -> tuple[Array, Array]:
    """The curves on one grid of strain that all of them reach: [points], and [runs, points] in MPa."""
    runs = [one for i in campaign.complete if (one := campaign.outcomes[i]) is not None]
    end = min(float(one.strain[-1]) for one in runs if one.strain is not None)
    curves = [one.curve(end) for one in runs]
    return curves[0][0], np.stack([stress for _, stress in curves])


def _principal(stress: Array, train: Array) -> tuple[Array, Array, Array]:
    """Mean [points], components [outputs, points] in MPa, and the curves' targets [runs, outputs].

    The squared error of targets is the squared error of stresses, but for a factor, where a component is large. It
    counts somewhat more where a component is small: stress / sqrt(deviation) of a component.
    """
    mean = stress[train].mean(axis=0)
    _, sizes, directions = np.linalg.svd(stress[train] - mean, full_matrices=False)
    left = np.sqrt(np.append(np.cumsum(sizes[::-1] ** 2)[::-1], 0.0))
    enough = int(np.argmax(left <= _LEFT * np.linalg.norm(stress[train])))
    count = min(max(enough, 1), _MOST_COMPONENTS, len(sizes))
    scale = np.sqrt(sizes[:count] * sizes[0] / train.sum())
    return mean, directions[:count] * scale[:, None], (stress - mean) @ directions[:count].T / scale


def _model(inputs: int, outputs: int, seed: int) -> keras.Model:
    """The members side by side, which get the same examples and share nothing."""
    given = keras.Input((inputs,))
    found = []
    for member in range(_MEMBERS):
        values = given
        for layer, units in enumerate((_UNITS, _UNITS, outputs)):
            start = keras.initializers.GlorotUniform(seed=1000 * seed + 10 * member + layer)
            activation = _gelu if layer < 2 else None
            dense = keras.layers.Dense(
                units, activation, kernel_initializer=start, name=_name(member, layer)
            )
            values = dense(values)
        found.append(values)
    return keras.Model(given, keras.layers.Concatenate()(found))


def _gelu(values: Any) -> Any:
    return keras.activations.gelu(values, approximate=True)


def _name(member: int, layer: int) -> str:
    return f"member{member}_layer{layer}"


def _network(model: keras.Model, strain: Array, mean: Array, components: Array) -> ForwardNetwork:
    kernels, biases = (
        tuple(
            np.stack(
                [
                    np.asarray(getattr(model.get_layer(_name(member, layer)), name), np.float64)
                    for member in range(_MEMBERS)
                ]
            )
            for layer in range(3)
        )
        for name in ("kernel", "bias")
    )
    return ForwardNetwork(kernels, biases, strain, mean, components)
