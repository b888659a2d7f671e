"""Work side by side: answers in their order, and the libraries' own threads as they were."""

import threading

import threadpoolctl

from tfmat.identification.threads import one_thread_a_product, side_by_side


def _blas_threads():
    return [
        one["num_threads"] for one in threadpoolctl.threadpool_info() if one["user_api"] == "blas"
    ]


def test_answers_stand_in_the_order_of_the_items():
    assert list(side_by_side(lambda i: i * i, range(7))) == [i * i for i in range(7)]
    assert not list(side_by_side(str, []))


def test_a_single_item_stays_in_its_thread():
    (thread,) = side_by_side(lambda _: threading.current_thread(), [1])
    assert thread is threading.current_thread()


def test_limits_end_with_the_outermost_block():
    before = _blas_threads()
    with one_thread_a_product():
        with one_thread_a_product():
            pass
        assert set(_blas_threads()) == {1}
    assert _blas_threads() == before
