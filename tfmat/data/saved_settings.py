"""What the curves of a data set were simulated with, from its manifest."""

import dataclasses
import pathlib
from typing import Any

from tfmat.curves.settings import CurveSettings
from tfmat.data.manifest import MANIFEST
from tfmat.errors import InputError
from tfmat.files import check_json

_KINDS = {field.name: field.type for field in dataclasses.fields(CurveSettings)}


def settings_of(folder: pathlib.Path, content: dict[str, Any]) -> CurveSettings:
    """The settings in a manifest; InputError where they are damaged."""
    for name, kind in _KINDS.items():
        if name in content:
            check_json(content[name], kind, f"{folder / MANIFEST}, settings.{name},")
    try:
        return CurveSettings.from_json(content)
    except InputError as error:
        raise InputError(f"{folder / MANIFEST}: settings: {error}") from error
