"""Trains rows of the table: `python -m THIS FOLDER mesh [all]`, or `mpirun -np 2 python -m THIS FOLDER horovod`.

FOLDER/<where>.json has for each row the metrics, or the error, and the warnings; FOLDER/<where>-<row>.npz the weights.
The second command does that for `horovod` and for `fit`.
"""

import json
import pathlib
import sys
import warnings

from tfmat.launch.processes import find_processes, prepare_tensorflow
from tfmat_tests import lean_keras  # noqa: F401  before Keras


def train(feature, backend):
    """Weights and metrics after a run of the Trainer."""
    import tfmat
    from tfmat_tests.training.features import BATCH, EPOCHS, NUM_EXAMPLES

    model = feature.make_model()
    trainer = tfmat.Trainer(
        model,
        loss=feature.loss,
        optimizer=feature.optimizer(),
        metrics=feature.metrics(),
        backend=backend,
        quiet=True,
    )
    features, labels, given = feature.take(slice(0, NUM_EXAMPLES))
    result = trainer.fit(
        features, labels, global_batch_size=BATCH, train_for=f"{EPOCHS}epochs", **given
    )
    return model.get_weights(), {name: result.history[name][-1] for name in feature.metrics()}


def fit_with_horovod(feature, rank):
    """Weights and metrics after Keras's `fit` on this rank's part of every batch."""
    import numpy as np

    import tfmat.horovod as hvd
    from tfmat_tests.training.features import BATCH, EPOCHS, RANKS, whole_batches

    batches = list(whole_batches())[: len(list(whole_batches())) // EPOCHS]
    mine = np.concatenate([np.split(rows, RANKS)[rank] for rows in batches])

    model = feature.make_model()
    metrics = feature.metrics()
    for name, metric in metrics.items():
        metric.name = name
    model.compile(
        hvd.DistributedOptimizer(feature.optimizer()),
        loss=feature.loss,
        metrics=list(metrics.values()),
    )
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
    ]
    features, labels, given = feature.take(mine)
    history = model.fit(
        features,
        labels,
        batch_size=BATCH // RANKS,
        epochs=EPOCHS,
        shuffle=False,
        verbose=0,
        callbacks=callbacks,
        **given,
    ).history
    return model.get_weights(), {name: history[name][-1] for name in metrics}


def run_all(folder, where, run, rank, features, without=()):
    """All these rows but some; what they end in."""
    import numpy as np

    found = {}
    for number, (name, feature) in enumerate(features.items()):
        if name in without:
            continue
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                weights, metrics = run(feature)
                found[name] = {"metrics": metrics}
                if rank == 0:
                    np.savez(folder / f"{where}-{number}.npz", *weights)
            except Exception as error:
                found[name] = {"error": str(error), "type": type(error).__name__}
        found[name]["warnings"] = [str(each.message) for each in caught]
    if rank == 0:
        (folder / f"{where}.json").write_text(json.dumps(found))


def main(folder, where, how_many=""):
    """See the module."""
    from tfmat.backends import make_backend
    from tfmat_tests.training.features import FEATURES, WITH_ALL

    rank = find_processes().rank
    if where == "mesh":
        import tfmat

        backend = tfmat.mesh_backend("batch:2")
    else:
        prepare_tensorflow(processors=1)
        backend = make_backend(where)
    with backend:
        without = {} if how_many else WITH_ALL
        run_all(
            folder, where, lambda each: train(each, backend), rank, FEATURES, without.get(where, ())
        )
        if where == "horovod":
            import tfmat.horovod as hvd

            hvd.init()
            run_all(
                folder,
                "fit",
                lambda each: fit_with_horovod(each, rank),
                rank,
                FEATURES,
                without.get("fit", ()),
            )


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), *sys.argv[2:])
