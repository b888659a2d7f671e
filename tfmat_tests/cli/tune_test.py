"""`tfmat tune` refuses in one line what no search could be run with, and leaves nothing behind."""

import pytest


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--lease=3x"], "--lease=3x is no time"),
        (["--max_trials=0"], "max_trials is 0; give 1 or more"),
        (["--config=configs/quickstart.py"], "does not define get_search()"),
        (["--config.optimizer.name=adam"], "the search chooses optimizer.name"),
        (["--config.law=vocce"], "voce"),
        (["--backend=horovd"], "horovod"),
        (["--trial_launcher=mpirun -np 2"], "--backend=single"),
        (["--trial_command=run {config} {what}"], "valid: {config}, {workdir}, {seed}"),
        (["--status"], "search.json does not exist"),
        (["--status", "--serve"], "search.json does not exist"),
        (["--serve"], "add --status"),
        (["--status", "--max_trials=9"], "as it is; leave out --max_trials"),
        (["--status", "--config.seed=1"], "as it is; leave out --config.KEY"),
        (["--one_job"], "--one_job describes a SLURM job"),
        (["--trial_command=true {config}", "--trial_reports"], "--trial_reports is of trials by tfmat train"),
        (["--status", "--port=8050"], "--port is for a page that is served; add --status --serve"),
        (["--nobrowser"], "--browser is for a page that is served"),
        (["--gpus=1"], "add --launcher=slurm"),
    ],
)  # fmt: skip
def test_mistakes(arguments, message, refused):
    assert message in refused("tune", "--workdir=search", *arguments)


def test_the_job_of_a_search(tmp_path, done, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = ["--launcher=slurm", "--dry_run", "--num_workers=3", "--time_limit=60"]
    script = done("tune", "--workdir=search", *flags)
    assert "#SBATCH --array=0-2\n" in script
    assert '--num_workers=1 --first_worker="$SLURM_ARRAY_TASK_ID" &' in script
    ranks = ["--backend=horovod", "--ranks=2"]
    script = done("tune", "--workdir=search", *flags, *ranks)
    assert "#SBATCH --ntasks=2\n" in script
    assert "'--trial_launcher=srun --mpi=pmix --ntasks=2'" in script and "    srun" not in script
    script = done("tune", "--workdir=search", *flags, "--one_job")
    assert "--array" not in script and "--num_workers=3" in script
    assert list(tmp_path.iterdir()) == []
