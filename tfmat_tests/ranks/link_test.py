"""One connection: every message comes, whole and in order, and values come from those alone who may send them."""

import socket
import threading

from tfmat.ranks.link import Link


def pair(takes_bytes: bool) -> tuple[Link, Link]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = Link(socket.create_connection(server.getsockname()))
        return here, Link(server.accept()[0], takes_bytes)


def receive_all(link: Link) -> list:
    received: list = []
    while not link.closed:
        received += link.receive()
    return received


def test_messages_come_whole_and_in_order_before_the_end() -> None:
    here, there = pair(takes_bytes=False)
    for number in range(2000):
        here.send("state", number)
    here.close()
    assert receive_all(there) == [["state", number] for number in range(2000)]
    there.close()


def test_values_of_many_bytes_come_between_the_lines() -> None:
    """One of 30 MB, more than the system holds for a connection, while another thread sends lines."""
    here, there = pair(takes_bytes=True)
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


def test_a_stranger_sends_no_values() -> None:
    """What would be one is a line of nonsense and too long a line, after which the connection is closed."""
    here, there = pair(takes_bytes=False)
    here.send_bytes(b"x" * 70_000)
    assert receive_all(there) == [["bytes", 70_000]]
    here.close()
    there.close()
