"""Whether a search that is there may go on with the definition that is given now, and whether that extends it."""

import json
import pathlib
from typing import Any

from tfmat.config import default_config
from tfmat.errors import InputError
from tfmat.tuning.definition import flatten
from tfmat.tuning.state import SearchState

# What a definition may change when a search goes on: the suggestions stay what they were.
CHANGEABLE = frozenset(
    {
        "max_trials",
        "iterations",
        "max_failed_trials",
        "stop_hopeless",
        "hopeless_after",
        "hopeless_grace",
    }
)


def is_longer(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether a search that had ended goes on."""
    if (now["iterations"] or 0) > (before["iterations"] or 0):
        return True
    old, new = before["max_trials"], now["max_trials"]
    return old is not None and (new is None or new > old)


def check_same(
    workdir: pathlib.Path, state: SearchState, definition: dict[str, Any], base: dict[str, Any]
) -> None:
    """InputError where a search was started with other settings, naming the first that differs."""
    # A key that a later version of tfmat added has its default in both.
    defaults = {"config": flatten(as_json(default_config().to_dict())), "search": {}}
    for what, saved, given in (
        ("search", state.definition, definition),
        ("config", state.base, base),
    ):
        before, now = (defaults[what] | flatten(content) for content in (saved, given))
        for key in sorted(before.keys() | now.keys()):
            if before.get(key) != now.get(key) and not (what == "search" and key in CHANGEABLE):
                raise InputError(
                    f"the search in {workdir} was started with another {what}: {key} was {before.get(key)}, "
                    f"is {now.get(key)}; use the same config file to go on, or another --workdir"
                )


def as_json(content: dict[str, Any]) -> dict[str, Any]:
    """As it is after it was written and read."""
    return json.loads(json.dumps(content))
