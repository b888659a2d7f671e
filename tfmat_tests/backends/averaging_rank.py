"""One rank of the tests of averaging: `mpirun -np N python -m tfmat_tests.backends.averaging_rank FOLDER`.

Rank 0 saves each case, FOLDER/<name>-<N>.npz: weights, sums, figures, and what the workers did.
"""

import pathlib
import sys
import threading
import time

from tfmat.launch.processes import prepare_tensorflow
from tfmat_tests import lean_keras  # noqa: F401  before Keras


def in_turns(backend, calls, exchanges):
    """Has part k of each call be taken by worker k modulo their number, after all that worker k - 1 did was done.

    `exchanges` receives (call, part, worker, partner) of each averaging.
    """
    parts, choose = iter(()), backend._choose_partner
    call = part = -1

    def next_part():
        nonlocal parts, call, part
        backend._end_averaging()
        while True:
            part = next(parts, None)
            if part is None:
                call += 1
                parts = iter(range(calls[call] * backend.world_size + 1))
                continue
            backend.collectives.barrier()
            last = part == calls[call] * backend.world_size
            if last or part % backend.world_size == backend.rank:
                return part

    def choose_partner():
        exchanges.append((call, part, backend.rank, choose()))
        return exchanges[-1][-1]

    backend._next_part, backend._choose_partner = next_part, choose_partner


def without_an_answer(backend, folder, last):
    """Has rank 1 compute and answer nothing before the others have done all that is left; the call has `last` parts."""
    next_part, answer, may_answer = backend._next_part, backend._own.average, threading.Event()
    if backend._parts_ahead:  # or on a busy machine the slow one has a second part before it begins
        backend._parts_ahead._ahead = lambda: 0

    def wait_for(*names):
        deadline = time.monotonic() + 120
        while not all((folder / name).exists() for name in names):
            assert time.monotonic() < deadline, names
            time.sleep(0.01)

    def next_of_slow():
        part = next_part()
        (folder / "taken").touch()
        wait_for("over-0", "over-2")
        may_answer.set()
        return part

    def next_of_others():
        wait_for("taken")
        part = next_part()
        # On a busy machine one of them could else take all that is left before the other has begun.
        (folder / f"began-{backend.rank}").touch()
        wait_for("began-0", "began-2")
        if part >= last:
            (folder / f"over-{backend.rank}").touch()
        return part

    def late_answer(theirs):
        may_answer.wait()
        return answer(theirs)

    backend._next_part = next_of_slow if backend.rank == 1 else next_of_others
    backend._own.average = late_answer


def each_begins(backend):
    """Has each worker take a part before any computes its first: on a busy machine one could else take all of them."""
    next_part, began = backend._next_part, False

    def next_of_all():
        nonlocal began
        part = next_part()
        if not began:
            began = True
            backend.collectives.barrier()
        return part

    backend._next_part = next_of_all


def asks_ahead(backend, calls, taken):
    """Has each worker ask for three parts more than it computes; `taken` receives (call, part) of those it computes."""
    next_part, call = backend._next_part, 0
    if backend.rank:
        backend._parts_ahead._ahead = lambda: 3

    def next_and_note():
        nonlocal call
        part = next_part()
        if part >= calls[call] * backend.world_size:
            call += 1
        else:
            taken.append((call, part))
        return part

    backend._next_part = next_and_note


def check_own_slots(backend):
    """A checkpoint has each worker's slots, which go back to it; the weights and the step are one for all."""
    import numpy as np

    state = backend.read()
    own = [name for name in state if name.startswith("exchange/slots/")]
    assert len(own) == len(backend._variables.slots) - 2  # but for the step and the rate
    assert all(len(state[name]) == backend.world_size for name in own)
    assert any((state[name][0] != state[name][1]).any() for name in own)
    backend.write(state)
    backend.synchronize()
    for name in own:
        variable = backend._variables.slots[int(name.rpartition("/")[2])]
        np.testing.assert_array_equal(variable.numpy(), state[name][backend.rank])


def as_made(backend):
    """Takes back what the functions above have put in the place of a backend's own methods."""
    for owner in filter(None, (backend, backend._own, backend._parts_ahead)):
        for name in ("_next_part", "_choose_partner", "average", "_ahead"):
            vars(owner).pop(name, None)


def main(folder):
    """Trains all cases."""
    prepare_tensorflow(one_thread_an_operation=True, processors=1)
    import numpy as np

    from tfmat.backends import make_backend
    from tfmat.launch.processes import find_processes
    from tfmat_tests.backends.horovod_rank import build
    from tfmat_tests.backends.problem import blocks, make_data

    # Tracing takes seconds, the steps a fraction of one: a backend trains all cases of its options.
    cases = {1: ("turns", "free", "no answer", "ahead"), 2: ("every second",)}
    data = make_data()
    for every, names in cases.items():
        if find_processes().size == 2:
            names = [name for name in names if name not in ("every second", "no answer")]
        if not names:
            continue
        with make_backend("asynchronous", averaging=True, local_steps=every) as backend:
            model, start = build({"precision": "float64", "optimizer": "adam"}, backend)
            for name in names:
                as_made(backend)
                backend.write(start)
                backend.synchronize()
                calls, exchanges = [5, 9, 6], []
                if name == "no answer":
                    calls = [5]
                    without_an_answer(backend, folder, 5 * backend.world_size)
                elif name == "ahead":
                    asks_ahead(backend, calls, exchanges)
                elif name == "free":
                    each_begins(backend)
                else:
                    in_turns(backend, calls, exchanges)
                sums = [backend.train(*block) for block in blocks(backend, data, calls)]
                backend.check_replicas(sum(calls))
                check_own_slots(backend)
                figures, found = backend.take_figures(), backend.collectives.gather(exchanges)
                if backend.rank == 0:
                    assert backend.bytes_per_step > 0
                    np.savez(
                        folder / f"{name}-{backend.world_size}.npz",
                        *model.get_weights(),
                        sums=np.concatenate(sums),
                        steps=backend._variables.slots[0].numpy(),
                        exchanges=np.array(sorted(each for one in found for each in one)),
                        **{f"figure-{key}": value for key, value in figures.items()},
                    )


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
