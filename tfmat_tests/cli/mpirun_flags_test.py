"""`--launcher=mpirun`: what is refused before an mpirun is started, and the command line that would be."""

import shlex
import sys

import pytest

TRAIN = ("train", "--config=configs/smoke.py", "--launcher=mpirun")


@pytest.fixture
def no_mpirun(tmp_path, monkeypatch):
    """An empty folder, and no mpirun that could start."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (TRAIN, "--launcher=mpirun needs --hosts=server1:4,server2:4, or --ranks=4 for this machine"),
        ([*TRAIN, "--hosts=a:2", "--ranks=2"], "leave out --ranks"),
        ([*TRAIN, "--hosts=a:2,b:0"], "'b:0' is no host with its number of ranks"),
        ([*TRAIN, "--hosts=a:2", "--min_ranks=3"], "--min_ranks=3, but a:2 are 2 ranks"),
        ([*TRAIN, "--ranks=2", "--probe_every=8epochs"], "--probe_every=8epochs is no time"),
        ([*TRAIN, "--ranks=2", "--gpus=2"], "--gpus is for --launcher=slurm, not mpirun"),
        (["train", "--hosts=a:2"], "--hosts is for --launcher=mpirun, not local"),
        ([*TRAIN, "--ranks=2", "--backend=dtensor"], "a mesh has a fixed number of devices"),
        ([*TRAIN, "--ranks=2", "--backend=single"], "--backend=single is for one"),
        # What the ranks would refuse is refused before they start.
        ([*TRAIN, "--ranks=2", "--config.seeds=1"], "unknown config key 'seeds'"),
        ([*TRAIN, "--ranks=2", "--config.global_batch_size=9000"], "use a smaller batch"),
        ([*TRAIN, "--ranks=2", "--law=voc"], "'voc'"),
        ([*TRAIN, "--ranks=2"], "mpirun cannot be started (No such file or directory); `tfmat doctor`"),
    ],
)  # fmt: skip
def test_what_cannot_be_started_is_one_line(no_mpirun, refused, arguments, message):
    assert message in refused(*arguments)


def test_a_rank_starts_no_ranks(no_mpirun, refused, monkeypatch):
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", "0")
    for name in ("SIZE", "LOCAL_SIZE"):
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", "1")
    assert "start this command once, without a launcher" in refused(*TRAIN, "--ranks=2")


def test_a_dry_run_prints_the_command_line_and_makes_nothing(no_mpirun, done, monkeypatch):
    monkeypatch.delenv("PATH")
    line = shlex.split(
        done(*TRAIN, "--hosts=a:2,b:1", "--dry_run", "--config.seed=3", "--restarts=2")
    )
    assert line[:5] == ["mpirun", "-np", "3", "-H", "a:2,b:1"]
    assert line[line.index(sys.executable):] == [
        sys.executable, "-P", "-m", "tfmat", "train",
        "--config=configs/smoke.py", "--config.seed=3", "--backend=horovod",
    ]  # fmt: skip
    assert not list(no_mpirun.iterdir())
