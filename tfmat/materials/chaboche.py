"""Voce-Chaboche: cyclic plasticity of metals with saturating isotropic hardening and one to three backstresses."""

import numpy as np

from tfmat.materials.blocks import in_steps
from tfmat.materials.history import Array, History
from tfmat.materials.laboratories import METAL_CYCLIC
from tfmat.materials.law import HistoryLaw
from tfmat.materials.parameter import Parameter

# Halley's method cubes the error of rate times plastic increment: after a step of this size it is below rounding.
_TOLERANCE = 1e-4
_MOST_STEPS = 100
# Along the first axis. Few specimens take the time of the calls themselves, and an array's own methods are the slower.
_sum = np.add.reduce


class _VoceChaboche(HistoryLaw):
    """Yield at |σ − Σ αk| = σ0 + Q(1 − exp(−b p)), in true stress and strain; p is the path of the plastic strain."""

    source = (
        "J.-L. Chaboche, K. Dang Van, G. Cordier, Modelization of the strain memory effect on the cyclic hardening of "
        "316 stainless steel, SMiRT-5 (1979) L11/3; with Voce's isotropic hardening: A. R. Hartloper, A. de Castro e "
        "Sousa, D. G. Lignos, Constitutive modeling of structural steels, J. Struct. Eng. 147 (2021) 04021031"
    )
    strain_measure = "true"
    stress_measure = "true"
    strain_spacing = 2.0
    max_strain = (0.003, 0.1)
    max_strain_scale = "log"
    laboratory = METAL_CYCLIC
    tests = ("cyclic",)

    def respond(self, history: History, parameters: Array) -> Array:
        """See `Law.respond`; the strain must be driven."""
        return in_steps(_Specimens, self.driven_strain(history), parameters)

    def sensitivities(self, history: History, parameters: Array) -> Array:
        """See `Law.sensitivities`; exact: the converged steps differentiated one after the other."""
        return in_steps(_Tangents, self.driven_strain(history), parameters, (len(self.parameters),))


def _parameters(backstresses: int) -> tuple[Parameter, ...]:
    """Ranges of structural steel; of several backstresses the first saturates soonest."""
    numbers = range(1, backstresses + 1)
    terms = [
        (
            Parameter(f"C{k}", "MPa", 1e2, 1e5, "log", f"initial slope of backstress {k}"),
            Parameter(f"gamma{k}", "-", 1.0, 1000.0, "log", f"rate of backstress {k}, γ{k}"),
        )
        for k in numbers
    ]
    return (
        Parameter("E", "MPa", 150e3, 230e3, "log", "Young's modulus"),
        Parameter("sigma0", "MPa", 100.0, 600.0, "log", "initial yield stress σ0"),
        Parameter("Q", "MPa", 1.0, 400.0, "log", "isotropic hardening until saturation"),
        Parameter("b", "-", 0.5, 50.0, "log", "rate of isotropic hardening"),
        *(parameter for term in terms for parameter in term),
    )


def _formula(backstresses: int) -> str:
    total = " − ".join(f"α{k}" for k in range(1, backstresses + 1))
    return f"|σ − {total}| = σ0 + Q·(1 − exp(−b·p)),  dαk = Ck·dεp − γk·αk·dp,  dσ = E·(dε − dεp)"


class VoceChaboche1(_VoceChaboche):
    """One backstress: the loop's ends curve at one rate."""

    name = "voce_chaboche_1"
    title = "Voce–Chaboche, one backstress"
    formula = _formula(1)
    parameters = _parameters(1)


class VoceChaboche(_VoceChaboche):
    """Two backstresses, the usual choice for structural steel."""

    name = "voce_chaboche"
    title = "Voce–Chaboche, two backstresses"
    formula = _formula(2)
    parameters = _parameters(2)
    interchangeable = (("gamma1", "C1"), ("gamma2", "C2"))


class VoceChaboche3(_VoceChaboche):
    """Three backstresses: sharp yield, knee and slow hardening apart; one test seldom tells all ten parameters."""

    name = "voce_chaboche_3"
    title = "Voce–Chaboche, three backstresses"
    formula = _formula(3)
    parameters = _parameters(3)
    interchangeable = (("gamma1", "C1"), ("gamma2", "C2"), ("gamma3", "C3"))


