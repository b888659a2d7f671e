"""What `tools/setup horovod` does: a Horovod that works with the TensorFlow of .venv.

Horovod's last release, 0.28.1, does not build against TensorFlow 2.21: one of its sources, an operation for XLA on
GPUs, needs headers that TensorFlow's package no longer ships. Without it all else builds and works. One more change
makes its sums of small gradients faster; `horovod_changes` holds both, and `horovod_wheels` builds with them.

.venv's Python runs this, with the log as argument.

Status 0: Horovod is there; 1: something failed, and the log says what; 2: something in the input (the cache's folder,
the package index's archive); 3: it cannot be had here (a tool is missing).
"""

import os
import pathlib
import signal
import subprocess
import sys
import sysconfig

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))  # `python -I` leaves it out
from horovod_wheels import BUILD_SETTING, Failed, echo, install, kept_wheels, wheel_key

PROBE = """
import importlib.metadata, horovod, horovod.tensorflow as hvd
with_ = [name for name in ("MPI", "Gloo", "NCCL") if getattr(hvd, name.lower() + "_built")()]
print("Horovod", horovod.__version__, "with", ", ".join(with_) or "neither MPI nor Gloo", "from", horovod.__path__[0])
"""

site_packages = pathlib.Path(sysconfig.get_path("platlib"))
state = pathlib.Path(sys.prefix) / ".tfmat"


def main(log: pathlib.Path) -> None:
    """Uses the Horovod that is there, else a kept wheel, else builds one."""
    settings = {name: value for name, value in os.environ.items() if BUILD_SETTING.fullmatch(name)}
    ours = state / "horovod_wheel"  # the key of the wheel that an earlier call installed
    wanted = ours.exists() and settings and ours.read_text() != wheel_key(settings)
    if not wanted:
        found = importable() or link_to_base()
        if found:
            echo(f"{found}: used as it is")
            return
    folder = kept_wheels(settings, log)
    install(folder, log)
    ours.write_text(folder.name)
    found = importable(log)
    if not found:
        raise Failed(1, "Horovod was installed but cannot be imported")
    echo(found)


def importable(log: pathlib.Path | None = None) -> str:
    """What .venv's Python says of a Horovod that it can use, also one of PYTHONPATH's (a module's); "" without one."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROBE], env=environment, capture_output=True, text=True
    )
    if log and done.returncode:
        log.open("a").write(done.stderr)
    return done.stdout.strip().rpartition("\n")[2] if done.returncode == 0 else ""


def remove_links() -> None:
    """Takes links to another Python's Horovod away; pip would follow them and remove what is not ours."""
    for path in site_packages.glob("horovod*"):
        if path.is_symlink():
            path.unlink()


def link_to_base() -> str:
    """Makes the Horovod of the Python that .venv was made from (a container's, say) visible in .venv, if it works."""
    program = (
        "import horovod, importlib.metadata as metadata; "
        "print(horovod.__path__[0]); print(metadata.distribution('horovod')._path)"
    )
    base = subprocess.run(
        [str(sys._base_executable), "-I", "-c", program],  # type: ignore[attr-defined]
        capture_output=True,
        text=True,
    )
    remove_links()
    links = []
    for line in base.stdout.splitlines() if base.returncode == 0 else []:
        link = site_packages / pathlib.Path(line).name
        if not link.exists() and not link.is_symlink():
            link.symlink_to(line)
            links.append(link)
    found = importable() if links else ""
    if not found:
        remove_links()
    return found


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        pathlib.Path(sys.argv[1]).write_text("")
        main(pathlib.Path(sys.argv[1]))
    except Failed as failure:
        echo(f"error: {failure}")
        sys.exit(failure.status)
    except KeyboardInterrupt:
        sys.exit(130)
