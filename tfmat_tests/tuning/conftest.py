"""Searches as processes of their own that can be killed, and what must hold of a search whatever happened to it."""

import collections
import contextlib
import json
import pathlib
import shlex
import sys
import time
from collections.abc import Iterator

import pytest

from tfmat.files import is_dead, make_folder, write_text
from tfmat.tuning.search import SearchState, read_state
from tfmat_tests.processes import PATIENCE, Ended, ForkServer, Program, wait_for

HERE = pathlib.Path(__file__).resolve().parent


class Search:
    """`tfmat tune` in one folder, with synthetic trials."""

    def __init__(self, programs: ForkServer, workdir: pathlib.Path, config: pathlib.Path):
        self.workdir, self._programs, self._config = workdir, programs, config

    def start(self, *flags: str, num_workers: int = 2, epoch: float = 0.15) -> Program:
        """Starts the command; `epoch` is the length of one, in seconds."""
        python = shlex.quote(sys.executable)
        trial = f"{python} -S -E {HERE / 'synthetic_trial.py'} {{config}} {{workdir}} {epoch}"
        return self.tune(f"--num_workers={num_workers}", f"--trial_command={trial}", *flags)

    def tune(self, *flags: str) -> Program:
        """Starts it without the seconds that keras-tuner takes to load."""
        return self._programs.start(
            "tune",
            f"--config={self._config}",
            f"--workdir={self.workdir}",
            *flags,
            cwd=self.workdir.parent,
            load=["tfmat.tuning.oracle"],
        )

    def finish(self, program: Program) -> Ended:
        """Waits for its end, longer than for any other program."""
        deadline = time.monotonic() + 4 * PATIENCE
        while program.running():
            assert time.monotonic() < deadline, program.said()
            time.sleep(0.05)
        return program.wait()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Lets no trial end in the block, however long that takes; each trial that runs ends one epoch."""
        self.hold_after("")
        yield
        (self.workdir / "hold").unlink()

    def hold_after(self, trial_id: str) -> None:
        """Lets trials up to this one go on in the block of `held`."""
        write_text(make_folder(self.workdir) / "hold", trial_id)

    def state(self) -> SearchState:
        """What search.json says."""
        return read_state(self.workdir)

    def running(self) -> int:
        """How many trials run and have ended an epoch."""
        if not (self.workdir / "search.json").exists():
            return 0
        folders = [self.workdir / "trials" / t.folder for t in self.state().with_state("running")]
        return sum((folder / "seed-0" / "metrics.jsonl").exists() for folder in folders)

    def worker_pid(self, name: str) -> int:
        """The worker's process."""
        return json.loads((self.workdir / "workers" / f"{name}.json").read_text())["owner"]["pid"]

    def epochs(self) -> dict[str, collections.Counter[str]]:
        """Folder of a trial -> how often each epoch was begun and ended in it."""
        return {
            path.parts[-3]: collections.Counter(path.read_text().splitlines())
            for path in self.workdir.glob("trials/*/seed-0/epochs.log")
        }

    def check(self, num_trials: int, repeated: int = 0) -> None:
        """Every trial ended once; at most `repeated` epochs, of stopped trials, were begun twice; nobody is left."""
        state = self.state()
        assert len(state.trials) == num_trials
        assert sorted(state.end_order) == sorted(state.trials)
        counts = self.epochs().values()
        assert all(count[f"end {epoch}"] <= 1 for count in counts for epoch in range(9))
        again = sum(
            count[f"begin {e}"] - 1 for count in counts for e in range(9) if count[f"begin {e}"]
        )
        assert again <= repeated
        self.check_nobody_left()

    def check_nobody_left(self) -> None:
        """No worker and no trial runs any more."""
        owners = [json.loads(p.read_text())["owner"] for p in self.workdir.glob("workers/*.json")]
        owners += [
            json.loads(path.read_text()) for path in self.workdir.glob("trials/*/process.json")
        ]
        assert owners
        wait_for(lambda: all(map(is_dead, owners)), lambda: owners)


@pytest.fixture
def search(programs, tmp_path):
    """A search in a folder of its own."""
    return Search(programs, tmp_path / "search", HERE / "space.py")


@pytest.fixture
def make_search(programs, tmp_path):
    """Makes one with other settings of space.py: `NAME="value"` replaces what it reads from the environment."""

    def make(name: str, **settings: str) -> Search:
        lines = "".join(f"os.environ[{key!r}] = {value!r}\n" for key, value in settings.items())
        config = tmp_path / f"{name}.py"
        text = (HERE / "space.py").read_text().replace("import os\n", f"import os\n{lines}", 1)
        config.write_text(text)
        return Search(programs, tmp_path / name, config)

    return make
