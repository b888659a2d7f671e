"""The one schema of a run's config: every key with its default, type and meaning; checking; JSON.

A config file is a Python file with `get_config()` that starts from `default_config()` and changes a few keys.
On the command line `--config.KEY=VALUE` changes one more. Keys under `ranges` and `fixed` are names of the law's
parameters, so they are free here and checked by the law.
"""

import math
import os
import pathlib
import traceback
import types
from collections.abc import Mapping
from typing import Any, TypeVar

from ml_collections import ConfigDict as Config

from tfmat.config_schema import FREE_SECTIONS, OPTIONS, Option
from tfmat.errors import InputError, nearest
from tfmat.files import check_json, flatten, literal, read_json

Kind = TypeVar("Kind")


def default_config() -> Config:
    """A config with every key of the schema at its default. `check_config` refuses what is not in the schema."""
    config = Config()
    for option in OPTIONS.values():
        section, key = _section_and_key(config, option.name)
        section[key] = option.default
    for section in FREE_SECTIONS:
        config[section] = Config()
    return config


def find_config_file(name: str) -> pathlib.Path:
    """`configs/x.py` as given, or the one of that name shipped with tfmat (also `x` alone)."""
    path = pathlib.Path(name)
    if path.is_file():
        return path
    if path.parent == pathlib.Path(".") or path.parent == pathlib.Path("configs"):
        for folder in shipped_config_folders():
            shipped = folder / f"{path.stem}.py"
            if shipped.is_file():
                return shipped
    valid = [
        f"configs/{file.name}"
        for folder in shipped_config_folders()
        for file in folder.glob("[!_]*.py")
    ]
    raise InputError(f"config file {name} does not exist{nearest(name, valid)}")


def shipped_config_folders() -> list[pathlib.Path]:
    """Where tfmat's own configs lie: beside the package in a checkout, inside it when installed."""
    package = pathlib.Path(__file__).parent
    return [
        folder for folder in (package.parent / "configs", package / "configs") if folder.is_dir()
    ]


def load_config(path: str | os.PathLike) -> Config:
    """Runs `get_config()` of a config file; InputError where it is missing, fails, or sets what does not exist."""
    path = find_config_file(os.fspath(path))
    if path.suffix != ".py":
        raise InputError(
            f"config file {path} is not a Python file; give one that defines get_config()"
        )
    return check_config(
        call_config_function(path, "get_config", Config, "default_config() changed")
    )


def apply_override(config: Config, key: str, text: str) -> None:
    """Sets `key` (dotted) from the text after `--config.KEY=`; InputError names unknown keys and wrong values."""
    section, _, name = key.partition(".")
    if section in FREE_SECTIONS:
        if not name.isidentifier():
            raise InputError(f"--config.{key}={text}: write --config.{section}.NAME=VALUE")
        config[section][name] = _parse_free(section, name, text)
        return
    option = OPTIONS.get(key)
    if option is None:
        raise InputError(f"unknown config key '{key}'{nearest(key, [*OPTIONS, *FREE_SECTIONS])}")
    parent, last = _section_and_key(config, key)
    with parent.ignore_type():
        parent[last] = option.parse(text)


def check_config(config: Config) -> Config:
    """Checks every key's type and value; returns `config`. InputError names the key, the value, and what is valid."""
    known = set(OPTIONS)
    # Once around all keys: each time it looks at every letter of every value.
    with config.ignore_type():
        for key, value in flatten(config).items():
            section = key.partition(".")[0]
            if section in FREE_SECTIONS:
                continue
            if key not in known:
                raise InputError(f"unknown config key '{key}'{nearest(key, known)}")
            parent, last = _section_and_key(config, key)
            parent[last] = OPTIONS[key].check(value)
    for section in ("ranges", "test_ranges"):
        for name, limits in config[section].items():
            if (
                not isinstance(limits, tuple | list)
                or len(limits) != 2
                or not all(map(_is_number, limits))
            ):
                raise InputError(
                    f"config key {section}.{name} is {limits!r}; give two numbers, low and high"
                )
    for name, value in config.fixed.items():
        if not _is_number(value):
            raise InputError(f"config key fixed.{name} is {value!r}; give a number")
    target = config.target_val_loss
    if target is not None and target <= 0 and config.model.uncertainty != "flow":
        raise InputError(
            f"config key target_val_loss is {target!r}; it must be positive: only the loss of model.uncertainty=flow, "
            "minus a log density, may be negative"
        )
    check_layers(config.model, config.data.num_points)
    return config


