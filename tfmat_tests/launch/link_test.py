"""One connection: every message comes, whole and in order, and nobody else's does."""

import socket
import threading
import time
from collections.abc import Callable
from unittest import mock

import pytest

from tfmat.launch.watchdog import Link, wait_for


def pair() -> tuple[Link, Link]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = Link(socket.create_connection(server.getsockname()), "secret", listens=False)
        there = Link(server.accept()[0], "secret", listens=True)
    for link in (here, there):
        assert wait_for(link, lambda message: True, time.monotonic() + 10) == ["challenge"]
    return here, there


def receive_all(link: Link) -> list:
    received: list = []
    while not link.closed:
        received += link.receive()
    return received


def test_messages_come_whole_and_in_order_before_the_end() -> None:
    here, there = pair()
    for number in range(2000):
        here.send("state", number)
    here.close()
    assert receive_all(there) == [["state", number] for number in range(2000)]
    there.close()


def test_values_of_many_bytes_come_between_the_lines() -> None:
    """One of 30 MB, more than the system holds for a connection, while another thread sends lines."""
    here, there = pair()
    value = bytes(range(256)) * 120_000

    def send() -> None:
        here.send("before")
        here.send_bytes(value)
        here.send_bytes(b"")
        here.send("after")
        here.close()

    sender = threading.Thread(target=send)
    sender.start()
    for number in range(100):
        here.send("state", number)
    received = receive_all(there)
    sender.join()
    there.close()
    assert [each for each in received if each[0] != "state"] == [
        ["before"], ["bytes", value], ["bytes", b""], ["after"],
    ]  # fmt: skip
    assert [number for kind, number in (each for each in received if each[0] == "state")] == list(
        range(100)
    )


@pytest.mark.parametrize(
    "forge",
    [
        lambda frames: [frames[0], frames[0]],  # a second time
        lambda frames: [frames[0], frames[2]],  # one is missing
        lambda frames: [frames[0], frames[1].replace(b"1", b"9")],
        lambda frames: [frames[0], b"m" + b"\xff" * 8],
    ],
)
def test_what_was_not_sent_so_ends_the_connection(forge: Callable) -> None:
    """Messages of a link go through somebody who repeats, leaves out or changes one."""
    here, there = pair()
    frames: list[bytes] = []
    connection, here._connection = here._connection, mock.Mock()

    def kept(data: bytes) -> int:
        frames.append(bytes(data))
        return len(data)

    here._connection.send = kept
    for number in range(3):
        here.send("state", number)
    for frame in forge(frames):
        connection.sendall(frame)
    connection.close()
    assert receive_all(there) == [["state", 0]]
    there.close()
