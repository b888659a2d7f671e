"""Laws of metals and concrete under rising strain. NumPy only."""

import abc

import numpy as np
from numpy.typing import NDArray

from tfmat.errors import InputError
from tfmat.materials.law import (
    METAL_TENSION,
    RATES_AND_TEMPERATURES,
    Array,
    History,
    HistoryLaw,
    Law,
    Parameter,
)
from tfmat.materials.numerics import BlockLaw, bisected, in_blocks

# --------------------------------------------------------------------------------------------------
# Metals: strain = σ/E + plastic strain, elastic until the initial yield; the Newton solve that such laws share.


# Convergence is quadratic: after a step of this relative size the error is below rounding.
_TOLERANCE = 1e-10
_MOST_STEPS = 100
# _LOGARITHMIC_STEPS: Newton's steps of logarithms; those that lead to the root have done so by then.
_LOGARITHMIC_STEPS = 12
# _ROUNDING: difference of two stresses, as a share of them, that is as good as none.
_ROUNDING = 2e-15
# _STEEP: a slope of hardening, as a multiple of Young's modulus, that no metal has but right at first yield.
_STEEP = 1e6


class _MetalLaw(Law):
    """A law of true stress over true strain, for tension tests that end at maximum load."""

    strain_measure = "true"
    stress_measure = "true"
    max_strain = (0.005, 0.6)
    max_strain_scale = "log"
    strain_spacing = 2.0
    laboratory = METAL_TENSION


