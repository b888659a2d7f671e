"""A study under SLURM: the job of a launch against a recorded one, nodes, and a real trial cluster."""

import dataclasses
import pathlib
import subprocess
import sys

import pytest

from tfmat.config import default_config
from tfmat.launch.slurm import Site, SlurmJob, job_script
from tfmat.scaling.measure import Launch, Study, Variant, job_of, slurm_machine
from tfmat.scaling.study import Matrix, Measurements, Model, Runs, read_measurements
from tfmat_tests import mpi
from tfmat_tests.scaling.studies import write_config
from tfmat_tests.slurm import Cluster, trial_slurm  # noqa: F401 (a fixture)

GOLDEN = pathlib.Path(__file__).parent / "golden" / "slurm_job.txt"
SITE = Site(python="/venv/bin/python", cores_per_node=4, partition="batch")
TEMPLATE = SlurmJob("scale", ("python",), pathlib.Path("/study"), time_limit="20", exclusive=True)


def study(matrix: Matrix, most_nodes: int | None = None) -> Study:
    machine = slurm_machine(SITE, matrix, dataclasses.replace(TEMPLATE, nodes=most_nodes))
    machine = dataclasses.replace(machine, sums_with=frozenset({"mpi"}))
    models = {"default": Model("default", 1000, 4000)}
    return Study(default_config(), matrix, machine, models, pathlib.Path("/data"))


def planned(matrix: Matrix) -> Launch:
    (of_round, *_) = study(matrix).rounds(Measurements(), pathlib.Path("/study/launches"))
    launch = next(each for each in of_round if each.name.startswith("horovod"))
    return dataclasses.replace(launch, folder=pathlib.Path("/study/launches/0-horovod"))


def test_job_of_eight_workers_on_nodes_of_four():
    matrix = Matrix(runs=[Runs("horovod", workers=8, batch_a_worker=75)])
    text = job_script(job_of(planned(matrix), TEMPLATE, SITE), SITE)
    # The rest of the script is that of every job (tfmat_tests/launch).
    own = [line for line in text.splitlines() if line.startswith("#SBATCH") or "srun" in line]
    assert own == GOLDEN.read_text().splitlines()


def test_nodes_are_filled_or_spread_over():
    matrix = Matrix(runs=[Runs("single", batch_a_worker=75)])
    filled, spread = (
        Variant("steps", "horovod", 4, "mpi", placement=placement)
        for placement in ("filled", "spread")
    )
    machine = study(matrix, most_nodes=2).machine
    assert [machine.nodes_of(variant) for variant in (filled, spread)] == [1, 2]
    assert machine.nodes_of(dataclasses.replace(filled, workers=5)) == 2
    assert not machine.is_oversubscribed(filled)
    assert machine.hardware == "SLURM, batch"


def test_a_node_of_unknown_size_is_told_before_anything_is_made(refused, tmp_path):
    config = write_config(tmp_path, 'Matrix(runs=[Runs("single", batch_a_worker=75)])')
    (tmp_path / "site.toml").write_text("")
    said = refused(
        "scale", f"--config={config}", "--launcher=slurm", "--dry_run", f"--site={tmp_path}/site.toml",
        f"--data_dir={tmp_path}/data", f"--workdir={tmp_path}/study",
    )  # fmt: skip
    assert "give workers_per_node in get_scaling(), or cores_per_node" in said
    assert {path.name for path in tmp_path.iterdir()} == {"site.toml", "study.py"}


def test_a_dry_run_prints_the_first_job_and_writes_nothing(tmp_path, done):
    config = write_config(tmp_path, 'Matrix(runs=[Runs("single", batch_a_worker=75)])')
    (tmp_path / "site.toml").write_text("cores_per_node = 2\n")
    command = [
        "scale", f"--config={config}", "--launcher=slurm", "--dry_run", f"--site={tmp_path}/site.toml",
        f"--data_dir={tmp_path}/data", f"--workdir={tmp_path}/study",
    ]  # fmt: skip
    assert done(*command).startswith("#!/")
    assert {path.name for path in tmp_path.iterdir()} == {"site.toml", "study.py"}


@pytest.mark.large
def test_on_a_trial_cluster(trial_slurm, tmp_path):  # noqa: F811
    config = write_config(
        tmp_path,
        """Matrix(rounds=1, seconds=0.2, dataset_size=1500, workers_per_node=1,
        runs=[Runs("horovod", workers=2, batch_a_worker=75)])""",
    )
    site = tmp_path / "site.toml"
    site.write_text(
        f'python = "{sys.executable}"\n[environment]\n'
        'OMPI_MCA_btl = "tcp,self"\nOMPI_MCA_btl_tcp_if_include = "lo"\n'
        f'PYTHONPATH = "{mpi.PROJECT}"\n'
    )
    command = [
        sys.executable,
        "-P",
        "-m",
        "tfmat",
        "scale",
        f"--config={config}",
        "--workdir=study",
    ]
    done = subprocess.run(
        [*command, "--launcher=slurm", "--nodes=2", f"--site={site}"], capture_output=True, text=True,
        cwd=tmp_path, env={**mpi.rank_environment(), **trial_slurm.environment}, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = read_measurements(tmp_path / "study")
    assert {(each.point.backend, each.point.nodes) for each in found.repetitions} == {
        ("single", 1),
        ("horovod", 2),
    }
    assert found.left_out == ()
