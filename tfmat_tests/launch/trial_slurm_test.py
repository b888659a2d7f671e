"""Jobs under a real SLURM: its signals, its queue, its launchers."""

import dataclasses
import pathlib
import sys

import pytest

from tfmat.errors import InputError
from tfmat.launch.slurm import Site, SlurmJob, job_states, submit, with_size_of_nodes
from tfmat_tests.mpi import need_mpirun
from tfmat_tests.processes import wait_for
from tfmat_tests.slurm import PROJECT

RANK = (sys.executable, str(PROJECT / "tfmat_tests" / "launch" / "slurm_rank.py"))


def rank_job(folder, **changes):
    """A job of ranks that work until they are asked to save."""
    job = SlurmJob("rank", (*RANK, str(folder)), folder, start_in=PROJECT)
    return dataclasses.replace(job, **changes)


def output(job, job_id):
    return (job.folder / f"job-{job_id}.out").read_text()


def said(job, rank=0):
    """What a rank said, the number of its line left out where it is who it is."""
    path = job.folder / f"rank{rank}"
    return path.read_text().splitlines() if path.exists() else []


def shell_job(folder, text):
    return SlurmJob("shell", ("bash", "-c", text), folder, start_in=folder)


ALONE = "rank 0 of 1, 0 of 1 here, by none"


def test_before_the_time_limit_it_saves_and_goes_on(trial_slurm, tmp_path):
    job = rank_job(tmp_path, time_limit="10", options={"comment": "as_given"})
    job_id = trial_slurm.submit(job)
    wait_for(lambda: said(job))
    trial_slurm.ask_to_save(job_id)
    trial_slurm.start_again(job_id)
    assert trial_slurm.wait_for_end(job_id) == "COMPLETED"
    assert said(job) == [ALONE, "SIGUSR1 saved", ALONE, "done"]
    facts = trial_slurm.facts(job_id)
    assert (facts["Restarts"], facts["Comment"]) == ("1", "as_given")
    assert f"saved; job {job_id} waits in the queue again" in output(job, job_id)


@pytest.mark.large
def test_the_time_limit_itself(trial_slurm, tmp_path):
    # SLURM's least; it may send the signal up to a minute early.
    job = rank_job(tmp_path, time_limit="1")
    job_id = trial_slurm.submit(job)
    wait_for(lambda: "SIGUSR1 saved" in said(job))  # a job waits before it starts, too
    trial_slurm.start_again(job_id)
    assert trial_slurm.wait_for_end(job_id) == "COMPLETED"
    assert said(job) == [ALONE, "SIGUSR1 saved", ALONE, "done"]


def test_a_job_that_may_not_requeue_says_how_to_go_on(trial_slurm, tmp_path):
    job = rank_job(tmp_path, requeue=False)
    job_id = trial_slurm.submit(job)
    wait_for(lambda: said(job))
    trial_slurm.ask_to_save(job_id)
    assert trial_slurm.wait_for_end(job_id) == "FAILED"
    assert trial_slurm.facts(job_id)["ExitCode"] == "75:0"
    assert f"saved; to go on: sbatch {tmp_path}/job.sh" in output(job, job_id)


def test_a_process_that_cannot_save_yet_is_started_again(trial_slurm, tmp_path):
    # The first time it dies by the signal, as Python does while it starts; then there is nothing to do any more.
    job = shell_job(tmp_path, "[[ -e seen ]] && exit; touch seen; exec sleep 300")
    job_id = trial_slurm.submit(job)
    wait_for((tmp_path / "seen").exists)
    trial_slurm.ask_to_save(job_id)
    trial_slurm.start_again(job_id)
    assert trial_slurm.wait_for_end(job_id) == "COMPLETED"


def test_a_failure_is_not_tried_again(trial_slurm, tmp_path):
    job_id = trial_slurm.submit(shell_job(tmp_path, "exit 3"))
    assert trial_slurm.wait_for_end(job_id) == "FAILED"
    assert trial_slurm.facts(job_id)["ExitCode"] == "3:0"
    assert trial_slurm.facts(job_id)["Restarts"] == "0"


def test_scancel_gives_time_to_save_and_resubmission_goes_on(trial_slurm, tmp_path):
    job = rank_job(tmp_path)
    job_id = trial_slurm.submit(job)
    wait_for(lambda: said(job))
    trial_slurm.run("scancel", job_id)
    wait_for(lambda: "SIGTERM saved" in said(job))
    assert trial_slurm.wait_for_end(job_id) == "CANCELLED"
    job_id = trial_slurm.submit(job)
    assert trial_slurm.wait_for_end(job_id) == "COMPLETED"
    assert said(job) == [ALONE, "SIGTERM saved", ALONE, "done"]


@pytest.mark.parametrize("launcher", ["srun", "mpirun"])
def test_every_rank_knows_its_place_and_saves(trial_slurm, tmp_path, launcher):
    if launcher == "mpirun":
        need_mpirun()
    job = rank_job(tmp_path, ranks=2, nodes=2)
    job_id = trial_slurm.submit(job, Site(launcher=launcher))
    wait_for(lambda: said(job, 0) and said(job, 1), lambda: output(job, job_id))
    trial_slurm.ask_to_save(job_id)
    trial_slurm.start_again(job_id)
    assert trial_slurm.wait_for_end(job_id) == "COMPLETED", output(job, job_id)
    for rank in (0, 1):
        place = f"rank {rank} of 2, 0 of 1 here, by {launcher}"
        assert said(job, rank) == [place, "SIGUSR1 saved", place, "done"]


