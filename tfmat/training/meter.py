"""The speed of a run: rates, times of steps, profiles."""

import collections
import contextlib
import gzip
import json
import os
import pathlib
import platform
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import psutil
import tensorflow as tf
from msgspec import Struct
from numpy.typing import NDArray

from tfmat.backends.base import PARTS, Backend, StepTimes
from tfmat.data.pipeline import Block
from tfmat.files import atomic_write, plain, write_json
from tfmat.launch.processes import Processes, processors_per_rank

# --------------------------------------------------------------------------------------------------
# A trace of some steps: every operation with its time, as files that a browser shows.


TRACE = "trace.json.gz"
TIMELINE = "horovod_timeline.json"
_OPEN = "open it at https://ui.perfetto.dev or in chrome://tracing"


class Trace:
    """Follows at least so many steps after the first call of the graph, on rank 0.

    Into the run's folder go trace.json.gz, horovod_timeline.json, and the profiler's own file under tensorboard/.
    """

    def __init__(
        self, workdir: str | os.PathLike, steps: int, backend: Backend, log: Callable[[str], None]
    ):
        self._workdir, self._steps, self._backend = pathlib.Path(workdir), steps, backend
        self._log = log
        self._state, self._done = "before", 0
        self._has_timeline = False

    def called(self, steps: int) -> bool:
        """Counts a call of the graph, of so many steps; whether something was begun or written."""
        if self._state == "before":
            self._start()
            return True
        if self._state == "during":
            self._done += steps
            if self._done >= self._steps:
                self.stop()
                return True
        return False

    def stop(self) -> None:
        """Ends the trace and writes it, if it was begun."""
        if self._state != "during":
            return
        self._state = "after"
        tf.profiler.experimental.stop()
        if self._has_timeline:
            self._backend.collectives.stop_timeline()
            self._log(f"Horovod's timeline: {self._workdir / TIMELINE}; {_OPEN}")
        spaces = sorted(self._folder().glob("plugins/profile/*/*.xplane.pb"))
        if spaces and self._done:
            write_chrome_trace(spaces[-1], self._workdir / TRACE)
            self._log(f"trace of {self._done} steps: {self._workdir / TRACE}; {_OPEN}")

    def _start(self) -> None:
        self._state = "during"
        self._has_timeline = self._backend.collectives.start_timeline(str(self._workdir / TIMELINE))
        tf.profiler.experimental.start(str(self._folder()))

    def _folder(self) -> pathlib.Path:
        return self._workdir / "tensorboard"


def write_chrome_trace(space: str | os.PathLike, path: str | os.PathLike) -> None:
    """The profiler's `.xplane.pb` as a gzipped Chrome trace: a process a device, times in microseconds.

    The profiler's own file can be seen in TensorBoard with a further plug-in only.
    """
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    content = xplane_pb2.XSpace()
    content.ParseFromString(pathlib.Path(space).read_bytes())
    events: list[dict[str, Any]] = []
    for process, plane in enumerate(content.planes):
        events.append(_name("process_name", plane.name, process))
        for thread, line in enumerate(plane.lines):
            events.append(_name("thread_name", line.display_name or line.name, process, thread))
            for event in line.events:
                events.append(
                    {
                        "name": plane.event_metadata[event.metadata_id].name,
                        "ph": "X",
                        "pid": process,
                        "tid": thread,
                        "ts": line.timestamp_ns / 1e3 + event.offset_ps / 1e6,
                        "dur": event.duration_ps / 1e6,
                    }
                )
    _from_zero(events)
    with atomic_write(path, "wb") as file:
        file.write(gzip.compress(json.dumps({"traceEvents": events}).encode()))


def _name(kind: str, name: str, process: int, thread: int = 0) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def _from_zero(events: list[dict[str, Any]]) -> None:
    first = min((event["ts"] for event in events if "ts" in event), default=0.0)
    for event in events:
        if "ts" in event:
            event["ts"] = round(event["ts"] - first, 3)


