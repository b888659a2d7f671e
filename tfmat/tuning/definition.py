"""From a config file to a search, and from a trial's values to a config file of its own."""

import os
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
from tfmat.tuning.space import Search


def load_search(
    path: str | os.PathLike, overrides: Sequence[tuple[str, str]] = ()
) -> tuple[Config, Search]:
    """Reads `get_config()`, changed by the overrides (key, text), and `get_search()` of a config file, both checked.

    Raises:
      InputError: the file is missing, fails, or says what does not exist.
    """
    file = find_config_file(os.fspath(path))
    base = load_config(file)
    search = call_config_function(file, "get_search")
    if not isinstance(search, Search):
        raise InputError(
            f"get_search() of {file} returned {type(search).__name__}; return tfmat.tuning.Search(...)"
        )
    for key, text in overrides:
        if key in search.space:
            raise InputError(f"--config.{key}={text}: the search chooses {key}; leave this out")
        apply_override(base, key, text)
    check_config(base)
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


def flatten(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted key -> value."""
    flat: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