class ElasticPlasticLaw(_MetalLaw):
    """A law σ = H(εp), εp = ε - σ/E, given by its hardening curve H; the first parameter is E.

    A subclass defines `hardening` and `hardening_derivatives`; `columns` are its parameters after E, each [curves, 1].
    """

    solves = True
    rises = True

    @abc.abstractmethod
    def hardening(self, plastic_strain: Array, columns: Array) -> tuple[Array, Array]:
        """H and dH/dεp in MPa at plastic_strain [curves, points] >= 0; H rises and bends to one side only.

        The slope may be infinite at zero.
        """

    @abc.abstractmethod
    def hardening_derivatives(self, plastic_strain: Array, columns: Array) -> tuple[Array, ...]:
        """dH/d parameter at fixed plastic strain, one array [curves, points] (or broadcastable) a column."""

    def first_try(self, beyond: Array, modulus: Array, columns: Array) -> Array:
        """A plastic strain [curves, points] from which Newton's steps reach the root; `beyond` is strain after yield.

        Where the slope is infinite at zero, it must lie below the root: a step from above may end at zero.
        """
        return beyond.copy()

    def stress(self, strain: Array, parameters: Array) -> Array:
        def fill(strain: Array, columns: Array, out: Array) -> None:
            out[:] = self._solve(strain, columns)[0]

        return in_blocks(fill, strain, parameters)

    def derivatives(self, strain: Array, parameters: Array) -> Array:
        """See `Law.derivatives`; the total differential of σ = H(ε - σ/E)."""
        return self.stress_and_derivatives(strain, parameters)[1]

    def stress_and_derivatives(self, strain: Array, parameters: Array) -> tuple[Array, Array]:
        """See `Law.stress_and_derivatives`; they come from one solution."""
        found = self._expanded(strain, parameters)
        return found[:, :, 0], found[:, :, 1:]

    def expanded(self, history: History, parameters: Array) -> Array:
        return self._expanded(history.driven, parameters)

    def _expanded(self, strain: Array, parameters: Array) -> Array:
        """Stress, and behind it its derivatives, [curves, points, 1 + len(self.parameters)]."""

        def fill(strain: Array, columns: Array, out: Array) -> None:
            modulus = columns[0]
            stress, slope, plastic_strain, elastic = self._solve(strain, columns)
            share = modulus / (modulus + slope)
            out[:, :, 0] = stress
            by_column = self.hardening_derivatives(plastic_strain, columns[1:])
            if len(by_column) != len(columns) - 1:
                raise InputError(
                    f"law {self.name}: hardening_derivatives() returns {len(by_column)} arrays for {len(columns) - 1} "
                    "parameters behind E; return one for each, in their order"
                )
            with np.errstate(
                invalid="ignore"
            ):  # an infinite slope at zero, where the curve is elastic
                out[:, :, 1] = np.where(elastic, strain, slope * stress * share / modulus**2)
                for i, derivative in enumerate(by_column, start=2):
                    out[:, :, i] = np.where(elastic, 0.0, derivative * share)

        return in_blocks(fill, strain, parameters, (1 + len(self.parameters),))

    def _solve(self, strain: Array, columns: Array) -> tuple[Array, Array, Array, Array]:
        """Stress, the hardening curve's slope, plastic strain, and where the curve is elastic; each [curves, points].

        Newton on F(p) = H(p) - E (ε - p) from the law's first try, by default its upper bound p = ε - H(0)/E. F rises
        and bends to one side, so that after at most one step every iterate lies on the same side of the root and comes
        nearer. A power so high that it overflows at the upper bound, or comes down from there in too many steps, is
        left to bisection.
        """
        modulus, others = columns[0], columns[1:]
        yield_strain = self.hardening(np.zeros_like(modulus), others)[0] / modulus
        elastic = strain <= yield_strain
        first = self.first_try(np.maximum(strain - yield_strain, 0.0), modulus, others)
        total = np.maximum(strain, yield_strain)
        root = self._newton(first, total, modulus, others)
        # A step that ends at an infinite slope, as a power has it at zero, leads away from there no more. So steep a
        # curve tells the stress less well than the elastic strain does.
        steep = (root[2] > _STEEP * modulus) & ~elastic
        if steep.any():
            found = self._steep_root(*_points(steep, total, modulus, others))
            root = _replaced(root, steep, found)
        plastic_strain, flow_stress, slope = root
        flow_stress = np.where(steep, modulus * (total - plastic_strain), flow_stress)
        return np.where(elastic, modulus * strain, flow_stress), slope, plastic_strain, elastic

    def _newton(
        self, plastic_strain: Array, total: Array, modulus: Array, others: Array
    ) -> tuple[Array, ...]:
        """Plastic strain, stress and the curve's slope where Newton's steps end, from a start; each [curves, points].

        Three or four steps bring most points to the root. The others go on as curves of one point each.
        """
        near = False
        for _ in range(_MOST_STEPS):
            flow_stress, slope = self.hardening(plastic_strain, others)
            step = total - plastic_strain
            step *= modulus
            step -= flow_stress
            step /= slope + modulus
            np.maximum(step, -plastic_strain, out=step)
            plastic_strain = plastic_strain + step
            left = ~(np.abs(step) <= _TOLERANCE * total)
            near = bool(2 * np.count_nonzero(left) <= left.size)
            if near:
                break
        # Along the last step the curve is straight; where the slope is infinite, no step led away.
        root: tuple[Array, ...] = (
            plastic_strain,
            flow_stress + np.where(step == 0.0, 0.0, slope * step),
            slope,
        )
        if left.any():
            given = _points(left, total, modulus, others)
            start = plastic_strain[left][:, None]
            found = self._newton(start, *given) if near else self._steep_root(*given)
            root = _replaced(root, left, found)
        return root

    def _steep_root(
        self, total: Array, modulus: Array, columns: Array
    ) -> tuple[Array, Array, Array]:
        """`_newton` where the curve is steep or a power overflows, for single points [points, 1].

        Newton's steps are of logarithms, since hardening begins as a power: log(H − H(0)) = log(E (ε − p) − H(0)).
        Points that a few of them do not bring to the root are left to bisection.
        """
        first_yield = self.hardening(np.zeros_like(modulus), columns)[0]
        beyond = total - first_yield / modulus
        tried, ended = 0.5 * beyond, np.zeros(beyond.shape, np.bool_)
        for _ in range(_LOGARITHMIC_STEPS):
            flow_stress, slope = self.hardening(tried, columns)
            elastic, gain, left = (
                modulus * (total - tried),
                flow_stress - first_yield,
                beyond - tried,
            )
            ended = np.abs(flow_stress - elastic) <= _ROUNDING * elastic
            if ended.all():
                return tried, flow_stress, slope
            distance = np.log(gain / (modulus * left))
            following = tried * np.exp(-distance / (tried * slope / gain + tried / left))
            inside = (following > 0.0) & (following < beyond) & ~ended
            tried = np.where(inside, following, tried)
        rest = ~ended[:, 0]
        stiffness, others, strain = modulus[rest], columns[:, rest], total[rest]

        def is_above(tried: Array) -> NDArray[np.bool_]:
            return self.hardening(tried, others)[0] > stiffness * (strain - tried)

        tried[rest] = bisected(is_above, beyond[rest])
        return tried, *self.hardening(tried, columns)


