"""`--launcher=slurm` without a SLURM: the job that the flags describe, and what is refused before one is made."""

import pathlib
import sys

import pytest

from tfmat.cli.main import main

SMOKE = ("train", "--config=configs/smoke.py", "--launcher=slurm")


@pytest.fixture
def no_slurm(tmp_path, monkeypatch):
    """A machine without SLURM, an empty folder, and no site file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    return tmp_path


def test_a_dry_run_prints_the_job_and_makes_nothing(no_slurm, capsys):
    (no_slurm / "site.toml").write_text(
        'account = "mechanics"\nmodules = ["openmpi"]\noptions = ["--qos=short", "--constraint=zen3"]\n'
    )
    assert main(
        [*SMOKE, "--dry_run", "--site=site.toml", "--backend=horovod", "--gpus=2", "--time_limit=1:00:00",
         "--partition=gpu", "--config.seed=3", "--config.law", "voce", "--cpus_per_rank=4", "--exclusive",
         "--sbatch=qos=long", "--sbatch", "mail-type=BEGIN,END", "--sbatch=comment=two words", "--sbatch=contiguous"]
    ) == 0  # fmt: skip
    script = capsys.readouterr().out.splitlines()
    expected = f"""#SBATCH --job-name=tfmat-smoke
#SBATCH --chdir={no_slurm}
#SBATCH --output={no_slurm}/runs/smoke/job-%j.out
#SBATCH --open-mode=append
#SBATCH --account=mechanics
#SBATCH --partition=gpu
#SBATCH --nodes=1
#SBATCH --ntasks=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=4
#SBATCH --gres=gpu:2
#SBATCH --exclusive
#SBATCH --time=1:00:00
#SBATCH --requeue
#SBATCH --signal=B:USR1@120
#SBATCH --qos=long
#SBATCH --mail-type=BEGIN,END
#SBATCH --comment="two words"
#SBATCH --contiguous
#SBATCH --constraint=zen3"""
    assert [line for line in script if line.startswith("#SBATCH")] == expected.splitlines()
    assert "module load openmpi" in script
    # The same command without what describes the job.
    command = (
        f"{sys.executable} -P -m tfmat train --backend=horovod --config=configs/smoke.py "
        "--config.seed=3 --config.law=voce"
    )
    assert f"    srun --mpi=pmix --ntasks=2 --cpus-per-task=4 {command} &" in script
    assert [path.name for path in no_slurm.iterdir()] == ["site.toml"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--gpus=1"], "--gpus describes a SLURM job; add --launcher=slurm"),
        (["train", "--dry_run"], "--dry_run describes a SLURM job"),
        (["train", "--launcher=slurn"], "should be one of <local|slurm|mpirun>"),
        ([*SMOKE, "--gpus=2"], "--gpus=2, but --backend=single with 1 rank(s) uses 1"),
        ([*SMOKE, "--ranks=2"], "srun started 2 processes, but --backend=single is for one"),
        ([*SMOKE, "--ranks=0"], "ranks"),
        ([*SMOKE, "--backend=horovd"], "unknown backend 'horovd'; did you mean 'horovod'?"),
        ([*SMOKE, "--backend=horovod", "--ranks=2", "--nodes=3"], "nodes=3 are more than ranks=2"),
        ([*SMOKE, "--time_limit=4h"], "time limit '4h': give minutes"),
        ([*SMOKE, "--site=none.toml"], "site file none.toml: No such file"),
        ([*SMOKE, "--sbatch=time=90"], "--sbatch=time=90: use --time_limit"),
        ([*SMOKE, "--sbatch=requeue"], "--sbatch=requeue: tfmat sets requeue itself"),
        ([*SMOKE, "--sbatch=--qos=a"], "--sbatch=--qos=a: give an option of sbatch"),
        ([*SMOKE, "--sbatch=qos="], "--sbatch=qos=: give an option of sbatch"),
        ([*SMOKE, "--sbatch=qos=a", "--sbatch=qos=b"], "--sbatch=qos=b: qos is given twice"),
        (["train", "--sbatch=qos=a"], "--sbatch describes a SLURM job; add --launcher=slurm"),
        # The config is checked here, not hours later on a node.
        ([*SMOKE, "--config.seeds=1"], "unknown config key 'seeds'"),
        ([*SMOKE, "--config.global_batch_size=9000"], "use a smaller batch or more curves"),
        ([*SMOKE, "--law=voc"], "'voc'"),
        (SMOKE, "there is no sbatch on this machine; use a login node"),
    ],
)
def test_what_cannot_be_a_job_is_one_line(no_slurm, capsys, arguments, message):
    assert main(list(arguments)) == 2
    said = capsys.readouterr()
    assert message in said.err and said.err.count("\n") == 1 and said.out == ""
    assert {path.relative_to(no_slurm) for path in no_slurm.rglob("*")} <= {
        pathlib.Path("runs"), pathlib.Path("runs/smoke"), pathlib.Path("runs/smoke/job.sh"),
    }  # fmt: skip


def test_a_run_with_other_settings_is_refused_before_submitting(no_slurm, refused):
    (no_slurm / "runs" / "smoke").mkdir(parents=True)
    (no_slurm / "runs" / "smoke" / "config.json").write_text('{"global_batch_size": 75}')
    assert "was started with" in refused(*SMOKE)
