"""What users get wrong: one line, exit status 2, and nothing made or touched."""

import pathlib
import shutil
import signal
import time

import pytest

from tfmat.cli.main import COMMANDS
from tfmat.data.dataset import PackedDataset, generate_dataset
from tfmat.records.simulation import CurveSettings
from tfmat_tests.end_to_end.runs import SMALL_RUN
from tfmat_tests.processes import ForkServer
from tfmat_tests.refused import Refuse, listing


@pytest.fixture(scope="module")
def voce_set(tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    """A small data set of the law voce."""
    folder = tmp_path_factory.mktemp("voce")
    return generate_dataset(
        CurveSettings(law="voce"), seed=0, num_curves=2000, num_test=50, data_dir=folder
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "unknown command 'trian'; did you mean 'train'?"),
        (["xyz"], f"unknown command 'xyz'; valid: {', '.join(sorted(COMMANDS))}"),
        (["--workdir=x"], "unknown flag '--workdir=x'; a command comes first, see `tfmat --help`"),
        (["train", "--workdri=x"], "unknown flag --workdri; did you mean '--workdir'?"),
        (["train", "smoke.py"], "train takes no argument 'smoke.py'"),
        (["train", "--config.lr=1"], "unknown config key 'lr'"),
        (["train", "--config.optimizer.learning_rat=1"], "did you mean 'optimizer.learning_rate'?"),
        (["train", "--config.batch_size=1"], "did you mean 'global_batch_size'?"),
        (["train", "--config.ranges.G0.low=1,2"], "write --config.ranges.NAME=VALUE"),
        (["train", "--config.ranges.G1=1,2"], "no parameter 'G1'; did you mean 'G0'?"),
        (["train", "--config.train_for"], "--config.train_for has no value"),
        (["train", "--config.train_for=0epochs"], "train_for is '0epochs', less than one step"),
        (["train", "--config.train_for=0m"], "train_for is '0m', less than one step"),
        (["train", "--config.global_batch_size=0"], "global_batch_size is 0; it must be 1 or more"),
        (["train", "--config.data.num_curves=100"], "100 leaves 75 for training; use a smaller batch"),
        (["train", "--config.data.num_curves=1000000000"], "free some space or choose another folder"),
        (["train", "--config.data.max_strain=0.5,0.1"], "LOW,HIGH with 0 < low <= high"),
        (["train", "--law=vocee"], "did you mean 'voce'?"),
        (["train", "--law=none.py:My"], "cannot read law file none.py"),
        (["train", "--backend=horovd"], "unknown backend 'horovd'; did you mean 'horovod'?"),
        (["train", "--backend=mpi", "--config.zero_stage=3"], "use zero_stage=2, or --backend=dtensor"),
        (["train", "--config=configs/smok.py"], "did you mean 'configs/smoke.py'?"),
        (["generate", "--num_curves=1000000000"], "free some space or choose another folder"),
        (["generate", "--num_curves=1000000000000"], "too many; give at most 2147483647"),
        (["identify"], "no curve given"),
        (["identify", "none.csv", "--workdir=none"], "holds no trained model"),
        (["evaluate", "--workdir=none"], "holds no trained model"),
    ],
)  # fmt: skip
def test_on_the_command_line(refused: Refuse, arguments: list[str], message: str) -> None:
    assert message in refused(*arguments)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("def get_config(:\n", "SyntaxError"),
        ("x = 1\n", "does not define get_config()"),
        ("import numpie\n", "No module named 'numpie' (line 1)"),
        ("def get_config():\n    return 1 / 0\n", "ZeroDivisionError: division by zero (line 2)"),
        ("raise SystemExit\n", "SystemExit"),
        ("def get_config():\n    return 5\n", "returned int; return default_config() changed"),
        ("\0", "failed: "),
        (b"\xff\xfe", "failed: "),
        ("{}config.batch = 5\n    return config\n", "unknown config key 'batch'"),
        ("{}config.model.hidden = (5,)\n    return config\n", "did you mean 'model.hidden_units'?"),
        ("{}config.global_batch_size = 'many'\n    return config\n", "global_batch_size"),
        ("{}config.data.num_curves = 2.5\n    return config\n", "num_curves"),
        ("{}config.data = 5\n    return config\n", "data"),
        ("{}config.ranges = (1, 2)\n    return config\n", "ranges"),
        ("{}config.ranges.G0 = 1\n    return config\n", "ranges.G0 is 1; give two numbers"),
    ],
)
def test_in_a_config_file(refused, tmp_path, content, message):
    start = "from tfmat.config import default_config\n\ndef get_config():\n    config = default_config()\n    "
    if isinstance(content, str):
        content = content.replace("{}", start).encode()
    (tmp_path / "mine.py").write_bytes(content)
    line = refused("train", "--config=mine.py")
    assert message in line
    assert "mine.py" in line or "config key" in line


