"""The posterior of one curve, and what its samples are worth. NumPy only."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

from tfmat.identification.draws import Draws, Samples
from tfmat.materials.law import Array, Parameter

Status = Literal["amortised", "corrected", "resampled", "chains", "do not trust"]


@dataclasses.dataclass(frozen=True)
class Certificate:
    """What the samples of one curve's posterior are worth.

    Attributes:
      status: `amortised`, the network's own, which are right on average only; `corrected` with the law's likelihood;
        `resampled` by sampling that went on from them; `chains` where Markov chains went on from that; `do not trust`,
        then `reason` says why. Without a network the same begins at draws from the normal distribution that least
        squares says.
      reason: why they are no better; empty for corrected and resampled ones, and for chains.
      pareto_k: of the weights, to be at most 0.7; r_hat: of the chains, at most 1.01, None where there are none;
        effective_draws: independent draws that they are worth. None where nothing was weighted.
      posterior_predictive_p: how probable errors are, given the posterior, that are as unlike those of the likelihood.
      independent_noise_p: the same where errors are but independent noise of the size that the points show: a small one
        says that the law does not hold up to its noise, and the intervals are wider for it.
    """

    status: Status
    reason: str = ""
    pareto_k: float | None = None
    effective_draws: float | None = None
    posterior_predictive_p: float | None = None
    independent_noise_p: float | None = None
    r_hat: float | None = None

    @property
    def is_exact(self) -> bool:
        """Whether the samples are of the law's posterior, as far as its weights tell."""
        return self.status in ("corrected", "resampled", "chains")

    def to_json(self) -> dict[str, Any]:
        """The attributes by their names."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Posterior:
    """The joint posterior of one curve's p identified parameters.

    Attributes:
      parameters: p.
      samples: see `Samples`; certificate: what they are worth.
      mean, std: [p], interval: [p, 2], the shortest that holds 95 %; on the scale of the parameters' ranges, 0-1.
    """

    parameters: tuple[Parameter, ...]
    samples: Samples
    certificate: Certificate
    mean: Array
    std: Array
    interval: Array

    @classmethod
    def of(
        cls, draws: Draws, certificate: Certificate, parameters: Sequence[Parameter]
    ) -> "Posterior":
        """That of the first of the curves that draws are of."""
        return cls(
            tuple(parameters),
            draws.samples(parameters, 0),
            certificate,
            draws.mean[0],
            draws.std[0],
            draws.intervals((0.95,))[0, 0],
        )

    def to_json(self) -> dict[str, Any]:
        """The certificate, and `parameters`: name -> mean, std and shortest 95 % interval of the samples, in units."""
        values = self.samples.values
        of_parameters = {
            parameter.name: {
                "unit": parameter.unit,
                "mean": float(values[:, i].mean()),
                "std": float(values[:, i].std()),
                "ci95": parameter.from_unit_interval(self.interval[i]).tolist(),
            }
            for i, parameter in enumerate(self.parameters)
        }
        return {**self.certificate.to_json(), "parameters": of_parameters}
