"""Packed data sets, their order, the TFDS builder and the training pipeline."""

from tfmat.data.importing import import_dataset, repair_dataset
from tfmat.data.order import ExampleOrder
from tfmat.data.packed import PackedDataset, find_dataset, generate_dataset

__all__ = [
    "ExampleOrder",
    "PackedDataset",
    "find_dataset",
    "generate_dataset",
    "import_dataset",
    "repair_dataset",
]
