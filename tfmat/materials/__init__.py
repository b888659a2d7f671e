"""Material laws: parameters -> stress, with units, ranges and sources. NumPy only."""

from tfmat.materials.law import Law, Parameter
from tfmat.materials.registry import DEFAULT_LAW, LAWS, find_law, law_class

__all__ = ["DEFAULT_LAW", "LAWS", "Law", "Parameter", "find_law", "law_class"]
