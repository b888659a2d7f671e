"""What a user's rules for layouts mean, and one line for each that cannot be followed. No TensorFlow in here."""

import dataclasses
import re
from collections.abc import Sequence

from tfmat.backends.mesh import MODEL, MeshShape
from tfmat.errors import InputError, nearest

# For each dimension the name of an axis; None where it is whole.
Spec = tuple[str | None, ...]
Rules = tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True)
class Weight:
    """A trainable variable.

    Attributes:
      path: in the model, such as `hidden/kernel`.
      shape: kernels end with [inputs, units].
      itemsize: bytes of a number.
      convolution: of kernels of convolutions: `direct`, which DTensor wants whole, or `unfolded`, which may be divided.
      points: of the outputs of an unfolded convolution.
    """

    path: str
    shape: tuple[int, ...]
    itemsize: int = 4
    convolution: str = ""
    points: int = 1


def parse_rules(text: str) -> Rules:
    """`REGEX=LAYOUT;REGEX=LAYOUT`, as in the config, as rules; InputError where it is not that."""
    rules = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        pattern, separator, layout = part.rpartition("=")
        if not (pattern and separator and layout):
            raise InputError(
                f"layouts: '{part}' is no rule; write REGEX=LAYOUT, such as hidden/kernel=-,{MODEL}"
            )
        rules.append((pattern.strip(), layout.strip()))
    return tuple(rules)


def compile_pattern(pattern: str) -> re.Pattern:
    """The rule's regular expression; InputError where it is none."""
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InputError(f"layouts: '{pattern}' is no regular expression: {error}") from error


def parse_layout(layout: str, weight: Weight, mesh: MeshShape, pattern: str) -> Spec:
    """The layout that a rule gives that weight; InputError where it cannot have it, with what can."""
    rule = f"layouts: rule '{pattern}={layout}'"
    if layout == "replicated":
        return (None,) * len(weight.shape)
    if weight.convolution == "direct":
        raise InputError(
            f"{rule}: {weight.path} is the kernel of a convolution, which DTensor wants whole; "
            f"use '{pattern}=replicated', or tfmat's unfolded convolution (--config.model.convolution=unfolded)"
        )
    axes = [axis.strip() for axis in layout.split(",")]
    for axis in axes:
        if axis != "-" and axis not in mesh.names:
            raise InputError(
                f"{rule} names the axis '{axis}', which mesh {mesh} has not"
                f"{nearest(axis, [*mesh.names, '-'])}"
            )
        if axis != "-" and axes.count(axis) > 1:
            raise InputError(f"{rule} names the axis '{axis}' twice; one dimension an axis")
    if len(axes) != len(weight.shape):
        raise InputError(
            f"{rule} is for {len(axes)} dimensions, {weight.path} has {len(weight.shape)} {list(weight.shape)}; "
            "write an axis or - for each"
        )
    for axis, length in zip(axes, weight.shape, strict=True):
        size = mesh.size(axis if axis != "-" else None)
        if length % size:
            raise InputError(
                f"{rule}: {weight.path} {list(weight.shape)} has a dimension of {length}, which does not divide by "
                f"{axis}:{size}; the nearest that do: {nearest_multiples(length, size)}; or '{pattern}=replicated'"
            )
    return tuple(None if axis == "-" else axis for axis in axes)


def why_no_effect(
    pattern: str, weights: Sequence[Weight], compiled: list[tuple[str, re.Pattern, str]]
) -> str:
    """Why a rule has no effect, in one line."""
    paths = [weight.path for weight in weights]
    expression = next(e for p, e, _ in compiled if p == pattern)
    if any(expression.search(path) for path in paths):
        return f"layouts: rule '{pattern}' never holds: earlier rules match all that it matches; move it up"
    return f"layouts: rule '{pattern}' matches no variable{nearest(pattern, paths)}"


def nearest_multiples(length: int, size: int) -> str:
    """The multiples of `size` around `length`, in words."""
    below = length // size * size
    return " and ".join(str(value) for value in (below, below + size) if value)