def test_a_file_that_is_no_config(refused: Refuse, tmp_path: pathlib.Path) -> None:
    (tmp_path / "config.yaml").write_text("a: 1")
    assert "config.yaml is not a Python file" in refused("train", "--config=config.yaml")
    (tmp_path / "folder.py").mkdir()
    assert "folder.py does not exist" in refused("train", "--config=folder.py")


def test_a_file_where_a_folder_should_be(refused: Refuse, tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("mine")
    line = refused(*SMALL_RUN, "--workdir=file/run")
    assert line == "--workdir=file/run: file is a file; give a folder"
    line = refused(*SMALL_RUN, "--data_dir=file")
    assert "cannot write file" in line and "choose another folder" in line


def test_damaged_data_are_named_before_training(refused, tmp_path, voce_set):
    folder = shutil.copytree(voce_set.folder, tmp_path / "set")
    shard = next(folder.glob("*.features"))
    content = bytearray(shard.read_bytes())
    content[100_000] ^= 1
    shard.write_bytes(content)
    line = refused(*SMALL_RUN, f"--data_dir={folder}")
    assert shard.name in line and f"tfmat generate --data_dir={folder}" in line
    shard.write_bytes(content[:-7])
    assert shard.name in refused(*SMALL_RUN, f"--data_dir={folder}")
    shard.unlink()
    assert shard.name in refused(*SMALL_RUN, f"--data_dir={folder}")
    (folder / "manifest.json").write_text("{")
    assert "manifest.json" in refused(*SMALL_RUN, f"--data_dir={folder}")


def test_data_that_do_not_fit_the_command(refused: Refuse, voce_set: PackedDataset) -> None:
    data = f"--data_dir={voce_set.folder}"
    assert "is of law voce, --law is swift; leave --law out" in refused(
        *SMALL_RUN, data, "--law=swift"
    )
    line = refused(*SMALL_RUN, data, "--config.global_batch_size=1600")
    assert "leaves 1500 for training" in line


def test_a_damaged_checkpoint_is_named(programs: ForkServer, tmp_path: pathlib.Path) -> None:
    # Right before the second checkpoint is written.
    how = {"die_on": ".step-*.tmp", "die_at": 3, "die_of": signal.SIGTERM}
    assert programs.run(*SMALL_RUN, cwd=tmp_path, **how).status == 75
    time.sleep(0.01)
    for path in tmp_path.glob("run/checkpoints/step-*"):
        path.write_bytes(path.read_bytes()[:-1000])
    before = listing(tmp_path)
    ended = programs.run(*SMALL_RUN, cwd=tmp_path)
    assert ended.status == 2
    line = ended.err.splitlines()[-1]
    assert "no checkpoint of this run can be read" in line and "Traceback" not in ended.err
    after = listing(tmp_path)
    assert {name for name in before if before[name] != after.get(name)} <= {
        "run/log.txt", "run/.lock"
    }  # fmt: skip


def test_a_data_set_that_is_not_there_is_no_folder_of_data_sets(refused, tmp_path, voce_set):
    shutil.copytree(voce_set.folder, tmp_path / "data" / voce_set.folder.name)
    wrong = voce_set.folder.name[:-8] + "00000000"
    said = refused("train", f"--data_dir=data/{wrong}", "--workdir=run")
    assert said.startswith(
        f"there is no data set data/{wrong}; did you mean '{voce_set.folder.name}'?"
    )


def test_an_error_within_a_law_of_ones_own_is_one_line(refused, tmp_path):
    (tmp_path / "law.py").write_text(
        "from tfmat.materials.metals import Voce\n\n\n"
        "class Mine(Voce):\n"
        "    name = 'mine'\n\n"
        "    def hardening(self, plastic_strain, columns):\n"
        "        strength, peak = columns\n"
    )
    (tmp_path / "a.csv").write_text(
        "strain [-],stress [MPa]\n" + "".join(f"{i / 1e3},{200 + i}\n" for i in range(50))
    )
    said = refused("identify", "a.csv", "--law=law.py:Mine")
    assert said.startswith(f"{tmp_path}/law.py: ValueError: ") and said.endswith("(line 8)")
