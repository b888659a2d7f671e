# %% [markdown]
# # A posterior, and what it means
#
# A posterior says which sets of parameters explain the test, and how probable each is. Where a larger value of one
# parameter makes up for a smaller value of another, intervals alone say too little.

# %%
import matplotlib.pyplot as plt
import numpy as np

import tfmat
from tfmat.materials import find_law

# A short tension test: it ends long before the steel saturates.
law = find_law("voce")
strain = np.concatenate([np.linspace(0, 0.003, 30)[1:], np.linspace(0.0035, 0.04, 100)])
stress = law.stress(strain[None], np.array([[205e3, 310.0, 260.0, 11.0]]))[0]
stress += np.random.default_rng(0).normal(0, 1.0, len(stress))

# %% [markdown]
# ## Draw it
#
# `fixed` is a value that you know, here Young's modulus.

# %%
measures = {"strain_measure": "true", "stress_measure": "true"}
answer = tfmat.identify(strain, stress, law="voce", fixed={"E": 205e3}, samples=2000, **measures)
posterior = answer.samples
print("status:", answer.posterior.certificate.status)
lows, highs = np.quantile(posterior.values, [0.025, 0.975], axis=0)
for name, unit, low, high in zip(posterior.names, posterior.units, lows, highs, strict=True):
    print(f"{name:7} 95 %: {low:.4g} to {high:.4g} {unit}")

# %% [markdown]
# The status says how the samples were checked: with `corrected`, `resampled` and `chains` they can be used. The
# intervals of Q and b are wide, because the test ends far from saturation.
#
# ## What the intervals hide
#
# Q and b lie on a narrow, bent line: a large Q goes with a small b. Their product, the slope at first yield, is known
# well.

# %%
gain, rate = (posterior.values[:, posterior.names.index(name)] for name in ("Q", "b"))
figure, axis = plt.subplots(figsize=(5, 4))
axis.plot(gain, rate, ".", markersize=2)
axis.set(xlabel="Q [MPa]", ylabel="b")
plt.show()
for name, values in {"Q": gain, "b": rate, "Q b": gain * rate}.items():
    print(f"{name:4} spreads by {100 * values.std() / values.mean():.1f} %")

# %% [markdown]
# ## What it means for a part
#
# Each sample is one possible material. A result of a simulation is computed for some of them, and its spread is what
# the test leaves open. Here the result is the stress at three strains. The test ended at 0.04.

# %%
chosen = posterior.values[:500]
known = np.full((len(chosen), 1), 205e3)
for at in (0.02, 0.04, 0.2):
    found = law.stress(np.full((1, 1), at), np.hstack([known, chosen]))[:, 0]
    low, high = np.quantile(found, [0.025, 0.975])
    print(f"stress at a strain of {at:4}: {low:.0f} to {high:.0f} MPa")

# %% [markdown]
# Inside the test the stress is known to a few MPa, although Q alone is not. Far beyond it the spread grows.
# The spread assumes this law; another one may go elsewhere.