# --------------------------------------------------------------------------------------------------
# `profile.json`: where the time of a run went, rank by rank; and the table of it.
#
#     {"format": 1, "split": true, "backend": "horovod", "first_step": 0, "ranks": [{
#        "rank": 0, "node": "n1", "steps": 4000, "timed_steps": 3800, "step_seconds": 0.0031,
#        "seconds": {"graph": 12.1, "first_call": 2.2, "input": 0.1, "agreement": 0.2, "validation": 1.1,
#                    "checkpoint": 0.3, "host": 0.4},
#        "use": {"input": 1e-4, "forward_backward": 2e-3, …, "cpu_utilisation": 0.97, "memory_bytes": 900000000},
#        "parts": {"input": {"low_quartile": …, "median": …, "high_quartile": …}, …},
#        "sample": {"input": [the last steps], …}, "clock": {"seconds": 0.0, "error": 0.0}}]}
#
# The process that ended the run measured all this from `first_step` on. `seconds` are sums; everything else is per
# step, or a share, without the first call of the graph, which compiles. `use` has the names of the scaling study's
# RankUse, in seconds per step on average; what was not measured is missing, as are `parts` and `sample` without
# profile=true.


FILE = "profile.json"
# _FORMAT: version of that file. _SHOWN_RANKS: rows of the printed table. _SAMPLED_RANKS: ranks whose samples are kept.
_FORMAT = 1
_SHOWN_RANKS = 8
_SAMPLED_RANKS = 16
_TOO_SHORT = (
    "where a step's time goes was not measured: the run had one call of the graph, which compiles; train longer, or "
    "give a smaller steps_per_call"
)
_TITLES = {"forward_backward": "fwd+bwd"}
# The quartiles are of this many steps, the latest.
_KEPT_STEPS = 50_000
_SAMPLE_STEPS = 100


class RankProfile(Struct, kw_only=True, omit_defaults=True):
    """A rank's entry in that file."""

    rank: int
    steps: int
    seconds: dict[str, float]
    use: dict[str, float]
    clock: dict[str, float] = {}
    timed_steps: int = 0
    step_seconds: float = 0.0
    parts: dict[str, dict[str, float]] | None = None
    sample: dict[str, list[float]] | None = None
    node: str = ""


class Profile(Struct):
    """The contents of `profile.json`."""

    format: int
    split: bool
    backend: str
    first_step: int
    ranks: list[RankProfile]


class StepProfile:
    """Seconds of the parts of steps on one worker, over many blocks: all of them add up to the time of the steps.

    A block lasts from the end of one call of the graph to the end of the next, without validation and files. Time
    between the calls is shared out evenly over the block's steps. Waiting for the source of examples is input, waiting
    for the other workers counts as that, all else is host. The process's first call, which compiles, is not to be
    given.
    """

    def __init__(self) -> None:
        self._steps = 0
        self._sums = dict.fromkeys(("block", "input", "agreement"), 0.0)
        # [steps, parts] of each block; and [steps], from a step's start until it is ready to sum.
        self._blocks: collections.deque[NDArray] = collections.deque()
        self._alone: collections.deque[NDArray] = collections.deque()

    def add(self, steps: int, block: float, source: float, agreement: float) -> None:
        """Counts a block whose inside is not known: its seconds, its source's, and the seconds for agreement."""
        self._steps += steps
        for name, seconds in (("block", block), ("input", source), ("agreement", agreement)):
            self._sums[name] += seconds

    def add_times(
        self, times: StepTimes, latest: NDArray, block: float, source: float, agreement: float
    ) -> None:
        """Counts a block with the times of its steps; see `StepTimes.parts` and `add`."""
        parts = times.parts(latest)
        steps = len(times.moments)
        in_steps = sum(seconds.sum() for seconds in parts.values())
        outside = block - source - agreement - in_steps - times.between.sum()
        parts["input"] += source / steps
        parts["waiting"] += agreement / steps
        parts["host"] = np.append(times.between, 0.0) + outside / steps
        self._blocks.append(np.stack([parts[name] for name in PARTS], axis=1))
        self._alone.append(times.ready[:, -1] - times.moments[:, 0])
        self.add(steps, block, source, agreement)
        while sum(map(len, self._blocks)) - len(self._blocks[0]) > _KEPT_STEPS:
            self._blocks.popleft()
            self._alone.popleft()

    def means(self) -> dict[str, float]:
        """Seconds of a step on average, by part; without the times in the graph, of `input` alone."""
        if self._blocks:
            means = np.concatenate(self._blocks).mean(axis=0)
            deviation = float(np.std(np.concatenate(self._alone)))
            return {
                **dict(zip(PARTS, map(float, means), strict=True)),
                "step_deviation": deviation,
            }
        return {"input": self._sums["input"] / self._steps} if self._steps else {}

    def add_to(self, rank: RankProfile) -> None:
        """Notes the mean of a step; with the times in the graph quartiles of its parts, and a sample."""
        rank.use = {**self.means(), **rank.use}
        if self._steps:
            rank.timed_steps = self._steps
            rank.step_seconds = self._sums["block"] / self._steps
        if not self._blocks:
            return
        parts = np.concatenate(self._blocks)
        quartiles = np.quantile(parts, [0.25, 0.5, 0.75], axis=0).T.tolist()
        titles = "low_quartile", "median", "high_quartile"
        rank.parts = {
            name: dict(zip(titles, row, strict=True))
            for name, row in zip(PARTS, quartiles, strict=True)
        }
        sample = np.round(parts[-_SAMPLE_STEPS:], 7).T.tolist()
        rank.sample = dict(zip(PARTS, sample, strict=True))


