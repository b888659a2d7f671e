"""Labelled curves as a user's own file holds them."""

import pathlib
from typing import Any

import numpy as np

from tfmat.records.simulation import CurveSettings, Simulator


def line_curves(count: int = 40, points: int = 200) -> dict[str, Any]:
    """stress = E * strain + offset, sorted by E: arrays as a user's file holds them."""
    modulus = np.linspace(1000.0, 2000.0, count)
    offset = np.random.default_rng(0).uniform(1.0, 100.0, count)
    strain = np.linspace(0.0, 1.0, points) * np.linspace(0.01, 0.05, count)[:, None]
    return {
        "strain": strain,
        "stress": modulus[:, None] * strain + offset[:, None],
        "parameters": np.stack([modulus, offset], axis=1),
        "names": np.array(["E", "offset"]),
        "units": np.array(["MPa", "MPa"]),
    }


def hahn_tsai_curves(count: int = 50, **settings: Any) -> dict[str, Any]:
    curves = Simulator(CurveSettings(strength_cut_off=False, **settings), 0).curves(0, count)
    return {
        "strain": curves.features[..., 0],
        "stress": curves.features[..., 1],
        "parameters": curves.parameters[:, ::-1],
        "names": np.array(["a", "G0"]),
        "units": np.array([b"MPa^-3", b"MPa"]),
    }


def save_curves(
    folder: pathlib.Path, arrays: dict[str, Any], name: str = "curves.npz"
) -> pathlib.Path:
    path = folder / name
    np.savez(path, **arrays)
    return path
