# %% [markdown]
# # Train a network, then tune it
#
# Two small runs show what the commands give. A useful network takes minutes, not seconds.

# %%
import json
import pathlib
import subprocess


def run(command):
    """Runs a command of the shell."""
    return subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout


# %% [markdown]
# ## Train
#
# A config file says what is trained and for how long. Curves are simulated, the network is trained, and a page on the
# run is written.

# %%
pathlib.Path("small.py").write_text("""
from tfmat.config import default_config
from tfmat.tuning import Choice, Float, Search


def get_config():
    config = default_config()  # the shear of a ply, hahn_tsai
    config.data.num_curves = 1000
    config.data.num_test = 100
    config.global_batch_size = 100
    config.train_for = "3epochs"
    return config


def get_search():  # of `tfmat tune`, below
    return Search(
        space={
            "optimizer.learning_rate": Float(1e-4, 3e-2, scale="log"),
            "global_batch_size": Choice(50, 100),
        },
        algorithm="random",
        max_trials=2,
    )
""")
run("tfmat train --config=small.py --workdir=runs/small")
lines = pathlib.Path("runs/small/metrics.jsonl").read_text().splitlines()
rows = [json.loads(line) for line in lines]
rows = [row for row in rows if "val_loss" in row]
for row in rows:
    print(f"epoch {row['epoch']}: validation loss {row['val_loss']:.4f}")

# %% [markdown]
# ## Tune
#
# `get_search` says which keys of the config are varied. Each trial is an ordinary run with a folder of its own.

# %%
run("tfmat tune --config=small.py --workdir=runs/tune")
print(run("tfmat tune --status --workdir=runs/tune"))

# %% [markdown]
# `tfmat train --config=runs/tune/best.py` trains with what was found. `tfmat scale` then measures what more processors
# would buy; its study takes minutes.
