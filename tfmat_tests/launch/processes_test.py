"""Who am I among how many, from environments that real launchers made."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys

import pytest

from tfmat.errors import InputError
from tfmat.launch.processes import Processes, find_processes, processors_per_rank, told_of_binding
from tfmat_tests.processes import rank_environment


def variables(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.split())


# Captured with `env` on Debian 12: Open MPI 4.1.4, MPICH 4.0.2, SLURM 22.05.8 (two emulated nodes), Horovod 0.28.1.
MPIRUN = variables("""
    OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_COMM_WORLD_NODE_RANK=1
    OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_UNIVERSE_SIZE=2
    PMIX_NAMESPACE=524289 PMIX_RANK=1 PMIX_HOSTNAME=vm
""")
# `mpirun -np 4` in a batch job of two nodes, rank 3: the SLURM_* are those of mpirun's daemon on the second node.
MPIRUN_IN_SBATCH = variables("""
    SLURM_STEP_NUM_TASKS=2 SLURM_TASKS_PER_NODE=1(x2) SLURM_LOCALID=0 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=2
    SLURM_NPROCS=2 SLURM_NODEID=1 SLURM_STEP_NUM_NODES=2 SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_NTASKS_PER_NODE=1
    SLURM_CPUS_ON_NODE=1 PMIX_RANK=3 OMPI_COMM_WORLD_NODE_RANK=0 OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4
    OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1
""")
HYDRA = variables("""
    HYDI_CONTROL_FD=7 MPIR_CVAR_CH3_INTERFACE_HOSTNAME=vm MPI_LOCALNRANKS=2 MPI_LOCALRANKID=1 PMI_FD=8 PMI_RANK=1
    PMI_SIZE=2
""")
SRUN = variables("""
    SLURM_CPUS_ON_NODE=1 SLURM_JOB_ID=1 SLURM_JOB_NUM_NODES=2 SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_NPROCS=3
    SLURM_NTASKS=3 SLURM_PROCID=2 SLURM_STEPID=0 SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=3
    SLURM_STEP_TASKS_PER_NODE=2,1 SLURM_TASKS_PER_NODE=2,1
""")
SRUN_PMIX = variables("""
    PMIX_NAMESPACE=slurm.pmix.2.0 PMIX_RANK=3 SLURM_CPUS_ON_NODE=2 SLURM_JOB_NUM_NODES=2 SLURM_LOCALID=1
    SLURM_NODEID=1 SLURM_NPROCS=4 SLURM_NTASKS=4 SLURM_NTASKS_PER_NODE=2 SLURM_PROCID=3 SLURM_STEP_ID=0
    SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_TASKS_PER_NODE=2(x2) SLURM_TASKS_PER_NODE=2(x2)
""")
SRUN_PMI2 = {**SRUN, **variables("PMI_FD=11 PMI_JOBID=3.0 PMI_RANK=2 PMI_SIZE=3")}
# sbatch -N2 -n4 --ntasks-per-node=2, in it `srun -n2`: SLURM_NTASKS_PER_NODE is the job's, and wrong for the step.
SRUN_IN_SBATCH = variables("""
    SLURM_STEP_NUM_TASKS=2 SLURM_TASKS_PER_NODE=1(x2) SLURM_LOCALID=0 SLURM_CPUS_ON_NODE=2 SLURM_JOB_NUM_NODES=2
    SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_ID=0 SLURM_NPROCS=2 SLURM_NODEID=1 SLURM_STEP_NUM_NODES=2
    SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_NTASKS_PER_NODE=2
""")
BATCH_SHELL = variables("""
    SLURM_TASKS_PER_NODE=2(x2) SLURM_TASK_PID=29960 SLURM_LOCALID=0 SLURM_CPUS_ON_NODE=2 SLURM_JOB_NUM_NODES=2
    SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_NPROCS=4 SLURM_JOB_ID=5 SLURM_NODEID=0 SLURM_NTASKS_PER_NODE=2
""")
SALLOC = variables("""
    SLURM_JOB_ID=6 SLURM_JOB_NUM_NODES=2 SLURM_NPROCS=4 SLURM_NTASKS=4 SLURM_TASKS_PER_NODE=3,1
""")
INTERACTIVE = variables("""
    SLURM_CPUS_ON_NODE=1 SLURM_JOB_ID=4 SLURM_JOB_NUM_NODES=1 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_NPROCS=1
    SLURM_NTASKS=1 SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=1 SLURM_STEP_NUM_TASKS=1
    SLURM_STEP_TASKS_PER_NODE=1 SLURM_TASKS_PER_NODE=1 PMIX_RANK=0
