"""Laws that remember: kinematic hardening under cyclic loading, and plies that shear and are damaged. NumPy only."""

import abc
from typing import ClassVar

import numpy as np

from tfmat.materials.law import METAL_CYCLIC, PLY_SHEAR, Array, History, HistoryLaw, Parameter
from tfmat.materials.numerics import BlockLaw, in_steps

# --------------------------------------------------------------------------------------------------
# Laws of the non-linear in-plane shear of a fibre-reinforced ply.


_MODULUS = Parameter("G0", "MPa", 2000.0, 8000.0, "linear", "initial shear modulus")
_PLATEAU = Parameter("S", "MPa", 40.0, 150.0, "linear", "stress at which the curve levels out")


class _ShearLaw(BlockLaw):
    """A law of the first loading."""

    strain_measure = "engineering shear"
    stress_measure = "shear"
    modes = ("shear",)
    laboratory = PLY_SHEAR
    max_strain = (0.01, 0.05)


class HahnTsai(_ShearLaw):
    """Shear strain as a linear and a cubic term of the shear stress; `a` is the ALPH of LS-DYNA's MAT_022 and 054."""

    name = "hahn_tsai"
    title = "Hahn–Tsai 1973"
    formula = "γ = τ/G0 + a·τ³"
    source = (
        "H. T. Hahn, S. W. Tsai, Nonlinear elastic behavior of unidirectional composite laminae, "
        "J. Composite Materials 7 (1973) 102-118"
    )
    parameters = (
        _MODULUS,
        Parameter("a", "MPa^-3", 1e-9, 1e-7, "log", "coefficient of the cubic term"),
    )
    strength_mpa = (60.0, 140.0)

    @staticmethod
    def fill_stress(strain: Array, columns: Array, out: Array) -> None:
        """Writes τ = G0 γ / h with h = (1 + 2 cosh(2/3 asinh x)) / 3, x = G0 γ √(27/4 a G0).

        The same root as the usual closed form (2 √(p/3) sinh(⅓ asinh …) with p = 1 / (a G0)), by x = sinh 3θ and
        h = 1 + 4/3 sinh² θ; but h lies between 1 and infinity and is well conditioned, so that small strains and
        a = 0 need no special case.
        """
        modulus, coefficient = columns
        np.multiply(strain, modulus, out=out)
        quotient = out * np.sqrt(6.75 * coefficient * modulus)
        np.arcsinh(quotient, out=quotient)
        quotient *= 2.0 / 3.0
        np.cosh(quotient, out=quotient)
        quotient *= 2.0 / 3.0
        quotient += 1.0 / 3.0
        out /= quotient

    @staticmethod
    def fill_derivatives(strain: Array, columns: Array, out: Array) -> None:
        modulus, coefficient = columns
        stress = np.empty(strain.shape)
        HahnTsai.fill_stress(strain, columns, stress)
        square = stress * stress
        compliance = 1.0 / modulus + 3.0 * coefficient * square
        np.divide(stress / modulus**2, compliance, out=out[:, :, 0])
        np.divide(-square * stress, compliance, out=out[:, :, 1])


class TanhShear(_ShearLaw):
    """Shear stress that rises with G0 and levels out at S: follows measured shear curves best up to their peak."""

    name = "tanh_shear"
    title = "Hyperbolic tangent shear (Prager 1938)"
    formula = "τ = S·tanh(G0·γ/S)"
    source = (
        "W. Prager, On isotropic materials with continuous transition from elastic to plastic state, "
        "Proc. 5th Int. Congress of Applied Mechanics (1938) 234-237"
    )
    parameters = (
        _MODULUS,
        _PLATEAU,
    )

    @staticmethod
    def fill_stress(strain: Array, columns: Array, out: Array) -> None:
        modulus, plateau = columns
        np.multiply(strain, modulus / plateau, out=out)
        np.tanh(out, out=out)
        out *= plateau

    @staticmethod
    def fill_derivatives(strain: Array, columns: Array, out: Array) -> None:
        modulus, plateau = columns
        argument = strain * (modulus / plateau)
        # 1 / cosh² overflows nowhere in its divisor as exp(-2x) does nowhere: 4 e / (1 + e)² with e = exp(-2x).
        decay = np.exp(-2.0 * argument)
        slope = 4.0 * decay / (1.0 + decay) ** 2
        np.multiply(strain, slope, out=out[:, :, 0])
        np.subtract(np.tanh(argument), argument * slope, out=out[:, :, 1])


