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
random = np.random.default_rng(0)
rows = np.stack([random.permutation(4_000)[:100] for _ in range(20)]).astype("int32")

# Both before the first step, whose graph is then compiled once.
model, single = make_encoder(), make_encoder()
steps = tfmat.ParallelSteps(
    model, keras.optimizers.Adam(4e-3), "mse", backend, metrics={"mae": "mae"}
)
data = steps.place(features, labels)
steps.train(*data, rows)  # many steps in one call
steps.sync_model()

# The same twenty steps on one device, in Keras's own loop.
single.compile(keras.optimizers.Adam(4e-3), loss="mse")
for batch in rows:
    single.train_on_batch(features[batch], labels[batch])
worst = max(
    np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)
    for ours, theirs in zip(model.get_weights(), single.get_weights(), strict=True)
)
print(f"after 20 steps the weights differ from one device's by {worst:.1e} of their norm")
print("bytes on each device:", steps.bytes_per_device())

for _ in range(9):
    rows = np.stack([random.permutation(4_000)[:100] for _ in range(20)]).astype("int32")
    results = steps.train(*data, rows)
print(f"training loss {results['loss'].mean():.4f} after 200 steps")
test = steps.evaluate(*make_examples(1_000, seed=1))
print(f"test: mean squared error {test['loss']:.4f}, of the mean answer it would be 0.33")
