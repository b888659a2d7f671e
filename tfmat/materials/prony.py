"""Linear viscoelasticity: a spring beside Maxwell elements whose relaxation times are known."""

import numpy as np

from tfmat.errors import InputError
from tfmat.materials.blocks import in_steps
from tfmat.materials.history import Array, History
from tfmat.materials.laboratories import HELD_POLYMER
from tfmat.materials.law import HistoryLaw
from tfmat.materials.parameter import Parameter

_TERMS = 5


class Prony(HistoryLaw):
    """A Prony series with a relaxation time every decade from 1 s to 10,000 s; `fixed.tau1` and so on set others.

    With known times the stress is linear in the moduli, so that non-negative least squares (C. L. Lawson,
    R. J. Hanson, Solving Least Squares Problems, 1974) finds the best fit of a driven strain at once and for certain.
    It is the baseline here, and no network will be better; what a network adds are intervals.

    The integration is exact for strain that is linear between the points. A driven stress is answered by the strain
    that is linear between the points and gives that stress at each.
    """

    name = "prony"
    title = "Prony series"
    formula = "σ = E∞·ε + Σ hi,  dhi/dt = Ei·dε/dt − hi/τi,  i = 1…5"
    source = (
        "R. L. Taylor, K. S. Pister, G. L. Goudreau, Thermomechanical analysis of viscoelastic solids, "
        "Int. J. Numer. Meth. Eng. 2 (1970) 45-59"
    )
    parameters = (
        Parameter("E_inf", "MPa", 10.0, 5000.0, "log", "modulus E∞ after all relaxation"),
        *(
            Parameter(
                f"E{i + 1}", "MPa", 10.0, 3000.0, "log", f"modulus that relaxes with τ{i + 1}"
            )
            for i in range(_TERMS)
        ),
        *(
            Parameter(f"tau{i + 1}", "s", 1e-6, 1e9, "log", f"relaxation time τ{i + 1}", 10.0**i)
            for i in range(_TERMS)
        ),
    )
    strain_measure = "engineering"
    stress_measure = "engineering"
    noise_mpa = 0.05
    laboratory = HELD_POLYMER
    tests = ("relaxation",)

    def respond(self, history: History, parameters: Array) -> Array:
        """See `Law.respond`."""
        kind = _UnderStrain if history.stress is None else _UnderStress
        return in_steps(kind, self._timed(history), parameters)

    def sensitivities(self, history: History, parameters: Array) -> Array:
        """See `Law.sensitivities`; exact where the strain is driven, since the same steps give the derivatives."""
        if history.strain is None:
            return super().sensitivities(history, parameters)
        return in_steps(_Tangents, self._timed(history), parameters, (len(self.parameters),))

    def relaxation_modulus(self, time: Array, parameters: Array) -> Array:
        """Stress over a strain that is applied at once, MPa, at time [times] after: [curves, times]."""
        long_term, moduli, times = _columns(np.asarray(parameters, np.float64))
        decays = np.exp(-np.asarray(time)[:, None, None] / times)
        return np.asarray((long_term + (moduli * decays).sum(axis=1)).T)

    def dynamic_moduli(self, frequency: Array, parameters: Array) -> tuple[Array, Array]:
        """Storage and loss modulus in MPa at an angular frequency [frequencies] in rad/s: [curves, frequencies] each.

        J. D. Ferry, Viscoelastic Properties of Polymers, Wiley (1980), chapter 3.
        """
        long_term, moduli, times = _columns(np.asarray(parameters, np.float64))
        turned = np.asarray(frequency)[:, None, None] * times
        storage = long_term + (moduli * turned**2 / (1.0 + turned**2)).sum(axis=1)
        loss = (moduli * turned / (1.0 + turned**2)).sum(axis=1)
        return np.asarray(storage.T), np.asarray(loss.T)

    def _timed(self, history: History) -> History:
        if history.time is None:
            raise InputError(f"law {self.name} asks for the time of every point of a test")
        return history


class _UnderStrain:
    """Specimens side by side whose strain is driven: what each element holds, and the strain."""

    def __init__(self, parameters: Array):
        self.long_term, self.moduli, self.times = _columns(parameters)
        self.held = np.zeros_like(self.moduli)
        self.strain = np.zeros_like(self.long_term)

    def advance(self, increment: Array, duration: Array) -> Array:
        """See `tfmat.materials.blocks.Specimens`; the stress."""
        kept, gained = _decay(duration / self.times)
        self.held = self.held * kept + self.moduli * gained * increment
        self.strain = self.strain + increment
        return np.asarray(self.long_term * self.strain + self.held.sum(axis=0))


class _UnderStress(_UnderStrain):
    """The same whose stress is driven."""

    def __init__(self, parameters: Array):
        super().__init__(parameters)
        self.stress = np.zeros_like(self.long_term)

    def advance(self, increment: Array, duration: Array) -> Array:
        """See `tfmat.materials.blocks.Specimens`; the strain."""
        kept, gained = _decay(duration / self.times)
        self.stress = self.stress + increment
        stiffness = self.long_term + (self.moduli * gained).sum(axis=0)
        before = self.long_term * self.strain + (kept * self.held).sum(axis=0)
        super().advance((self.stress - before) / stiffness, duration)
        return self.strain


class _Tangents(_UnderStrain):
    """Elements of modulus 1 under a driven strain: what they hold, and its derivatives by their relaxation times."""

    def __init__(self, parameters: Array):
        super().__init__(parameters)
        self.by_time = np.zeros_like(self.moduli)

    def advance(self, increment: Array, duration: Array) -> Array:
        """See `tfmat.materials.blocks.Specimens`; the derivatives of the stress by every parameter."""
        share = duration / self.times
        kept, gained = _decay(share)
        self.by_time = kept * self.by_time
        self.by_time += (kept * share * self.held + (gained - kept) * increment) / self.times
        self.held = kept * self.held + gained * increment
        self.strain = self.strain + increment
        return np.concatenate([self.strain[None], self.held, self.moduli * self.by_time])


def _columns(parameters: Array) -> tuple[Array, Array, Array]:
    """Long-term modulus [curves], moduli and relaxation times [terms, curves]."""
    columns = parameters.T
    return columns[0], columns[1 : 1 + _TERMS], columns[1 + _TERMS :]


def _decay(share: Array) -> tuple[Array, Array]:
    """What a step of `share` relaxation times leaves of a stress, and of one that grows evenly during the step."""
    kept = np.exp(-share)
    gained = np.where(share > 0.0, -np.expm1(-share) / np.where(share > 0.0, share, 1.0), 1.0)
    return kept, gained