def _points(
    wanted: NDArray[np.bool_], total: Array, modulus: Array, others: Array
) -> tuple[Array, Array, Array]:
    """The wanted points of curves as curves of one point each."""
    rows = wanted.nonzero()[0]
    return total[wanted][:, None], modulus[rows], others[:, rows]


def _replaced(
    root: tuple[Array, ...], wanted: NDArray[np.bool_], points: tuple[Array, ...]
) -> tuple[Array, ...]:
    """Arrays of curves with such points in them; a slope may be one for all points of a curve."""
    found = tuple(np.broadcast_to(each, wanted.shape).copy() for each in root)
    for each, values in zip(found, points, strict=True):
        each[wanted] = values[:, 0]
    return found


class Voce(ElasticPlasticLaw):
    """Yield at sigma0, saturation at sigma0 + Q. 304L in true stress: sigma0 270 MPa, Q 1150-1560 MPa, b 1.2-1.8."""

    name = "voce"
    title = "Voce 1948"
    formula = "σ = σ0 + Q·(1 − exp(−b·εp)),  εp = ε − σ/E"
    source = (
        "E. Voce, The relationship between stress and strain for homogeneous deformation, "
        "J. Institute of Metals 74 (1948) 537-562"
    )
    parameters = (
        Parameter("E", "MPa", 35e3, 220e3, "log", "Young's modulus"),
        Parameter("sigma0", "MPa", 10.0, 2000.0, "log", "initial yield stress σ0"),
        Parameter("Q", "MPa", 5.0, 2000.0, "log", "stress gained until saturation"),
        Parameter("b", "-", 1.0, 300.0, "log", "rate of saturation with plastic strain"),
    )

    def hardening(self, plastic_strain: Array, columns: Array) -> tuple[Array, Array]:
        first_yield, gain, rate = columns
        # In place: laying out memory anew takes longer than the arithmetic.
        share = plastic_strain * -rate
        np.expm1(share, out=share)
        slope = share + 1.0
        slope *= gain * rate
        share *= gain
        return np.subtract(first_yield, share, out=share), slope

    def hardening_derivatives(self, plastic_strain: Array, columns: Array) -> tuple[Array, ...]:
        _, gain, rate = columns
        share = np.expm1(-rate * plastic_strain)
        return np.ones_like(share), -share, gain * plastic_strain * (1.0 + share)


class Swift(ElasticPlasticLaw):
    """Yield at K epsilon0^n. 304L in true stress: K 1360-1380 MPa, epsilon0 0.05-0.08, n 0.57-0.66."""

    name = "swift"
    title = "Swift 1952"
    formula = "σ = K·(ε0 + εp)ⁿ,  εp = ε − σ/E"
    source = (
        "H. W. Swift, Plastic instability under plane stress, J. Mech. Phys. Solids 1 (1952) 1-18"
    )
    parameters = (
        Parameter("E", "MPa", 35e3, 220e3, "log", "Young's modulus"),
        Parameter("K", "MPa", 30.0, 3000.0, "log", "stress at epsilon0 + plastic strain = 1"),
        Parameter("epsilon0", "-", 1e-4, 0.1, "log", "pre-strain ε0"),
        Parameter("n", "-", 0.02, 0.7, "linear", "hardening exponent"),
    )

    def hardening(self, plastic_strain: Array, columns: Array) -> tuple[Array, Array]:
        strength, pre_strain, exponent = columns
        strain = pre_strain + plastic_strain
        flow_stress = strength * np.exp(exponent * np.log(strain))
        return flow_stress, exponent * flow_stress / strain

    def hardening_derivatives(self, plastic_strain: Array, columns: Array) -> tuple[Array, ...]:
        strength, pre_strain, exponent = columns
        strain = pre_strain + plastic_strain
        logarithm = np.log(strain)
        power = np.exp(exponent * logarithm)
        flow_stress = strength * power
        return power, exponent * flow_stress / strain, flow_stress * logarithm