class ExponentialShear(_ShearLaw):
    """Shear stress that rises with G0 and levels out at S, later than the hyperbolic tangent does."""

    name = "exponential_shear"
    title = "Exponential shear (Voce's form in total strain)"
    formula = "τ = S·(1 − exp(−G0·γ/S))"
    source = (
        "E. Voce, The relationship between stress and strain for homogeneous deformation, "
        "J. Institute of Metals 74 (1948) 537-562, with no initial yield stress"
    )
    parameters = (
        _MODULUS,
        _PLATEAU,
    )

    @staticmethod
    def fill_stress(strain: Array, columns: Array, out: Array) -> None:
        modulus, plateau = columns
        np.multiply(strain, -modulus / plateau, out=out)
        np.expm1(out, out=out)
        out *= -plateau

    @staticmethod
    def fill_derivatives(strain: Array, columns: Array, out: Array) -> None:
        modulus, plateau = columns
        argument = strain * (-modulus / plateau)
        decay = np.exp(argument)
        np.multiply(strain, decay, out=out[:, :, 0])
        np.subtract(argument * decay, np.expm1(argument), out=out[:, :, 1])


# --------------------------------------------------------------------------------------------------
# Voce-Chaboche: cyclic plasticity of metals with saturating isotropic hardening and one to three backstresses.


# Halley's method cubes the error of rate times plastic increment: after a step of this size it is below rounding.
_CHABOCHE_TOLERANCE = 1e-4
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
    solves = True

    def respond(self, history: History, parameters: Array) -> Array:
        """See `Law.respond`; the strain must be driven."""
        history = self.driven_strain(history)
        return in_steps(_ChabocheSpecimens, history, parameters, in_runs=True)

    def sensitivities(self, history: History, parameters: Array) -> Array:
        """See `Law.sensitivities`; exact: the converged steps differentiated one after the other."""
        return self.expanded(history, parameters)[..., 1:]

    def expanded(self, history: History, parameters: Array) -> Array:
        """See `Law.expanded`; the derivatives' steps are the response's."""
        history, count = self.driven_strain(history), len(self.parameters)
        return in_steps(_ChabocheTangents, history, parameters, (1 + count,), in_runs=True)


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


class _ChabocheSpecimens:
    """The state of a block of specimens; `advance` takes all of them through a run of strains that turn nowhere.

    Within a run the plastic strain flows in one direction d. Every term approaches its saturation, exponentially with
    the plastic strain x since the run began. The distances vj from saturation are the part of Q not yet gained, and
    Ck/γk − d αk for each backstress; their rates λj are b and γk. Each point of the run
    is the root of

        r(x) = d (σ + E Δε − Σ αk) − (σ0 + Q − v0) − E x − Σ vj (1 − exp(−λj x)),

    which falls and is convex, so that steps from x = 0 stay below the root; they are Halley's. Distances are taken anew
    from the backstresses in every run: Ck/γk may be a thousand times the stress, whose digits it would cost.
    The state's arrays are [terms, specimens] and [specimens], a run's [terms, points, specimens].
    """

    def __init__(self, parameters: Array):
        """Specimens at rest; parameters [specimens, 4 + 2 backstresses]."""
        columns = np.ascontiguousarray(parameters.T)
        self.modulus, first_yield, self.left, rate = columns[:4]  # left: of Q, not yet gained
        self.saturation = (columns[4::2] / columns[5::2])[:, None]
        self.rates = np.concatenate([rate[None], columns[5::2]])[:, None]
        self.fastest = self.rates.max(axis=0)
        self.top = first_yield + self.left
        self.backstresses = np.zeros(columns[4::2].shape)
        self.stress = np.zeros(len(parameters))

    def advance(self, increments: Array, durations: Array) -> Array:
        """Stress after further strains `increments` [points, specimens] (or [points, 1]): [points, specimens], MPa."""
        stress = increments * self.modulus
        stress += self.stress
        relative = stress - _sum(self.backstresses)
        direction = np.copysign(1.0, relative)
        excess = np.abs(relative, out=relative)
        excess -= self.top
        excess += self.left
        plastic = excess > 0.0
        if np.logical_or.reduce(plastic, axis=None):
            stress = self.flow(stress, direction, excess, plastic)
        self.stress = stress[-1]
        return stress

    def flow(self, trial: Array, direction: Array, excess: Array, plastic: Array) -> Array:
        """Stress [points, specimens] of a run that is plastic in some points of some specimens."""
        distances = np.empty((len(self.rates), *trial.shape))
        distances[0] = self.left
        np.multiply(direction, self.backstresses[:, None], out=distances[1:])
        np.subtract(self.saturation, distances[1:], out=distances[1:])
        amount = self.solve(excess, distances)
        decay = np.multiply(self.rates, -amount)
        np.expm1(decay, out=decay)
        change = distances * decay
        distances += change
        change[1:] *= direction
        backstresses = self.backstresses[:, None] - change[1:]
        stress = self.top - distances[0]
        stress *= direction
        stress += _sum(backstresses)
        self.left, self.backstresses = distances[0, -1], backstresses[:, -1]
        self.flowed(direction, plastic, distances, amount, decay)
        return np.where(plastic, stress, trial)

    def flowed(
        self, direction: Array, plastic: Array, distances: Array, amount: Array, decay: Array
    ) -> None:
        """Called with a run's plastic strains x, distances at its points, and exp(−λj x) − 1."""

    def solve(self, excess: Array, distances: Array) -> Array:
        """Plastic strain x [points, specimens]; `excess` is r(0), negative where it is elastic."""
        amount = np.zeros(excess.shape)
        residual = np.maximum(excess, 0.0)
        terms = self.rates * distances
        for step in range(_MOST_STEPS):
            if step:
                np.multiply(self.rates, -amount, out=terms)
                np.expm1(terms, out=terms)
                terms *= distances
                residual = _sum(terms)
                residual += excess
                residual -= self.modulus * amount
                terms += distances
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
            converged = step > 0 and np.maximum.reduce(amount, axis=None) < _CHABOCHE_TOLERANCE
            amount = moved
            if converged:
                break
        return amount


