"""How ranks of the Horovod benchmark sum gradients: backends that differ in nothing else, and the textbook's loop."""

import pathlib
import time
from typing import Any

import keras
import tensorflow as tf

from tfmat.backends.exchange import together
from tfmat.backends.horovod import HorovodBackend, HorovodCollectives
from tfmat.config import default_config
from tfmat.data.dataset import PackedDataset
from tfmat.launch.processes import Processes
from tfmat.networks import build_model


class _Silent(HorovodCollectives):
    def reduce(self, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        return tensors


class _Grouped(HorovodCollectives):
    def reduce(self, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        totals = self.horovod.grouped_allreduce(
            tensors, op=self.horovod.Sum, name=next(self._names)
        )
        return together(totals)[0]


class _EachVariable(HorovodCollectives):
    def reduce(self, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        return together([self.sum(tensor, next(self._names)) for tensor in tensors])[0]


class Silent(HorovodBackend):
    """Horovod has been started, and nothing is summed."""

    transport = _Silent


class Grouped(HorovodBackend):
    """Horovod's grouped_allreduce."""

    transport = _Grouped


class EachVariable(HorovodBackend):
    """One collective a variable."""

    transport = _EachVariable


def measure_textbook(
    spec: dict[str, Any], processes: Processes, folder: pathlib.Path
) -> dict[str, Any]:
    """Horovod's own recipe for custom loops: DistributedGradientTape, one collective a variable, one step a call."""
    import horovod.tensorflow as horovod

    # As many threads as processors: what TensorFlow does by itself, could it know how many there are.
    tf.config.threading.set_inter_op_parallelism_threads(spec["processors"])
    tf.config.threading.set_intra_op_parallelism_threads(spec["processors"])
    horovod.init()
    dataset = PackedDataset.open(spec["dataset"], verify=False)
    arrays = dataset.features[: spec["dataset_size"]], dataset.labels[: spec["dataset_size"]]
    model = build_model(default_config().model, num_outputs=2)
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    variables = [v.value for v in model.trainable_variables]
    horovod.broadcast_variables(variables, root_rank=0)

    @tf.function
    def step(features: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            outputs = model(features, training=True)
            loss = tf.reduce_mean(tf.square(outputs - labels))
        gradients = horovod.DistributedGradientTape(tape).gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    answers = []
    for task in spec["tasks"]:
        examples = tf.data.Dataset.from_tensor_slices(arrays).shuffle(10_000).repeat()
        batches = iter(
            examples.batch(task["batch_a_worker"], drop_remainder=True).prefetch(tf.data.AUTOTUNE)
        )

        def run(steps: int, batches: Any = batches) -> float:
            horovod.allreduce(tf.zeros(1), name="barrier")
            started = time.perf_counter()
            for _ in range(steps):
                step(*next(batches))
            return time.perf_counter() - started

        run(10)  # compiles
        # All ranks do as many steps as rank 0 has time for.
        steps = int(horovod.broadcast_object(max(10, round(20 * spec["seconds"] / run(20)))))
        answers.append({"steps": steps, "seconds": run(steps)})
    horovod.shutdown()
    return {"tasks": answers}
