"""Material laws: parameters -> stress, with units, ranges and sources. NumPy only."""

from tfmat.materials.law import History, HistoryLaw, Law, Parameter
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