def check_layers(model_config: Config, num_points: int) -> None:
    """Raises InputError where the network that the `model` section describes cannot be built."""
    filters, kernels = model_config.conv_filters, model_config.kernel_sizes
    if len(filters) != len(kernels):
        raise InputError(
            f"model.conv_filters has {len(filters)} entries and model.kernel_sizes {len(kernels)}; "
            "give one kernel size for each convolution"
        )
    if model_config.ghost_batch_size and model_config.batch_normalization != "local":
        raise InputError(
            f"model.ghost_batch_size is for model.batch_normalization=local, not {model_config.batch_normalization}; "
            "set that too, or leave it out"
        )
    for key in ("couplings", "coupling_units"):
        default = OPTIONS[f"model.{key}"].default
        if model_config.uncertainty != "flow" and model_config[key] != default:
            raise InputError(
                f"model.{key} is for model.uncertainty=flow, not {model_config.uncertainty}; set that too, or leave "
                "it out"
            )
    if model_config.representation != "points":
        if model_config.input_scaling != "data_set":
            raise InputError(
                f"model.representation={model_config.representation} scales for itself; leave out model.input_scaling"
            )
        return
    left = num_points // model_config.pool_size ** len(filters)
    if left < 1:
        raise InputError(
            f"{len(filters)} poolings by model.pool_size={model_config.pool_size} leave nothing of "
            f"{num_points} points; use fewer convolutions or a smaller pool"
        )


def goes_in_pieces(model_config: Config) -> bool:
    """Whether a batch goes through the network in pieces side by side, each on one processor.

    Layers with state, as batch normalization and dropout have it, keep a batch whole; then each operation had better
    use all processors.
    """
    return bool(model_config.dropout == 0 and model_config.batch_normalization == "none")


def load_saved_config(path: str | os.PathLike) -> tuple[Config, dict[str, Any]]:
    """Reads `config.json`: the config, and what the run put beside it (`data_dir`, `total_steps`)."""
    content = check_json(read_json(path), dict[str, Any], path)
    try:
        return check_saved_config(content)
    except InputError as error:
        raise InputError(f"{path} is damaged: {error}") from error


def check_saved_config(content: Mapping[str, Any]) -> tuple[Config, dict[str, Any]]:
    """A config as it was saved, and what else stands beside it; InputError names the key that cannot be."""
    config, extra = default_config(), {}
    with config.ignore_type():
        for key, value in flatten(content).items():
            section, _, name = key.partition(".")
            if section in FREE_SECTIONS:
                config[section][name] = tuple(value) if isinstance(value, list) else value
            elif key in OPTIONS:
                parent, last = _section_and_key(config, key)
                parent[last] = tuple(value) if isinstance(value, list) else value
            else:
                extra[key] = value
    return check_config(config), extra


def describe_options() -> list[Option]:
    """Every key with default and meaning, for `--help`."""
    return list(OPTIONS.values())


def call_config_function(path: pathlib.Path, name: str, kind: type[Kind], wanted: str) -> Kind:
    """What the function `name` of a config file returns; InputError where there is none, or it fails.

    Compiled here: an import would leave a `__pycache__` beside the file.

    Args:
      kind: of what it has to return; `wanted`: the same for people.
    """
    module = types.ModuleType(f"tfmat_config_{path.stem}")
    module.__file__ = str(path)
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), vars(module))
        if not hasattr(module, name):
            raise InputError(f"config file {path} does not define {name}()")
        found = getattr(module, name)()
        if not isinstance(found, kind):
            raise InputError(f"{name}() of {path} returned {type(found).__name__}; return {wanted}")
        return found
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        reason = " ".join(str(error).split())[:200]
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(path)]
        where = f" (line {lines[-1]})" if lines else ""  # a SyntaxError says it itself
        raise InputError(
            f"config file {path} failed: {type(error).__name__}: {reason}{where}"
        ) from error


def _section_and_key(config: Config, name: str) -> tuple[Config, str]:
    *sections, key = name.split(".")
    for section in sections:
        if section not in config:
            config[section] = Config()
        config = config[section]
    return config, key


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _parse_free(section: str, name: str, text: str) -> Any:
    try:
        value = literal(text)
    except ValueError:
        value = text
    if (
        section != "fixed"
        and isinstance(value, tuple)
        and len(value) == 2
        and all(map(_is_number, value))
    ):
        return tuple(map(float, value))
    if section == "fixed" and _is_number(value):
        return float(value)
    wanted = "a number" if section == "fixed" else "two numbers, LOW,HIGH"
    raise InputError(f"--config.{section}.{name}={text}: give {wanted}")