class _ChabocheTangents(_ChabocheSpecimens):
    """Specimens that also carry the derivatives of stress, distance v0 and backstresses by every parameter.

    Derivatives by E, σ0, Q, b, and by saturation and rate of each backstress are carried, [parameters, specimens];
    `advance` returns the stress, and derivatives by C and γ.
    """

    def __init__(self, parameters: Array):
        super().__init__(parameters)
        terms, count = len(self.rates), parameters.shape[1]
        self.stress_tangent = np.zeros((count, len(parameters)))
        self.tangents = np.zeros((terms, count, len(parameters)))
        self.tangents[0, 2] = 1.0
        self.by_saturation = (np.arange(1, terms), np.arange(4, count, 2))
        self.by_rate = (np.arange(terms), np.arange(3, count, 2))

    def advance(self, increments: Array, durations: Array) -> Array:
        """Stress and derivatives after further strains: [points, 1 + parameters, specimens], MPa and MPa per unit."""
        shape = (len(self.stress_tangent), len(increments), len(self.modulus))
        found = self.found = np.empty(shape)
        found[:] = self.stress_tangent[:, None]
        found[0] += increments
        stress = super().advance(increments, durations)
        self.stress_tangent = found[:, -1].copy()
        found[4::2] /= self.rates[1:]
        found[5::2] -= self.saturation * found[4::2]
        return np.concatenate([stress[:, None], found.swapaxes(0, 1)], axis=1)

    def flowed(
        self, direction: Array, plastic: Array, distances: Array, amount: Array, decay: Array
    ) -> None:
        """See `_ChabocheSpecimens.flowed`; the derivative of r(x) = 0 gives the derivative of x."""
        slope = self.modulus + _sum(self.rates * distances)
        distances[1:] *= -direction  # a backstress rises where its distance falls
        tangents = self.tangents[:, :, None] * (1.0 + decay)[:, None]
        tangents[self.by_saturation] -= direction * decay[1:]
        tangents[self.by_rate] -= distances * amount
        by_amount = self.found - _sum(tangents[1:])
        by_amount *= direction
        by_amount += tangents[0]
        by_amount[0] -= amount
        by_amount[1:3] -= 1.0
        by_amount *= plastic / slope
        tangents -= (self.rates * distances)[:, None] * by_amount
        self.tangents = tangents[:, :, -1].copy()
        by_amount *= direction * self.modulus
        by_amount[0] += direction * amount
        self.found -= by_amount


# --------------------------------------------------------------------------------------------------
# In-plane shear of a fibre-reinforced ply with unloading and reversal: permanent strain, and damage of the matrix.