def write_profile(
    workdir: str | os.PathLike | None,
    summary: RankProfile,
    backend: Backend,
    first_step: int,
) -> list[str]:
    """Gathers what every rank's Meter says; rank 0 writes the file and gets the table's lines. Every rank calls it.

    There is no file without a workdir, and no line where the steps were not split.
    """
    summary.node = platform.node()
    if backend.rank >= _SAMPLED_RANKS:
        summary.sample = None
    ranks = [RankProfile(**each) for each in backend.collectives.gather(plain(summary))]
    split = backend.timed_calls > 0
    # A process that found all steps done leaves what the one before it wrote.
    stays = not summary.steps and workdir and (pathlib.Path(workdir) / FILE).exists()
    if backend.rank == 0 and workdir is not None and not stays:
        content = Profile(_FORMAT, split, backend.name, first_step, ranks)
        write_json(pathlib.Path(workdir) / FILE, content)
    if backend.rank or not split or not summary.steps:
        return []
    return table(ranks)


def table(ranks: Sequence[RankProfile]) -> list[str]:
    """Lines of text: milliseconds and shares of a step for each part, one line a rank."""
    measured = [rank for rank in ranks if rank.parts]
    if not measured:
        return [_TOO_SHORT]
    titles = [_TITLES.get(name, name) for name in PARTS]
    lines = [
        f"where a step's time goes, ms (mean of {measured[0].timed_steps:,} steps)",
        "rank      step  " + "".join(f"{title:>16}" for title in titles),
    ]
    for rank in measured[:_SHOWN_RANKS]:
        seconds = rank.step_seconds
        parts = [rank.use[name] for name in PARTS]
        cells = [f"{1e3 * part:.3f} ({part / seconds:4.0%})" for part in parts]
        row = "".join(f"{cell:>16}" for cell in cells)
        lines.append(f"{rank.rank:4d}  {1e3 * seconds:8.3f}  {row}")
    if len(measured) > _SHOWN_RANKS:
        lines.append(f"and {len(measured) - _SHOWN_RANKS} more ranks: {FILE}")
    return lines


# --------------------------------------------------------------------------------------------------
# Where the time of a run goes, as seen from the host: cheap counters in every run, and the split of steps on request.
#
# From the start of the loop to its end every second counts once: in the first call of the graph (which compiles), in
# later calls, waiting for input, waiting for the other workers between two calls ("agreement"), validation, files
# (checkpoints and model.keras), or else as host: Python, callbacks, metrics. Beside it, what the process and its
# machine use: processors, memory, and a GPU where NVIDIA's library tells.


