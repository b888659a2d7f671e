"""The links of tools/cluster: packets of the kernel's and of Python's over them, with the times and bytes they take."""

import statistics
import subprocess
import sys

import pytest

from tfmat_tests.cluster import PATIENCE, cluster

RATE, DELAY = 20e6, 0.02  # bits per second, seconds: far from what the machine itself takes

# ICMP echo: the kernel of the other node answers. Prints the seconds of each answer, "-" where none came in time.
PING = """
import os, socket, struct, sys, time
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
raw.settimeout(float(sys.argv[3]))
def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    return ~((total >> 16) + (total & 0xffff)) & 0xffff
for number in range(int(sys.argv[2])):
    packet = lambda sum: struct.pack("!BBHHH", 8, 0, sum, os.getpid() & 0xffff, number)
    began = time.monotonic()
    raw.sendto(packet(checksum(packet(0))), (sys.argv[1], 0))
    try:
        while raw.recv(1500)[20:28][4:] != packet(0)[4:]:
            pass
        print(time.monotonic() - began)
    except TimeoutError:
        print("-")
"""

# Prints a line when it listens, then the bytes that came.
RECEIVE = """
import socket
with socket.create_server(("", 5000)) as server:
    print("listens", flush=True)
    connection, _ = server.accept()
    total = 0
    while got := connection.recv(1 << 16):
        total += len(got)
    connection.sendall(b"!")
    print(total)
"""

# Prints the seconds until all bytes have arrived.
SEND = """
import socket, sys, time
with socket.create_connection((sys.argv[1], 5000)) as connection:
    began = time.monotonic()
    connection.sendall(bytes(int(sys.argv[2])))
    connection.shutdown(socket.SHUT_WR)
    assert connection.recv(1) == b"!"
    print(time.monotonic() - began)
"""


@pytest.fixture(scope="module")
def nodes():
    """Two nodes with slow links, as every test finds and leaves them."""
    with cluster(f"--rate={RATE / 1e6:g}mbit", f"--delay={DELAY * 1e3:g}ms") as running:
        yield running


def ping(nodes, count=10, patience=PATIENCE):
    """Seconds of the answers that came."""
    said = nodes.run("server1", sys.executable, "-c", PING, "server2", count, patience)
    return [float(line) for line in said.split() if line != "-"]


def receiver(nodes):
    """A process on server2 that listens."""
    process = subprocess.Popen(
        nodes.command("run", "--node=server2", "--", sys.executable, "-c", RECEIVE),
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "listens\n"
    return process


def send(nodes, size):
    """Bits per second from server1 to server2."""
    process = receiver(nodes)
    seconds = float(nodes.run("server1", sys.executable, "-c", SEND, "server2", size))
    assert int(process.communicate(timeout=PATIENCE)[0]) == size
    return 8 * size / seconds


def test_a_ping_takes_twice_the_delay(nodes):
    took = ping(nodes)
    assert len(took) == 10
    assert min(took) >= 2 * DELAY
    assert statistics.median(took) < 2 * DELAY + 0.1


def test_tcp_gets_the_rate_and_no_more_and_every_byte_is_counted(nodes):
    before, size = nodes.status(), 2_500_000
    reached = send(nodes, size)
    # Ethernet, IP and TCP take their share of the link.
    assert 0.3 * RATE < reached < RATE
    after = nodes.status()

    def counted(node, what):
        return after[node][what] - before[node][what]

    sent = counted("server1", "sent_bytes")
    assert size < sent < 1.1 * size
    assert sent < counted("server1", "sent_bytes_on_wire") < 1.15 * size
    assert counted("server2", "received_bytes") == sent
    assert counted("server1", "received_bytes") == counted("server2", "sent_bytes") < 0.1 * size
    assert counted("server1", "lost_frames") == counted("server2", "lost_frames") == 0


def test_a_link_changes_while_it_runs(nodes):
    nodes.check("link", "server2", "--rate=none", "--delay=none")
    assert nodes.status()["server2"]["rate_bits_per_second"] == 0
    # What is left is half the delay of server1's link.
    assert DELAY <= min(ping(nodes)) < 2 * DELAY
    nodes.check("link", "server2", "--rate=5mbit")
    assert 0.3 * 5e6 < send(nodes, 600_000) < 5e6
    nodes.check("link", "server2", f"--rate={RATE / 1e6:g}mbit", f"--delay={DELAY}s")
    found = nodes.status()["server2"]
    assert (found["rate_bits_per_second"], found["delay_seconds"]) == (RATE, DELAY)


def test_nothing_passes_while_a_link_is_down(nodes):
    process = receiver(nodes)
    sender = subprocess.Popen(
        nodes.command("run", "--", sys.executable, "-c", SEND, "server2", 1_000_000),
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    nodes.check("link", "server2", "down")
    assert [node["link"] for node in nodes.status().values()] == ["up", "down"]
    assert "NO-CARRIER" in nodes.run("server2", "ip", "link", "show", "eth0")
    assert ping(nodes, count=2, patience=0.3) == []
    nodes.check("link", "server2", "up")
    assert len(ping(nodes, count=3)) == 3
    # A connection survives.
    sender.communicate(timeout=PATIENCE)
    assert int(process.communicate(timeout=PATIENCE)[0]) == 1_000_000
    assert sender.returncode == process.returncode == 0