# Newton's error goes down with its square: after a step of this relative size it is below rounding.
_PLY_TOLERANCE = 1e-9
# The stress at which the permanent strain of `ramberg_osgood_shear` is a parameter, MPa.
_REFERENCE = 50.0
_TINY = 1e-300


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
            lambda block: _PlySpecimens(self, block), self.driven_strain(history), parameters
        )

    def sensitivities(self, history: History, parameters: Array) -> Array:
        """See `Law.sensitivities`; exact: the converged steps differentiated one after the other."""
        count = (len(self.parameters),)
        return in_steps(
            lambda block: _PlyTangents(self, block), self.driven_strain(history), parameters, count
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
        permanent, exponent = columns
        return _REFERENCE * np.power(path / permanent, 1.0 / exponent)

    def path(self, stress: Array, columns: Array) -> tuple[Array, Array]:
        permanent, exponent = columns
        ratio = np.maximum(stress, _TINY) / _REFERENCE
        path = permanent * np.power(ratio, exponent)
        return path, path * exponent / (ratio * _REFERENCE)

    def path_derivatives(self, stress: Array, columns: Array) -> Array:
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

    meaningful = {"dmax": (0.0, 1.0)}
    first_yield = 0

    def yield_stress(self, path: Array, columns: Array) -> Array:
        return columns[0] + columns[1] * np.power(path, columns[2])

    def path(self, stress: Array, columns: Array) -> tuple[Array, Array]:
        initial, hardening, exponent = columns[:3]
        ratio = np.maximum(stress - initial, _TINY) / hardening
        path = np.power(ratio, 1.0 / exponent)
        return path, path / (exponent * ratio * hardening)

    def path_derivatives(self, stress: Array, columns: Array) -> Array:
        initial, hardening, exponent = columns[:3]
        path, slope = self.path(stress, columns)
        ratio = np.maximum(stress - initial, _TINY) / hardening
        found = np.zeros_like(columns)
        found[:3] = -slope, -slope * ratio, -path * np.log(ratio) / exponent**2
        return found

    def damage(self, peak: Array, columns: Array) -> Array:
        *_, rate, threshold, most = columns
        return np.minimum(rate * np.log(np.maximum(peak / threshold, 1.0)), most)

    def damage_derivatives(self, peak: Array, columns: Array) -> tuple[Array, Array]:
        *_, rate, threshold, most = columns
        damage = self.damage(peak, columns)
        grows = (damage > 0.0) & (damage < most)
        by_columns = np.zeros_like(columns)
        np.copyto(by_columns[-3], damage / rate, where=grows)
        np.copyto(by_columns[-2], -rate / threshold, where=grows)
        by_columns[-1] = damage >= most
        return np.where(grows, rate / np.maximum(peak, _TINY), 0.0), by_columns


class _PlySpecimens:
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
        self.weaken()

    def advance(self, increment: Array, duration: Array) -> Array:
        """Stress after a further strain `increment` [specimens] (or [1]): [specimens], MPa."""
        trial = self.stress + self.modulus * increment
        size = np.abs(trial)
        if (size > self.radius).any():
            self.flow(trial, size)
        else:
            self.stress = trial
        size = np.abs(self.stress)
        if (size > self.peak).any():
            np.maximum(self.peak, size, out=self.peak)
            self.weaken()
        return self.result()

    def weaken(self) -> None:
        """The damage of the largest stress so far."""
        self.damage = self.law.damage(self.peak, self.columns)

    def result(self) -> Array:
        """The stress that the machine feels."""
        return self.stress if self.damage is None else (1.0 - self.damage) * self.stress

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
            if (np.abs(step) <= _PLY_TOLERANCE * found).all():
                break
        return found


class _PlyTangents(_PlySpecimens):
    """Plies that also carry the derivatives of stress, yield stress and largest stress by every parameter."""

    def __init__(self, law: _PlyShear, parameters: Array):
        super().__init__(law, parameters)
        self.by_stress, self.by_peak, self.by_radius = np.zeros((3, *parameters.T.shape))
        if law.first_yield is not None:
            self.by_radius[1 + law.first_yield] = 1.0
        self.path_before = self._path_by_parameters()

    def advance(self, increment: Array, duration: Array) -> Array:
        """The derivatives after a further strain `increment`: [parameters, specimens], MPa per unit."""
        self.by_stress[0] += increment
        return super().advance(increment, duration)

    def flow(self, trial: Array, size: Array) -> None:
        """See `_Specimens.flow`; the derivative of the equation that `solve` solves."""
        plastic = size > self.radius
        super().flow(trial, size)
        side = np.copysign(1.0, trial)
        change, slope = self._path_by_parameters()
        before, slope_before = self.path_before
        self.path_before = change, slope
        change = before - change
        change += self.modulus * slope_before * self.by_radius
        change += side * self.by_stress
        change /= 1.0 + self.modulus * slope
        np.copyto(self.by_radius, change, where=plastic)
        np.copyto(self.by_stress, side * change, where=plastic)

    def _path_by_parameters(self) -> tuple[Array, Array]:
        """Derivatives of G0 p(s) at the yield stress, held fixed, [parameters, specimens], and dp/ds."""
        path, slope = self.law.path(self.radius, self.columns)
        by_columns = self.law.path_derivatives(self.radius, self.columns)
        return np.concatenate([path[None], self.modulus * by_columns]), slope

    def weaken(self) -> None:
        super().weaken()
        if self.damage is not None:
            self.damage_by = self.law.damage_derivatives(self.peak, self.columns)

    def result(self) -> Array:
        """The derivatives of what the machine feels."""
        np.copyto(
            self.by_peak,
            np.sign(self.stress) * self.by_stress,
            where=np.abs(self.stress) >= self.peak,
        )
        if self.damage is None:
            return self.by_stress
        by_peak, by_columns = self.damage_by
        derivatives = (1.0 - self.damage) * self.by_stress - self.stress * by_peak * self.by_peak
        derivatives[1:] -= self.stress * by_columns
        return derivatives
