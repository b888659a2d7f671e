"""Which rank serves which weights, and which of the optimizer's variables belong to them."""

from collections.abc import Sequence

import keras


def divide(sizes: Sequence[int], most_parts: int) -> list[list[int]]:
    """Numbers of the weights that each server holds: whole tensors, as LAMB needs them.

    There are no more servers than relieve the busiest one: every step of every worker asks each of them, and one that
    is slow holds up all. With another one the largest part would shrink by less than a tenth.

    Args:
      sizes: numbers of each weight.
      most_parts: ranks that could serve.
    """

    def parts(count: int) -> list[list[int]]:
        """The largest weights first, each to the part with least."""
        found: list[list[int]] = [[] for _ in range(count)]
        for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
            min(found, key=lambda part: (sum(sizes[j] for j in part), len(part))).append(i)
        return [sorted(part) for part in found]

    def largest(found: list[list[int]]) -> int:
        return max(sum(sizes[i] for i in part) for part in found)

    choices = [parts(count) for count in range(1, min(most_parts, len(sizes)) + 1)]
    return next(each for each in choices if largest(each) <= 1.1 * largest(choices[-1]))


def owners_of_slots(optimizer: keras.optimizers.Optimizer, num_weights: int) -> list[int | None]:
    """The weight that each variable of a built optimizer is for; None for counters."""
    owners = {}
    for name, values in vars(optimizer).items():
        if isinstance(values, list | tuple) and len(values) == num_weights and name != "_variables":
            owners.update({id(value): i for i, value in enumerate(values)})
    return [owners.get(id(variable)) for variable in optimizer.variables]
