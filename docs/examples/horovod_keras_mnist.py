"""The Keras example of Horovod's documentation, on Keras 3: a small network learns handwritten digits.

The digits are made on the spot, so that nothing is downloaded. Run it with one worker or with several:

    python docs/examples/horovod_keras_mnist.py
    mpirun -np 2 -bind-to none python docs/examples/horovod_keras_mnist.py FOLDER
"""

import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf

import tfmat.horovod as hvd  # was: import horovod.tensorflow.keras as hvd

# Horovod: initialize Horovod.
hvd.init()

# Horovod: pin GPU to be used to process local rank (one GPU per process).
gpus = tf.config.list_physical_devices("GPU")
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")


def make_digits(count):
    """Images [count, 28, 28, 1] and labels [count]: ten patterns of blots, shifted and noisy."""
    random = np.random.default_rng(0)
    patterns = np.kron(random.random((10, 7, 7)) > 0.6, np.ones((4, 4)))
    labels = random.integers(0, 10, count)
    shifts = random.integers(-2, 3, (count, 2))
    images = [
        np.roll(patterns[label], shift, (0, 1)) for label, shift in zip(labels, shifts, strict=True)
    ]
    noisy = np.stack(images) + random.normal(0, 0.3, (count, 28, 28))
    return noisy[..., np.newaxis].astype("float32"), labels


images, labels = make_digits(6_000)
test_images, test_labels = images[5_000:], labels[5_000:]

dataset = tf.data.Dataset.from_tensor_slices((images[:5_000], labels[:5_000]))
# Every worker draws for itself, each in its own order.
dataset = dataset.shuffle(5_000, seed=hvd.rank()).repeat().batch(50)

model = keras.Sequential(
    [
        keras.layers.Conv2D(8, [3, 3], strides=2, activation="relu"),
        keras.layers.Conv2D(16, [3, 3], strides=2, activation="relu"),
        keras.layers.Dropout(0.25),
        keras.layers.Flatten(),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(10, activation="softmax"),
    ]
)

# Horovod: adjust learning rate based on number of workers.
scaled_lr = 0.001 * hvd.size()
optimizer = keras.optimizers.Adam(scaled_lr)

# Horovod: add Horovod DistributedOptimizer.
optimizer = hvd.DistributedOptimizer(optimizer)

model.compile(loss="sparse_categorical_crossentropy", optimizer=optimizer, metrics=["accuracy"])

callbacks = [
    # Horovod: broadcast initial variable states from rank 0 to all other processes.
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    # Horovod: average metrics among workers at the end of every epoch. Before callbacks that read them.
    hvd.callbacks.MetricAverageCallback(),
    # Horovod: using `lr = 1.0 * hvd.size()` from the very beginning leads to worse final accuracy.
    hvd.callbacks.LearningRateWarmupCallback(initial_lr=scaled_lr, warmup_epochs=2, verbose=1),
    keras.callbacks.ReduceLROnPlateau("loss", patience=3),
]

# Horovod: save checkpoints only on worker 0 to prevent other workers from corrupting them.
folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
if hvd.rank() == 0:
    callbacks.append(keras.callbacks.ModelCheckpoint(folder / "checkpoint-{epoch}.keras"))

# Horovod: adjust number of steps based on number of workers, write logs on worker 0.
model.fit(
    dataset,
    steps_per_epoch=100 // hvd.size(),
    callbacks=callbacks,
    epochs=4,
    verbose=2 if hvd.rank() == 0 else 0,
)

if hvd.rank() == 0:
    loss, accuracy = model.evaluate(test_images, test_labels, verbose=0)
    print(f"test accuracy {accuracy:.3f}")
