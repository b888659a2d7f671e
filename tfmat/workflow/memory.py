"""What a training needs at least, worked out from its config before anything is made."""

from tfmat.config import Config
from tfmat.data.memory import check_memory

_FLOAT = 4  # bytes
_CHANNELS = 3
# Weights, gradients and one slot of the optimizer; a mesh may divide all but the weights.
_COPIES = 3


def check_training_fits(
    config: Config, *, num_outputs: int, num_points: int, backend: str = "single"
) -> None:
    """InputError where the network, or one batch, is larger than the machine's memory."""
    parameters = count_parameters(config, num_outputs=num_outputs, num_points=num_points)
    copies = 1 if backend == "dtensor" else _COPIES
    check_memory(
        f"a network of {parameters:,} parameters (model.hidden_units={_words(config.model.hidden_units)}, "
        f"model.conv_filters={_words(config.model.conv_filters)}, {num_points} points)",
        copies * _FLOAT * parameters,
        "take a smaller one",
    )
    batch = config.global_batch_size
    if backend == "single":
        check_memory(
            f"a batch of {batch:,} curves of {num_points:,} points",
            batch * num_points * _CHANNELS * _FLOAT,
            "take a smaller global_batch_size, or fewer points",
        )


def count_parameters(config: Config, *, num_outputs: int, num_points: int) -> int:
    """The trainable numbers of `tfmat.models.build_model`'s network, but for normalisation and uncertainty."""
    model, points, inputs, count = config.model, num_points, _CHANNELS, 0
    for filters, kernel in zip(model.conv_filters, model.kernel_sizes, strict=True):
        count += (kernel * inputs + 1) * filters
        points, inputs = points // model.pool_size, filters
    inputs *= points
    for units in (*model.hidden_units, num_outputs):
        count += (inputs + 1) * units
        inputs = units
    return count


def _words(values: tuple[int, ...]) -> str:
    return ",".join(map(str, values)) or "none"
