"""The laws that tfmat ships, and finding a law by its name or in a user's file."""

from collections.abc import Mapping

from tfmat.errors import InputError, nearest
from tfmat.materials.exponential_shear import ExponentialShear
from tfmat.materials.hahn_tsai import HahnTsai
from tfmat.materials.law import Law, Scale
from tfmat.materials.ramberg_osgood import RambergOsgood
from tfmat.materials.swift import Swift
from tfmat.materials.tanh_shear import TanhShear
from tfmat.materials.user_law import is_user_law, user_law_class
from tfmat.materials.voce import Voce

DEFAULT_LAW = "hahn_tsai"
LAWS: dict[str, type[Law]] = {
    law.name: law for law in (HahnTsai, TanhShear, ExponentialShear, RambergOsgood, Voce, Swift)
}


def law_class(spec: str) -> type[Law]:
    """The class of a registered name (`voce`) or of `path/to/file.py:ClassName`; InputError if there is none."""
    if is_user_law(spec):
        return user_law_class(spec)
    if spec not in LAWS:
        raise InputError(
            f"there is no law '{spec}'{nearest(spec, LAWS)} "
            "(`tfmat laws` lists them; path/to/file.py:ClassName is one of your own)"
        )
    return LAWS[spec]


def find_law(
    spec: str,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    fixed: Mapping[str, float] | None = None,
    scales: Mapping[str, Scale] | None = None,
) -> Law:
    """The law that `spec` names, with some ranges or scales replaced and parameters fixed (see `Law.__init__`).

    Examples:
      find_law("voce", ranges={"Q": (100, 800)}, fixed={"E": 193e3}).identified  # sigma0, Q, b
    """
    return law_class(spec)(ranges=ranges, fixed=fixed, scales=scales)
