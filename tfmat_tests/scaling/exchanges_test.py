"""Ways to exchange gradients in a matrix: of which backend each is, and what is refused."""

import dataclasses

import pytest

from tfmat.errors import InputError
from tfmat.scaling.measure import expand
from tfmat.scaling.study import Matrix, Runs
from tfmat_tests.scaling.studies import LOCAL, study


@pytest.mark.parametrize(
    ("exchange", "message"),
    [
        ("local_step=50", "'local_step=50'"),
        ("compression=zip", "zip"),
        ("local_steps=0", "local_steps"),
        ("train_for=1s", "train_for"),
        ("averaging=true", "averaging=true is for --backend=asynchronous"),
    ],
)
def test_an_exchange_that_does_not_exist_is_refused(exchange: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Runs("horovod", workers=2, batch_a_worker=75, exchange=exchange)


@pytest.mark.parametrize(
    ("exchange", "message"),
    [
        ("compression=fp16", "compression=fp16 is for --backend=horovod and mpi"),
        ("quorum=3", "exchange='quorum=3' of 2 workers: quorum=3 is more than the workers"),
    ],
)
def test_an_exchange_that_a_backend_cannot_have_is_refused(exchange: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Runs("asynchronous", workers=(2, 4), batch_a_worker=75, exchange=exchange)


def test_each_backend_exchanges_in_its_own_ways() -> None:
    overlap = "local_steps=16,overlap_meetings=true"
    matrix = Matrix(
        runs=[
            Runs("mpi", workers=(1, 2), batch_a_worker=75, exchange=("", overlap)),
            Runs("asynchronous", workers=2, batch_a_worker=75, exchange="averaging=true"),
        ]
    )
    machine = dataclasses.replace(LOCAL, sums_with=frozenset({"mpi4py"}))
    about = dataclasses.replace(study(matrix), machine=machine)
    tasks = [(group.variant, task) for group in about.groups()[0] for task in group.tasks]
    found = [about.point(*each) for each in tasks if each[0].backend != "single"]
    assert {(each.backend, each.collectives, each.exchange) for each in found} == {
        ("mpi", "bare mpi", ""),
        ("mpi", "bare mpi", overlap),
        ("asynchronous", "", "averaging=true"),
    }
    assert all(each.workers == 2 for each in found)
    assert sorted(str(group.variant) for group in expand(matrix) if group.variant.workers == 2) == [
        "asynchronous, averaging=true, 2 workers",
        "mpi, 2 workers",
        f"mpi, {overlap}, 2 workers",
    ]