KINDS = ("graph", "first_call", "input", "agreement", "validation", "checkpoint")

_Item = TypeVar("_Item")


class Meter:
    """Counts; `start` comes first.

    Attributes:
      call_seconds: of the last call of the graph.
    """

    def __init__(self, backend: Backend, trace: Trace | None = None):
        self._backend, self._trace = backend, trace
        processes = backend.processes
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

    @contextlib.contextmanager
    def call(self, block: Block) -> Iterator[None]:
        """Counts a call of `Backend.train` on a block.

        Where the backend was asked for the times within steps, every worker calls it for the same block.
        """
        started, steps = time.monotonic(), len(block.indices)
        yield
        self.call_seconds = time.monotonic() - started
        times = self._backend.step_times
        graph = (block.indices.shape[1], times is not None)  # each is compiled
        compiles = graph not in self._compiled
        self._compiled.add(graph)
        self._seconds["first_call" if compiles else "graph"] += self.call_seconds
        self._calls[compiles].append((float(block.num_examples.sum()), self.call_seconds))
        self._steps += steps
        self._count_cycle(steps, times, compiles)
        self._machine.sample()
        self._whole.sample()
        if self._trace and self._trace.called(steps):
            self._called_at = time.monotonic()  # writing a trace is no part of a step

    def _count_cycle(self, steps: int, times: StepTimes | None, compiles: bool) -> None:
        """Counts what lies between the end of the call before and the end of the present one."""
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

    @property
    def always_compiled(self) -> bool:
        """Whether every call of this epoch did, so that its rate foretells nothing."""
        return not self._calls[False]

    def rate(self) -> float:
        """Examples per second in this epoch; without the calls that compile, if there are others."""
        calls = self._calls[False] or self._calls[True]
        return sum(examples for examples, _ in calls) / max(sum(s for _, s in calls), 1e-9)

    def take(self) -> dict[str, float]:
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

    def summary(self) -> RankProfile:
        """This worker's summary of the whole run."""
        if self._trace:
            self._trace.stop()
        seconds = {kind: self._seconds[kind] for kind in KINDS}
        seconds["host"] = time.monotonic() - self._started - sum(seconds.values())
        use = self._whole.take()
        if self._steps:
            use["evaluation"] = seconds["validation"] / self._steps
            use["checkpoint"] = seconds["checkpoint"] / self._steps
        found = RankProfile(
            rank=self._backend.rank,
            steps=self._steps,
            seconds={kind: round(value, 6) for kind, value in seconds.items()},
            use=use,
            clock=self._backend.collectives.clock._asdict(),
        )
        self._profile.add_to(found)
        return found


# _SECONDS_BETWEEN_SAMPLES: between looks at the GPU, at least.
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

    def take(self) -> dict[str, float]:
        """Begins anew; what was not measured is missing.

        Returns:
          cpu_utilisation (of the processors that this process may use), machine_cpu_utilisation (of all, by all),
          gpu_utilisation: 0 to 1; power_watts: of the GPU; memory_bytes, gpu_memory_bytes: most that this process ever
          held.
        """
        seconds = max(time.monotonic() - self._started, 1e-9)
        used = sum(self._process.cpu_times()[:2]) - self._used
        found = {
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
        self._started, self._used = time.monotonic(), sum(self._process.cpu_times()[:2])
        self._samples: list[GpuSample] = []


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

    NVML counts GPUs by their place on the bus, CUDA by their speed unless CUDA_DEVICE_ORDER=PCI_BUS_ID: where a node's
    GPUs differ, set that.
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
    except Exception:
        return None  # measuring is no reason to fail: a driver without NVML, a container without rights


def read_gpu(gpu: Any) -> GpuSample | None:
    """Utilisation and power of now; None where the driver does not tell."""
    import pynvml

    try:
        busy = pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu
        return GpuSample(busy / 100, pynvml.nvmlDeviceGetPowerUsage(gpu) / 1000)
    except pynvml.NVMLError:
        return None
