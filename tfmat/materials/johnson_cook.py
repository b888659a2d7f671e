"""Metals over strain rates and temperatures: Johnson and Cook's flow stress."""

import numpy as np

from tfmat.errors import InputError
from tfmat.materials.history import Array, History
from tfmat.materials.laboratories import RATES_AND_TEMPERATURES
from tfmat.materials.law import HistoryLaw
from tfmat.materials.parameter import Parameter
from tfmat.materials.power_laws import Ludwik

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
        """See `Law.respond`."""
        strain, log_rate, share = self._settings(history, parameters)
        by_rate, by_temperature = _factors(parameters, log_rate, share)

        return _LUDWIK.stress(strain, _scaled(parameters, by_rate * by_temperature))

    def sensitivities(self, history: History, parameters: Array) -> Array:
        """See `Law.sensitivities`; by those of Ludwik's law."""
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
