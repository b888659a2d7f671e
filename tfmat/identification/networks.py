"""Networks on disk, without TensorFlow: what `model.json` says of `model.keras`, and which network answers."""

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from tfmat.curves.records import RecordForm
from tfmat.curves.resampling import CurveTarget
from tfmat.curves.settings import CurveSettings
from tfmat.errors import InputError
from tfmat.files import read_json, write_json
from tfmat.identification.uncertainty import Calibration, Spread
from tfmat.materials.law import Law, Parameter
from tfmat.materials.registry import DEFAULT_LAW, law_class

# 2 says of the uncertainty too, 3 of a whole posterior; what has none is still written as 1.
FORMATS = (1, 2, 3)
DEFAULT_WORKDIR = "runs/quickstart"
_FOLDER = pathlib.Path(__file__).resolve().parents[1] / "pretrained"
# In a law's folder there: the network that answers where samples of a posterior are asked for.
_POSTERIOR = "posterior"


@dataclasses.dataclass(frozen=True)
class Sidecar:
    """The meaning of a model's inputs and outputs, or of a law's alone (see `law_alone`).

    Attributes:
      file: where it was read; None where there is no model.
      parameters: the identified ones, in the order of the model's outputs.
      settings: the simulation that the model was trained on, or None for a user's own labelled curves.
      law: its law, or None where no law is known (then nothing can be re-simulated).
      target: the form of the measured curves that the model takes; of one test where its records have several.
      calibration: of the standard deviations that the model answers beside the labels, or None where it answers none.
      uncertainty: the model's head: `none`, `gaussian` or `flow`.
      spread: of the posteriors of a `flow`.
    """

    file: pathlib.Path | None
    parameters: tuple[Parameter, ...]
    settings: CurveSettings | None
    law: Law | None
    target: CurveTarget
    calibration: Calibration | None = None
    uncertainty: str = "none"
    spread: Spread = dataclasses.field(default_factory=Spread)

    @property
    def form(self) -> RecordForm:
        """What the points and channels of the model's records are."""
        return RecordForm.of(self.settings) if self.settings else RecordForm(self.target.num_points)


def law_alone(law: str) -> Sidecar:
    """What least squares identifies where there is no network: a law, by name or `path/to/file.py:ClassName`.

    Its curves may end at any strain; otherwise the law's own defaults hold.
    """
    settings = CurveSettings(law=law)
    built = settings.build_law()
    target = dataclasses.replace(CurveTarget.of(settings, built), max_strain=None)
    return Sidecar(None, built.identified, settings, built, target)


def model_files(workdir: str | os.PathLike) -> tuple[pathlib.Path, pathlib.Path]:
    """The model of a run and its sidecar; raises InputError where one is missing."""
    workdir = pathlib.Path(workdir)
    files = workdir / "model.keras", workdir / "model.json"
    for file in files:
        if not file.is_file():
            raise InputError(
                f"{workdir} holds no trained model ({file.name} is missing); "
                f"train one with: tfmat train --workdir={workdir}"
            )
    return files


def read_sidecar(workdir: str | os.PathLike) -> Sidecar:
    """Reads the sidecar of a run's best model; raises InputError where there is none or it is damaged."""
    file = model_files(workdir)[1]
    content: Any = read_json(file)
    try:
        if content["format"] not in FORMATS:
            raise InputError(
                f"{file} has format {content['format']}; this tfmat reads formats up to {FORMATS[-1]}"
            )
        parameters = tuple(_parameter(entry) for entry in content["parameters"])
        num_points = int(content["num_points"])
        settings = CurveSettings.from_json(content["curves"]) if content["curves"] else None
        uncertainty = str(content.get("uncertainty", "none"))
        calibration = _calibration(content, [parameter.name for parameter in parameters])
        spread = Spread.from_json(content["spread"]) if "spread" in content else Spread()
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{file} is damaged ({type(error).__name__}: {error}); train again"
        ) from error
    law = settings.build_law() if settings else None
    target = CurveTarget.of(settings, law) if settings and law else CurveTarget(num_points)
    expected = RecordForm.of(settings).num_points if settings else num_points
    if expected != num_points:
        raise InputError(
            f"{file} is damaged: {num_points} points, but its curves have {expected}; train again"
        )
    if law and [p.name for p in law.identified] != [p.name for p in parameters]:
        raise InputError(f"{file}: its parameters are not those of law {law.name}; train again")
    return Sidecar(file, parameters, settings, law, target, calibration, uncertainty, spread)


