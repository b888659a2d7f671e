"""Site files, and job scripts against recorded ones, without a SLURM."""

import dataclasses
import pathlib
import re
import subprocess

import pytest

from tfmat.errors import InputError
from tfmat.launch.slurm import Site, SlurmJob, job_script, limit_seconds, read_site

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs" / "slurm.md"


def test_without_a_file_a_site_wants_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert read_site() == Site()


def test_the_users_own_file_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "tfmat").mkdir()
    (tmp_path / "tfmat" / "site.toml").write_text(
        'account = "mechanics"\n[environment]\nTHREADS = 4\n'
    )
    assert read_site() == Site(account="mechanics", environment={"THREADS": "4"})


def test_the_example_in_the_docs_has_all_keys(tmp_path):
    (example,) = re.findall(r"```toml\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)
    (tmp_path / "site.toml").write_text(example)
    site = read_site(tmp_path / "site.toml")
    untold = {name for name, value in vars(Site()).items() if f"{name} = " not in example}
    assert untold == {"environment"} and site.environment
    assert site.modules == ("gcc/13", "openmpi/4.1") and site.gpus_per_node == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("module = []", "unknown key 'module'; did you mean 'modules'?"),
        ('modules = "gcc"', "modules is 'gcc'; give a list of texts"),
        ("offline = 1", "offline is 1; give true or false"),
        ("gpus_per_node = 0", "gpus_per_node is 0; give a whole number from 1"),
        ("gpus_per_node = true", "gpus_per_node is True; give a whole number from 1"),
        ("memory = 16", "memory is 16; give a text"),
        ("environment = 3", "environment is 3; give a table"),
        ('environment = {"A B" = 1}', "give a table of NAME = VALUE"),
        ('launcher = "ssh"', "launcher is 'ssh'; valid: srun, mpirun"),
        ("local_disk = '\"; rm'", "give a plain path"),
        ("modules = [", "is not valid TOML"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, text, message):
    (tmp_path / "site.toml").write_text(text)
    with pytest.raises(InputError) as caught:
        read_site(tmp_path / "site.toml")
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="No such file or directory; docs/slurm.md has one"):
        read_site(tmp_path / "site.toml")


GOLDEN = pathlib.Path(__file__).parent / "golden"
TRAIN = ("/venv/bin/python", "-P", "-m", "tfmat", "train", "--config=my configs/a.py")

SMALL = SlurmJob("tfmat-smoke", TRAIN, pathlib.Path("/shared/runs/smoke"))
CLUSTER = Site(
    modules=("gcc/13", "openmpi/4.1"),
    setup=("ulimit -c 0",),
    container="apptainer exec --nv /shared/tfmat.sif",
    environment={"NCCL_SOCKET_IFNAME": "ib0", "NOTE": "two words"},
    offline=True,
    local_disk="$TMPDIR",
    memory="0",
    cores_per_node=64,
    gpus_per_node=4,
    account="mechanics",
    partition="gpu",
    options=("--qos=long",),
)
LARGE = SlurmJob(
    "tfmat-large",
    (*TRAIN, "--backend=horovod"),
    pathlib.Path("/shared/my runs/100%"),
    start_in=pathlib.Path("/home/ada"),
    data=pathlib.Path("/shared/data/voce-1000000-1a2b3c4d"),
    ranks=8,
    gpus=8,
    partition="gpu-big",
    time_limit="1-12",
    exclusive=True,
)
JOBS = {
    "small": (SMALL, Site()),
    "cluster": (LARGE, CLUSTER),
    "mpirun": (
        dataclasses.replace(LARGE, gpus=0, nodes=2, cpus_per_rank=4, data=None, requeue=False),
        Site(launcher="mpirun"),
    ),
    "array": (
        dataclasses.replace(
            SMALL,
            command=("tfmat", "tune", "--worker={array_index}", "it's"),
            array=4,
            gpus=1,
            time_limit="3",
        ),
        Site(cores_per_node=24, gpus_per_node=3),
    ),
}


def recorded(name):
    """A line `@FILE` of a record stands for that file: what all scripts have in common."""
    for line in (GOLDEN / name).read_text().splitlines(keepends=True):
        yield from recorded(line[1:].strip()) if line.startswith("@") else [line]


@pytest.mark.parametrize("name", JOBS)
def test_the_script_is_as_recorded_and_bash_can_read_it(name):
    script = job_script(*JOBS[name])
    assert script == "".join(recorded(f"{name}.sh"))
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")


def lines(job, site=Site()):  # noqa: B008
    return job_script(job, site).splitlines()


@pytest.mark.parametrize(
    ("gpus", "ranks", "nodes", "gpus_per_node", "cpus_per_rank"),
    [
        # A node of 64 processors and 4 GPUs: each GPU comes with 16 processors.
        (1, 1, 1, 1, 16),
        (2, 2, 1, 2, 16),
        (4, 4, 1, 4, 16),
        (8, 8, 2, 4, 16),
        (4, 2, 1, 4, 32),
        (2, 4, 1, 2, 8),
        (6, 6, 2, 3, 16),
    ],
)
def test_gpus_are_taken_node_by_node(gpus, ranks, nodes, gpus_per_node, cpus_per_rank):
    job = dataclasses.replace(SMALL, gpus=gpus, ranks=ranks)
    script = lines(job, Site(cores_per_node=64, gpus_per_node=4))
    assert f"#SBATCH --nodes={nodes}" in script
    assert f"#SBATCH --gres=gpu:{gpus_per_node}" in script
    assert f"#SBATCH --cpus-per-task={cpus_per_rank}" in script


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gpus": 7, "ranks": 7}, "gpus=7 cannot be spread evenly over 2 nodes of 4 GPUs"),
        ({"gpus": 8, "ranks": 8, "nodes": 1}, "gpus=8 cannot be spread evenly over 1 nodes of 4 GPUs"),
        ({"gpus": 3, "ranks": 4, "nodes": 2}, "gpus=3 cannot be spread evenly"),
        ({"gpus": 8, "ranks": 1}, "nodes=2 are more than ranks=1"),
        ({"ranks": 0}, "ranks=0"),
        ({"time_limit": "4h"}, "time limit '4h': give minutes"),
        ({"time_limit": "0"}, "time limit '0' is no time at all"),
        ({"folder": pathlib.Path('/a"b')}, "SLURM takes no"),
    ],
)  # fmt: skip
def test_what_no_cluster_can_run_is_one_line(changes, message):
    with pytest.raises(InputError, match=message) as caught:
        job_script(dataclasses.replace(SMALL, **changes), Site(gpus_per_node=4))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    # The forms that sbatch's manual page lists under --time.
    [("90", 5400), ("1:30", 90), ("1:30:00", 5400), ("2-12", 216_000), ("1-0:30", 88_200), ("1-0:0:5", 86_405)],
)  # fmt: skip
def test_time_limits(text, seconds):
    assert limit_seconds(text) == seconds
