"""Samples of posteriors as ArviZ takes them: a tree of labelled arrays, in memory or as a netCDF file.

R. Kumar, C. Carroll, A. Hartikainen, O. Martin, ArviZ, a unified library for exploratory analysis of Bayesian models,
J. Open Source Software 4 (2019) 1143; the names of groups and variables are those of its InferenceData schema.
"""

import importlib.util
import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

import tfmat
from tfmat.errors import InputError
from tfmat.files import atomic_write
from tfmat.identification.answers import Identification

_PACKAGES = ("arviz_base", "h5netcdf")


def check_arviz() -> None:
    """InputError where ArviZ's package of data, or what writes its files, is not installed."""
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(
            f"ArviZ's data need {' and '.join(missing)}; run `{sys.executable} -m pip install 'arviz-base[h5netcdf]'`, "
            "or save the samples as .npz"
        )


def inference_data(answers: Sequence[Identification]) -> Any:
    """The samples of answers for one law as an `xarray.DataTree`, ArviZ's InferenceData.

    Group `posterior` has a variable for each parameter with its `units`, dimensions `chain` (one), `draw` and `curve`
    (the curves' names), and the attribute `certificate`, of each curve; `sample_stats` has `lp`, the logarithm of the
    posterior density in these units. Curves without samples are NaN.

    Raises:
      InputError: no answer has samples, or ArviZ is not installed.
    """
    check_arviz()
    import arviz_base

    known = next((answer.samples for answer in answers if answer.samples is not None), None)
    if known is None:
        raise InputError(
            "no answer has samples; ask for them (samples=1000) of a network that knows the curves"
        )
    nothing = np.full_like(known.values, np.nan), np.full_like(known.log_density, np.nan)
    drawn = [
        nothing if a.samples is None else (a.samples.values, a.samples.log_density) for a in answers
    ]
    # [chain, draw, curve], of each parameter.
    values = np.stack([each[0] for each in drawn], axis=1)[None]
    density = np.stack([each[1] for each in drawn], axis=1)[None]
    variables = {name: values[..., i] for i, name in enumerate(known.names)}
    law = next((answer.law.name for answer in answers if answer.law), None)
    tree = arviz_base.from_dict(
        {"posterior": variables, "sample_stats": {"lp": density}},
        coords={"curve": [answer.curve.name for answer in answers]},
        dims={name: ["curve"] for name in (*variables, "lp")},
        attrs={
            "/": {
                "inference_library": "tfmat",
                "inference_library_version": tfmat.__version__,
                "law": str(law),
            }
        },
    )
    for name, unit in zip(known.names, known.units, strict=True):
        tree["posterior"][name].attrs["units"] = unit
    certificates = ["" if a.posterior is None else a.posterior.certificate.status for a in answers]
    tree["posterior"].attrs["certificate"] = certificates
    return tree


def write_inference_data(answers: Sequence[Identification], path: str | os.PathLike) -> None:
    """Writes `inference_data` as a netCDF file, whole or not at all."""
    content = inference_data(answers).to_netcdf(engine="h5netcdf")
    with atomic_write(path, "wb") as file:
        file.write(content)
