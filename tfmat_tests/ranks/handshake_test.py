"""How connections begin: who is let in, and who is believed."""

import concurrent.futures
import dataclasses
import socket
import time

import pytest

from tfmat.ranks import handshake
from tfmat.ranks.link import Link, wait_for


def test_only_ranks_with_the_token_are_let_in() -> None:
    """Of four that connect, one is silent, one talks nonsense, one has another token, one is of the run."""
    listener, place = handshake.listen(one_node=True)
    with (
        listener,
        socket.create_connection(("127.0.0.1", place.port)),
        socket.create_connection(("127.0.0.1", place.port)) as nonsense,
        socket.create_connection(("127.0.0.1", place.port)) as stranger,
        socket.create_connection(("127.0.0.1", place.port)) as member,
    ):
        other = handshake.Place(place.host, place.addresses, place.port, "0" * 32)
        nonsense.sendall(b"GET / HTTP/1.1\r\n\r\n")
        Link(stranger).send("hello", 1, "a", "n", other.proof("hello", 1, "a", "n"))
        Link(member).send("hello", 1, "b", "n", place.proof("hello", 1, "b", "n"))
        members = handshake.accept(listener, place, 3, time.monotonic() + 1.0)
        assert {rank: host for rank, (_, host) in members.items()} == {1: "b"}
        members[1][0].close()


@pytest.mark.parametrize(
    "hello", [b"[" * 60_000 + b"\n", b"\xff\n", b'["hello", 1, "a", "n", "\\ud800"]\n', b"{}\n"]
)
def test_nonsense_does_not_disturb(hello: bytes) -> None:
    listener, place = handshake.listen(one_node=True)
    with listener, socket.create_connection(("127.0.0.1", place.port)) as stranger:
        stranger.sendall(hello)
        assert handshake.accept(listener, place, 2, time.monotonic() + 0.2) == {}


def test_rank_0_is_reached_from_another_host() -> None:
    """By an address of its interfaces, since only a rank of the same host tries loopback."""
    listener, place = handshake.listen(one_node=False)
    elsewhere = dataclasses.replace(place, host="elsewhere")
    with listener, concurrent.futures.ThreadPoolExecutor() as pool:
        deadline = time.monotonic() + 10.0
        connecting = pool.submit(handshake.connect, elsewhere, 1, deadline)
        members = handshake.accept(listener, place, 2, deadline)
        link = connecting.result()
        assert link is not None and list(members) == [1]
        members[1][0].send("go", None)
        assert wait_for(link, lambda message: True, deadline) == ["go", None]
        link.close()
        members[1][0].close()


def test_a_server_without_the_token_is_not_believed() -> None:
    listener, place = handshake.listen(one_node=True)
    stranger = handshake.Place(place.host, place.addresses, place.port, "0" * 32)
    with listener:
        assert handshake.connect(stranger, 1, time.monotonic() + 0.5) is None
