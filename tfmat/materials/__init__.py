"""Material laws: parameters -> stress, with units, ranges and sources. NumPy only."""

from tfmat.materials.history import History
from tfmat.materials.law import HistoryLaw, Law
from tfmat.materials.parameter import Parameter
from tfmat.materials.registry import DEFAULT_LAW, LAWS, find_law, law_class

__all__ = [
    "DEFAULT_LAW",
    "LAWS",
    "History",
    "HistoryLaw",
    "Law",
    "Parameter",
    "find_law",
    "law_class",
]
