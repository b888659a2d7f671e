"""A run's folder as `tfmat train` leaves it, with made-up numbers."""

import json
import pathlib
from typing import Any

import numpy as np

from tfmat.files import write_json
from tfmat.identification.results import Evaluation, ScoredAnswers
from tfmat.report.run_files import write_evaluation

CURVES = 400
PARAMETERS = [
    {"name": "G0", "unit": "MPa", "low": 2000.0, "high": 8000.0, "scale": "linear"},
    {"name": "a", "unit": "MPa^-3", "low": 1e-9, "high": 1e-7, "scale": "log"},
]
CONFIG = {
    "law": "hahn_tsai",
    "global_batch_size": 150,
    "optimizer": {"name": "adam", "schedule": "cosine"},
    "ranges": {},
    "num_examples": 4500,
    "total_steps": 120,
    "data_dir": "data/hahn_tsai-6000-e975c960",
}
STATUS = {
    "started": "2026-01-02T03:04:05+00:00",
    "state": "done",
    "reason": "all 120 steps done",
    "updated": "2026-01-02T03:05:05+00:00",
    "resumed_from_steps": [],
}
SESSION = {
    "started": "2026-01-02T03:04:05+00:00",
    "command": "tfmat train --workdir=run",
    "versions": {"tfmat": "0.1.0", "tensorflow": "2.21.0"},
    "git": {"revision": "0123456789abcdef", "changed": True},
    "machine": {
        "name": "lab", "system": "Linux", "processor": "AMD EPYC", "usable_processors": 2,
        "memory_gib": 8.0, "gpus": [],
    },
}  # fmt: skip


# The entry `reference` of evaluation.json.
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


def metrics(losses: tuple[float, ...] = (1e-2, 3e-3, 1.4e-3, 1.3e-3)) -> list[dict[str, Any]]:
    """One line an epoch; the validation loss is a little above the training loss."""
    return [
        {
            "step": 30 * i, "epoch": float(i), "seconds": 5.0 * i, "curves_per_second": 30000.0,
            "loss": loss, "val_loss": 1.05 * loss,
        }
        for i, loss in enumerate(losses, start=1)
    ]  # fmt: skip


def evaluation(**changes: Any) -> dict[str, Any]:
    """Content of evaluation.json: good answers, without a yardstick."""
    score = {"unit": "MPa", "mse": 1e-4, "mae": 45.67, "mae_percent": 0.9, "r2": 0.999}
    other = {"unit": "MPa^-3", "mse": 1e-3, "mae": 1e-9, "mae_decades": 0.04, "r2": 0.98}
    return {
        "format": 1,
        "law": "hahn_tsai",
        "num_curves": CURVES,
        "mse": 5e-4,
        "parameters": {"G0": score, "a": other},
        "rmse_percent": 1.5,
        "rmse_percent_p95": 2.5,
        "rmse_over_noise": 1.06,
        "curves_per_second": 100000.0,
        "coverage": None,
        "yardstick": None,
        **changes,
    }


def yardstick(eta: float = 2.5) -> dict[str, Any]:
    """Content of its entry `yardstick`, for both parameters; G0 is the worse one."""
    entry = REFERENCE["parameters"]["G0"]
    scores = {"G0": {**entry, "eta": eta}, "a": {**entry, "eta": 1.1}}
    bins = [
        {"low": low, "high": 2 * low, "num_curves": 200, "parameters": scores}
        for low in (0.01, 0.02)
    ]
    return {
        **REFERENCE,
        "num_curves": CURVES // 2,
        "parameters": scores,
        "bins": {"max_strain": bins, "noise_to_signal": bins, "num_points": bins[:1]},
    }


COVERAGE_OF_ONE = {
    "50": 0.51, "90": 0.905, "95": 0.94, "z_std": 1.01, "nll": -3.0, "mean_std": 0.01, "mean_width_95": 0.04,
    "curve": {"nominal": [0.1, 0.5, 0.9, 0.95], "observed": [0.1, 0.51, 0.905, 0.94]},
    "bins": [
        {"mean_std": 0.01, "rms_error": 0.011, "num_curves": 50},
        {"mean_std": 0.02, "rms_error": 0.02, "num_curves": 50},
    ],
}  # fmt: skip


_EVEN = {
    "largest_difference": -0.021, "inside_band": True,
    "difference": (0.02 * np.sin(np.linspace(0.1, 6.0, 99))).tolist(),
}  # fmt: skip
# The entry `posterior` of evaluation.json, compared with exact posteriors.
POSTERIOR = {
    "num_curves": CURVES, "log_score": 7.125, "log_score_error": 0.01, "worst_log_score": 0.5,
    "joint_coverage": {"50": 0.51, "90": 0.905, "95": 0.949},
    "ranks": {"G0": _EVEN, "a": {**_EVEN, "largest_difference": 0.09, "inside_band": False}},
    "tarp": _EVEN, "band": 3.2, "contraction": {"G0": 0.97, "a": 0.8},
    "z_score": {"G0": {"mean": 0.01, "rms": 1.02}, "a": {"mean": -0.2, "rms": 0.98}},
    "exact": {
        "num_curves": 200, "pareto_k": {"median": 0.31, "share_above": 0.045}, "effective_share": 0.8,
        "log_score_gap": 0.123, "log_score_gap_error": 0.004, "best_classifier": {"median": 0.56, "p95": 0.64},
        "c2st": {"num_curves": 100, "median": 0.537, "p95": 0.6},
        "parameters": {"G0": {"mean_error": 0.11, "std_ratio": 1.05}, "a": {"mean_error": 0.1, "std_ratio": 1.02}},
    },
}  # fmt: skip


