"""Sizes that cannot be are refused with the memory that they would need."""

import pathlib

import pytest

from tfmat.data.dataset import check_memory, generate_dataset, size_text, total_memory
from tfmat.errors import InputError
from tfmat.records.simulation import CurveSettings


def test_total_memory_is_at_most_that_of_the_machine():
    text = pathlib.Path("/proc/meminfo").read_text()
    machine = 1024 * int(text.split("MemTotal:")[1].split()[0])
    assert 2**20 < total_memory() <= machine


def test_what_does_not_fit_is_refused():
    check_memory("it", total_memory(), "leave it")
    with pytest.raises(InputError, match="it would need at least .* of memory.*; leave it"):
        check_memory("it", total_memory() + 1, "leave it")


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(12_000_000, "12.0 MB"), (3_400_000_000, "3.4 GB"), (10**18, "1,000,000.0 TB")],
)
def test_sizes(num_bytes, text):
    assert size_text(num_bytes) == text


def test_curves_of_too_many_points(tmp_path):
    settings = CurveSettings(num_points=10**18)
    with pytest.raises(
        InputError, match=r"curves of 1,000,000,000,000,000,000 points .*fewer points"
    ):
        generate_dataset(settings, seed=0, num_curves=8, num_test=4, data_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []
