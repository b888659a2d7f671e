"""`--config=FILE --config.KEY=VALUE ...`: the config file, its overrides, and the help on its keys.

ml_collections' own flags read sys.argv and know only the keys that a file declares; here `ranges.NAME` and
`fixed.NAME` depend on the law, and an unknown key is to be answered with the nearest valid one.
"""

import functools
import operator

from absl import flags

from tfmat.config import Config, apply_override, check_config, describe_options, load_config
from tfmat.errors import InputError

_PREFIX = "--config."


def define_config_flags(flag_values: flags.FlagValues, default: str) -> None:
    """Adds `--config` and what `rewrite` turns `--config.KEY=VALUE` into."""
    flags.DEFINE_string(
        "config", default, "config file; --config.KEY=VALUE changes a key", flag_values=flag_values
    )
    flags.DEFINE_multi_string("config_override", [], "", flag_values=flag_values)


def rewrite(arguments: list[str]) -> list[str]:
    """`--config.KEY=VALUE` and `--config.KEY VALUE` as `--config_override=KEY=VALUE`, which absl can parse."""
    rewritten, rest = [], list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument.startswith(_PREFIX):
            if "=" not in argument:
                if not rest or rest[0].startswith("--"):
                    raise InputError(f"{argument} has no value; write {argument}=VALUE")
                argument += f"={rest.pop(0)}"
            argument = f"--config_override={argument.removeprefix(_PREFIX)}"
        rewritten.append(argument)
    return rewritten


def read_config(flag_values: flags.FlagValues) -> Config:
    """The config file with `--law`, where the command has that flag, and the command line's overrides; checked."""
    config = load_config(flag_values.config)
    law = flag_values.law if "law" in flag_values else None
    for override in [*([] if law is None else [f"law={law}"]), *flag_values.config_override]:
        key, _, text = override.partition("=")
        apply_override(config, key, text)
    return check_config(config)


def config_help(flag_values: flags.FlagValues) -> str:
    """The keys of a config, one a line, with meaning and the value that a run with these flags would have."""
    config = read_config(flag_values)
    lines = ["", f"config keys (--config.KEY=VALUE) [as in {flag_values.config}]:"]
    for option in describe_options():
        value = functools.reduce(operator.getitem, option.name.split("."), config)
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        text = text.lower() if isinstance(value, bool | None) else text
        choices = f" ({', '.join(option.choices)})" if option.choices else ""
        lines.append(f"  {option.name}: {option.meaning}{choices} [{text}]")
    lines.append("  ranges.NAME: LOW,HIGH, range of a law's parameter (see `tfmat laws`)")
    lines.append(
        "  fixed.NAME: value of a law's parameter that is known and not identified, e.g. fixed.E=193000"
    )
    return "\n".join(lines)