""")
HOROVODRUN = variables("""
    HOROVOD_CONTROLLER=gloo HOROVOD_CPU_OPERATIONS=gloo HOROVOD_CROSS_RANK=0 HOROVOD_CROSS_SIZE=1
    HOROVOD_GLOO_IFACE=lo HOROVOD_GLOO_RENDEZVOUS_ADDR=127.0.0.1 HOROVOD_GLOO_RENDEZVOUS_PORT=51693
    HOROVOD_HOSTNAME=localhost HOROVOD_LOCAL_RANK=1 HOROVOD_LOCAL_SIZE=2 HOROVOD_RANK=1 HOROVOD_SIZE=2
""")
# Not captured: the names that scripts for Argonne's Polaris use (radical.pilot's guide, kokkos pull request 5582).
PALS = variables("PMI_RANK=5 PMI_SIZE=8 PMI_LOCAL_RANK=1 PMI_LOCAL_SIZE=4")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        pytest.param({}, Processes(0, 1, 0, 1, "none"), id="nothing"),
        pytest.param(MPIRUN, Processes(1, 2, 1, 2, "mpirun"), id="mpirun"),
        pytest.param(MPIRUN_IN_SBATCH, Processes(3, 4, 0, 1, "mpirun"), id="mpirun in sbatch"),
        pytest.param(HYDRA, Processes(1, 2, 1, 2, "mpiexec"), id="Hydra"),
        pytest.param({**SRUN, **HYDRA}, Processes(1, 2, 1, 2, "mpiexec"), id="Hydra in sbatch"),
        pytest.param(PALS, Processes(5, 8, 1, 4, "mpiexec"), id="PALS"),
        pytest.param(SRUN, Processes(2, 3, 0, 1, "srun"), id="srun"),
        pytest.param(SRUN_PMIX, Processes(3, 4, 1, 2, "srun"), id="srun --mpi=pmix"),
        pytest.param(SRUN_PMI2, Processes(2, 3, 0, 1, "srun"), id="srun --mpi=pmi2"),
        pytest.param(SRUN_IN_SBATCH, Processes(1, 2, 0, 1, "srun"), id="srun in sbatch"),
        pytest.param(BATCH_SHELL, Processes(0, 1, 0, 1, "none"), id="batch shell"),
        pytest.param(SALLOC, Processes(0, 1, 0, 1, "none"), id="salloc"),
        pytest.param(INTERACTIVE, Processes(0, 1, 0, 1, "none"), id="srun --pty bash"),
        pytest.param(HOROVODRUN, Processes(1, 2, 1, 2, "horovodrun"), id="horovodrun"),
        pytest.param({**BATCH_SHELL, **HOROVODRUN}, Processes(1, 2, 1, 2, "horovodrun"), id="in sbatch"),
        pytest.param({**INTERACTIVE, **HOROVODRUN}, Processes(1, 2, 1, 2, "horovodrun"), id="in srun --pty"),
        pytest.param({**HOROVODRUN, **MPIRUN}, Processes(1, 2, 1, 2, "mpirun"), id="both"),
    ],
)  # fmt: skip
def test_place_among_the_processes(environment, expected):
    assert find_processes(environment) == expected


@pytest.mark.parametrize(
    ("layout", "sizes"), [("2(x3),1", [2, 2, 2, 1]), ("4", [4]), ("1,3(x2)", [1, 3, 3])]
)
def test_tasks_on_every_node_of_a_step(layout, sizes):
    for node, size in enumerate(sizes):
        environment = {
            **SRUN,
            "SLURM_STEP_TASKS_PER_NODE": layout,
            "SLURM_STEP_NUM_TASKS": str(sum(sizes)),
            "SLURM_NODEID": str(node),
        }
        assert find_processes(environment).local_size == size


@pytest.mark.parametrize(
    ("base", "change", "said"),
    [
        (MPIRUN, {"OMPI_COMM_WORLD_RANK": "two"}, "OMPI_COMM_WORLD_RANK is 'two'"),
        (MPIRUN, {"OMPI_COMM_WORLD_RANK": "-1"}, "OMPI_COMM_WORLD_RANK is '-1'"),
        (MPIRUN, {"OMPI_COMM_WORLD_SIZE": ""}, "OMPI_COMM_WORLD_SIZE is ''"),
        (MPIRUN, {"OMPI_COMM_WORLD_LOCAL_RANK": None}, "OMPI_COMM_WORLD_LOCAL_RANK is missing"),
        (
            MPIRUN,
            {"OMPI_COMM_WORLD_RANK": "2"},
            "OMPI_COMM_WORLD_RANK=2 contradicts OMPI_COMM_WORLD_SIZE=2; start all",
        ),
        (
            MPIRUN,
            {"OMPI_COMM_WORLD_LOCAL_SIZE": "1"},
            "OMPI_COMM_WORLD_LOCAL_RANK=1 contradicts OMPI_COMM_WORLD_LOCAL_SIZE=1",
        ),
        (HOROVODRUN, {"HOROVOD_LOCAL_SIZE": "3"}, "HOROVOD_LOCAL_SIZE=3 contradicts HOROVOD_SIZE"),
        (HYDRA, {"PMI_SIZE": None}, "PMI_SIZE is missing"),
        (HYDRA, {"MPI_LOCALRANKID": None}, "a launcher set PMI_RANK=1, but not how many"),
        (SRUN, {"SLURM_STEP_TASKS_PER_NODE": "2x,1"}, "is '2x,1'"),
        (SRUN, {"SLURM_NODEID": "2"}, "SLURM_STEP_TASKS_PER_NODE=2,1 has no node 2"),
        (SRUN, {"PMIX_RANK": "0"}, "PMIX_RANK=0 contradicts SLURM_PROCID=2"),
        ({}, {"PMIX_RANK": "1"}, "a launcher set PMIX_RANK=1, but not how many"),
    ],
)
def test_contradictions_are_refused(base, change, said):
    environment = {name: value for name, value in {**base, **change}.items() if value is not None}
    with pytest.raises(InputError, match=said):
        find_processes(environment)


def test_processors_are_shared_by_the_ranks_of_a_node(monkeypatch):
    def affinity(own, container):
        monkeypatch.setattr(
            os, "sched_getaffinity", lambda pid: set(range(container if pid else own))
        )

    def share(local_size, launcher="mpirun", environment=None):
        return processors_per_rank(Processes(0, 8, 0, local_size, launcher), environment or {})

    affinity(own=16, container=16)  # not bound
    assert [share(n) for n in (1, 4, 5, 16, 32)] == [16, 4, 3, 1, 1]
    assert told_of_binding(Processes(0, 8, 0, 4, "mpirun"), {}) is None
    affinity(own=1, container=16)  # to a core
    assert share(4) == 1
    told = told_of_binding(Processes(0, 8, 0, 4, "mpirun"), {})
    assert told is not None and "bound to 1 of the 4" in told and "-bind-to none" in told
    told = told_of_binding(Processes(0, 8, 0, 4, "srun"), {"SLURM_CPUS_ON_NODE": "8"})
    assert told is not None and "bound to 1 of the 2" in told and "--cpus-per-task=2" in told
    assert told_of_binding(Processes(0, 16, 0, 16, "mpirun"), {}) is None  # a processor each
    affinity(own=8, container=16)  # to a socket, which two ranks share
    assert share(4) == 4
    affinity(own=4, container=4)  # a container that has 4 processors of a larger node
    assert share(2) == 2
    affinity(own=64, container=64)  # a job that has 8 processors of the node, not bound
    assert share(2, "srun", {"SLURM_CPUS_ON_NODE": "8"}) == 4


def test_one_process_has_all_processors_of_this_machine():
    assert processors_per_rank(Processes()) == len(os.sched_getaffinity(0))


@pytest.mark.skipif(not shutil.which("mpirun"), reason="there is no mpirun")
@pytest.mark.parametrize("binding", ["core", "none"])
def test_under_real_mpirun(binding, tmp_path):
    # Each into a file of its own: mpirun may mix what its ranks print.
    program = (
        "import dataclasses, json, os, sys; from tfmat.launch.processes import *; found = find_processes(); "
        "answer = [dataclasses.asdict(found), processors_per_rank(found), len(os.sched_getaffinity(0))]; "
        "json.dump(answer, open(f'{sys.argv[1]}/{found.rank}', 'w'))"
    )
    command = ["mpirun", "--oversubscribe", "--bind-to", binding, "-np", "2", sys.executable]
    done = subprocess.run(
        [*command, "-c", program, str(tmp_path)],
        env=rank_environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    answers = [json.loads((tmp_path / str(rank)).read_text()) for rank in range(2)]
    assert [answer[0] for answer in answers] == [
        dataclasses.asdict(Processes(rank, 2, rank, 2, "mpirun")) for rank in range(2)
    ]
    # Of the container, whose first process may have more than this one (taskset): ranks share what that one has.
    share = max(1, len(os.sched_getaffinity(1)) // 2)
    (bound,) = {answer[2] for answer in answers}
    assert bound == 1 if binding == "core" else bound >= len(os.sched_getaffinity(0))
    assert {answer[1] for answer in answers} == {min(bound, share)}
