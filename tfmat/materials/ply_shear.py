"""In-plane shear of a fibre-reinforced ply with unloading and reversal: permanent strain, and damage of the matrix."""

import abc
from typing import ClassVar

import numpy as np

from tfmat.materials.blocks import in_steps
from tfmat.materials.history import Array, History
from tfmat.materials.laboratories import PLY_SHEAR
from tfmat.materials.law import HistoryLaw
from tfmat.materials.parameter import Parameter

# Newton's error goes down with its square: after a step of this relative size it is below rounding.
_TOLERANCE = 1e-9
_MOST_STEPS = 100
# The stress at which the permanent strain of `ramberg_osgood_shear` is a parameter, MPa.
_REFERENCE = 50.0
_TINY = 1e-300
_MODULUS = Parameter("G0", "MPa", 2000.0, 8000.0, "linear", "initial shear modulus")


class _PlyShear(HistoryLaw):
    """Elastic-plastic shear with isotropic hardening, given by the plastic strain's path over the yield stress.

    All stresses are effective ones, those that the undamaged part of the section carries. `columns` are the parameters
    after G0, each [curves].
    """

    strain_measure = "engineering shear"
    stress_measure = "shear"
    modes = ("shear",)
    laboratory = PLY_SHEAR
    max_strain = (0.02, 0.10)
    tests = ("cyclic_shear",)
    # The column of the initial yield stress; None where plastic strain begins with the first stress.
    first_yield: ClassVar[int | None] = None

    @abc.abstractmethod
    def yield_stress(self, path: Array, columns: Array) -> Array:
        """Yield stress (MPa) after a plastic strain of so long a path [curves]."""

    @abc.abstractmethod
    def path(self, stress: Array, columns: Array) -> tuple[Array, Array]:
        """The inverse of `yield_stress`, convex, and its derivative by the stress in 1/MPa; each [curves]."""

    @abc.abstractmethod
    def path_derivatives(self, stress: Array, columns: Array) -> Array:
        """Derivatives of the path by the columns at fixed stress: [columns, curves]."""

    def damage(self, peak: Array, columns: Array) -> Array | None:
        """Damage after the largest effective stress `peak` [curves], MPa; None for a law without damage."""
        return None

    def damage_derivatives(self, peak: Array, columns: Array) -> tuple[Array, Array]:
        """Derivatives of the damage: by the peak [curves], 1/MPa, and by the columns, [columns, curves]."""
        raise NotImplementedError

    def respond(self, history: History, parameters: Array) -> Array:
        """See `Law.respond`; the strain must be driven."""
        return in_steps(
            lambda block: _Specimens(self, block), self.driven_strain(history), parameters
        )

    def sensitivities(self, history: History, parameters: Array) -> Array:
        """See `Law.sensitivities`; exact: the converged steps differentiated one after the other."""
        count = (len(self.parameters),)
        return in_steps(
            lambda block: _Tangents(self, block), self.driven_strain(history), parameters, count
        )


class RambergOsgoodShear(_PlyShear):
    """Ramberg-Osgood curve along which the ply yields from the first stress on; unloads with G0, also into reversal.

    NASA's CompDam has it with a = G0 γ50 / 50ⁿ: γ = τ/G0 + (a/G0) |τ|ⁿ. IM7/8552: G0 5290 MPa, γ50 0.00101, n 5.93.
    """

    name = "ramberg_osgood_shear"
    title = "Ramberg–Osgood shear with permanent strain"
    formula = "γ = τ/G0 + γp,  |τ| ≤ 50 MPa·(p/γ50)^(1/n),  dp = |dγp|"
    source = (
        "W. Ramberg, W. R. Osgood, NACA Technical Note 902 (1943), in shear and with reversal as in NASA's CompDam: "
        "A. C. Bergan, F. A. Leone, A continuum damage mechanics model to simulate kink-band propagation, "
        "American Society for Composites (2016)"
    )
    parameters = (
        _MODULUS,
        Parameter("gamma50", "-", 2e-4, 1e-2, "log", "permanent strain after 50 MPa, γ50"),
        Parameter("n", "-", 3.0, 8.0, "linear", "exponent; high is a sharp knee"),
    )

    def yield_stress(self, path: Array, columns: Array) -> Array:
        """See `_PlyShear.yield_stress`."""
        permanent, exponent = columns
        return _REFERENCE * np.power(path / permanent, 1.0 / exponent)

    def path(self, stress: Array, columns: Array) -> tuple[Array, Array]:
        """See `_PlyShear.path`."""
        permanent, exponent = columns
        ratio = np.maximum(stress, _TINY) / _REFERENCE
        path = permanent * np.power(ratio, exponent)
        return path, path * exponent / (ratio * _REFERENCE)

    def path_derivatives(self, stress: Array, columns: Array) -> Array:
        """See `_PlyShear.path_derivatives`."""
        permanent, exponent = columns
        ratio = np.maximum(stress, _TINY) / _REFERENCE
        power = np.power(ratio, exponent)
        return np.stack([power, permanent * power * np.log(ratio)])


