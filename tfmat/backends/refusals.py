"""What would train to other weights than in Keras's own loop, refused in one line that says what to use."""

from typing import Any

import keras
import tensorflow as tf

from tfmat.errors import InputError
from tfmat.models.normalization import is_synchronized


def check_precision(model: keras.Model, optimizer: keras.optimizers.Optimizer) -> None:
    """InputError where gradients would vanish: float16 holds nothing below 6e-8."""
    if optimizer.loss_scale_factor is not None:
        return
    for layer in model._flatten_layers(include_self=False):
        if layer.compute_dtype == "float16" and layer.trainable_variables:
            raise InputError(
                f"layer '{layer.name}' computes in float16, in which small gradients vanish without loss scaling; use "
                "mixed_bfloat16, which needs none, or give the optimizer loss_scale_factor=1024.0"
            )


def check_parts(model: keras.Model, num_parts: int) -> None:
    """InputError where a batch that goes through in parts would be normalised part by part."""
    if num_parts == 1:
        return
    for layer in model._flatten_layers(include_self=False):
        if is_synchronized(layer) and layer.trainable:
            raise InputError(
                f"accumulate={num_parts} does not work with layer '{layer.name}', which normalizes the whole batch; "
                "leave accumulate out, or let it take parts: synchronized=False (model.batch_normalization=local)"
            )


def check_outputs(outputs: Any) -> None:
    """InputError where Keras would leave masked places out of the loss and count those that are left."""
    for output in tf.nest.flatten(outputs):
        if getattr(output, "_keras_mask", None) is not None:
            raise InputError(
                "the model's outputs carry a mask (of Embedding(mask_zero=True) or Masking), by which Keras would "
                "weight the loss over the whole batch; end the mask in the model, such as by pooling, or use "
                "mask_zero=False and a loss function that leaves padding out"
            )


def check_penalties(penalties: list[Any], variables: list[keras.Variable]) -> None:
    """InputError where a loss inside the model depends on the batch: it is no sum over examples that could be divided.

    Args:
      penalties: what the model's call added.
      variables: trainable ones; each of their regularisers gives one penalty.
    """
    regularized = sum(variable.regularizer is not None for variable in variables)
    if len(penalties) > regularized:
        raise InputError(
            "a layer adds a loss of its own (activity_regularizer, or add_loss in its call), which would depend on how "
            "a batch is divided; give it to the Trainer as auxiliary_loss, a function of (labels, outputs)"
        )
