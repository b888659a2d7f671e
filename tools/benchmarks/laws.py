"""Material laws: microseconds a record and core, for the response and for its derivatives by the parameters."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.rounds import quantity
from tfmat.curves.programmes import find_programmes
from tfmat.materials import LAWS, History, Law
from tfmat.materials.law import Array

POINTS = 400
# For a response of Voce-Chaboche with two backstresses.
LIMIT_US = 110.0


def measure_laws(num_records: int, rounds: int) -> dict[str, Any]:
    """Every law answers records of its own tests, all of them in one thread; the quickest of all rounds counts."""
    quantities, samples = [], {}
    for name, law_class in LAWS.items():
        law = law_class()
        random = np.random.default_rng(0)
        parameters = law.from_labels(random.random((num_records, len(law.identified))))
        history = _history(law, random, num_records)
        for what, answer in (("response", law.respond), ("derivatives", law.sensitivities)):
            times = [_microseconds(answer, history, parameters) for _ in range(rounds)]
            limit = ("≤", LIMIT_US) if (name, what) == ("voce_chaboche", "response") else ()
            label = f"{name}, {what}, {POINTS} points"
            quantities.append(quantity(label, min(times), "µs/record", *limit))
            samples[label] = times
    return {"quantities": quantities, "samples": samples, "num_records": num_records}


def _history(law: Law, random: np.random.Generator, records: int) -> History:
    if law.tests != ("monotonic",):
        return find_programmes(law.tests)[0].draw(random, records, POINTS)
    share = np.linspace(0.0, 1.0, POINTS) ** law.strain_spacing
    return History(law.modes[0], strain=random.uniform(*law.max_strain, (records, 1)) * share)


def _microseconds(
    answer: Callable[[History, Array], Array], history: History, parameters: Array
) -> float:
    """Time of the processor: what others do on the machine meanwhile counts little."""
    started = time.process_time()
    answer(history, parameters)
    return (time.process_time() - started) / len(parameters) * 1e6