def write_calibration(workdir: str | os.PathLike, found: Calibration | Spread) -> None:
    """Adds the calibration of a run's best model to its sidecar."""
    file = model_files(workdir)[1]
    names = [parameter.name for parameter in read_sidecar(workdir).parameters]
    content: Any = read_json(file)
    if isinstance(found, Spread):
        added = {"spread": found.to_json()}
    else:
        added = {"calibration": found.to_json(names)}
    write_json(file, {**content, **added})


def _calibration(content: Mapping[str, Any], names: list[str]) -> Calibration | None:
    if content.get("uncertainty", "none") != "gaussian":
        return None
    stored = content.get("calibration")
    # None where the training is not over.
    return Calibration.from_json(stored, names) if stored else Calibration.gaussian(len(names))


def _parameter(entry: Mapping[str, Any]) -> Parameter:
    known = {field.name for field in dataclasses.fields(Parameter)}
    return Parameter(**{name: value for name, value in entry.items() if name in known})


def pretrained_laws() -> list[str]:
    """Laws that a network comes with."""
    return sorted(file.parent.name for file in _FOLDER.glob("*/model.keras"))


def name_of(folder: pathlib.Path) -> str:
    """What users are told of the network in a folder, which is that of a run or comes with tfmat."""
    if not folder.is_relative_to(_FOLDER):
        return str(folder)
    return f"{' '.join(folder.relative_to(_FOLDER).parts)} that comes with tfmat"


def find_network(
    workdir: str | os.PathLike | None, law: str | None = None, *, posterior: bool = False
) -> pathlib.Path | None:
    """The folder of the network that answers; None where there is none for the law, so that least squares answers.

    Args:
      workdir: a run's folder. None: runs/quickstart, where that holds a network of the law that is asked for;
        otherwise the network for the law that comes with tfmat.
      law: of the network, by name or `path/to/file.py:ClassName`; None: any, hahn_tsai of those that come with tfmat.
      posterior: whether samples are asked for: of two networks that come with tfmat the one with a whole posterior
        answers then. The other one is quicker.

    Raises:
      InputError: no network in `workdir`, or one of another law.
    """
    name = None if law is None else law_class(law).name
    if workdir is not None:
        folder = pathlib.Path(workdir)
        found = _law_of(folder)
        if name not in (None, found):
            raise InputError(
                f"the network in {workdir} is of law {found}, not {name}; name another run's folder (workdir)"
            )
        return folder
    folder = pathlib.Path(DEFAULT_WORKDIR)
    if (folder / "model.keras").is_file() and name in (None, _law_of(folder)):
        return folder
    name = name or DEFAULT_LAW
    if name not in pretrained_laws():
        return None
    folder = _FOLDER / name / _POSTERIOR
    return folder if posterior and folder.is_dir() else folder.parent


def needs_network(
    sidecar: Sidecar,
    *,
    named: bool = False,
    least_squares: bool = True,
    samples: bool = False,
    details: bool = False,
) -> bool:
    """Whether the network itself has to answer, which loads TensorFlow: where it can change what is told.

    Least squares has no part of it. The network answers where there is no least squares or no law, where the law itself
    errs (see `recommended_method`), where samples start from its posterior, and where somebody asks what it says.

    Args:
      sidecar: of the network that was found, or of a law alone.
      named: whether the user named its folder.
      least_squares, samples: whether these are asked for.
      details: whether the network's answer is to stand beside that of least squares.
    """
    if sidecar.file is None:
        return False
    if sidecar.law is None or sidecar.law.own_error or named or details or not least_squares:
        return True
    return samples and sidecar.uncertainty != "none"


def _law_of(folder: pathlib.Path) -> str | None:
    law = read_sidecar(folder).law
    return law.name if law else None
