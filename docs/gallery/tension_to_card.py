# %% [markdown]
# # A tension test becomes an Abaqus card
#
# A testing machine exports force and elongation. This page writes such an export, identifies a law from it, and writes
# the card. Replace the first cell by a file of your own.

# %%
import pathlib

import matplotlib.pyplot as plt
import numpy as np

import tfmat
from tfmat.materials import find_law

# Steel of 50 mm gauge length and 60 mm² section, with noise of the load cell.
law = find_law("voce")
true_strain = np.concatenate([np.linspace(0, 0.003, 30), np.linspace(0.0035, 0.16, 170)])
true_stress = law.stress(true_strain[None], np.array([[205e3, 310.0, 260.0, 11.0]]))[0]
true_stress += np.random.default_rng(0).normal(0, 1.0, len(true_stress))
elongation, force = 50 * np.expm1(true_strain), 60 * true_stress * np.exp(-true_strain)
rows = [f"{e:.5f};{f / 1000:.5f}" for e, f in zip(elongation, force, strict=True)]
pathlib.Path("specimen.csv").write_text("\n".join(["Elongation [mm];Load [kN]", *rows]))

# %% [markdown]
# ## Identify
#
# The units stand in the header. Section and gauge length are yours to give. Without `law=` the laws for a tension test
# are ranked, and the best one answers.

# %%
(answer,) = tfmat.identify("specimen.csv", law="voce", area=60.0, gauge_length=50.0)
for name, parameter in answer.parameters.items():
    low, high = parameter.ci95
    print(f"{name:7} {parameter.value:10.4g} {parameter.unit:4} 95 %: {low:.4g} to {high:.4g}")
print("do not use:" if answer.do_not_use else "may be used", *answer.do_not_use)
for warning in answer.warnings:
    print("warning:", warning.text)

# %% [markdown]
# ## Look at it
#
# The law follows the test where the residuals scatter around zero. A bow would say that the law is another one.

# %%
strain, stress = answer.curve.strain, answer.curve.stress_mpa
values = np.array([[parameter.value for parameter in answer.parameters.values()]])
figure, (above, below) = plt.subplots(2, 1, height_ratios=[3, 1], sharex=True, figsize=(7, 5))
above.plot(strain, stress, ".", label="measured")
above.plot(strain, answer.law.stress(strain[None], values)[0], label=answer.law.title)
above.set_ylabel("true stress [MPa]")
above.legend()
below.plot(strain, stress - answer.law.stress(strain[None], values)[0], ".")
below.set(xlabel="true strain", ylabel="residual [MPa]")
plt.show()

# %% [markdown]
# ## The card
#
# Its head says where the numbers come from and what is assumed. Rows beyond the tested strain are the law's
# extrapolation.

# %%
card = answer.card("abaqus")
pathlib.Path("specimen.inp").write_text(card)
print(*card.splitlines()[:28], "...", sep="\n")
