"""The connections of the watchdog: who is let in and believed, and that every message comes."""

import concurrent.futures
import dataclasses
import socket
import time

import pytest

from tfmat.ranks import link as links


def test_only_ranks_with_the_token_are_let_in() -> None:
    """Of four that connect, one is silent, one talks nonsense, one has another token, one is of the run."""
    listener, place = links.listen(one_node=True)
    with (
        listener,
        socket.create_connection(("127.0.0.1", place.port)),
        socket.create_connection(("127.0.0.1", place.port)) as nonsense,
        socket.create_connection(("127.0.0.1", place.port)) as stranger,
        socket.create_connection(("127.0.0.1", place.port)) as member,
    ):
        other = links.Place(place.host, place.addresses, place.port, "0" * 32)
        nonsense.sendall(b"GET / HTTP/1.1\r\n\r\n")
        links.Link(stranger).send("hello", 1, "a", "n", other.proof("hello", 1, "a", "n"))
        links.Link(member).send("hello", 1, "b", "n", place.proof("hello", 1, "b", "n"))
        members = links.accept(listener, place, 3, time.monotonic() + 1.0)
        assert {rank: host for rank, (_, host) in members.items()} == {1: "b"}
        members[1][0].close()


@pytest.mark.parametrize(
    "hello", [b"[" * 60_000 + b"\n", b"\xff\n", b'["hello", 1, "a", "n", "\\ud800"]\n', b"{}\n"]
)
def test_nonsense_does_not_disturb(hello: bytes) -> None:
    listener, place = links.listen(one_node=True)
    with listener, socket.create_connection(("127.0.0.1", place.port)) as stranger:
        stranger.sendall(hello)
        assert links.accept(listener, place, 2, time.monotonic() + 0.2) == {}


def test_rank_0_is_reached_from_another_host() -> None:
    """By an address of its interfaces, since only a rank of the same host tries loopback."""
    listener, place = links.listen(one_node=False)
    elsewhere = dataclasses.replace(place, host="elsewhere")
    with listener, concurrent.futures.ThreadPoolExecutor() as pool:
        deadline = time.monotonic() + 10.0
        connecting = pool.submit(links.connect, elsewhere, 1, deadline)
        members = links.accept(listener, place, 2, deadline)
        link = connecting.result()
        assert link is not None and list(members) == [1]
        members[1][0].send("go", None)
        assert links.wait_for(link, lambda message: True, deadline) == ["go", None]
        link.close()
        members[1][0].close()


def test_a_server_without_the_token_is_not_believed() -> None:
    listener, place = links.listen(one_node=True)
    stranger = links.Place(place.host, place.addresses, place.port, "0" * 32)
    with listener:
        assert links.connect(stranger, 1, time.monotonic() + 0.5) is None


def test_messages_come_whole_and_in_order_before_the_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = links.Link(socket.create_connection(server.getsockname()))
        there = links.Link(server.accept()[0])
    for number in range(2000):
        here.send("state", number)
    here.close()
    received: list = []
    while not there.closed:
        received += there.receive()
    assert received == [["state", number] for number in range(2000)]
    there.close()