class HockettSherby(ElasticPlasticLaw):
    """Yield at sigma0, saturation at σs = sigma0 + Q; Voce's law where p is 1.

    A test that ends at maximum load tells N and p together, and Q hardly: it ends far from saturation.
    """

    name = "hockett_sherby"
    title = "Hockett–Sherby 1975"
    formula = "σ = σs − (σs − σ0)·exp(−N·εpᵖ),  σs = σ0 + Q,  εp = ε − σ/E"
    source = (
        "J. E. Hockett, O. D. Sherby, Large strain deformation of polycrystalline metals at low homologous "
        "temperatures, J. Mech. Phys. Solids 23 (1975) 87-98"
    )
    parameters = (
        Parameter("E", "MPa", 35e3, 220e3, "log", "Young's modulus"),
        Parameter("sigma0", "MPa", 10.0, 2000.0, "log", "initial yield stress σ0"),
        Parameter("Q", "MPa", 5.0, 2000.0, "log", "stress gained until saturation, σs − σ0"),
        Parameter("N", "-", 0.5, 100.0, "log", "rate of saturation"),
        Parameter("p", "-", 0.3, 1.0, "linear", "exponent of the plastic strain"),
    )
    # Above 1 the curve would begin flat and bend to both sides.
    meaningful = {"p": (0.01, 1.0)}

    def first_try(self, beyond: Array, modulus: Array, columns: Array) -> Array:
        """See `ElasticPlasticLaw.first_try`; H rises by at most Q N εpᵖ, and half of the strain is left to it."""
        _, gain, rate, power = columns
        half = 0.5 * beyond
        return np.minimum(half, (half * modulus / (gain * rate)) ** (1.0 / power))

    def hardening(self, plastic_strain: Array, columns: Array) -> tuple[Array, Array]:
        first_yield, gain, rate, power = columns
        risen = rate * plastic_strain**power
        left = gain * np.exp(-risen)
        with np.errstate(all="ignore"):  # the slope is infinite at zero
            slope = left * rate * power * plastic_strain ** (power - 1.0)
        return first_yield - gain * np.expm1(-risen), np.where(left > 0.0, slope, 0.0)

    def hardening_derivatives(self, plastic_strain: Array, columns: Array) -> tuple[Array, ...]:
        _, gain, rate, power = columns
        raised = plastic_strain**power
        share = np.expm1(-rate * raised)
        with np.errstate(all="ignore"):
            by_rate = np.where(share > -1.0, gain * (1.0 + share) * raised, 0.0)
        logarithm = np.log(np.maximum(plastic_strain, _TINY_STRAIN))
        return np.ones_like(share), -share, by_rate, by_rate * rate * logarithm


class SwiftVoce(ElasticPlasticLaw):
    """Swift's law and Voce's, mixed with the weight alpha; both yield at σ0 = K epsilon0^n.

    With a yield stress of its own for each of them no test could tell alpha from K and Q. A test that ends at maximum
    load tells alpha poorly: the two part at larger strain.
    """

    name = "swift_voce"
    title = "Swift–Voce mixture"
    formula = "σ = α·K·(ε0 + εp)ⁿ + (1 − α)·(σ0 + Q·(1 − exp(−b·εp))),  σ0 = K·ε0ⁿ,  εp = ε − σ/E"
    source = (
        "C. C. Roth, D. Mohr, Effect of strain rate on ductile fracture initiation in advanced high strength steel "
        "sheets: experiments and modeling, Int. J. Plasticity 56 (2014) 19-44; there with a yield stress for each part"
    )
    parameters = (
        *Swift.parameters,
        *Voce.parameters[2:],
        Parameter("alpha", "-", 0.0, 1.0, "linear", "weight of Swift's law, α"),
    )
    meaningful = {"alpha": (0.0, 1.0)}
    max_strain = (0.005, 0.4)

    def hardening(self, plastic_strain: Array, columns: Array) -> tuple[Array, Array]:
        strength, pre_strain, exponent, gain, rate, weight = columns
        strain = pre_strain + plastic_strain
        swift = np.minimum(strength * np.exp(exponent * np.log(strain)), _ENDLESS)
        first_yield = np.minimum(strength * pre_strain**exponent, _ENDLESS)
        share = np.expm1(-rate * plastic_strain)
        slope = weight * exponent * swift / strain + (1.0 - weight) * rate * gain * (1.0 + share)
        return weight * swift + (1.0 - weight) * (first_yield - gain * share), slope

    def hardening_derivatives(self, plastic_strain: Array, columns: Array) -> tuple[Array, ...]:
        strength, _, _, gain, _, weight = columns
        both = _voce_columns(columns)
        at_yield = _SWIFT.hardening_derivatives(np.zeros_like(weight), columns[:3])
        by_swift = _SWIFT.hardening_derivatives(plastic_strain, columns[:3])
        _, by_gain, by_rate = _VOCE.hardening_derivatives(plastic_strain, both)
        return (
            *(
                weight * one + (1.0 - weight) * first
                for one, first in zip(by_swift, at_yield, strict=True)
            ),
            (1.0 - weight) * by_gain,
            (1.0 - weight) * by_rate,
            strength * by_swift[0] - (both[0] + gain * by_gain),
        )