class LadevezeShear(_PlyShear):
    """Plasticity and damage of the matrix: unloading is softer than the first loading and leaves a permanent strain.

    A monotonic curve does not tell damage from plasticity. Abaqus' ABQ_PLY_FABRIC has the same equations; its
    hardening counts the tensor's plastic strain, half of γp, so its C is 2^m times this one.
    """

    name = "ladeveze_shear"
    title = "Ladevèze shear with damage and permanent strain"
    formula = (
        "τ = (1 − d)·τe,  τe = G0·(γ − γp),  |τe| ≤ τy + C·p^m,  d = min(α·ln(max|τe|/S0), dmax)"
    )
    source = (
        "P. Ladevèze, E. Le Dantec, Damage modelling of the elementary ply for laminated composites, Composites Sci. "
        "Tech. 43 (1992) 257-267; logarithmic damage: A. F. Johnson, Modelling fabric reinforced composites under "
        "impact loads, Composites A 32 (2001) 1197-1206"
    )
    parameters = (
        Parameter("G0", "MPa", 2000.0, 7000.0, "linear", "initial shear modulus"),
        Parameter("tau_y", "MPa", 10.0, 60.0, "linear", "initial yield stress τy"),
        Parameter("C", "MPa", 100.0, 1500.0, "log", "hardening at a plastic strain of 1"),
        Parameter("m", "-", 0.2, 0.8, "linear", "hardening exponent"),
        Parameter("alpha", "-", 0.05, 0.4, "linear", "damage for e-fold effective stress, α"),
        Parameter("S0", "MPa", 10.0, 60.0, "linear", "effective stress at which damage begins"),
        Parameter("dmax", "-", 0.5, 1.0, "linear", "largest damage"),
    )

    first_yield = 0

    def yield_stress(self, path: Array, columns: Array) -> Array:
        """See `_PlyShear.yield_stress`."""
        return columns[0] + columns[1] * np.power(path, columns[2])

    def path(self, stress: Array, columns: Array) -> tuple[Array, Array]:
        """See `_PlyShear.path`."""
        initial, hardening, exponent = columns[:3]
        ratio = np.maximum(stress - initial, _TINY) / hardening
        path = np.power(ratio, 1.0 / exponent)
        return path, path / (exponent * ratio * hardening)

    def path_derivatives(self, stress: Array, columns: Array) -> Array:
        """See `_PlyShear.path_derivatives`."""
        initial, hardening, exponent = columns[:3]
        path, slope = self.path(stress, columns)
        ratio = np.maximum(stress - initial, _TINY) / hardening
        found = np.zeros_like(columns)
        found[:3] = -slope, -slope * ratio, -path * np.log(ratio) / exponent**2
        return found

    def damage(self, peak: Array, columns: Array) -> Array:
        """See `_PlyShear.damage`."""
        *_, rate, threshold, most = columns
        return np.minimum(rate * np.log(np.maximum(peak / threshold, 1.0)), most)

    def damage_derivatives(self, peak: Array, columns: Array) -> tuple[Array, Array]:
        """See `_PlyShear.damage_derivatives`."""
        *_, rate, threshold, most = columns
        damage = self.damage(peak, columns)
        grows = (damage > 0.0) & (damage < most)
        by_columns = np.zeros_like(columns)
        np.copyto(by_columns[-3], damage / rate, where=grows)
        np.copyto(by_columns[-2], -rate / threshold, where=grows)
        by_columns[-1] = damage >= most
        return np.where(grows, rate / np.maximum(peak, _TINY), 0.0), by_columns


