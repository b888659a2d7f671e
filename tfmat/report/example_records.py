"""What is read of a run's example, as types that `tfmat.files.check_json` checks its JSON files against.

A key that is not `Required` may be missing: an older tfmat did not write it, or the example has none.
"""

from typing import Literal, Required, TypedDict

from tfmat.report.records import NotNegative


class ExampleParameter(TypedDict, total=False):
    """One parameter of the example's answer."""

    unit: Required[str]
    value: Required[float]
    fixed: bool
    method: str
    network: float | None
    least_squares: float | None
    ci95: tuple[float, float] | None


class ExampleWarning(TypedDict):
    """What should make the reader of the example's answer careful."""

    kind: str
    text: str
    advice: str


class Example(TypedDict, total=False):
    """An entry of `example.json`."""

    parameters: dict[str, ExampleParameter]
    warnings: list[str | ExampleWarning]


class Fitted(TypedDict):
    """The example's answer by least squares."""

    name: str
    rmse_percent: NotNegative


class Refined(Fitted, total=False):
    """The same of a curve; `values` were kept before, and are read no more."""

    stress_mpa: Required[list[float]]
    values: dict[str, float]


class _Picture(TypedDict, total=False):
    """What both kinds of pictures tell."""

    name: Required[str]
    law_title: Required[str]
    parameters: Required[dict[str, tuple[float, str]]]
    rmse_percent: Required[NotNegative | None]
    intervals: dict[str, tuple[float, float] | None]
    do_not_use: list[str]
    assumed: list[str]
    strain_label: str
    stress_label: str


class Picture(_Picture, total=False):
    """`example_picture.json`: arguments of `tfmat.report.figures.curve_figure`."""

    strain: Required[list[float]]
    stress_mpa: Required[list[float]]
    resimulated_mpa: Required[list[float] | None]
    refined: Required[Refined | None]
    recommended: str


class Posterior(TypedDict, total=False):
    """`example_posterior.json`: arguments of `tfmat.report.posterior_figures.Corner`."""

    names: Required[list[str]]
    units: Required[list[str]]
    logarithmic: Required[list[bool]]
    values: Required[list[list[float]]]
    recommended: dict[str, float]
    title: str


class DrawnTest(TypedDict):
    """One test of `TestsPicture`."""

    name: str
    title: str
    kind: str
    drives: Literal["strain", "stress"]
    turns: bool
    strain: list[float]
    stress_mpa: list[float]
    time: list[float] | None
    answer: list[float]
    other: list[float] | None
    rmse_percent: NotNegative
    settings: str


class TestsPicture(_Picture, total=False):
    """`example_tests.json`: arguments of `tfmat.report.record_figures.record_figure`."""

    tests: Required[list[DrawnTest]]
    refined: Required[Fitted | None]
    method: Required[str]
    other_method: Required[str | None]
