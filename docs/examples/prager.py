"""Prager 1956: linear kinematic hardening, the shortest law of cyclic plasticity; a start for a cyclic law of your own.

tfmat laws docs/examples/prager.py:Prager
tfmat identify cyclic=cycles.csv --law=docs/examples/prager.py:Prager
"""

import numpy as np

from tfmat.materials import HistoryLaw, Parameter


class Prager(HistoryLaw):
    """Yield at |σ − C·εp| = σ0, in true stress and strain."""

    name = "prager"
    title = "Prager 1956 (linear kinematic hardening)"
    formula = "|σ − C·εp| = σ0"
    source = (
        "W. Prager, A new method of analyzing stresses and strains in work-hardening plastic solids, "
        "J. Applied Mechanics 23 (1956) 493-496"
    )
    parameters = (
        Parameter("E", "MPa", 150e3, 230e3, "log", "Young's modulus"),
        Parameter("sigma0", "MPa", 100.0, 600.0, "log", "yield stress σ0"),
        Parameter("C", "MPa", 1e2, 1e5, "log", "slope of the backstress over the plastic strain"),
    )
    strain_measure = "true"
    stress_measure = "true"
    tests = ("cyclic",)
    max_strain = (0.003, 0.1)

    def respond(self, history, parameters):
        """Stress at each point, [curves, points], MPa."""
        history = self.driven_strain(history)  # refuses a test that drives the stress
        modulus, yield_stress, slope = parameters.T  # each [curves]
        strain = np.broadcast_to(history.strain, (len(parameters), history.strain.shape[1]))
        plastic = np.zeros(len(parameters))
        stress = []
        for now in strain.T:
            beyond = modulus * (now - plastic) - slope * plastic  # elastic stress less backstress
            excess = np.maximum(np.abs(beyond) - yield_stress, 0.0)
            plastic = plastic + np.sign(beyond) * excess / (modulus + slope)
            stress.append(modulus * (now - plastic))
        return np.stack(stress, axis=1)