class _Specimens:
    """The state of a block of specimens; `advance` takes all of them through one increment of strain.

    Within an increment the plastic strain flows in one direction d, and every term comes nearer to its saturation,
    exponentially with the amount x of plastic strain. With the distances vj from saturation (the part of Q not yet
    gained; Ck/γk − d αk for each backstress) and their rates λj (b; γk) the end of the increment is the root of

        r(x) = d (σ + E Δε − Σ αk) − (σ0 + Q − v0) − E x − Σ vj (1 − exp(−λj x)),

    which falls and is convex, so that steps from x = 0 stay below the root; they are Halley's. Distances are taken anew
    from the backstresses in every increment: Ck/γk may be a thousand times the stress, whose digits it would cost.
    Arrays are [terms, specimens] and [specimens].
    """

    def __init__(self, parameters: Array):
        """Specimens at rest; parameters [specimens, 4 + 2 backstresses]."""
        columns = np.ascontiguousarray(parameters.T)
        self.modulus, first_yield, gain, rate = columns[:4]
        self.saturation = columns[4::2] / columns[5::2]
        self.rates = np.concatenate([rate[None], columns[5::2]])
        self.fastest = self.rates.max(axis=0)
        self.top = first_yield + gain
        self.distances = np.concatenate([gain[None], self.saturation])
        self.backstresses = np.zeros_like(self.saturation)
        self.stress = np.zeros(len(parameters))
        self.direction = np.ones(len(parameters))

    def advance(self, increment: Array, duration: Array) -> Array:
        """Stress after a further strain `increment` [specimens] (or [1]): [specimens], MPa."""
        trial = increment * self.modulus
        trial += self.stress
        relative = trial - _sum(self.backstresses)
        self.direction = np.copysign(1.0, relative)
        excess = np.abs(relative, out=relative)
        excess -= self.top
        excess += self.distances[0]
        plastic = excess > 0.0
        if np.logical_or.reduce(plastic):
            self.flow(trial, excess, plastic)
        else:
            self.stress = trial
        return self.stress

    def flow(self, trial: Array, excess: Array, plastic: Array) -> tuple[Array, Array]:
        """An increment that is plastic in some specimens: their plastic strain x, and exp(−λj x) − 1."""
        np.multiply(self.direction, self.backstresses, out=self.distances[1:])
        np.subtract(self.saturation, self.distances[1:], out=self.distances[1:])
        amount = self.solve(excess)
        decay = np.multiply(self.rates, -amount)
        np.expm1(decay, out=decay)
        change = self.distances * decay
        self.distances += change
        change[1:] *= self.direction
        self.backstresses -= change[1:]
        flow_stress = self.top - self.distances[0]
        flow_stress *= self.direction
        flow_stress += _sum(self.backstresses)
        self.stress = np.where(plastic, flow_stress, trial)
        return amount, decay

    def solve(self, excess: Array) -> Array:
        """Plastic strain x of the increment [specimens]; `excess` is r(0), negative where it is elastic."""
        amount = np.zeros(excess.shape)
        residual = np.maximum(excess, 0.0)
        terms = self.rates * self.distances
        for step in range(_MOST_STEPS):
            if step:
                np.multiply(self.rates, -amount, out=terms)
                np.expm1(terms, out=terms)
                terms *= self.distances
                residual = _sum(terms)
                residual += excess
                residual -= self.modulus * amount
                terms += self.distances
                terms *= self.rates
            slope = _sum(terms)
            slope += self.modulus
            terms *= self.rates
            curvature = _sum(terms)
            residual /= slope
            curvature *= residual
            curvature /= slope
            curvature *= 0.5
            np.minimum(curvature, 0.5, out=curvature)  # at most twice Newton's step
            np.subtract(1.0, curvature, out=curvature)
            residual /= curvature
            residual += amount
            moved = np.maximum(residual, 0.0, out=residual)
            amount -= moved
            np.abs(amount, out=amount)
            amount *= self.fastest
            converged = step > 0 and np.maximum.reduce(amount) < _TOLERANCE
            amount = moved
            if converged:
                break
        return amount


class _Tangents(_Specimens):
    """Specimens that also carry the derivatives of stress, distance v0 and backstresses by every parameter.

    Those by E, σ0, Q, b, and by saturation and rate of each backstress are carried, [parameters, specimens]; `advance`
    returns those by C and γ.
    """

    def __init__(self, parameters: Array):
        """See `_Specimens`."""
        super().__init__(parameters)
        terms, count = len(self.distances), parameters.shape[1]
        self.stress_tangent = np.zeros((count, len(parameters)))
        self.tangents = np.zeros((terms, count, len(parameters)))
        self.tangents[0, 2] = 1.0
        self.by_saturation = (np.arange(1, terms), np.arange(4, count, 2))
        self.by_rate = (np.arange(terms), np.arange(3, count, 2))

    def advance(self, increment: Array, duration: Array) -> Array:
        """The derivatives after a further strain `increment`: [parameters, specimens], MPa per unit."""
        self.stress_tangent[0] += increment
        super().advance(increment, duration)
        found = self.stress_tangent.copy()
        found[4::2] /= self.rates[1:]
        found[5::2] -= self.saturation * found[4::2]
        return found

    def flow(self, trial: Array, excess: Array, plastic: Array) -> tuple[Array, Array]:
        """See `_Specimens.flow`; the derivative of r(x) = 0 gives that of x."""
        amount, decay = super().flow(trial, excess, plastic)
        distances = self.distances.copy()
        distances[1:] *= -self.direction  # a backstress rises where its distance falls
        self.tangents *= (1.0 + decay)[:, None]
        self.tangents[self.by_saturation] -= self.direction * decay[1:]
        self.tangents[self.by_rate] -= distances * amount
        by_amount = self.stress_tangent - _sum(self.tangents[1:])
        by_amount *= self.direction
        by_amount += self.tangents[0]
        by_amount[0] -= amount
        by_amount[1:3] -= 1.0
        by_amount *= plastic / (self.modulus + _sum(self.rates * self.distances))
        self.tangents -= (self.rates * distances)[:, None] * by_amount
        by_amount *= self.direction * self.modulus
        by_amount[0] += self.direction * amount
        self.stress_tangent -= by_amount
        return amount, decay
