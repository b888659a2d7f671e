"""One rank of the tests: `mpirun -np N python -m tfmat_tests.horovod.rank FOLDER [CHECK ...]`.

Runs the checks one after the other (TensorFlow takes seconds to import); FOLDER/<rank>.jsonl has a line for each: its
name, and what failed or nothing.
"""

import json
import pathlib
import sys
import traceback

from tfmat.launch.processes import find_processes, prepare_tensorflow
from tfmat_tests import lean_keras  # noqa: F401  before Keras


def checks():
    """Name -> function of a folder, of all checks; loads TensorFlow and Horovod."""
    from tfmat_tests.horovod import callback_checks, optimizer_checks, saving_checks

    found = {**vars(optimizer_checks), **vars(saving_checks), **vars(callback_checks)}
    return {name: each for name, each in found.items() if name.startswith("check_")}


def main(folder, names):
    """Runs the checks `names`, all where there are none."""
    prepare_tensorflow(processors=1)
    import keras
    import pytest

    import tfmat.horovod as hvd
    from tfmat.errors import InputError
    from tfmat_tests.horovod.problem import MYSELF, PAIR

    with pytest.raises(InputError, match="hvd.init"):
        hvd.DistributedOptimizer(keras.optimizers.SGD())
    size = find_processes().size
    hvd.init(process_sets=[*MYSELF[:size], *([PAIR] if size > 2 else [])])
    keras.config.set_floatx("float64")
    every = checks()
    with open(folder / f"{hvd.rank()}.jsonl", "w", 1, "utf-8") as said:
        for name in names or every:
            keras.backend.clear_session()
            failed = ""
            try:
                every[name](folder)
            except Exception:
                failed = traceback.format_exc()
            # A rank that failed alone would leave the others in the next check's first collective.
            ended = any(hvd.allgather_object(bool(failed), name="failed"))
            print(json.dumps([name, failed or "failed on another rank" * ended]), file=said)
            if ended:
                break


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2:])
