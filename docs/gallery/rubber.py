# %% [markdown]
# # Rubber in three tests
#
# One test of rubber does not tell how it answers in another. So it is pulled in three ways: `uniaxial`, `equibiaxial`
# (a sheet along two axes) and `planar` (a wide strip, or pure shear).

# %%
import matplotlib.pyplot as plt
import numpy as np

import tfmat
from tfmat.materials import History, find_law

# Records of a rubber after Mooney and Rivlin with 1 % noise; yours are files, as in `tests["uniaxial"] = "UT.txt"`.
rubber = find_law("mooney_rivlin")
truth = np.array([[0.15, 0.03]])
random = np.random.default_rng(0)
tests = {}
for mode, largest in {"uniaxial": 1.5, "equibiaxial": 1.0, "planar": 1.2}.items():
    strain = np.linspace(0.02, largest, 40)
    stress = rubber.respond(History(mode, strain=strain[None]), truth)[0]
    tests[mode] = (strain, stress * (1 + random.normal(0, 0.01, 40)))

# %% [markdown]
# ## One test alone
#
# The law follows it closely. A larger C10 makes up for a smaller C01, so the interval of C01 is wide.


# %%
def show(answer):
    for name, parameter in answer.parameters.items():
        low, high = parameter.ci95
        print(f"{name} {parameter.value:8.4g} {parameter.unit}  95 %: {low:.4g} to {high:.4g}")
    print("do not use:" if answer.do_not_use else "may be used", *answer.do_not_use)
    for warning in answer.warnings:
        print("warning:", warning.text)


alone = tfmat.identify({"uniaxial": tests["uniaxial"]}, law="mooney_rivlin")
show(alone)

# %% [markdown]
# ## All three
#
# Now each constant is known to a few per cent.

# %%
answer = tfmat.identify(tests, law="mooney_rivlin")
show(answer)

# %%
figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
for axis, (mode, (strain, stress)) in zip(axes, tests.items(), strict=True):
    axis.plot(strain, stress, ".", label="measured")
    for found, label in ((answer, "from all three"), (alone, "from uniaxial")):
        values = np.array([[parameter.value for parameter in found.parameters.values()]])
        axis.plot(
            strain, rubber.respond(History(mode, strain=strain[None]), values)[0], label=label
        )
    axis.set(title=mode, xlabel="stretch - 1", ylim=(0, 1.3 * stress.max()))
axes[0].set_ylabel("nominal stress [MPa]")
axes[0].legend()
plt.show()

# %% [markdown]
# ## The card
#
# Solvers need a bulk modulus, too. It follows from Poisson's ratio, which the tests do not tell.

# %%
print(answer.card("abaqus"))
