"""What the proof of every message between processes costs: values of two sizes over loopback, with and without it."""

import concurrent.futures
import socket
import time
import types
from typing import Any
from unittest import mock

from benchmarks.rounds import quantity
from tfmat.launch import watchdog
from tfmat.launch.watchdog import Link, wait_for

# _SIZES: MB of a value: the gradients of the default network and of configs/wide.py.
_SIZES = {"default network": 0.614, "configs/wide.py": 154.0}
# _NETWORK: bytes a second of a slow network, 100 Mbit/s.
_NETWORK = 12.5e6
# _MOST: processor time of a side's proof, as a share of the time that the value takes through that network.
_MOST = 0.10
# _NO_DIGEST: proves nothing.
_NO_DIGEST = types.SimpleNamespace(update=len, digest=lambda: bytes(16))


def measure_proofs(rounds: int) -> dict[str, Any]:
    """Both ways in turns. The least of all rounds counts, for other work only adds."""
    quantities, samples = [], {}
    for name, megabytes in _SIZES.items():
        value = bytes(int(megabytes * 1e6))
        repeats = max(1, int(50 / megabytes))
        found: dict[str, list[float]] = {"proved": [], "unproved": []}
        for _ in range(rounds):
            found["proved"].append(_seconds(value, repeats))
            with mock.patch.object(watchdog, "_digest", return_value=_NO_DIGEST):
                found["unproved"].append(_seconds(value, repeats))
        samples[name] = found
        proved, unproved = (min(seconds) for seconds in found.values())
        side = (proved - unproved) / 2
        quantities += [
            quantity(f"{name}: sent and received", proved * 1e3, "ms"),
            quantity("the same without proofs", unproved * 1e3, "ms"),
            quantity("a side's proof", len(value) / side / 1e9, "GB/s"),
            quantity(
                "share of its time at 100 Mbit/s", side * _NETWORK / len(value), "", "≤", _MOST
            ),
        ]
    return {"quantities": quantities, "samples": samples}


def _seconds(value: bytes, repeats: int) -> float:
    """Processor seconds of both sides, for one value."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = Link(socket.create_connection(server.getsockname()), "secret", listens=False)
        there = Link(server.accept()[0], "secret", listens=True)
    for link in (here, there):
        wait_for(link, lambda message: True, time.monotonic() + 10)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        before = time.process_time()
        for _ in range(repeats):
            sending = pool.submit(here.send_bytes, value)
            there.receive_bytes()
            sending.result()
        seconds = time.process_time() - before
    for link in (here, there):
        link.close()
    return seconds / repeats
