"""One process of a test of the mirrored strategies: `strategies_rank.py FOLDER [multi]`; rank 0 leaves answer.json."""

import functools
import json
import os
import pathlib
import sys

from tfmat.launch.processes import find_processes
from tfmat_tests import lean_keras  # noqa: F401  before Keras
from tfmat_tests.scaling.server_rank import (
    BATCH,
    RATE,
    STEPS,
    WORKERS,
    make_examples,
    make_model,
)


def main(folder: pathlib.Path, several: bool) -> None:
    from tfmat.scaling import baselines
    from tfmat.scaling.baselines import batches_of, find_each_other, prepare

    processes, others = find_processes(), None
    if several:
        prepare(1, start=False)
        addresses, guard, others = find_each_other(folder, processes)
        strategy = baselines.multi_worker_mirrored(addresses, processes.rank)
        assert guard is not None
        guard.wait()
    else:
        prepare(1, virtual_devices=WORKERS)
        strategy = baselines.mirrored(WORKERS)
    own = folder / f"examples-{processes.rank}"
    own.mkdir()
    for name, examples in zip(("features", "labels"), make_examples(), strict=True):
        examples.tofile(own / f"{name}.f32")
    training = baselines.AdamMirrored(strategy)
    training.build(make_model(), RATE, functools.partial(batches_of, own, (5, 3), 2, BATCH))
    losses = [training.train(STEPS) for _ in range(2)]
    weights = [weight.tolist() for weight in training.weights()]
    if processes.rank == 0:
        answer = {"losses": losses, "weights": weights, "workers": strategy.num_replicas_in_sync}
        (folder / "answer.json").write_text(json.dumps(answer))
    if others:
        others.barrier()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), "multi" in sys.argv)
    sys.stdout.flush()
    os._exit(0)
