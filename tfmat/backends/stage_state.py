"""The state of one pipeline stage among that of the whole network: which part it is, and how it comes and goes."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfmat.backends.base import Arrays
from tfmat.backends.collectives import Collectives
from tfmat.backends.replica import Replica, place_in_state, put
from tfmat.backends.saved_arrays import SavedArrays, from_rank_0
from tfmat.models.segments import Segment


class StageState:
    """A process's own variables of a model that it has made whole, and does not keep whole.

    Args:
      model: the whole network. Other stages' weights have no memory from now on; rank 0 has their values until
        `hand_out`.
      segment: of the stage.
      slots: where the variables of the stage's optimizer stand among those of an optimizer of the whole model.
      collectives: of all processes.
      before: what this process had of the model until now, where it was divided already.

    Attributes:
      replica: of the stage's variables; set when its optimizer is built.
      is_whole: whether the model of rank 0 has all weights.
    """

    replica: Replica

    def __init__(
        self,
        model: keras.Model,
        segment: Segment,
        slots: Sequence[int],
        collectives: Collectives,
        before: "StageState | None" = None,
    ):
        self._collectives = collectives
        places: dict[str, Sequence[int]] = {
            "weights": segment.trainable_places,
            "non_trainable": segment.non_trainable_places,
            "slots": slots,
        }
        # Own name -> name in the whole state.
        self._names = {
            f"{part}/{i}": f"{part}/{k}"
            for part, found in places.items()
            for i, k in enumerate(found)
        }
        self._all = {
            **{f"weights/{i}": v for i, v in enumerate(model.trainable_variables)},
            **{f"non_trainable/{i}": v for i, v in enumerate(model.non_trainable_variables)},
        }
        self.is_whole = False
        # What `hand_out` tells all processes; empty on all ranks but 0.
        self._whole: dict[str, Any] = {}
        self._set_apart(before._whole if before else {})

    def read(self, first: bool) -> Arrays:
        """See Backend.read; the whole state on rank 0 only, on other ranks that of their stage.

        Args:
          first: whether this process is the first of its stage's, which gives it.
        """
        mine = {self._names[name]: array for name, array in self.replica.common().items()}
        names = self._collectives.gather(list(mine) if first else [])
        found: Arrays = {}
        for rank, theirs in enumerate(names):
            for name in theirs:
                array = self._collectives.hand_over(mine.get(name), rank)
                if array is not None:
                    found[name] = array
        return {name: found[name] for name in sorted(found, key=place_in_state)} if found else mine

    def write(self, arrays: SavedArrays) -> None:
        """See Backend.write; on ranks other than 0 also what `read` returned there."""
        variables = self.replica.variables.named()
        mine = {name: arrays[there] for name, there in self._names.items() if there in arrays}
        self.replica.variables.assign(mine, lambda name, array: variables[name].assign(array))
        if self._collectives.rank == 0:
            self._whole = dict(arrays)

    def hand_out(self) -> None:
        """Rank 0 tells all processes what was written there, one array at a time; each keeps what is its own."""
        variables = self.replica.variables.named()
        mine = {name: variables[own] for own, name in self._names.items()}
        for name, array in from_rank_0(self._whole, self._collectives).items():
            numbers = np.asarray(array)
            if name in mine:
                mine[name].assign(numbers)
        self._whole = {}

    def fill_model(self, found: Arrays) -> None:
        """Gives the model of rank 0 all weights, of `read`; other processes have no room for the whole network."""
        if self._collectives.rank == 0:
            for name, variable in self._all.items():
                put(variable.value, found[name])
            self.is_whole = True

    def forget_others(self) -> None:
        """Frees the memory of other stages' weights."""
        own = set(self._names.values())
        for name, variable in self._all.items():
            if name not in own:
                put(variable.value, np.zeros([0]))
        self.is_whole = False

    def _set_apart(self, before: dict[str, Any]) -> None:
        own = set(self._names.values())
        for name, variable in self._all.items():
            value = variable.value
            is_there = tf.shape(value).numpy().tolist() == list(variable.shape)
            if self._collectives.rank == 0:
                self._whole[name] = value.numpy() if is_there else before[name]
            if name in own and not is_there:  # another backend's stages were others
                put(value, np.zeros(variable.shape))
        self.forget_others()