# _ENDLESS: MPa, instead of an infinite stress, so that a part without weight counts for nothing.
_ENDLESS = 1e300
# The parts of the mixture.
_SWIFT, _VOCE = Swift(), Voce()


def _voce_columns(columns: Array) -> Array:
    """Voce's sigma0, Q and b of the mixture."""
    strength, pre_strain, exponent, gain, rate, _ = columns
    return np.stack([strength * pre_strain**exponent, gain, rate])


# --------------------------------------------------------------------------------------------------
# Metals that harden with a power of the plastic or of the whole strain: Ramberg-Osgood, Ludwik, Hollomon.


# _OFFSET: permanent strain at the offset stress Rp0.2 (ISO 6892-1).
_OFFSET = 0.002
# Stands in for strain 0, where the logarithm is infinite.
_TINY_STRAIN = 1e-250
# Stands in for the stress of an exponent near 0 below 0.2 %, which no floating-point number can hold.
_TINY_STRESS = 1e-290


class RambergOsgood(_MetalLaw, BlockLaw):
    """Strain as an elastic term and a power of the stress; no sharp yield."""

    name = "ramberg_osgood"
    title = "Ramberg–Osgood 1943"
    formula = "ε = σ/E + 0.002·(σ/σ02)ⁿ"
    source = (
        "W. Ramberg, W. R. Osgood, NACA Technical Note 902 (1943); "
        "with the 0.2 % offset stress: H. N. Hill, NACA Technical Note 927 (1944)"
    )
    parameters = (
        Parameter("E", "MPa", 35e3, 220e3, "log", "Young's modulus"),
        Parameter("sigma02", "MPa", 10.0, 2000.0, "log", "stress at 0.2 % plastic strain, σ02"),
        Parameter("n", "-", 2.0, 40.0, "log", "exponent; high is a sharp knee"),
    )
    # Maximum load, where the slope equals the stress, comes at a strain near 1/n.
    max_strain = (0.005, 0.3)

    @staticmethod
    def fill_stress(strain: Array, columns: Array, out: Array) -> None:
        out[:] = _solve(strain, columns)

    @staticmethod
    def fill_derivatives(strain: Array, columns: Array, out: Array) -> None:
        """The total differential of the formula."""
        modulus, offset_stress, exponent = columns
        stress = np.maximum(_solve(strain, columns), _TINY_STRAIN)
        power = np.log(stress / offset_stress)
        plastic_strain = _OFFSET * np.exp(exponent * power)
        compliance = 1.0 / modulus + exponent * plastic_strain / stress
        out[:, :, 0] = stress / modulus**2 / compliance
        out[:, :, 1] = exponent * plastic_strain / offset_stress / compliance
        out[:, :, 2] = -plastic_strain * power / compliance
        out[strain == 0.0] = 0.0


