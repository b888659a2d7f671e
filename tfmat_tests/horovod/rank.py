"""One rank of the tests: `mpirun -np N python -m tfmat_tests.horovod.rank FOLDER [CHECK ...]`.

Runs the checks one after the other (TensorFlow takes seconds to import); FOLDER/<rank>.json says what failed.
"""

import json
import pathlib
import sys
import traceback

from tfmat.launch.processes import find_processes
from tfmat.launch.runtime import prepare_tensorflow
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

    ran, failed = [], {}
    with pytest.raises(InputError, match="hvd.init"):
        hvd.DistributedOptimizer(keras.optimizers.SGD())
    size = find_processes().size
    hvd.init(process_sets=[*MYSELF[:size], *([PAIR] if size > 2 else [])])
    keras.config.set_floatx("float64")
    for name, check in checks().items():
        if names and name not in names:
            continue
        keras.backend.clear_session()
        ran.append(name)
        try:
            check(folder)
        except Exception:
            failed[name] = traceback.format_exc()
        # A rank that failed alone would leave the others in the next check's first collective.
        if any(hvd.allgather_object(name in failed, name="failed")):
            failed.setdefault(name, "failed on another rank")
            break
    (folder / f"{hvd.rank()}.json").write_text(json.dumps({"ran": ran, "failed": failed}))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2:])
