"""The history of a run that is started again where it fails: what was lost, and how much of the time was training."""

import datetime
import pathlib
from collections.abc import Sequence
from typing import TypedDict

from tfmat.console import clock_text
from tfmat.files import check_json, read_json, write_json

FILE = "restarts.json"
FORMAT = 1


class Incident(TypedDict, total=False):
    """One interruption of the training.

    `time` (UTC, ISO 8601), `kind` (`loss` or `hosts back`), `cause` (one line), `hosts_lost`, `step` (from which
    it goes on), `ranks` (with which; missing where nothing was started again), `seconds` (from when it was noticed to
    the end of the first block of steps after it; missing where training did not go on).
    """

    time: str
    kind: str
    cause: str
    hosts_lost: list[str]
    ranks: int
    step: int
    seconds: float


class _Record(TypedDict):
    format: int
    wall_seconds: float
    productive_seconds: float
    incidents: list[Incident]


class History:
    """`restarts.json` of a run folder. It goes on where the same run is started once more by hand.

    `wall_seconds` counts from each start of the launcher until the training ends; `productive_seconds` is that part in
    which steps were done, validated and saved that no loss undid: not the start of the ranks, not the first call of a
    step, which compiles it, and not what was lost since the last checkpoint. Their ratio is the effective training time
    ratio (ETTR) of Kokolis et al. 2024, arXiv:2410.21680.

    Raises:
      InputError: the file is damaged.
    """

    def __init__(self, folder: pathlib.Path):
        self._path = folder / FILE
        record: _Record = {
            "format": FORMAT, "wall_seconds": 0.0, "productive_seconds": 0.0, "incidents": [],
        }  # fmt: skip
        if self._path.exists():
            record = check_json(read_json(self._path), _Record, self._path)
        self._record = record
        self._wall, self._productive = record["wall_seconds"], record["productive_seconds"]
        self._first = len(record["incidents"])

    def count(self, wall: float, productive: float) -> None:
        """Sets the seconds since this launcher was started, and writes the file."""
        self._record["wall_seconds"] = round(self._wall + wall, 3)
        self._record["productive_seconds"] = round(self._productive + productive, 3)
        write_json(self._path, {**self._record, "ettr": self.ettr})

    def add(self, kind: str, cause: str, hosts_lost: Sequence[str] = ()) -> Incident:
        """A new incident, which the caller completes as it becomes known what came of it."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        incident: Incident = {
            "time": now, "kind": kind, "cause": cause, "hosts_lost": list(hosts_lost),
        }  # fmt: skip
        self._record["incidents"].append(incident)
        return incident

    @property
    def grew(self) -> bool:
        """Whether there are incidents of this launcher."""
        return len(self._record["incidents"]) > self._first

    @property
    def ettr(self) -> float:
        """Effective training time ratio, 0 to 1; to four digits, so that all who round it further say the same."""
        wall = self._record["wall_seconds"]
        return round(min(1.0, self._record["productive_seconds"] / wall), 4) if wall else 0.0

    def summary(self) -> str:
        """One line: how often, and how much of the time was training."""
        record = self._record
        incidents = record["incidents"]
        losses = sum(incident["kind"] == "loss" for incident in incidents)
        back = len(incidents) - losses
        times = sorted(round(each["seconds"]) for each in incidents if "seconds" in each)
        after = (
            f", training went on after {' to '.join(map(str, dict.fromkeys((times[0], times[-1]))))} s"
            if times
            else ""
        )
        productive, wall = map(clock_text, (record["productive_seconds"], record["wall_seconds"]))
        return (
            f"{losses} loss{'' if losses == 1 else 'es'} of ranks or hosts, "
            f"{back} return{'' if back == 1 else 's'} of hosts{after}; training {productive} of {wall}: "
            f"effective training time ratio (ETTR) {self.ettr:.3f}; see {self._path}"
        )