class Ludwik(_MetalLaw, BlockLaw):
    """Yield at sigma0, then a power of the plastic strain: the flow stress of Johnson-Cook at one rate and temperature.

    The stress above yield and the strain above the yield strain form a Ramberg-Osgood curve.
    """

    name = "ludwik"
    title = "Ludwik 1909"
    formula = "σ = σ0 + K·εpⁿ,  εp = ε − σ/E"
    source = "P. Ludwik, Elemente der technologischen Mechanik, Springer (1909)"
    parameters = (
        Parameter("E", "MPa", 35e3, 220e3, "log", "Young's modulus"),
        Parameter("sigma0", "MPa", 10.0, 2000.0, "log", "initial yield stress σ0"),
        Parameter("K", "MPa", 30.0, 3000.0, "log", "stress gained at a plastic strain of 1"),
        Parameter("n", "-", 0.1, 0.9, "linear", "hardening exponent"),
    )

    @staticmethod
    def fill_stress(strain: Array, columns: Array, out: Array) -> None:
        modulus, first_yield, *_ = columns
        beyond, above = _above_yield(strain, columns)
        out[:] = np.where(beyond > 0.0, first_yield + above, modulus * strain)

    @staticmethod
    def fill_derivatives(strain: Array, columns: Array, out: Array) -> None:
        """The total differential of ε = σ/E + ((σ - σ0)/K)^(1/n)."""
        modulus, first_yield, strength, exponent = columns
        beyond, above = _above_yield(strain, columns)
        above = np.maximum(above, _TINY_STRESS)
        logarithm = np.log(above / strength) / exponent
        plastic_strain = np.exp(logarithm)
        slope = plastic_strain / (exponent * above)
        share = 1.0 / (1.0 / modulus + slope)
        elastic = beyond <= 0.0
        out[:, :, 0] = np.where(elastic, strain, (first_yield + above) / modulus**2 * share)
        out[:, :, 1] = np.where(elastic, 0.0, slope * share)
        out[:, :, 2] = np.where(elastic, 0.0, slope * above / strength * share)
        out[:, :, 3] = np.where(elastic, 0.0, plastic_strain * logarithm / exponent * share)


class Hollomon(_MetalLaw, BlockLaw):
    """A power of the whole strain, after an elastic line to where the two meet."""

    name = "hollomon"
    title = "Hollomon 1945"
    formula = "σ = min(E·ε, K·εⁿ)"
    source = "J. H. Hollomon, Tensile deformation, Trans. AIME 162 (1945) 268-290"
    parameters = (
        Parameter("E", "MPa", 35e3, 220e3, "log", "Young's modulus"),
        Parameter("K", "MPa", 100.0, 2000.0, "log", "stress at a strain of 1"),
        Parameter("n", "-", 0.05, 0.55, "linear", "hardening exponent"),
    )

    @staticmethod
    def fill_stress(strain: Array, columns: Array, out: Array) -> None:
        modulus, strength, exponent = columns
        np.minimum(modulus * strain, strength * strain**exponent, out=out)

    @staticmethod
    def fill_derivatives(strain: Array, columns: Array, out: Array) -> None:
        modulus, strength, exponent = columns
        power = strain**exponent
        elastic = modulus * strain <= strength * power
        logarithm = np.log(np.maximum(strain, _TINY_STRAIN))
        out[:, :, 0] = np.where(elastic, strain, 0.0)
        out[:, :, 1] = np.where(elastic, 0.0, power)
        out[:, :, 2] = np.where(elastic, 0.0, strength * power * logarithm)


def _above_yield(strain: Array, columns: Array) -> tuple[Array, Array]:
    """Strain (negative before) and stress of Ludwik's law beyond first yield, each [curves, points]."""
    modulus, first_yield, strength, exponent = columns
    beyond = strain - first_yield / modulus
    offset_stress = np.maximum(strength * _OFFSET**exponent, _TINY_STRESS)
    return beyond, _solve(beyond, np.stack([modulus, offset_stress, 1.0 / exponent]))


def _solve(strain: Array, columns: Array) -> Array:
    """Stress [curves, points] of ε = σ/E + 0.002 (σ/σ02)^n.

    Either the elastic strain is a power of the plastic one that is not below 1, or the other way round: x = a y^k. So y
    + a y^k = ε is solved by Newton in ln y. The logarithm of the left-hand side is convex there, rises with slopes from
    1 to k, and does not overflow. The start is the smaller of ε and (ε/a)^(1/k), above the root.
    """
    modulus, offset_stress, exponent = columns
    positive = np.log(np.maximum(strain, _TINY_STRAIN))
    elastic, plastic = np.log(offset_stress / modulus), np.log(_OFFSET)
    # Strains at the offset: the one whose power is sought, and the other.
    is_power = exponent >= 1.0
    own, other = np.where(is_power, elastic, plastic), np.where(is_power, plastic, elastic)
    power = np.where(is_power, exponent, 1.0 / exponent)
    factor = other - power * own
    found = np.minimum(positive, (positive - factor) / power)
    for _ in range(_MOST_STEPS):
        further = factor + power * found
        further -= found
        ratio = np.exp(-np.abs(further))
        # ln(y + a y^k), and its slope by the share of the power in the sum.
        step = np.maximum(further, 0.0)
        step += found
        step += np.log1p(ratio)
        step -= positive
        share = np.where(further > 0.0, 1.0, ratio) / (1.0 + ratio)
        share *= power - 1.0
        share += 1.0
        step /= share
        found -= step
        if (np.abs(step) <= _TOLERANCE).all():
            break
    stress = np.where(is_power, modulus * np.exp(found), 0.0)
    if not is_power.all():
        by_plastic = offset_stress * np.exp(power * (found - plastic))
        stress = np.where(is_power, stress, by_plastic)
    return np.where(strain > 0.0, stress, 0.0)


