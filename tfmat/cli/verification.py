"""`tfmat identify --verify`: runs of a user's program at draws from the posterior, and how near they come."""

import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfmat.cli.flags import FlagValues
from tfmat.errors import InputError, Interrupted

if TYPE_CHECKING:
    from tfmat.identification.answers import Identification
    from tfmat.identification.networks import Sidecar
    from tfmat.simulators.description import Description

# Of a run's folder, where the runs of its verifications are stored.
RUNS = "verified.runs"


def specimen_of(flag_values: FlagValues, sidecar: "Sidecar") -> "Description | None":
    """The simulation that --simulator names; its area and gauge length become the flags' where these are not given.

    Raises:
      InputError: it is not that of the network, or there is no posterior to verify.
    """
    if flag_values.simulator is None:
        if flag_values.verify is not None:
            raise InputError("--verify runs a program; say which: --simulator=FOLDER")
        return None
    from tfmat.simulators.description import read_description

    description = read_description(flag_values.simulator)
    wanted, given = ([p.name for p in of.parameters] for of in (description, sidecar))
    if not set(wanted) <= set(given):
        raise InputError(
            f"{description.folder} has the parameters {', '.join(wanted)}, the network {', '.join(given)}; "
            "name the simulator that it was trained on"
        )
    if flag_values.verify is not None and sidecar.uncertainty != "flow":
        raise InputError(
            "--verify draws from a posterior, which this network lacks; train one with --config.model.uncertainty=flow"
        )
    for name in ("area", "gauge_length"):
        if flag_values[name].value is None:
            flag_values[name].value = getattr(description.curve, name)
    return description


def verify_all(
    flag_values: FlagValues,
    description: "Description",
    network: pathlib.Path,
    results: "Sequence[Identification]",
    content: list[dict[str, Any]],
) -> list[tuple[str, str]]:
    """Runs the program for each answer; adds `verification` to its content, and a picture where these are asked for.

    Returns:
      (style, line) for the terminal, one an answer.
    """
    from tfmat.cli.identification_output import file_names
    from tfmat.cli.simulations import run_progress
    from tfmat.curves.cleaning import MeasuredCurve
    from tfmat.data.memory import available_threads
    from tfmat.report.drawing import save_figure
    from tfmat.report.figures import verification_figure
    from tfmat.simulators.verification import verify

    said = []
    for (name, result), entry in zip(file_names(results), content, strict=False):
        posterior, curve = result.posterior, result.curve
        assert posterior is not None and isinstance(curve, MeasuredCurve)
        try:
            with run_progress() as progress:
                runs = verify(
                    description,
                    network / RUNS,
                    curve.strain,
                    curve.stress_mpa,
                    _values(result, flag_values.verify),
                    processes=max(1, available_threads() // description.threads),
                    progress=progress,
                )
        except KeyboardInterrupt:
            raise Interrupted(
                "interrupted; finished runs are stored, and the same command goes on"
            ) from None
        entry["verification"] = [run.to_json() for run in runs]
        far = [run.rmse_percent for run in runs if run.rmse_percent is not None]
        failed = f"; {len(runs) - len(far)} failed" if len(far) < len(runs) else ""
        if not far:
            said.append(("yellow", f"verified: none of {len(runs)} runs has a curve"))
            continue
        line = (
            f"verified: {len(far)} runs at draws from the posterior of {curve.name} are {np.median(far):.2g} % "
            f"({min(far):.2g} to {max(far):.2g} %) of the maximum stress from the measured curve{failed}"
        )
        said.append(("", line))
        if flag_values.plot_dir is not None:
            figure = verification_figure(
                curve.name,
                curve.strain,
                curve.stress_mpa,
                [run.stress for run in runs if run.stress is not None],
            )
            save_figure(figure, pathlib.Path(flag_values.plot_dir) / f"{name}.verified.png")
    return said


def _values(result: "Identification", count: int) -> dict[str, Any]:
    """The first draws from an answer's posterior, by name, with what was given for the specimen."""
    assert result.posterior is not None
    samples = result.posterior.samples
    drawn = dict(zip(samples.names, samples.values[:count].T, strict=True))
    given = {name: np.full(count, each.value) for name, each in result.parameters.items()}
    return {**given, **drawn}
