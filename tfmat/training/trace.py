"""A trace of some steps: every operation with its time, as files that a browser shows."""

import gzip
import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfmat.backends import Backend
from tfmat.files import atomic_write

TRACE = "trace.json.gz"
TIMELINE = "horovod_timeline.json"
_OPEN = "open it at https://ui.perfetto.dev or in chrome://tracing"


class Trace:
    """Follows the steps after the first call of the graph, on rank 0.

    Args:
      workdir: of the run: trace.json.gz, horovod_timeline.json, and the profiler's own file under tensorboard/.
      steps: at least so many, whole calls.
      backend: of the run.
      log: takes lines.
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
