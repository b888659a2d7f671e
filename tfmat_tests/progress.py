"""Says how far the tests are after each tenth of their time, and which of them failed as soon as one has."""

import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping

import pytest

# Seconds that a test is taken to last whose file is not among the longest.
USUAL = 0.15


class Progress:
    """A plugin for the process that hands tests to workers. In a log its lines take the place of the dots.

    Args:
      reporter: pytest's own, which writes.
      seconds: end of a file's path -> processor seconds of all its tests, of the files that take longest.
    """

    def __init__(self, reporter: pytest.TerminalReporter, seconds: Mapping[str, float]):
        self._reporter, self._seconds = reporter, seconds
        self._weights: dict[str, float] = {}
        self._begun, self._done, self._tenths = time.monotonic(), 0.0, 0
        self._ended: set[str] = set()
        self._failed: set[str] = set()

    def pytest_xdist_node_collection_finished(self, ids: Iterable[str]) -> None:
        """Each worker finds the same tests."""
        if self._weights:
            return
        tests = list(ids)
        counts = Counter(map(_file, tests))
        total = {
            file: self._seconds.get("/".join(file.split("/")[-2:]), USUAL * count)
            for file, count in counts.items()
        }
        self._weights = {test: total[_file(test)] / counts[_file(test)] for test in tests}
        self._begun = time.monotonic()

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(
        self, report: pytest.CollectReport | pytest.TestReport
    ) -> tuple[str, str, str] | None:
        """No letters where nobody watches them come; what is counted stays."""
        if sys.stdout.isatty() or not isinstance(report, pytest.TestReport):
            return None
        if report.failed:
            return ("failed", "", "FAILED") if report.when == "call" else ("error", "", "ERROR")
        return ("" if report.passed and report.when != "call" else report.outcome, "", "")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test's set-up, its call or its end came back from a worker."""
        if report.failed:
            self._failed.add(report.nodeid)
            where = "" if report.when == "call" else f" ({report.when})"
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = crash.message if crash else report.longreprtext
            self._say(
                f"FAILED {report.nodeid}{where}: {reason.strip().partition(chr(10))[0][:200]}"
            )
        if report.when != "teardown" or report.nodeid in self._ended:
            return
        self._ended.add(report.nodeid)
        self._done += self._weights.get(report.nodeid, 0.0)
        share = self._done / (sum(self._weights.values()) or 1.0)
        if int(10 * share) > self._tenths:
            self._tenths = int(10 * share)
            seconds = time.monotonic() - self._begun
            left = seconds / share - seconds
            self._say(
                f"{10 * self._tenths} % of the tests' time: {len(self._ended):,} of {len(self._weights):,} tests "
                f"after {_clock(seconds)}, about {_clock(left)} left; {len(self._failed)} failed"
            )

    def _say(self, line: str) -> None:
        self._reporter.ensure_newline()
        self._reporter.write_line(line)
        self._reporter.flush()


def _file(test: str) -> str:
    return test.partition("::")[0]


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
