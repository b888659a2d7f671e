"""The config: schema, files, overrides, checks, JSON."""

import json
import pathlib
from typing import Any

import pytest

from tfmat import config as module
from tfmat.config import (
    OPTIONS,
    Config,
    Duration,
    OptimizerSection,
    Parallelism,
    RunDetails,
    Settings,
    apply_override,
    check_config,
    default_config,
    find_config_file,
    load_config,
    load_saved_config,
)
from tfmat.errors import InputError
from tfmat.files import write_json

SHIPPED = sorted((pathlib.Path(__file__).parents[1] / "configs").glob("*.py"))
START = (
    "from tfmat.config import default_config\n\ndef get_config():\n    config = default_config()\n"
)


def _with(key: str, text: str) -> Config:
    config = default_config()
    apply_override(config, key, text)
    return check_config(config)


def _value(config: Config, key: str) -> object:
    value: object = config
    for part in key.split("."):
        value = value[part]  # type: ignore[index]
    return value


def test_every_default_is_valid_and_described() -> None:
    config = check_config(default_config())
    for option in OPTIONS.values():
        assert _value(config, option.name) == option.default
        assert option.meaning and option.check(option.default) == option.default


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_configs_load_and_say_their_command(path: pathlib.Path) -> None:
    load_config(path)
    compiled = compile(path.read_text(), path, "exec")
    namespace: dict[str, object] = {}
    exec(compiled, namespace)
    command = (
        "tfmat train" if path.stem == "quickstart" else f"tfmat train --config=configs/{path.name}"
    )
    assert f"{command}\n" in str(namespace["__doc__"])


def test_the_study() -> None:
    baseline = load_config("configs/baseline.py")
    assert (baseline.data.num_curves, baseline.global_batch_size) == (1_000_000, 75)
    assert (baseline.optimizer.name, baseline.optimizer.learning_rate) == ("adam", 4.7331e-4)
    assert baseline.optimizer.schedule == "constant"


def test_shipped_configs_are_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    expected = find_config_file("configs/smoke.py")
    assert find_config_file("smoke.py") == find_config_file("smoke") == expected
    (tmp_path / "smoke.py").write_text(START + "    config.seed = 5\n    return config\n")
    assert load_config("smoke.py").seed == 5  # the user's own comes first
    with pytest.raises(InputError, match="other/smoke.py does not exist"):
        find_config_file("other/smoke.py")


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("global_batch_size", "750", 750),
        ("global_batch_size", "1e3", 1000),
        ("data.num_curves", "1_000", 1000),
        ("optimizer.learning_rate", "1", 1.0),
        ("optimizer.learning_rate", "3e-4", 3e-4),
        ("optimizer.clip_norm", "none", None),
        ("optimizer.clip_norm", "1.5", 1.5),
        ("optimizer.nesterov", "false", False),
        ("jit_compile", "TRUE", True),
        ("model.hidden_units", "64,32", (64, 32)),
        ("model.hidden_units", "64", (64,)),
        ("model.hidden_units", "(64, 32)", (64, 32)),
        ("data.max_strain", "0.01,0.05", (0.01, 0.05)),
        ("data.max_strain", "none", None),
        ("train_for", "10m", "10m"),
        ("law", "my.py:Law", "my.py:Law"),
        ("ranges.G0", "2000,8000", (2000.0, 8000.0)),
        ("fixed.E", "193000", 193_000.0),
    ],
)
def test_overrides_take_the_type_of_their_key(key: str, text: str, value: object) -> None:
    found = _value(_with(key, text), key)
    assert found == value and type(found) is type(value)


def test_sections_hold_what_a_config_says_read_once() -> None:
    config = default_config()
    for key, text in (
        ("train_for", "3epochs"), ("batch_growth", "1epochs:2"), ("checkpoint.every", "90s"),
        ("mesh", "batch:4,model:2"), ("layouts", "a=-,model; b=replicated"), ("ranges.G0", "1,2"),
        ("optimizer.warmup", "5steps"), ("optimizer.schedule", "step"), ("global_batch_size", "10"),
    ):  # fmt: skip
        apply_override(config, key, text)
    settings = Settings.of(check_config(config))
    assert settings.train_for == Duration(3, "epochs") and settings.batch_growth == ((1, 2),)
    assert settings.checkpoint.every.seconds == 90 and settings.ranges == {"G0": (1.0, 2.0)}
    assert settings.parallel.mesh.axes == (("batch", 4), ("model", 2))
    assert settings.parallel.layouts == (("a", "-,model"), ("b", "replicated"))
    epochs = settings.epochs(100)
    assert epochs.steps(settings.train_for) == 10 + 5 + 5
    section = settings.optimizer
    assert (section.warmup_steps(epochs, 20), section.falls(epochs, 20)) == (5, [15])
    assert Settings.of(default_config()) == Settings()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"global_batch_size": 0}, "config key global_batch_size is 0; it must be 1 or more"),
        ({"precision": "float8"}, "config key precision is 'float8'"),
        ({"train_for": "soon"}, "'soon' is not a duration"),
    ],
)
def test_a_section_checks_itself(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Settings(**values)
    with pytest.raises(InputError, match="optimizer.warmup is '3s'; give it in steps or epochs"):
        OptimizerSection(warmup="3s")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="schedule is 'gpip'; did you mean 'gpipe'"):
        Parallelism(schedule="gpip")


