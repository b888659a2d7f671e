"""A run's config at another batch, and the data set that all runs of a test share."""

import copy
from typing import TYPE_CHECKING, Any

from tfmat.config import Config, apply_override, check_config, goes_in_pieces
from tfmat.errors import InputError

if TYPE_CHECKING:
    from tfmat.data.packed import PackedDataset


def at_batch(config: Config, batch: int, **overrides: Any) -> Config:
    """A copy of the config with another global batch, and further keys (`optimizer__name=...`) as text."""
    changed = copy.deepcopy(config)
    for key, value in {"global_batch_size": batch, **overrides}.items():
        apply_override(changed, key.replace("__", "."), str(value))
    return check_config(changed)


def prepare_data(config: Config, data_dir: str, largest_batch: int) -> "PackedDataset":
    """The data set of the config, made if it is not there; TensorFlow is loaded and set up as `tfmat train` does.

    Raises:
      InputError: also where the largest batch is larger than the training set.
    """
    from tfmat.data.packed import PackedDataset, is_dataset
    from tfmat.launch.runtime import prepare_tensorflow
    from tfmat.workflow import curve_settings, make_dataset
    from tfmat.workflow.dataset import adopt

    if is_dataset(data_dir):
        dataset = PackedDataset.open(data_dir)
        adopt(config, dataset)
    else:
        dataset = make_dataset(config, curve_settings(config), data_dir)
    if largest_batch > dataset.num_train:
        raise InputError(
            f"batch {largest_batch} is larger than the {dataset.num_train} training curves; leave it out"
        )
    prepare_tensorflow(one_thread_an_operation=goes_in_pieces(config.model))
    return dataset
