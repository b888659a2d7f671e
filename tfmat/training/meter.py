"""Where the time of a run goes, as seen from the host: cheap counters in every run, and the split of steps on request.

From the start of the loop to its end every second counts once: in the first call of the graph (which compiles), in
later calls, waiting for input, waiting for the other workers between two calls ("agreement"), validation, files
(checkpoints and model.keras), or else as host: Python, callbacks, metrics. Beside it, what the process and its machine
use: processors, memory, and a GPU where NVIDIA's library tells.
"""

import contextlib
import functools
import os
import pathlib
import resource
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import psutil
import tensorflow as tf
from numpy.typing import NDArray

from tfmat.backends import Backend
from tfmat.backends.step_times import StepTimes
from tfmat.data.pipeline import Block
from tfmat.ranks.processes import Processes, processors_per_rank
from tfmat.training.profile import StepProfile
from tfmat.training.trace import Trace

KINDS = ("graph", "first_call", "input", "agreement", "validation", "checkpoint")

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_Arguments = ParamSpec("_Arguments")


class Meter:
    """Counts; `start` comes first.

    Args:
      backend: trains, and tells the times within steps, where it was asked for them.
      trace: of some steps, or None.

    Attributes:
      call_seconds: of the last call of the graph.
    """

    def __init__(self, backend: Backend, trace: Trace | None = None):
        self._backend, self._trace = backend, trace
        processes = backend.options.processes
        self._machine, self._whole = MachineUse(processes), MachineUse(processes)
        self._profile = StepProfile()
        self._compiled: set[tuple[int, bool]] = set()
        self.start()

    def start(self) -> None:
        """Begins to count."""
        self._seconds = dict.fromkeys(KINDS, 0.0)
        self._steps = 0
        self._started = self._taken_at = self._called_at = time.monotonic()
        self._taken, self._called = self._seconds.copy(), self._seconds.copy()
        self.call_seconds = 0.0
        self.begin_epoch()

    @contextlib.contextmanager
    def time(self, kind: str) -> Iterator[None]:
        """Counts the time of a block; such blocks do not lie in each other."""
        started = time.monotonic()
        try:
            yield
        finally:
            self._seconds[kind] += time.monotonic() - started

    def each(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """The items; the time until each is there counts as input."""
        iterator = iter(items)
        while True:
            with self.time("input"):
                try:
                    item = next(iterator)
                except StopIteration:
                    return
            yield item

    def train(self, block: Block) -> NDArray:
        """Trains on a block by one call of the graph, and counts it; see `Backend.train`.

        Where the backend was asked for the times within steps, every worker calls it for the same block.
        """
        started = time.monotonic()
        sums = self._backend.train(*block)
        self.call_seconds = time.monotonic() - started
        times = self._backend.step_times
        graph = (block.indices.shape[1], times is not None)  # each is compiled
        compiles = graph not in self._compiled
        self._compiled.add(graph)
        self._seconds["first_call" if compiles else "graph"] += self.call_seconds
        self._calls[compiles].append((float(block.num_examples.sum()), self.call_seconds))
        self._steps += len(sums)
        self._count_cycle(len(sums), times, compiles)
        self._machine.sample()
        self._whole.sample()
        if self._trace and self._trace.called(len(sums)):
            self._called_at = time.monotonic()  # writing a trace is no part of a step
        return sums

    def _count_cycle(self, steps: int, times: StepTimes | None, compiles: bool) -> None:
        """Counts what lies between the end of the call before and that of the present one."""
        now = time.monotonic()
        spent = {kind: self._seconds[kind] - self._called[kind] for kind in KINDS}
        cycle = now - self._called_at - spent["validation"] - spent["checkpoint"]
        self._called_at, self._called = now, self._seconds.copy()
        if not compiles and not self._backend.timed_calls:
            self._profile.add(steps, cycle, spent["input"], spent["agreement"])
        elif not compiles and times is not None:
            with self.time("agreement"):
                latest = self._backend.collectives.latest(times.ready)
            self._profile.add_times(times, latest, cycle, spent["input"], spent["agreement"])

    def begin_epoch(self) -> None:
        """Forgets the rate of the epoch before."""
        self._calls: dict[bool, list[tuple[float, float]]] = {False: [], True: []}

    def rate(self) -> float:
        """Examples per second in this epoch; without the calls that compile, if there are others."""
        calls = self._calls[False] or self._calls[True]
        return sum(examples for examples, _ in calls) / max(sum(s for _, s in calls), 1e-9)

    def take(self) -> dict[str, Any]:
        """Seconds of each kind and use of the machine since the last `take`, and bytes that each step sends."""
        now = time.monotonic()
        found = {kind: self._seconds[kind] - self._taken[kind] for kind in KINDS}
        total = now - self._taken_at
        found["host"] = total - sum(found.values())
        self._taken_at, self._taken = now, self._seconds.copy()
        sent = round(self._backend.bytes_per_step)
        return {
            **{f"{kind}_seconds": round(seconds, 6) for kind, seconds in found.items()},
            **({"bytes_sent_per_step": sent} if sent else {}),
            **self._backend.take_figures(),
            **self._machine.take(),
        }

    def summary(self) -> dict[str, Any]:
        """What this worker says of the whole run, see profile.py."""
        if self._trace:
            self._trace.stop()
        seconds = {kind: self._seconds[kind] for kind in KINDS}
        seconds["host"] = time.monotonic() - self._started - sum(seconds.values())
        use: dict[str, Any] = dict(self._whole.take())
        if self._steps:
            use["evaluation"] = seconds["validation"] / self._steps
            use["checkpoint"] = seconds["checkpoint"] / self._steps
        return {
            "rank": self._backend.rank,
            "steps": self._steps,
            "seconds": {kind: round(value, 6) for kind, value in seconds.items()},
            "use": {**self._profile.means(), **use},
            "clock": self._backend.collectives.clock._asdict(),
            **self._profile.details(),
        }


def timed(
    kind: str,
) -> Callable[
    [Callable[Concatenate[Any, _Arguments], _Result]],
    Callable[Concatenate[Any, _Arguments], _Result],
]:
    """Has a method of an object with a `meter` counted."""

    def decorate(
        method: Callable[Concatenate[Any, _Arguments], _Result],
    ) -> Callable[Concatenate[Any, _Arguments], _Result]:
        @functools.wraps(method)
        def measured(self: Any, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            with self.meter.time(kind):
                return method(self, *args, **kwargs)

        return measured

    return decorate


_SECONDS_BETWEEN_SAMPLES = 1.0


class GpuSample(NamedTuple):
    """utilisation: share of the last moment in which the GPU worked, 0 to 1; watts: its power."""

    utilisation: float
    watts: float


class MachineUse:
    """Use since the last `take`, or since this was made; sampling the GPU costs a call of its driver a second."""

    def __init__(self, processes: Processes) -> None:
        self._process = psutil.Process()
        self._processors = processors_per_rank(processes)
        self._gpu = find_gpu()
        self._sampled = 0.0
        self._begin()

    def sample(self) -> None:
        """Looks at the GPU, unless that was within the last second."""
        if self._gpu is None or time.monotonic() - self._sampled < _SECONDS_BETWEEN_SAMPLES:
            return
        self._sampled = time.monotonic()
        sample = read_gpu(self._gpu)
        if sample:
            self._samples.append(sample)

    def take(self) -> dict[str, Any]:
        """Begins anew; what was not measured is missing.

        Returns:
          cpu_utilisation (of the processors that this process may use), machine_cpu_utilisation (of all, by all),
          gpu_utilisation: 0 to 1; power_watts: of the GPU; memory_bytes, gpu_memory_bytes: most that this process ever
          held.
        """
        seconds = max(time.monotonic() - self._started, 1e-9)
        used = self._processor_seconds() - self._used
        found: dict[str, Any] = {
            "cpu_utilisation": round(used / seconds / self._processors, 4),
            "machine_cpu_utilisation": round(psutil.cpu_percent() / 100, 4),
            "memory_bytes": peak_memory(),
        }
        if self._samples:
            count = len(self._samples)
            found["gpu_utilisation"] = round(sum(s.utilisation for s in self._samples) / count, 4)
            found["power_watts"] = round(sum(s.watts for s in self._samples) / count, 1)
        if tf.config.list_logical_devices("GPU"):
            found["gpu_memory_bytes"] = tf.config.experimental.get_memory_info("GPU:0")["peak"]
        self._begin()
        return found

    def _begin(self) -> None:
        psutil.cpu_percent()  # since its last call
        self._started, self._used = time.monotonic(), self._processor_seconds()
        self._samples: list[GpuSample] = []

    def _processor_seconds(self) -> float:
        times = self._process.cpu_times()
        return times.user + times.system


def peak_memory() -> int:
    """Most bytes of memory that this process held at a time."""
    # Not getrusage where there is better: it also counts the process that this one was forked from.
    status = pathlib.Path("/proc/self/status")
    if status.exists():
        for line in status.read_text("ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def find_gpu() -> Any:
    """NVML's handle of the GPU that TensorFlow computes on; None without a GPU or without `nvidia-ml-py`.

    Not tried on a machine with a GPU yet. NVML counts GPUs by their place on the bus, CUDA by their speed unless
    CUDA_DEVICE_ORDER=PCI_BUS_ID: where a node's GPUs differ, set that.
    """
    visible = tf.config.get_visible_devices("GPU")
    if not visible:
        return None
    try:
        import pynvml

        pynvml.nvmlInit()
        number = int(visible[0].name.rpartition(":")[2])
        names = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        name = names[number].strip() if number < len(names) and names != [""] else str(number)
        if name.isdecimal():
            return pynvml.nvmlDeviceGetHandleByIndex(int(name))
        return pynvml.nvmlDeviceGetHandleByUUID(name)
    except (
        Exception
    ):  # measuring is no reason to fail: a driver without NVML, a container without rights
        return None


def read_gpu(gpu: Any) -> GpuSample | None:
    """Utilisation and power of now; None where the driver does not tell."""
    import pynvml

    try:
        busy = pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu
        return GpuSample(busy / 100, pynvml.nvmlDeviceGetPowerUsage(gpu) / 1000)
    except pynvml.NVMLError:
        return None
