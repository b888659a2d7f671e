"""Workers of an exchange as threads of one process."""

import concurrent.futures
import threading

import tensorflow as tf

from tfmat.backends.base import Collectives


class Threads:
    """Some workers that sum and collect among themselves."""

    def __init__(self, workers):
        self._workers, self._barrier = workers, threading.Barrier(workers, timeout=60)
        self._said = [None] * workers

    def run(self, work):
        """What `work(rank, collectives)` returns on each of them."""

        def one(rank):
            try:
                return work(rank, self._collectives(rank))
            except BaseException:
                self._barrier.abort()
                raise

        with concurrent.futures.ThreadPoolExecutor(self._workers) as pool:
            return list(pool.map(one, range(self._workers)))

    def _collectives(self, rank):
        def together(tensors):
            self._said[rank] = tensors
            self._barrier.wait()
            found = list(zip(*self._said, strict=True))
            self._barrier.wait()
            return found

        made = Collectives()
        made.size, made.rank = self._workers, rank
        # An int8 sum wraps around as MPI's does.
        made._sum = lambda tensors: [
            tf.constant(sum(t.numpy() for t in each)) for each in together(tensors)
        ]
        made._collect = lambda tensors: [tf.stack(each) for each in together(tensors)]
        made._scatter = lambda tensors: [total[rank] for total in made._sum(tensors)]
        return made
