"""What this process and its machine use: processors, memory, and a GPU where NVIDIA's library tells."""

import os
import pathlib
import resource
import time
from typing import Any, NamedTuple

import psutil
import tensorflow as tf

from tfmat.ranks.processes import Processes, processors_per_rank

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
