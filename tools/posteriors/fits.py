"""The law's own fits of a task's records, as many as there is time for: run as `posteriors.fits TASK OUT SECONDS`."""

import pathlib
import sys

import numpy as np

from posteriors.frozen import Clock, Fits, Task
from posteriors.tfmat_flow import configured
from tfmat.backends.collectives import Collectives
from tfmat.data.dataset import Kept
from tfmat.files import atomic_write
from tfmat.networks import build_for
from tfmat.workflow.fronts import parted, represented

# Records are fitted, so many at a time, as long as there is time for the next ones and for the seconds of training that
# each is given, some twenty epochs; the others are left out. Each call traces a graph anew, which more records share
# where fits are quick, as long as a call takes no more than a part of the time.
_TOGETHER, _MOST_TOGETHER, _SHARE, _TRAINING = 1024, 8192, 0.1, 4e-4


def main(folder: pathlib.Path, out: pathlib.Path, seconds: float) -> None:
    """Fits the first training records and all test records, and writes them with the seconds of the former."""
    task = Task.open(folder)
    config, dataset = configured(task, seed=0)
    alone, nothing = Collectives(), Kept(None)
    started = Clock.now()
    front, _ = parted(build_for(config, dataset, nothing))
    assert front is not None
    fitted: list[np.ndarray] = []
    done, together, took = 0, _TOGETHER, 0.0
    while done < len(task.features):
        before = Clock.now()
        if before - started + took + done * _TRAINING > seconds:
            break
        few = task.features[done : done + together]
        fitted.append(represented(front, few, alone, nothing))
        done += len(few)
        took = Clock.now() - before
        affordable = int(_SHARE * seconds * len(few) / took)
        together = min(max(_TOGETHER, affordable), _MOST_TOGETHER)
    spent = Clock.now() - started
    of_tests = represented(front, task.test_features, alone, nothing)
    fits = Fits.of(np.concatenate(fitted), of_tests, task.labels.shape[1], spent)
    with atomic_write(out) as file:
        fits.save(file)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), float(sys.argv[3]))
