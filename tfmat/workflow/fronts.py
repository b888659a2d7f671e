"""The part of a network that has no weights and takes most of its time, computed once, before the first step."""

import concurrent.futures
import contextlib
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from tfmat.console import log, progress_bar
from tfmat.data.dataset import available_threads, check_memory

if TYPE_CHECKING:
    import keras

    from tfmat.backends.base import Collectives
    from tfmat.data.dataset import Kept, PackedDataset
    from tfmat.identification.identifier import Identifier

# Short NumPy calls pay for many records at once; still there is work for several processes, and progress to tell.
_RECORDS_IN_BLOCK, _LEAST_IN_BLOCK, _MOST_IN_BLOCK, _BLOCKS = 512, 1024, 4096, 16
_BLOCKS_A_THREAD = 4
_ALL = slice(None)
_WORTH_TELLING = 3.0  # seconds


def parted(model: "keras.Model") -> tuple["keras.Model | None", "keras.Model"]:
    """The network's front that has no weights and takes most of its time, where it has one, and what trains behind it.

    The same record gives the same numbers in every epoch, so they are computed once. The parts share their layers.
    """
    import keras

    from tfmat.networks.law_fit import LawFit, SeenTests
    from tfmat.networks.plastic_spectrum import PlasticSpectrum

    for layer in model.layers:
        alone = isinstance(layer, PlasticSpectrum | LawFit) and layer.input is model.inputs[0]
        if alone or isinstance(layer, SeenTests):
            front = keras.Model(model.inputs[0], layer.output)
            return front, keras.Model(layer.output, model.outputs[0], name=model.name)
    return None, model


def trained_part(
    model: "keras.Model", features: np.ndarray, kept: "Kept"
) -> tuple["keras.Model", np.ndarray]:
    """What trains of a network, and what that sees of records; by one process that is alone."""
    from tfmat.backends.base import Collectives

    front, trained = parted(model)
    if front is None:
        return trained, features
    return trained, represented(front, features, Collectives(), kept)


def know_fits(
    identifier: "Identifier", dataset: "PackedDataset", rows: slice | None = None
) -> None:
    """Has a network around fits know its outputs, so that nothing asked of it later waits for fits.

    All processors fit what was not kept. Other networks need nothing of it.

    Args:
      rows: of the training and validation records; None is all test records.

    Raises:
      InputError: test records are none, or not of the network's task.
    """
    import keras

    from tfmat.backends.base import Collectives
    from tfmat.identification.evaluate import check_same_task

    known = identifier.around_fits
    if known is None:
        return
    if rows is None:
        check_same_task(identifier, dataset)
    front = keras.Model(known.fit.input, known.fit.output)
    end = dataset.num_train + dataset.num_validation
    features = dataset.features[end:] if rows is None else dataset.features[:end]
    rows = rows or _ALL
    seen = represented(front, features, Collectives(), dataset.kept, rows)
    known.know(features[rows], seen)


def represented(
    front: "keras.Model",
    features: np.ndarray,
    collectives: "Collectives",
    kept: "Kept",
    rows: slice = _ALL,
) -> np.ndarray:
    """What the front makes of records [records, points, channels], [records, ..., numbers]; the ranks share the work.

    Blocks are the same however many ranks there are, so that the numbers are too. Fits are kept block by block, so that
    what was interrupted goes on, and runs on the same records begin at once. Where only some `rows` are wanted, these
    alone come back, and only blocks that hold some of them are worked on.
    """
    from tfmat.networks.law_fit import LawFit

    shape = (len(features), *front.output_shape[1:])
    numbers = math.prod(shape[1:])
    check_memory(
        f"what a network sees of {len(features):,} records, {numbers} numbers each,",
        len(features) * numbers * 4,
        "take fewer records",
    )
    threads = available_threads()
    fitted = isinstance(front.layers[-1], LawFit)
    size, in_turn = _RECORDS_IN_BLOCK, _BLOCKS_A_THREAD
    if fitted:
        size, in_turn = min(max(_LEAST_IN_BLOCK, len(features) // _BLOCKS), _MOST_IN_BLOCK), 1
    start, stop, _ = rows.indices(len(features))
    firsts = range(start // size * size, stop, size)
    blocks = [slice(first, min(first + size, len(features))) for first in firsts]
    ranks, first_rank = len(collectives.gather(None)), collectives.rank == 0
    seen = np.empty(shape, np.float32)
    started = time.monotonic()
    together = in_turn * ranks * threads
    with (
        _seeing(front, features, threads, kept, alone=ranks == 1) as see,
        progress_bar("preparing", "records") if first_rank else contextlib.nullcontext() as show,
    ):
        for first in range(0, len(blocks), together):
            shared = blocks[first : first + together]
            answers = collectives.gather(list(see(shared[collectives.rank :: ranks])))
            for rank, answer in enumerate(answers):
                for part, block in zip(shared[rank::ranks], answer, strict=True):
                    seen[part] = block
            if show is not None:
                show(shared[-1].stop - firsts.start, blocks[-1].stop - firsts.start)
    seconds = time.monotonic() - started
    if first_rank and seconds > (0.0 if rows == _ALL else _WORTH_TELLING):
        log(f"prepared {stop - start:,} records in {seconds:.1f} s")
    return seen[rows]


@contextlib.contextmanager
def _seeing(
    front: "keras.Model", features: np.ndarray, threads: int, kept: "Kept", *, alone: bool
) -> Iterator[Callable[[list[slice]], Iterable[np.ndarray]]]:
    """What the front makes of some blocks, by threads of TensorFlow's.

    The fit of a law is NumPy, which threads would only wait for: forks do it where this process is alone. Several ranks
    keep the processors busy as they are.
    """
    import tensorflow as tf

    from tfmat.identification.side_by_side import in_processes, one_thread_a_product
    from tfmat.networks.law_fit import LawFit

    record = tf.TensorSpec([None, *features.shape[1:]])
    fit = front.layers[-1]
    if isinstance(fit, LawFit):
        spectra = tf.function(fit.spectra_of, autograph=False).get_concrete_function(record)
        config = json.dumps(fit.get_config(), sort_keys=True)

        def fits(given: tuple[slice, np.ndarray]) -> np.ndarray:
            return fit.fits(features[given[0]], given[1]).astype(np.float32)

        def see(parts: list[slice]) -> Iterable[np.ndarray]:
            keys = [kept.key(config, features[part]) for part in parts]
            found = [kept.read(key) for key in keys]
            missing = [place for place, one in enumerate(found) if one is None]
            given = [
                (parts[place], np.asarray(spectra(tf.constant(features[parts[place]]))))
                for place in missing
            ]
            made = in_processes(fits, given) if alone else map(fits, given)
            for place, one in zip(missing, made, strict=True):
                kept.write(keys[place], one)
                found[place] = one
            return [one for one in found if one is not None]

        with one_thread_a_product():
            yield see
        return
    graph = tf.function(front, autograph=False).get_concrete_function(record)
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        yield lambda parts: pool.map(
            lambda part: np.asarray(graph(tf.constant(features[part]))), parts
        )
