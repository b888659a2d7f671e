"""Hyper-parameter search that people can leave alone: keras-tuner's oracles behind one file, no port, no chief."""

from tfmat.tuning.search import Choice, Float, Int, Search

__all__ = ["Choice", "Float", "Int", "Search"]
