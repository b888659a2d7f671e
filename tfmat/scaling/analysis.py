"""Everything that a study's page says, as numbers: summaries, fits, checks, predictions, costs, the choice."""

import dataclasses
from collections import Counter
from collections.abc import Sequence

from tfmat.scaling.collective_costs import Option, options
from tfmat.scaling.measurement_files import Assumptions
from tfmat.scaling.measurements import Measurements
from tfmat.scaling.network import LineFit, line_fits
from tfmat.scaling.prediction import Prediction, Predictor, StepModel
from tfmat.scaling.slow_links import Way, ways
from tfmat.scaling.study import Check, Combination, checks, main_model
from tfmat.scaling.summary import PointSummary, series, summarise
from tfmat.scaling.time_to_accuracy import Cost, costs, predicted_costs, target_of

# The second model of the predictions.
LARGER = 100


@dataclasses.dataclass(frozen=True)
class Forecast:
    """Predictions by the main combination's model.

    Attributes:
      model: T(P, b).
      batch_a_worker: of weak scaling; global_batch_size: of strong scaling; both as measured.
      weak, strong: of the model as measured; weak_larger, strong_larger: of one LARGER times as large.
    """

    model: StepModel
    batch_a_worker: int
    global_batch_size: int
    weak: list[Prediction]
    strong: list[Prediction]
    weak_larger: list[Prediction]
    strong_larger: list[Prediction]


@dataclasses.dataclass(frozen=True)
class Analysis:
    """What was measured and what follows from it.

    Attributes:
      measurements, assumptions: what went in.
      summaries: one a point; weak, strong: its series.
      lines: fits of the all-reduces.
      main: the combination that verdict and predictions are about; None without a baseline and a second worker.
      shown: the main combination's points of the batch with the most of them, the headline's series.
      checks: predictions of what was left out.
      forecast: None where the all-reduces of the main combination were not measured.
      target: validation loss; None where nothing was trained.
      costs: to reach it, as measured; predicted: by workers at one global batch.
      options: forms of parallelism for the main model.
      ways: to exchange gradients over the measured network, see slow_links.py.
    """

    measurements: Measurements
    assumptions: Assumptions
    summaries: list[PointSummary]
    weak: dict[str, list[PointSummary]]
    strong: dict[str, list[PointSummary]]
    lines: list[LineFit]
    main: Combination | None
    shown: list[PointSummary]
    checks: list[Check]
    forecast: Forecast | None
    target: float | None
    costs: list[Cost]
    predicted: list[Cost]
    options: list[Option]
    ways: list[list[Way]]

    @property
    def best(self) -> PointSummary | None:
        """The most workers of the headline's series that are not oversubscribed."""
        points = [each for each in self.shown if each.efficiency is not None]
        return points[-1] if points else None

    @property
    def exchange_seconds(self) -> float | None:
        """Seconds that one gradient takes by itself at `best`'s workers: measured, else by the fit or the model."""
        if self.best is None or self.forecast is None:
            return None
        point = self.best.point
        for line in self.lines:
            first = line.lines[0]
            same = ("hardware", "workers", "nodes", "oversubscribed")
            if (
                first.library == point.collectives
                and first.transport in ("", point.transport)
                and all(getattr(first, name) == getattr(point, name) for name in same)
            ):
                return line.seconds(point.model.gradient_bytes)
        return self.forecast.model.exchange(point.workers)


def analyse(measurements: Measurements, assumptions: Assumptions) -> Analysis:
    """All of it; raises InputError where the assumptions name hardware without a baseline."""
    summaries = summarise(measurements, assumptions.baseline_hardware)
    main, model = main_model(measurements, summaries, assumptions)
    forecast = None if main is None or model is None else _forecast(main, model)
    target = target_of(summaries, assumptions)
    measured = [] if target is None else costs(summaries, target, assumptions)
    shown = [] if main is None else _headline_series(main)
    lines = line_fits(measurements.allreduces)
    return Analysis(
        measurements=measurements,
        assumptions=assumptions,
        summaries=summaries,
        weak=_headline_first(series(summaries, "weak"), shown),
        strong=_headline_first(series(summaries, "strong"), shown),
        lines=lines,
        main=main,
        shown=shown,
        checks=[] if main is None else checks(main, measurements.allreduces, assumptions),
        forecast=forecast,
        target=target,
        costs=measured,
        predicted=_predicted(measured, forecast, main, assumptions),
        options=_options(shown, forecast),
        ways=ways(summaries, lines),
    )


def _headline_series(main: Combination) -> list[PointSummary]:
    """The points of weak scaling, else of strong, whose batch has the most of them; of equals the smallest batch."""
    for scaling in ("weak", "strong"):
        points = [each for each in main.points if each.point.scaling == scaling]
        if points:
            batch = _commonest([_kept(each) for each in points])
            group = [each for each in points if _kept(each) == batch]
            return sorted(group, key=lambda each: each.point.workers)
    return []


def _headline_first(
    groups: dict[str, list[PointSummary]], shown: Sequence[PointSummary]
) -> dict[str, list[PointSummary]]:
    """Pictures have room for the first few, and the verdict's is to be among them."""
    of_headline = {each.label for each in shown}
    return dict(sorted(groups.items(), key=lambda item: item[0] not in of_headline))


def _kept(summary: PointSummary) -> int:
    """The batch that a series keeps."""
    point = summary.point
    return point.batch_a_worker if point.scaling == "weak" else point.global_batch_size


def _commonest(values: Sequence[int]) -> int:
    counts = Counter(values)
    return min(counts, key=lambda value: (-counts[value], value))


def _forecast(main: Combination, model: StepModel) -> Forecast:
    points = [each.point for each in main.points]
    weak = [p.batch_a_worker for p in points if p.scaling == "weak"]
    strong = [p.global_batch_size for p in points if p.scaling == "strong"]
    batch = _commonest(weak) if weak else min(p.batch_a_worker for p in points)
    together = _commonest(strong) if strong else max(p.global_batch_size for p in points)
    predictor, larger = Predictor(model), Predictor(model, LARGER)
    return Forecast(
        model,
        batch,
        together,
        predictor.weak(batch),
        predictor.strong(together),
        larger.weak(batch),
        larger.strong(together),
    )


def _predicted(
    measured: Sequence[Cost],
    forecast: Forecast | None,
    main: Combination | None,
    assumptions: Assumptions,
) -> list[Cost]:
    """Costs by workers, at the global batch of the cheapest measured cost of the main model and hardware."""
    if forecast is None or main is None:
        return []
    point = main.point
    same = [cost for cost in measured if cost.point.kind == point.kind]
    if not same:
        return []
    cheapest = min(same, key=lambda cost: cost.device_hours)
    predictions = Predictor(forecast.model).strong(cheapest.point.global_batch_size)
    return predicted_costs(cheapest, predictions, assumptions)


def _options(shown: Sequence[PointSummary], forecast: Forecast | None) -> list[Option]:
    if forecast is None or not shown:
        return []
    point = shown[-1].point
    link = forecast.model.inside.link
    return options(point.model, point.workers, point.batch_a_worker, link)
