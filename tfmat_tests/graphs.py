"""Graphs of tests run a few times: making them quicker takes TensorFlow a third of the time in which they are made."""

import os
import sys

PLAIN = "TFMAT_TESTS_PLAIN_GRAPHS"
"""Variable that is set where graphs stay as they are made; under --all, and where a test empties it, they do not."""


def may_be_plain() -> None:
    """Graphs that this process makes from now on are optimized or not; before it loads TensorFlow, nothing happens."""
    if module := sys.modules.get("tensorflow.python.eager.context"):
        options = {"disable_meta_optimizer": bool(os.environ.get(PLAIN))}
        module.context().set_optimizer_experimental_options(options)