class _Specimens:
    """The state of a block of plies; `advance` takes all of them through one increment of strain.

    With isotropic hardening the yield stress is the largest stress so far, and the path of the plastic strain follows
    from it.
    """

    def __init__(self, law: _PlyShear, parameters: Array):
        """Plies at rest; parameters [specimens, parameters]."""
        self.law = law
        self.modulus, *others = np.ascontiguousarray(parameters.T)
        self.columns = np.stack(others)
        self.stress = np.zeros_like(self.modulus)
        self.peak = np.zeros_like(self.modulus)
        first = law.first_yield
        self.radius = self.peak.copy() if first is None else self.columns[first].copy()

    def advance(self, increment: Array, duration: Array) -> Array:
        """Stress after a further strain `increment` [specimens] (or [1]): [specimens], MPa."""
        trial = self.stress + self.modulus * increment
        size = np.abs(trial)
        if (size > self.radius).any():
            self.flow(trial, size)
        else:
            self.stress = trial
        np.maximum(self.peak, np.abs(self.stress), out=self.peak)
        return self.result()

    def result(self) -> Array:
        """What the machine feels."""
        damage = self.law.damage(self.peak, self.columns)
        return self.stress if damage is None else (1.0 - damage) * self.stress

    def flow(self, trial: Array, size: Array) -> None:
        """An increment that is plastic in some specimens."""
        self.radius = self.solve(size)
        self.stress = np.copysign(np.minimum(size, self.radius), trial)

    def solve(self, size: Array) -> Array:
        """The new yield stress s [specimens], root of s + G0 p(s) = |trial stress| + G0 p(old s).

        The left side rises and is convex: Newton's steps from any upper bound come down to the root. The smallest of
        three is taken: no further plastic strain, nothing but plastic strain, and the tangent at the old yield stress.
        """
        path, slope = self.law.path(self.radius, self.columns)
        target = np.maximum(size, self.radius)
        tangent = self.radius + (target - self.radius) / (1.0 + self.modulus * slope)
        bound = self.law.yield_stress(path + target / self.modulus, self.columns)
        found = np.minimum(np.minimum(target, bound), tangent)
        target += self.modulus * path
        for _ in range(_MOST_STEPS):
            path, slope = self.law.path(found, self.columns)
            step = (found + self.modulus * path - target) / (1.0 + self.modulus * slope)
            found = np.maximum(found - step, self.radius)
            if (np.abs(step) <= _TOLERANCE * found).all():
                break
        return found


class _Tangents(_Specimens):
    """Plies that also carry the derivatives of stress, yield stress and largest stress by every parameter."""

    def __init__(self, law: _PlyShear, parameters: Array):
        """See `_Specimens`."""
        super().__init__(law, parameters)
        self.by_stress, self.by_peak, self.by_radius = np.zeros((3, *parameters.T.shape))
        if law.first_yield is not None:
            self.by_radius[1 + law.first_yield] = 1.0

    def advance(self, increment: Array, duration: Array) -> Array:
        """The derivatives after a further strain `increment`: [parameters, specimens], MPa per unit."""
        self.by_stress[0] += increment
        return super().advance(increment, duration)

    def flow(self, trial: Array, size: Array) -> None:
        """See `_Specimens.flow`; the derivative of the equation that `solve` solves."""
        before, plastic = self.radius, size > self.radius
        super().flow(trial, size)
        side = np.copysign(1.0, trial)
        change = -self._path_by_parameters(self.radius)
        change += self._path_by_parameters(before)
        slope_before, slope = (self.law.path(s, self.columns)[1] for s in (before, self.radius))
        change += self.modulus * slope_before * self.by_radius
        change += side * self.by_stress
        change /= 1.0 + self.modulus * slope
        np.copyto(self.by_radius, change, where=plastic)
        np.copyto(self.by_stress, side * change, where=plastic)

    def _path_by_parameters(self, radius: Array) -> Array:
        """Derivatives of G0 p(s) at fixed stress, [parameters, specimens]."""
        path, _ = self.law.path(radius, self.columns)
        by_columns = self.law.path_derivatives(radius, self.columns)
        return np.concatenate([path[None], self.modulus * by_columns])

    def result(self) -> Array:
        """The derivatives of what the machine feels."""
        np.copyto(
            self.by_peak,
            np.sign(self.stress) * self.by_stress,
            where=np.abs(self.stress) >= self.peak,
        )
        damage = self.law.damage(self.peak, self.columns)
        if damage is None:
            return self.by_stress
        by_peak, by_columns = self.law.damage_derivatives(self.peak, self.columns)
        derivatives = (1.0 - damage) * self.by_stress - self.stress * by_peak * self.by_peak
        derivatives[1:] -= self.stress * by_columns
        return derivatives
