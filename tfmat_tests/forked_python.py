"""Takes the place of `python` in tests: a fork of the server in processes.py runs the program, which starts at once.

To whoever started it, this process is the program: same folder, environment, output and exit status; signals reach the
fork, which ends with this process. What the fork cannot do (other options than -P) a real Python does. A worker of
pytest (-u) is a fork whose own programs are real Pythons.
`processes.ForkServer` puts a copy of this file beside its socket; it runs without site-packages.
"""

import contextlib
import json
import os
import signal
import socket
import struct
import sys

ADDRESS = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "socket")
FORWARDED = [
    getattr(signal, f"SIG{name}")
    for name in ("INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "CONT", "WINCH", "ALRM")
]


def _request():
    """The connection to the server, after it was asked; None where a real Python is needed."""
    worker = sys.argv[1:2] == ["-u"]
    arguments = sys.argv[1 + worker :]
    options = arguments[1:] if arguments[:1] == ["-P"] else arguments
    if not options or (options[0][:1] == "-" and options[0] not in ("-c", "-m")):
        return None
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(ADDRESS)
    except OSError:
        return None
    request = {
        "arguments": arguments,
        "cwd": os.getcwd(),
        "environment": dict(os.environ),
        "processors": sorted(os.sched_getaffinity(0)),
        "executable": sys.executable if worker else os.path.abspath(sys.argv[0]),
    }
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)  # until it is known whom they are for
    data = json.dumps(request).encode()
    data = struct.pack("!I", len(data)) + data
    sent = socket.send_fds(connection, [data], [0, 1, 2])
    connection.sendall(data[sent:])
    return connection


def main():
    """Returns the program's exit status, or dies of the same signal."""
    connection = _request()
    if connection is None:
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    answers = connection.makefile("r")
    pid = json.loads(answers.readline())["pid"]

    def forward(number, frame):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    for number in FORWARDED:
        signal.signal(number, forward)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    status = json.loads(answers.readline() or '{"status": 1}')["status"]
    if status < 0:
        if -status not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    # As quickly as it can: Python has nothing to take apart here.
    os._exit(status)


main()