def write_samples(folder: pathlib.Path) -> None:
    """Samples of the example's posterior, which bends."""
    random = np.random.default_rng(0)
    first = random.normal(5000.0, 100.0, 500)
    second = 1e-8 * np.exp(((first - 5000.0) / 150.0) ** 2 + random.normal(0.0, 0.2, 500))
    posterior = {
        "names": ["G0", "a"], "units": ["MPa", "MPa^-3"], "logarithmic": [False, True],
        "values": np.stack([first, second], axis=1), "recommended": {"G0": 4980.0, "a": 1.2e-8}, "title": "c",
    }  # fmt: skip
    write_json(folder / "example_posterior.json", posterior)


def write_example_tests(folder: pathlib.Path, **changes: Any) -> None:
    """An example of two tests in place of one curve: loops, and a relaxation."""
    (folder / "example_picture.json").unlink(missing_ok=True)
    path = np.linspace(0.0, 9.0, 50)
    strain = 0.01 * np.sin(path)
    loops = {
        "name": "1_cyclic", "title": "cyclic tension and compression", "kind": "cyclic", "drives": "strain",
        "turns": True, "strain": strain, "stress_mpa": 2e4 * strain, "time": None, "answer": 2e4 * strain + 1,
        "other": 2e4 * strain - 9, "rmse_percent": 0.5, "settings": "",
    }  # fmt: skip
    held = {
        **loops, "name": "2_relaxation", "title": "stress relaxation", "kind": "relaxation", "turns": False,
        "time": np.geomspace(1.0, 1e4, 50), "settings": "0.001 1/s",
    }  # fmt: skip
    picture = {
        "name": "example_tests", "law_title": "Perzyna 1966", "parameters": {"E": (2e5, "MPa")},
        "intervals": {"E": (1.9e5, 2.1e5)}, "rmse_percent": 4.5,
        "refined": {"name": "least squares", "rmse_percent": 0.5}, "method": "least squares",
        "other_method": "network", "do_not_use": [], "assumed": [], "strain_label": "true strain",
        "stress_label": "true stress", "tests": [loops, held],
    }  # fmt: skip
    write_json(folder / "example_tests.json", picture | changes)


# Of `write_run`: the page has few pictures, or none, and is made in a tenth of the time.
NO_PICTURES: dict[str, Any] = {"answers": False, "metrics": [], "example": False}


def write_run(
    folder: pathlib.Path,
    *,
    content: dict[str, Any] | None = None,
    with_floor: bool = False,
    answers: bool = True,
    example: bool = True,
    **files: Any,
) -> pathlib.Path:
    """Writes a finished run.

    Args:
      content: of evaluation.json; None is `evaluation()`, {} leaves the evaluation out.
      answers: whether the evaluation leaves its answers, of which pictures are made.
      files: other contents of config, status, provenance, model (None: no such file) and metrics (a list).
    """
    folder.mkdir(parents=True, exist_ok=True)
    curves = {"law": "hahn_tsai", "noise_mpa": 1.0, "noise_relative": 0.0}
    contents = {
        "config": CONFIG,
        "status": STATUS,
        "provenance": {"format": 1, "sessions": [SESSION]},
        "model": {"format": 1, "law": "hahn_tsai", "parameters": PARAMETERS, "curves": curves},
        **{name: value for name, value in files.items() if name != "metrics"},
    }
    for name, value in contents.items():
        if value is not None:
            (folder / f"{name}.json").write_text(json.dumps(value))
    lines = files.get("metrics", metrics())
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    content = evaluation() if content is None else content
    if content:
        _write_evaluation(folder, content, with_floor)
    if not answers:
        (folder / "test_answers.npz").unlink(missing_ok=True)
    if example:
        _write_example(folder)
    return folder


def _write_evaluation(folder: pathlib.Path, content: dict[str, Any], with_floor: bool) -> None:
    random = np.random.default_rng(0)
    labels = random.uniform(size=(CURVES, 2))
    found = np.clip(labels + 0.01 * random.normal(size=labels.shape), 0, 1)
    strain = random.uniform(0.01, 0.05, CURVES)
    floor = np.full((CURVES // 2 if with_floor else 0, 2), 0.008**2)
    scores = Evaluation(num_curves=CURVES, mse=0.0, parameters={})
    answers = ScoredAnswers(_values(labels), _values(found), strain, 3000 * strain, floor)
    write_evaluation(folder, scores, answers)
    write_json(folder / "evaluation.json", content)  # perhaps of an older tfmat


def _values(labels: np.ndarray) -> np.ndarray:
    return np.stack([2000 + 6000 * labels[:, 0], 1e-9 * 100 ** labels[:, 1]], axis=1)


def _write_example(folder: pathlib.Path) -> None:
    value = {
        "value": 6946.0,
        "unit": "MPa",
        "std": 10.0,
        "least_squares": 6958.0,
        "ci95": [6900.0, 7000.0],
    }
    answer = {
        "curve": "example", "law": "hahn_tsai", "parameters": {"G0": value}, "rmse_percent": 2.5, "num_points": 50,
        "steps": [], "warnings": ["the example is made up"],
    }  # fmt: skip
    (folder / "example.json").write_text(json.dumps([answer]))
    strain = np.linspace(0, 0.04, 50)
    stress = 100 * np.tanh(50 * strain)
    picture = {
        "strain": strain, "stress_mpa": stress, "resimulated_mpa": stress + 2, "name": "example",
        "law_title": "Hahn–Tsai 1973", "parameters": {"G0": (6946.0, "MPa")}, "rmse_percent": 2.5,
        "refined": {"name": "least squares", "stress_mpa": stress + 0.4, "rmse_percent": 0.5, "values": {"G0": 6958.0}},
        "strain_label": "engineering shear strain", "stress_label": "shear stress",
    }  # fmt: skip
    write_json(folder / "example_picture.json", picture)
