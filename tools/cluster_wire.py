"""The switch between the nodes of tools/cluster (cluster_wire.c), and the file through which it is told and asked."""

import contextlib
import mmap
import pathlib
import struct
from collections.abc import Iterator

from cluster_machine import PACKAGES, Refusal, run_quietly

MOST_NODES = 16
# `struct state` there: ready, real time; then of each link bits per second, delay, unplugged, frames, bytes, lost,
# lateness: sum and maximum.
_HEAD, _LINK = struct.Struct("QQ"), struct.Struct("dddQQQdd")


class Wire:
    """The one of the cluster whose files lie in this folder."""

    def __init__(self, folder: pathlib.Path):
        self.program, self.state = folder / "wire", folder / "state"

    def make(self, rate: float, delay: float) -> None:
        """Compiles it; all links begin with this rate (bits per second, 0 for no limit) and delay (seconds)."""
        links = _LINK.pack(rate, delay, 0, 0, 0, 0, 0, 0) * MOST_NODES
        self.state.write_bytes(_HEAD.pack(0, 0) + links)
        source = pathlib.Path(__file__).with_suffix(".c")
        try:
            run_quietly("cc", "-O2", "-o", self.program, source)
        except Refusal as error:  # mostly for headers that are missing
            raise Refusal(f"{error}; {PACKAGES}") from None

    def is_ready(self) -> bool:
        """True when all nodes have their eth0."""
        return bool(self._head()[0])

    def is_real_time(self) -> bool:
        """Whether it goes before everything else on a busy machine."""
        return bool(self._head()[1])

    def set_link(
        self, number: int, rate: float | None, delay: float | None, unplugged: bool | None
    ) -> None:
        """Tells it what is not None about the link of a node; it looks within 0.05 s."""
        with self._mapped() as state:
            for place, value in enumerate((rate, delay, unplugged)):
                if value is not None:
                    offset = _HEAD.size + _LINK.size * number + 8 * place
                    struct.pack_into("d", state, offset, value)

    def link(self, number: int) -> dict[str, float]:
        """Settings and counts of the link of a node; frames and bytes are those that the node sent."""
        with self._mapped() as state:
            values = _LINK.unpack_from(state, _HEAD.size + _LINK.size * number)
        return {
            "rate_bits_per_second": values[0],
            "delay_seconds": values[1],
            "sent_frames": values[3],
            "sent_bytes_on_wire": values[4],
            "lost_frames": values[5],
            "latest_frame_seconds": values[7],
        }

    def _head(self) -> tuple[int, int]:
        with self._mapped() as state:
            return _HEAD.unpack_from(state)

    @contextlib.contextmanager
    def _mapped(self) -> Iterator[mmap.mmap]:
        with open(self.state, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            yield mapped
