"""Metals that flow with time: relaxation, creep, and tension at a rate."""

from typing import ClassVar

import numpy as np

from tfmat.errors import InputError
from tfmat.materials.blocks import in_steps
from tfmat.materials.history import Array, History
from tfmat.materials.laboratories import HELD_METAL
from tfmat.materials.law import HistoryLaw
from tfmat.materials.parameter import Parameter
from tfmat.materials.viscoplastic_histories import Histories
from tfmat.materials.viscoplastic_steps import Specimens

# The parameters that the equations have, in the order of their columns.
_NAMES = ("E", "sigma0", "Q", "b", "K", "n")

_MODULUS = Parameter("E", "MPa", 35e3, 230e3, "log", "Young's modulus")
_DRAG = "overstress for a rate of 1/s"


class Perzyna(HistoryLaw):
    """Flow under the stress above a hardening yield stress; a specimen rests at any lower stress.

    Driven strain is answered by stress (relaxation, tension at a rate), driven stress by strain (creep). From point to
    point the plastic strain follows by two implicit stages of second order (R. Alexander, SIAM J. Numer. Anal. 14
    (1977) 1006-1021) while the specimen is loaded faster than it flows, else by an implicit Euler step; both are stable
    at any length and exact in steady flow. While strain or stress are held, the overstress decays as its differential
    equation does in closed form, with the step's mean hardening: the first point of a hold may come long after most of
    the overstress is gone.
    """

    name = "perzyna"
    title = "Perzyna 1966, with hardening after Voce"
    formula = (
        "dεp/dt = ⟨(|σ| − R)/K⟩ⁿ·sign σ,  R = σ0 + Q·(1 − exp(−b·p)),  dp = |dεp|,  σ = E·(ε − εp)"
    )
    source = (
        "P. Perzyna, Fundamental problems in viscoplasticity, Adv. Appl. Mech. 9 (1966) 243-377; "
        "J. Lemaitre, J.-L. Chaboche, Mechanics of Solid Materials, Cambridge (1990), chapter 6"
    )
    parameters: tuple[Parameter, ...] = (
        _MODULUS,
        Parameter("sigma0", "MPa", 0.0, 400.0, "linear", "initial yield stress σ0"),
        Parameter("Q", "MPa", 0.0, 300.0, "linear", "stress gained until saturation"),
        Parameter("b", "-", 1.0, 300.0, "log", "rate of saturation with plastic strain"),
        Parameter("K", "MPa s^(1/n)", 20.0, 1000.0, "log", _DRAG),
        Parameter("n", "-", 2.0, 20.0, "log", "exponent of the overstress"),
    )
    strain_measure = "true"
    stress_measure = "true"
    noise_mpa = 1.0
    rupture_strain = 0.2
    laboratory = HELD_METAL
    tests: ClassVar[tuple[str, ...]] = ("relaxation", "creep", "tension_at_rate", "tension_at_rate")
    # Columns of the parameters among those of the equations; the others are 0.
    _columns_of: ClassVar[tuple[int, ...]] = (0, 1, 2, 3, 4, 5)

    def respond(self, history: History, parameters: Array) -> Array:
        """See `Law.respond`."""
        return self._stepped(history, parameters, False)

    def sensitivities(self, history: History, parameters: Array) -> Array:
        """See `Law.sensitivities`; exact derivatives of every step."""
        return self._stepped(history, parameters, True)

    def solver(self, history: History) -> Histories:
        """See `Law.solver`."""
        self._told(history)
        return Histories(history, self._columns_of, len(_NAMES))

    def _stepped(self, history: History, parameters: Array, differentiate: bool) -> Array:
        self._told(history)
        chosen = list(self._columns_of)
        trailing = (len(chosen),) if differentiate else ()

        def specimens(parameters: Array) -> Specimens:
            columns = np.zeros((len(_NAMES), len(parameters)))
            columns[chosen] = parameters.T
            return Specimens(columns, history.strain is not None, chosen if differentiate else None)

        return in_steps(specimens, history, parameters, trailing)

    def _told(self, history: History) -> None:
        if history.time is None:
            raise InputError(f"law {self.name} asks for the time of every point of a test")


class Norton(Perzyna):
    """Flow at every stress: secondary creep. Perzyna's law without a yield stress."""

    name = "norton"
    title = "Norton 1929"
    formula = "dεp/dt = (|σ|/K)ⁿ·sign σ,  σ = E·(ε − εp)"
    source = "F. H. Norton, The Creep of Steel at High Temperatures, McGraw-Hill (1929)"
    parameters = (
        _MODULUS,
        Parameter("K", "MPa s^(1/n)", 200.0, 20e3, "log", "stress for a creep rate of 1/s"),
        Parameter("n", "-", 2.0, 12.0, "log", "creep exponent"),
    )
    tests = ("relaxation", "creep")
    _columns_of = (0, 4, 5)
