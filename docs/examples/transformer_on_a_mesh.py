"""A small transformer encoder on 2 × 2 devices, divided over examples and over attention heads and columns of the MLP.

It learns to look something up: each position of a sequence holds a key and a value, and the answer is the value beside
the largest key. Nothing is downloaded.

    python docs/examples/transformer_on_a_mesh.py
"""

import tfmat

# First of all: TensorFlow makes its devices when it starts. Megatron-LM's division: what enters a block is divided by
# heads or columns, what leaves it by heads or rows, so that each block exchanges one sum forward and one backward.
backend = tfmat.mesh_backend(
    "batch:2,model:2",
    layouts={
        "attention/(query|key|value)/kernel": "-,model,-",  # [width, heads, size]
        "attention/attention_output/kernel": "model,-,-",  # [heads, size, width]
        "mlp_in/kernel": "-,model",
        "mlp_in/bias": "model",
        "mlp_out/kernel": "model,-",
        ".": "replicated",
    },
)

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

LENGTH, WIDTH, HEADS = 12, 32, 4


def make_examples(count, seed):
    """Sequences [count, LENGTH, 2] of keys and values; answers [count, 1]."""
    sequences = np.random.default_rng(seed).uniform(-1, 1, (count, LENGTH, 2)).astype("float32")
    largest = sequences[:, :, 0].argmax(axis=1)
    return sequences, sequences[np.arange(count), largest, 1:]


def make_encoder():
    """One block of attention and MLP, each behind a normalisation and beside a shortcut."""
    keras.utils.set_random_seed(0)
    layers = keras.layers
    inputs = layers.Input((LENGTH, 2))
    x = layers.Dense(WIDTH, name="embedding")(inputs)
    normalized = layers.LayerNormalization(name="norm1")(x)
    # Without biases: a bias of the keys changes no output, so that its gradient is nothing but rounding.
    attention = layers.MultiHeadAttention(HEADS, WIDTH // HEADS, use_bias=False, name="attention")
    x = layers.Add()([x, attention(normalized, normalized)])
    normalized = layers.LayerNormalization(name="norm2")(x)
    hidden = layers.Dense(4 * WIDTH, activation="gelu", name="mlp_in")(normalized)
    x = layers.Add()([x, layers.Dense(WIDTH, name="mlp_out")(hidden)])
    return keras.Model(inputs, layers.Dense(1, name="answer")(layers.GlobalMaxPooling1D()(x)))


features, labels = make_examples(4_000, seed=0)
model, single = make_encoder(), make_encoder()


def make_trainer():
    """A trainer of `model` on the mesh; each begins with an optimizer of its own."""
    adam = keras.optimizers.Adam(4e-3)
    return tfmat.Trainer(model, loss="mse", optimizer=adam, backend=backend, quiet=True)


# Twenty steps, and the same on one device by Keras's own `fit`; a tf.data set has one order for both.
batches = tf.data.Dataset.from_tensor_slices((features[:2_000], labels[:2_000])).batch(100)
make_trainer().fit(batches, global_batch_size=100, train_for="20steps")
single.compile(keras.optimizers.Adam(4e-3), loss="mse")
single.fit(batches, verbose=0)
worst = max(
    np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)
    for ours, theirs in zip(model.get_weights(), single.get_weights(), strict=True)
)
print(f"after 20 steps the weights differ from one device's by {worst:.1e} of their norm")
print("bytes on each device:", backend.bytes_per_device())

trainer = make_trainer()
history = trainer.fit(features, labels, global_batch_size=100, train_for="5epochs").history
print(f"training loss {history['loss'][-1]:.4f} in the fifth epoch")
test = trainer.evaluate(*make_examples(1_000, seed=1))
print(f"test: mean squared error {test['loss']:.4f}, of the mean answer it would be 0.33")