def test_a_job_submitted_from_inside_of_another_is_its_own(trial_slurm, tmp_path, monkeypatch):
    for name, value in {
        "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_TASKS_PER_NODE": "4", "SLURM_PROCID": "2", "SLURM_LOCALID": "2",
        "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "PMIX_RANK": "3", "SBATCH_JOB_NAME": "other",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    job = rank_job(tmp_path, command=(*RANK, str(tmp_path), "0"))
    job_id = trial_slurm.submit(job)
    assert trial_slurm.wait_for_end(job_id) == "COMPLETED", output(job, job_id)
    assert said(job) == [ALONE, "done"]
    assert trial_slurm.facts(job_id)["JobName"] == "rank"


def test_a_node_that_goes_down(trial_slurm, tmp_path):
    job = rank_job(tmp_path)
    job_id = trial_slurm.submit(job)
    wait_for(lambda: said(job))
    node = trial_slurm.facts(job_id)["NodeList"]
    trial_slurm.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
    try:
        trial_slurm.start_again(job_id)
        assert trial_slurm.wait_for_end(job_id) == "COMPLETED"
        assert trial_slurm.facts(job_id)["NodeList"] == {"n1": "n2", "n2": "n1"}[node]
    finally:
        trial_slurm.run("scontrol", "update", f"NodeName={node}", "State=RESUME")


def test_elements_of_an_array_know_their_number(trial_slurm, tmp_path):
    job = SlurmJob(
        "array", ("touch", str(tmp_path / "it's {array_index}")), tmp_path, array=3, cpus_per_rank=2
    )
    job_id = trial_slurm.submit(job)
    elements = {f"{job_id}_{element}": "COMPLETED" for element in range(3)}
    wait_for(lambda: job_states([job_id]) == elements, lambda: str(job_states([job_id])))
    assert sorted(path.name for path in tmp_path.glob("it's*")) == ["it's 0", "it's 1", "it's 2"]


def test_the_data_set_is_copied_to_every_node_and_removed(trial_slurm, tmp_path):
    data, disk = tmp_path / "a set", tmp_path / "disk"
    for folder in (data, disk):
        folder.mkdir()
    (data / "shard").write_text("curves")
    job = shell_job(tmp_path, 'cat "$TFMAT_LOCAL_DATA/a set/shard"; ls disk')
    job = dataclasses.replace(job, data=data)
    job_id = trial_slurm.submit(job, Site(local_disk=str(disk)))
    assert trial_slurm.wait_for_end(job_id) == "COMPLETED"
    assert output(job, job_id) == f"curvestfmat-{job_id}\n"
    assert list(disk.iterdir()) == []
    # Two nodes, which share this disk.
    two = dataclasses.replace(job, ranks=2, nodes=2)
    job_id = trial_slurm.submit(two, Site(local_disk=str(disk), mpi="none"))
    assert trial_slurm.wait_for_end(job_id) == "COMPLETED"
    assert output(two, job_id).count("curves") == 2
    assert list(disk.iterdir()) == []
    # Without such a disk the shared data set is read.
    job_id = trial_slurm.submit(
        shell_with(job, "echo ${TFMAT_LOCAL_DATA-none}"), Site(local_disk="$NO_SUCH")
    )
    assert trial_slurm.wait_for_end(job_id) == "COMPLETED"
    assert output(job, job_id).endswith(f"reading {data}\nnone\n")


def shell_with(job, text):
    return dataclasses.replace(job, command=("bash", "-c", text))


def test_gpus_come_with_their_share_of_the_processors(trial_slurm, tmp_path):
    site = with_size_of_nodes(Site(), None)
    assert (site.cores_per_node, site.gpus_per_node) == (4, 2)
    job = dataclasses.replace(shell_job(tmp_path, "echo $CUDA_VISIBLE_DEVICES"), gpus=1)
    job_id = trial_slurm.submit(job, site)
    assert trial_slurm.wait_for_end(job_id) == "COMPLETED"
    assert output(job, job_id) == "0\n"
    assert trial_slurm.facts(job_id)["NumCPUs"] == "2"


def test_what_slurm_refuses_is_one_line(trial_slurm, tmp_path):
    with pytest.raises(InputError, match="sbatch refuses: .*[Ii]nvalid partition") as caught:
        trial_slurm.submit(dataclasses.replace(shell_job(tmp_path, "true"), partition="none"))
    assert "\n" not in str(caught.value)
    assert job_states(["99999"]) == {"99999": "UNKNOWN"}


def test_where_no_cluster_is_set_up(trial_slurm, tmp_path, monkeypatch):
    (tmp_path / "job.sh").write_text("#!/bin/bash\n")
    monkeypatch.delenv("SLURM_CONF")
    if pathlib.Path("/etc/slurm/slurm.conf").exists():
        pytest.skip("this machine has a SLURM of its own")
    with pytest.raises(InputError, match="no cluster is set up here; set SLURM_CONF"):
        submit(tmp_path / "job.sh")
