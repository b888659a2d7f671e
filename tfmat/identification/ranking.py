"""The laws of a record by their evidence, and those that are as good as the first."""

import dataclasses
import math
from collections.abc import Mapping

from tfmat.identification.answer import Identification
from tfmat.identification.least_squares import BETTER, EVIDENCE


@dataclasses.dataclass(frozen=True)
class Ranked:
    """The place of a law.

    Attributes:
      law: its name.
      evidence: twice the logarithm of the likelihoods' ratio to the first law, noise of unknown level, less the price
        of more parameters (G. Schwarz, Annals of Statistics 6 (1978) 461-464); 0 or less.
      rmse_percent: root mean square residual over the largest stress, %.
      near_tie: whether the first law is not clearly better.
      do_not_use: why its answer must not be used; empty where it may be.
    """

    law: str
    evidence: float
    rmse_percent: float
    near_tie: bool
    do_not_use: tuple[str, ...]


def rank(answers: Mapping[str, Identification]) -> list[Ranked]:
    """The laws of one record by evidence, the best first; answers that must not be used come after the others.

    Args:
      answers: law -> its answer for the same record.
    """
    known = {law: answer for law, answer in answers.items() if answer.rmse_percent is not None}
    if not known:
        return []
    points = min(answer.curve.num_points for answer in known.values())

    def error(answer: Identification) -> float:
        # A law that leaves nothing would have any evidence: rounding ends it.
        return max(float(answer.rmse_percent or 0.0), 1e-9) / 100.0 * answer.curve.largest_mpa

    def evidence(answer: Identification) -> float:
        found = sum(not value.fixed for value in answer.parameters.values())
        return -2.0 * points * math.log(error(answer)) - found * math.log(points)

    order = sorted(known, key=lambda law: (bool(known[law].do_not_use), -evidence(known[law])))
    first = known[order[0]]
    return [
        Ranked(
            law,
            evidence(known[law]) - evidence(first),
            float(known[law].rmse_percent or 0.0),
            near_tie=error(first) >= BETTER * error(known[law])
            or evidence(first) - evidence(known[law]) <= EVIDENCE,
            do_not_use=tuple(known[law].do_not_use),
        )
        for law in order
    ]
