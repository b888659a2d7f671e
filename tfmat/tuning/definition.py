"""A config file makes a search, which may go on with another definition or not; a trial's values make a config file."""

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from tfmat.config import (
    Config,
    apply_override,
    call_config_function,
    check_config,
    default_config,
    find_config_file,
    load_config,
)
from tfmat.config_schema import FREE_SECTIONS, OPTIONS
from tfmat.errors import InputError
from tfmat.files import as_json, first_difference, flatten
from tfmat.tuning.space import Search
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


def load_search(
    path: str | os.PathLike,
    overrides: Sequence[tuple[str, str]] = (),
    max_trials: int | None = None,
) -> tuple[Config, Search]:
    """Reads `get_config()`, changed by the overrides (key, text), and `get_search()` of a config file, both checked.

    `max_trials` replaces the file's.

    Raises:
      InputError: the file is missing, fails, or says what does not exist.
    """
    file = find_config_file(os.fspath(path))
    base = load_config(file)
    search = call_config_function(file, "get_search", Search, "tfmat.tuning.Search(...)")
    for key, text in overrides:
        if key in search.space:
            raise InputError(f"--config.{key}={text}: the search chooses {key}; leave this out")
        apply_override(base, key, text)
    check_config(base)
    search.check()
    of_loss = "loss" in search.objective and search.objective_scale == "log"
    if base.model.uncertainty == "flow" and of_loss:
        raise InputError(
            f"{search.objective} of model.uncertainty=flow may be negative, which has no logarithm; write "
            "Search(objective_scale='linear')"
        )
    if max_trials is not None:
        search = dataclasses.replace(search, max_trials=max_trials)
        search.check()
    return base, search


def config_text(base: Mapping[str, Any], values: Mapping[str, Any], title: str) -> str:
    """A config file that needs no other: the default config, changed as `base` was, and to a trial's values.

    Args:
      base: a checked config, nested, as plain values.
      values: config key -> value.
      title: the file's docstring.
    """
    changes: dict[str, Any] = {}
    defaults = flatten(default_config().to_dict())
    for key, value in flatten(base).items():
        value = tuple(value) if isinstance(value, list) else value
        if key.partition(".")[0] in FREE_SECTIONS or value != defaults[key]:
            changes[key] = value
    lines = [_assignment(key, value) for key, value in changes.items() if key not in values]
    found = [_assignment(key, value) for key, value in values.items()]
    body = [*lines, *(["# Found by the search:"] if found else []), *found] or ["pass"]
    inside = "\n".join(f"        {line}" for line in body)
    return f'''"""{title}"""

from tfmat.config import Config, default_config


def get_config() -> Config:
    config = default_config()
    with config.ignore_type():
{inside}
    return config
'''


def _assignment(key: str, value: Any) -> str:
    section, _, name = key.partition(".")
    if section in FREE_SECTIONS:
        return f"config.{section}[{name!r}] = {value!r}"
    if key in OPTIONS:
        value = OPTIONS[key].check(value)
    return f"config.{key} = {value!r}"


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
    defaults = {
        "config": flatten(as_json(default_config().to_dict())),
        "search": {"direction": "min"},
    }
    for what, saved, given, changeable in (
        ("search", state.definition, definition, CHANGEABLE),
        ("config", state.base, base, frozenset()),
    ):
        before, now = (defaults[what] | flatten(content) for content in (saved, given))
        key = first_difference(before, now, changeable)
        if key is not None:
            raise InputError(
                f"the search in {workdir} was started with another {what}: {key} was {before.get(key)}, "
                f"is {now.get(key)}; use the same config file to go on, or another --workdir"
            )
