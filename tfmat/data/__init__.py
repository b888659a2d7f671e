"""Packed data sets, their order, the TFDS builder and the training pipeline."""

from tfmat.data.dataset import PackedDataset, find_dataset, generate_dataset
from tfmat.data.imported import import_dataset, repair_dataset
from tfmat.data.order import ExampleOrder

__all__ = [
    "ExampleOrder",
    "PackedDataset",
    "find_dataset",
    "generate_dataset",
    "import_dataset",
    "repair_dataset",
]
