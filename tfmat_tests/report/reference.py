"""The reference as `evaluation.json` holds it, small and made up."""

from typing import Any

SCORES = {
    "bayes_risk": 4e-5,
    "bayes_risk_error": 1e-6,
    "network_mse": 1e-4,
    "least_squares_mse": 5e-5,
    "eta": 2.5,
    "eta_error": 0.1,
    "least_squares_eta": 1.25,
    "least_squares_eta_error": None,
}
BIN = {"low": 0.01, "high": 0.02, "num_curves": 60, "parameters": {"G0": SCORES}}
REFERENCE: dict[str, Any] = {
    "num_curves": 60,
    "method": "quadrature",
    "fewest_effective_samples": None,
    "least_squares_curves_per_second": 25000.0,
    "parameters": {
        "G0": SCORES
        | {
            "cramer_rao": 4e-5,
            "posterior_calibration": 1.0,
            "interval_coverage": 0.95,
            "unidentifiable_share": 0.02,
        }
    },
    "bins": {"max_strain": [BIN, BIN], "noise_to_signal": [BIN], "num_points": [BIN]},
}