# --------------------------------------------------------------------------------------------------
# Metals over strain rates and temperatures: Johnson and Cook's flow stress.


# The hardening curve at one rate and temperature.
_LUDWIK = Ludwik()
# Stands in for the factor of melting metal, whose logarithm is infinite.
_NO_STRENGTH = 1e-30


class JohnsonCook(HistoryLaw):
    """Hardening times a factor of the rate times one of the temperature; each test has one rate and temperature.

    The strain is elastic (σ/E at every temperature) plus plastic, and rises. Below the room temperature the last
    factor is 1, from melting on it is 0. Tests at one rate leave C open, tests at one temperature m. Examples of the
    paper, A, B (MPa), n, C, m: 4340 steel 792, 510, 0.26, 0.014, 1.03; 2024-T351 aluminium 265, 426, 0.34, 0.015,
    1.00; OFHC copper 90, 292, 0.31, 0.025, 1.09.
    """

    name = "johnson_cook"
    title = "Johnson-Cook 1983"
    formula = "σ = (A + B·εpⁿ)·(1 + C·ln(r/r0))·(1 − T*ᵐ),  T* = (T − Tr)/(Tm − Tr),  εp = ε − σ/E"
    source = (
        "G. R. Johnson, W. H. Cook, A constitutive model and data for metals subjected to large strains, high strain "
        "rates and high temperatures, Proc. 7th Int. Symp. on Ballistics, The Hague (1983) 541-547"
    )
    parameters = (
        Parameter("E", "MPa", 35e3, 220e3, "log", "Young's modulus"),
        Parameter("A", "MPa", 20.0, 2000.0, "log", "initial yield stress at r0 and Tr"),
        Parameter("B", "MPa", 50.0, 1500.0, "log", "hardening at a plastic strain of 1"),
        Parameter("n", "-", 0.05, 0.8, "linear", "hardening exponent"),
        Parameter("C", "-", 0.001, 0.1, "log", "rise per factor e of the rate"),
        Parameter("m", "-", 0.4, 2.0, "log", "exponent of thermal softening"),
        Parameter("reference_rate", "1/s", 1e-5, 10.0, "log", "reference strain rate r0", 1.0),
        Parameter("room", "°C", -50.0, 50.0, "linear", "room temperature Tr", 20.0),
        Parameter("melting", "°C", 200.0, 3500.0, "linear", "melting temperature Tm", 1500.0),
    )
    strain_measure = "true"
    stress_measure = "true"
    strain_spacing = 2.0
    noise_mpa = 5.0
    laboratory = RATES_AND_TEMPERATURES
    tests = ("rate_and_temperature",) * 4

    def respond(self, history: History, parameters: Array) -> Array:
        strain, log_rate, share = self._settings(history, parameters)
        by_rate, by_temperature = _factors(parameters, log_rate, share)

        return _LUDWIK.stress(strain, _scaled(parameters, by_rate * by_temperature))

    def sensitivities(self, history: History, parameters: Array) -> Array:
        """See `Law.sensitivities`; by the sensitivities of Ludwik's law."""
        strain, log_rate, share = self._settings(history, parameters)
        by_rate, by_temperature = _factors(parameters, log_rate, share)
        _, yield_stress, hardening, _, growth, power, rate, room, melting = parameters.T
        factor = by_rate * by_temperature
        # Where a factor is cut off at 0, or at room temperature, nothing changes it.
        rising = (by_rate > 0.0) * by_temperature
        softened = np.where((share > 0.0) & (share < 1.0), by_rate, 0.0)
        safe = np.where(softened > 0.0, share, 0.5)
        slope = -softened * power * safe ** (power - 1.0)
        changes = [
            rising * log_rate,
            -softened * safe**power * np.log(safe),
            -rising * growth / rate,
            slope * (share - 1.0) / (melting - room),
            -slope * share / (melting - room),
        ]
        out = np.empty((len(parameters), strain.shape[1], len(self.parameters)))
        out[:, :, :4] = _LUDWIK.derivatives(strain, _scaled(parameters, factor))
        by_factor = yield_stress[:, None] * out[:, :, 1] + hardening[:, None] * out[:, :, 2]
        out[:, :, 1:3] *= factor[:, None, None]
        out[:, :, 4:] = by_factor[:, :, None] * np.stack(changes, axis=1)[:, None, :]
        return out

    def _settings(self, history: History, parameters: Array) -> tuple[Array, Array, Array]:
        """The strain, [curves] ln(rate over its reference) and [curves] the homologous temperature T*, 0 to 1."""
        strain = self.driven_strain(history).driven
        if history.rate is None or history.temperature is None:
            raise InputError(
                f"law {self.name} asks for the strain rate and the temperature of a test"
            )
        *_, reference, room, melting = parameters.T
        share = (history.temperature[:, 0] - room) / (melting - room)
        return strain, np.log(history.rate[:, 0] / reference), np.clip(share, 0.0, 1.0)