def test_only_a_log_density_can_reach_a_negative_target() -> None:
    config = default_config()
    apply_override(config, "target_val_loss", "-7.5")
    with pytest.raises(InputError, match=r"target_val_loss is -7\.5; it must be positive: only"):
        check_config(config)
    apply_override(config, "model.uncertainty", "flow")
    assert check_config(config).target_val_loss == -7.5


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("learning_rate", "1", "unknown config key 'learning_rate'; did you mean 'optimizer.learning_rate'?"),
        ("model", "1", "unknown config key 'model'"),
        ("model.hidden_units.x", "1", "unknown config key"),
        ("global_batch_size", "", "global_batch_size is ''; give a whole number, 1 or more"),
        ("global_batch_size", "True", "give a whole number"),
        ("global_batch_size", "1.5", "global_batch_size is 1.5; give a whole number"),
        ("seed", "-1", "seed is -1; it must be 0 or more"),
        ("global_batch_size", "none", "give a whole number"),
        ("optimizer.learning_rate", "1e999", "give a number"),
        ("optimizer.learning_rate", "nan", "give a number"),
        ("optimizer.nesterov", "1", "give true or false"),
        ("model.hidden_units", "64,x", "give whole numbers, such as 16,24"),
        ("model.hidden_units", "()", "it must be positive"),
        ("model.hidden_units", "64,-1", "it must be positive"),
        ("model.dropout", "1", "it must be 0 or more, below 1"),
        ("model.activation", "rleu", "did you mean 'relu'?"),
        ("train_for", "10", "config key train_for: '10' is not a duration"),
        ("optimizer.warmup", "10m", "give it in steps or epochs"),
        ("optimizer.final_fraction", "2", "it must be 0 to 1"),
        ("ranges", "1,2", "write --config.ranges.NAME=VALUE"),
        ("ranges.a b", "1,2", "write --config.ranges.NAME=VALUE"),
        ("ranges.G0", "1,2,3", "give two numbers, LOW,HIGH"),
        ("ranges.G0", "1,inf", "give two numbers, LOW,HIGH"),
        ("fixed.E", "x", "give a number"),
        ("fixed.E", "-" * 5000 + "1", "give a number"),
        ("global_batch_size", "(" * 5000, "give a whole number"),
        ("model.conv_filters", "8", "has 1 entries and model.kernel_sizes 2; give one kernel size"),
        ("model.pool_size", "15", "2 poolings by model.pool_size=15 leave nothing of 200 points"),
    ],
)  # fmt: skip
def test_what_is_refused_by_name(key: str, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        _with(key, text)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_config_file_is_run_as_it_is_now_and_leaves_nothing(tmp_path: pathlib.Path) -> None:
    """Twice within a second and of one length: an import would take the first one's byte code."""
    path = tmp_path / "mine.py"
    for number in (3, 4):
        path.write_text(START + f"    config.train_for = '{number}epochs'\n    return config\n")
        assert load_config(path).train_for == f"{number}epochs"
    assert list(tmp_path.iterdir()) == [path]


def test_values_of_a_config_file_are_converted_too(tmp_path: pathlib.Path) -> None:
    lines = [
        "config.optimizer.clip_norm = 1", "config.model.hidden_units = [10, 20]",
        "config.data.max_strain = (0.1, 0.2)", "config.ranges.G0 = (1000, 2000)", "return config",
    ]  # fmt: skip
    (tmp_path / "mine.py").write_text(START + "".join(f"    {line}\n" for line in lines))
    config = load_config(tmp_path / "mine.py")
    assert isinstance(config.optimizer.clip_norm, float)
    assert config.model.hidden_units == (10, 20)


def test_saved_and_read_again(tmp_path: pathlib.Path) -> None:
    config = _with("ranges.G0", "2000,8000")
    for key, text in (("model.hidden_units", "8,9"), ("fixed.E", "5"), ("train_for", "3steps")):
        apply_override(config, key, text)
    write_json(tmp_path / "config.json", {**config.to_dict(), "total_steps": 3, "data_dir": "d"})
    again, details = load_saved_config(tmp_path / "config.json")
    assert again.to_dict() == config.to_dict()
    assert details == RunDetails(total_steps=3, data_dir="d")
    assert json.loads((tmp_path / "config.json").read_text())["model"]["hidden_units"] == [8, 9]


def test_configs_are_found_inside_an_installed_package(tmp_path, monkeypatch):
    (tmp_path / "site" / "tfmat" / "configs").mkdir(parents=True)
    (tmp_path / "site" / "tfmat" / "configs" / "own.py").write_text(START + "    return config\n")
    monkeypatch.setattr(module, "__file__", str(tmp_path / "site" / "tfmat" / "config.py"))
    monkeypatch.chdir(tmp_path)
    assert find_config_file("configs/own.py") == tmp_path / "site" / "tfmat" / "configs" / "own.py"
