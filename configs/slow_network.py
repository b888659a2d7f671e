"""What pays on the network between these machines: sums as they are, compressed, or only now and then?

tfmat scale --config=configs/slow_network.py --hosts=server1:2,server2:2
tfmat train --config=configs/slow_network.py

Two workers and four, spread over the machines; what --hosts has no room for is left out. About a quarter of an hour.
"""

from tfmat.config import Config, default_config
from tfmat.scaling.study import KILOBYTE, AllReduces, Matrix, Runs

WORKERS = (2, 4)
# As `tfmat train` takes them: docs/slow_networks.md says what each is.
EXCHANGES = (
    "compression=fp16",
    "compression=powersgd",
    "compression=powersgd,compression_rank=8",
    "local_steps=16",
    "local_steps=50",
    "local_steps=50,compression=fp16",
)
# Meetings that nobody waits for: MPI leaves the processor to the steps meanwhile.
OVERLAPPED = (
    "local_steps=16,overlap_meetings=true",
    "local_steps=16,overlap_meetings=true,compression=fp16",
    "local_steps=16,overlap_meetings=true,compression=powersgd,compression_rank=16",
    "local_steps=50,overlap_meetings=true,compression=fp16",
)


def get_config() -> Config:
    """The default network; `get_scaling` says how large the data set is."""
    config = default_config()
    config.data.num_test = 500
    config.data.num_validation = 2_000
    return config


def get_scaling() -> Matrix:
    """Weak and strong scaling, each way to exchange gradients, and what a message takes."""
    return Matrix(
        rounds=3,
        seconds=3.0,
        split_rounds=0,
        dataset_size=60_000,
        runs=[
            Runs("single", batch_a_worker=(75, 150, 300)),
            Runs("single", workers=WORKERS, placement="spread", batch_a_worker=75),
            Runs(
                "horovod",
                workers=WORKERS,
                placement="spread",
                batch_a_worker=(75, 150, 300),
                global_batch_size=300,
            ),
            Runs(
                "horovod",
                workers=WORKERS,
                placement="spread",
                batch_a_worker=75,
                exchange=EXCHANGES,
            ),
            Runs(
                "mpi",
                workers=WORKERS,
                placement="spread",
                batch_a_worker=75,
                exchange=("", *OVERLAPPED),
            ),
            Runs(
                "asynchronous",
                workers=WORKERS,
                placement="spread",
                batch_a_worker=75,
                exchange="averaging=true",
            ),
        ],
        allreduces=[
            # Beyond a megabyte a message takes seconds on such a network.
            AllReduces(
                ("mpi", "bare mpi"),
                workers=WORKERS,
                placement="spread",
                sizes=[KILOBYTE * 2**power for power in range(0, 11, 2)],
            )
        ],
    )