def _factors(parameters: Array, log_rate: Array, share: Array) -> tuple[Array, Array]:
    """The factors of rate and temperature, [curves]; far below the reference rate the first ends at 0."""
    growth, power = parameters.T[4:6]
    return np.maximum(1.0 + growth * log_rate, 0.0), 1.0 - share**power


def _scaled(parameters: Array, factor: Array) -> Array:
    """E, A and B times the factor, and n: [curves, 4]."""
    modulus, yield_stress, hardening, exponent = parameters.T[:4]
    factor = np.maximum(factor, _NO_STRENGTH)
    return np.stack([modulus, yield_stress * factor, hardening * factor, exponent], axis=1)


# --------------------------------------------------------------------------------------------------
# Concrete in uniaxial compression; strain and stress are positive there.


# Where Hognestad's falling line ends, and the share of the strength that is left there; flat behind it.
_CRUSHING_STRAIN, _SHARE_LEFT = 0.0038, 0.85


class Hognestad(BlockLaw):
    """A parabola to the strength, then a line down to 85 % of it at a strain of 0.38 %."""

    name = "hognestad"
    title = "Hognestad 1951 (concrete in compression)"
    formula = "σ = fc·(2·ε/ε0 − (ε/ε0)²) to ε0, then linear to 0.85·fc at 0.0038"
    source = (
        "E. Hognestad, A study of combined bending and axial load in reinforced concrete members, "
        "University of Illinois Bulletin 399 (1951)"
    )
    parameters = (
        Parameter("fc", "MPa", 15.0, 60.0, "linear", "compressive strength"),
        Parameter("epsilon0", "-", 0.0015, 0.003, "linear", "strain at the strength, ε0"),
    )
    strain_measure = "engineering"
    stress_measure = "engineering"
    compression = True
    max_strain = (0.002, _CRUSHING_STRAIN)
    noise_mpa = 0.5

    @staticmethod
    def fill_stress(strain: Array, columns: Array, out: Array) -> None:
        strength, peak_strain = columns
        to_peak = np.minimum(strain / peak_strain, 1.0)
        np.multiply(to_peak, 2.0 - to_peak, out=out)
        out -= (1.0 - _SHARE_LEFT) * _share_of_fall(strain, peak_strain)
        out *= strength

    @staticmethod
    def fill_derivatives(strain: Array, columns: Array, out: Array) -> None:
        strength, peak_strain = columns
        to_peak = np.minimum(strain / peak_strain, 1.0)
        fall = _share_of_fall(strain, peak_strain)
        out[:, :, 0] = to_peak * (2.0 - to_peak) - (1.0 - _SHARE_LEFT) * fall
        rising = -2.0 * (1.0 - to_peak) * to_peak / peak_strain
        length = _CRUSHING_STRAIN - peak_strain
        on_line = (fall > 0.0) & (fall < 1.0)
        falling = np.where(on_line, (1.0 - _SHARE_LEFT) * (1.0 - fall) / length, 0.0)
        out[:, :, 1] = strength * (rising + falling)


def _share_of_fall(strain: Array, peak_strain: Array) -> Array:
    """How far on the falling line: 0 at the strength, 1 at its end."""
    length = np.maximum(_CRUSHING_STRAIN - peak_strain, 1e-12)
    return np.clip((strain - peak_strain) / length, 0.0, 1.0)
