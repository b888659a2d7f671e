"""BroadcastGlobalVariablesCallback: every rank begins with one rank's state, before the first step."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import horovod.tensorflow as horovod
import keras
import numpy as np
import tensorflow as tf

from tfmat.errors import InputError
from tfmat.horovod.collectives import broadcast_variables
from tfmat.models.normalization import plain_normalizations


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):
    """Gives every rank the state of one, when training begins and before step 0, also after a restore.

    State is all that training changes: weights, moving statistics, the optimizer's slots, learning rate and step
    (the slots are made first), random states. Random states then differ by rank, as functions of the root's: ranks
    would otherwise all drop out the same places of their batches.

    It also refuses what would leave ranks waiting for each other, and switches `jit_compile` off, which Keras switches
    on by itself on GPUs: Horovod's operation is not built for XLA.

    Callbacks that restore something when training begins (BackupAndRestore) come before it in the list.
    """

    def __init__(
        self, root_rank: int, device: str = "", local_variables: Sequence[Any] | None = None
    ) -> None:
        """`device`: of the operations, "" for Horovod's choice; `local_variables`: each rank keeps its own of these."""
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        if local_variables is None:
            local_variables = []
        elif not isinstance(local_variables, (list, tuple, set)):
            local_variables = [local_variables]
        self._local = {id(_native(variable)) for variable in local_variables}

    def register_local_var(self, var: Any) -> None:
        """Lets each rank keep its own value of the variable."""
        self._local.add(id(_native(var)))

    def on_train_begin(self, logs: Any = None) -> None:
        """Broadcasts, or sees to it that the first batch does where only that can build the model.

        Raises:
          InputError: `root_rank` does not exist, or ranks differ in their models, epochs or batches an epoch.
        """
        if not 0 <= self.root_rank < horovod.size():
            raise InputError(f"root_rank is {self.root_rank}, but there are {horovod.size()} ranks")
        self._check_lengths()
        if self.model.jit_compile:
            warnings.warn(
                "jit_compile is switched off: Horovod's XLA operation is not built", stacklevel=2
            )
            self.model.jit_compile = False
            self.model.make_train_function(force=True)
        if all(layer.built for layer in self.model._flatten_layers()):
            self._synchronize()
        else:
            self.model.train_function = self._build_first(self.model.train_function)

    def _build_first(self, train_function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The train function of a model without an Input: what its batches look like is known with the first."""

        def build_and_train(iterator: Any) -> Any:
            self.model.train_function = train_function
            # Symbolically: nothing is computed and no batch is used up.
            self.model._symbolic_build(data_batch=iterator.element_spec)
            self._synchronize()
            return train_function(iterator)

        return build_and_train

    def _synchronize(self) -> None:
        optimizer = self.model.optimizer
        normalizations = [each for each in plain_normalizations(self.model) if each.trainable]
        if normalizations and horovod.size() > 1 and horovod.rank() == self.root_rank:
            warnings.warn(
                f"layer '{normalizations[0].name}': each rank normalizes its own part of a batch and keeps moving "
                "statistics of its own, of which the file has those of the rank that saves it; tfmat.Trainer "
                "takes them over the whole batch",
                stacklevel=2,
            )
        if not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        variables = [*self.model.variables, *optimizer.variables]
        with tf.device(self.device or None):
            broadcast_variables(
                [each for each in variables if id(_native(each)) not in self._local], self.root_rank
            )
        distance = (horovod.rank() - self.root_rank) % horovod.size()
        for variable in self.model.variables:
            if variable.path.endswith("seed_generator_state") and distance:
                # (seed, counter): another seed is another sequence.
                variable.assign(variable.numpy() + np.array([distance, 0], np.uint32))

    def _check_lengths(self) -> None:
        """Ranks with fewer batches than others would leave those waiting at the end of the epoch."""
        mine = {name: self.params.get(name) for name in ("epochs", "steps")}
        every = horovod.allgather_object(mine, name="lengths")
        for name, what in (("epochs", "epochs"), ("steps", "batches an epoch")):
            numbers = [each[name] for each in every]
            if len(set(numbers)) > 1:
                raise InputError(
                    f"the ranks have different numbers of {what} ({', '.join(map(str, numbers))}, from rank 0): "
                    "some would wait for the others forever; give fit the same epochs= and steps_per_epoch= everywhere"
                )


def _native(variable: Any) -> Any:
    return variable.value if isinstance(variable, keras.Variable) else variable
