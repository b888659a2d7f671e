"""Linear viscoelasticity: a spring beside Maxwell elements whose relaxation times are known."""

import numpy as np

from tfmat.errors import InputError
from tfmat.materials.history import Array, History
from tfmat.materials.law import HistoryLaw, Parameter

# Specimens that are taken through their histories side by side: enough to hide what a call of NumPy costs.
_SPECIMENS = 2048
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
        Parameter("E_inf", "MPa", 1.0, 5000.0, "log", "modulus E∞ after all relaxation"),
        *(
            Parameter(f"E{i + 1}", "MPa", 1.0, 3000.0, "log", f"modulus that relaxes with τ{i + 1}")
            for i in range(_TERMS)
        ),
        *(
            Parameter(f"tau{i + 1}", "s", 1e-6, 1e9, "log", f"relaxation time τ{i + 1}", 10.0**i)
            for i in range(_TERMS)
        ),
    )
    strain_measure = "engineering"
    stress_measure = "engineering"
    noise_mpa = 0.2
    tests = ("relaxation",)

    def respond(self, history: History, parameters: Array) -> Array:
        """See `Law.respond`."""
        parameters = np.asarray(parameters, np.float64)
        driven, time = self._channels(history, len(parameters))
        out = np.empty(driven.T.shape)
        for block in _blocks(len(parameters)):
            long_term, moduli, times = _columns(parameters[block])
            held = np.zeros_like(moduli)
            strain = np.zeros_like(long_term)
            for point, (target, step) in enumerate(_steps(driven[:, block], time[:, block])):
                kept, gained = _decay(step / times)
                held *= kept
                if history.strain is None:
                    stiffness = long_term + (moduli * gained).sum(axis=0)
                    change = (target - held.sum(axis=0) - long_term * strain) / stiffness
                else:
                    change = target - strain
                held += moduli * gained * change
                strain = strain + change
                out[block, point] = (
                    strain if history.strain is None else long_term * strain + held.sum(axis=0)
                )
        return out

    def sensitivities(self, history: History, parameters: Array) -> Array:
        """See `Law.sensitivities`; exact where the strain is driven, since the same steps give the derivatives."""
        if history.strain is None:
            return super().sensitivities(history, parameters)
        parameters = np.asarray(parameters, np.float64)
        driven, time = self._channels(history, len(parameters))
        out = np.empty((*driven.T.shape, len(self.parameters)))
        for block in _blocks(len(parameters)):
            _, moduli, times = _columns(parameters[block])
            # What one element of modulus 1 holds, and its derivative by the element's relaxation time.
            held, by_time = np.zeros_like(moduli), np.zeros_like(moduli)
            strain = np.zeros(moduli.shape[1])
            for point, (target, step) in enumerate(_steps(driven[:, block], time[:, block])):
                share = step / times
                kept, gained = _decay(share)
                by_time = kept * by_time
                by_time += (kept * share * held + (gained - kept) * (target - strain)) / times
                held = kept * held + gained * (target - strain)
                strain = target
                out[block, point, 0] = strain
                out[block, point, 1 : 1 + _TERMS] = held.T
                out[block, point, 1 + _TERMS :] = (moduli * by_time).T
        return out

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

    def _channels(self, history: History, curves: int) -> tuple[Array, Array]:
        """What is driven, and the time: [points, curves] each."""
        if history.time is None:
            raise InputError(f"law {self.name} asks for the time of every point of a test")
        shape = curves, history.driven.shape[1]
        driven, time = (
            np.ascontiguousarray(np.broadcast_to(array, shape).T)
            for array in (history.driven, history.time)
        )
        return driven, time


def _blocks(curves: int) -> list[slice]:
    return [slice(first, min(first + _SPECIMENS, curves)) for first in range(0, curves, _SPECIMENS)]


def _columns(parameters: Array) -> tuple[Array, Array, Array]:
    """Long-term modulus [curves], moduli and relaxation times [terms, curves]."""
    columns = parameters.T
    return columns[0], columns[1 : 1 + _TERMS], columns[1 + _TERMS :]


def _steps(driven: Array, time: Array) -> zip:
    """Each point's driven value and the time since the one before, [curves] each; the first is reached at once."""
    return zip(driven, np.diff(time, axis=0, prepend=time[:1]), strict=True)


def _decay(share: Array) -> tuple[Array, Array]:
    """What a step of `share` relaxation times leaves of a stress, and of one that grows evenly during the step."""
    kept = np.exp(-share)
    gained = np.where(share > 0.0, -np.expm1(-share) / np.where(share > 0.0, share, 1.0), 1.0)
    return kept, gained
