"""Nodes of an emulated cluster on one machine, joined by links of a chosen rate and delay; see docs/slurm.md.

A node is a network, host-name, IPC and mount namespace with an eth0, a /dev/shm of its own, and everything else of this
machine. All nodes lie in one process namespace, whose first process is the switch between them (cluster_wire.c): where
that ends, the kernel ends all that runs on the nodes, and takes namespaces, devices and mounts away.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
from typing import NoReturn

from cluster_nodes import MOST_NODES, Cluster, Refusal

DEFAULT_FOLDER = "/run/tfmat-cluster"
_UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


def number_of_nodes(text: str) -> int:
    """From 2 on."""
    if not text.isdecimal() or not 2 <= int(text) <= MOST_NODES:
        raise argparse.ArgumentTypeError(f"{text} is not between 2 and {MOST_NODES}")
    return int(text)


def rate(text: str) -> float:
    """`100mbit` as bits per second; 0 for `none`."""
    return _quantity(text, "kbit|mbit|gbit", 1e5, 1e11, "--rate=100mbit, from 100kbit to 100gbit")


def delay(text: str) -> float:
    """`5ms` as seconds; 0 for `none`."""
    return _quantity(text, "us|ms|s", 0, 10, "--delay=5ms, at most 10s")


def _quantity(text: str, units: str, least: float, most: float, example: str) -> float:
    if text == "none":
        return 0.0
    match = re.fullmatch(rf"([0-9]{{1,9}}(?:\.[0-9]{{1,9}})?)({units})", text)
    value = float(match[1]) * _UNITS[match[2]] if match else -1.0
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"'{text}' is not understood; say {example}, or none")
    return value


def in_words(value: float, units: tuple[str, ...], none: str) -> str:
    """A rate or delay in the largest unit in which it is at least 1."""
    fitting = [unit for unit in units if value >= _UNITS[unit]] or [units[0]]
    return f"{value / _UNITS[fitting[-1]]:g}{fitting[-1]}" if value else none


def up(cluster: Cluster, options: argparse.Namespace) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # nothing is left then either
    seconds = cluster.start(options.nodes, options.rate or 0.0, options.delay or 0.0)
    if options.slurm:
        _start_slurm(cluster, options.nodes)
    names = ", ".join(cluster.names())
    print(f"{names}: up after {seconds:.1f} s; tools/cluster run -- COMMAND runs one on server1")
    if not cluster.wire.is_real_time():
        _log("no real-time priority here: frames are late while all processors are busy")
    return 0


def _start_slurm(cluster: Cluster, nodes: int) -> None:
    program = pathlib.Path(__file__).with_name("slurm")
    command = [program, "start", f"--folder={cluster.slurm}", f"--nodes={nodes}"]
    command += [f"--cpus={os.cpu_count()}", f"--agent={cluster.folder}/agent"]
    process = cluster.popen(
        "server1",
        list(map(str, command)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    _, said = process.communicate()
    if process.returncode:
        cluster.stop()
        raise Refusal(said.strip().rpartition("error: ")[2] or "SLURM did not start")


def down(cluster: Cluster, options: argparse.Namespace) -> int:
    if not cluster.stop():
        _log("no cluster is up")
    return 0


def run(cluster: Cluster, options: argparse.Namespace) -> int:
    command = options.command[options.command[:1] == ["--"] :]
    if not command:
        raise Refusal("no command; tools/cluster run [--node=server1] -- COMMAND")
    # Signals that are sent to this process alone reach the command; those of the keyboard do so by themselves.
    watched = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
    watched |= {signal.SIGUSR1, signal.SIGUSR2}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    process = cluster.popen(
        options.node, command, lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before)
    )
    while process.poll() is None:
        told = signal.sigwaitinfo(watched)
        if told.si_signo != signal.SIGCHLD and told.si_code <= 0:  # kill(), not the terminal
            process.send_signal(told.si_signo)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def link(cluster: Cluster, options: argparse.Namespace) -> int:
    if (options.state, options.rate, options.delay) == (None, None, None):
        raise Refusal(
            f"nothing to change; say tools/cluster link {options.node} down|up, --rate=R or --delay=D"
        )
    unplugged = None if options.state is None else options.state == "down"
    cluster.set_link(options.node, options.rate, options.delay, unplugged)
    return 0


def kill(cluster: Cluster, options: argparse.Namespace) -> int:
    print(f"{options.node}: {cluster.kill(options.node)} processes killed")
    return 0


def status(cluster: Cluster, options: argparse.Namespace) -> int:
    found = cluster.status()
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    print(
        f"{'node':10}{'address':12}{'link':6}{'rate':>10}{'delay':>9}{'sent':>17}{'received':>17}{'lost':>7}  processes"
    )
    for node in found["nodes"]:
        speed = in_words(node["rate_bits_per_second"], ("kbit", "mbit", "gbit"), "no limit")
        late = in_words(node["delay_seconds"], ("us", "ms", "s"), "none")
        print(
            f"{node['name']:10}{node['address']:12}{node['link']:6}{speed:>10}{late:>9}"
            f"{node['sent_bytes']:>15,} B{node['received_bytes']:>15,} B{node['lost_frames']:>7}  {node['processes']}"
        )
    return 0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        _log(f"error: {message}")
        sys.exit(2)


def parser() -> argparse.ArgumentParser:
    main = _Parser(
        prog="tools/cluster", description=(__doc__ or "").splitlines()[0], allow_abbrev=False
    )
    commands = main.add_subparsers(dest="command_name", required=True, metavar="COMMAND")

    def command(function, text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(
            function.__name__, help=text, description=text, allow_abbrev=False
        )
        made.add_argument(
            "--folder",
            default=DEFAULT_FOLDER,
            help="the cluster's own folder; with two folders there are two clusters [%(default)s]",
        )
        made.set_defaults(function=function)
        return made

    def speed(made: argparse.ArgumentParser) -> None:
        made.add_argument(
            "--rate",
            type=rate,
            help="of a node's link, for each direction: 100mbit; none: no limit",
        )
        made.add_argument(
            "--delay",
            type=delay,
            help="from node to node, one way: 5ms; a ping takes twice that; none",
        )

    made = command(up, "starts nodes server1, server2, ...")
    made.add_argument(
        "--nodes",
        type=number_of_nodes,
        default=2,
        metavar="N",
        help=f"2 to {MOST_NODES} [2]",
    )
    speed(made)
    made.add_argument(
        "--slurm", action="store_true", help="a SLURM with these nodes too (tools/slurm)"
    )
    made = command(run, "runs a command on a node, with what mpirun needs in its environment")
    made.add_argument("--node", default="server1", help="[%(default)s]")
    made.add_argument("command", nargs=argparse.REMAINDER)
    made = command(link, "changes a node's link while it runs")
    made.add_argument("node")
    made.add_argument(
        "state", nargs="?", choices=("down", "up"), help="pulls the cable, or plugs it in again"
    )
    speed(made)
    made = command(kill, "kills every process of a node")
    made.add_argument("node")
    made = command(
        status, "nodes, addresses, links, bytes that eth0 counted; status 1 where none is up"
    )
    made.add_argument("--json", action="store_true", help="for programs")
    command(down, "ends the nodes and all that runs on them; leaves nothing")
    return main


def _log(text: str) -> None:
    print(f"tools/cluster: {text}", file=sys.stderr)


def main() -> int:
    options = parser().parse_args()
    if not re.fullmatch(r"[A-Za-z0-9_./+-]+", options.folder):
        parser().error(f"--folder={options.folder}: letters, digits and _ . / + - only")
    try:
        return options.function(Cluster(pathlib.Path(os.path.realpath(options.folder))), options)
    except Refusal as error:
        _log(f"error: {error}")
        return error.status
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
