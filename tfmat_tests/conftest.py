"""All tests share the --all option, workers, a quiet TensorFlow, and the folder of real measured curves."""

import ctypes.util
import faulthandler
import gc
import os
import pathlib
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import execnet
import psutil
import pytest
from xdist.scheduler import LoadScopeScheduling

from tfmat_tests import graphs
from tfmat_tests.pictures import BLANK, may_be_blank
from tfmat_tests.processes import SHARED, ForkServer, fork_server
from tfmat_tests.refused import done, refused

if TYPE_CHECKING:
    from tfmat_tests.report.browser import Browser

__all__ = ["done", "refused"]

# Before anything imports TensorFlow or matplotlib: its banner drowns the report, and there may be no screen.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("MPLBACKEND", "Agg")
# Posteriors compile their loss, for longer than the few steps of a test then save.
QUICK = "--all" not in sys.argv
if QUICK:
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
    # Nor does any test last long enough for its graphs to be worth optimizing, or rewriting for oneDNN.
    os.environ.setdefault(graphs.PLAIN, "1")
# Under --all it is on, as for users. A fork has the choice of the process that loaded TensorFlow for it, whatever tfmat
# would choose later.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0" if QUICK else "1")
# Before NumPy: the workers share the processors, and BLAS's threads would wait for each other in a loop.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Most of the tests' time is TensorFlow making graphs: many small pieces of memory, which jemalloc hands out faster than
# the C library does. It comes into the processes that are started from here on, pytest's workers among them.
if ctypes.util.find_library("jemalloc"):
    os.environ.setdefault("LD_PRELOAD", "libjemalloc.so.2")
# Graphs are objects by the million that live on, among which Python would look for garbage at every turn.
gc.set_threshold(100_000, 50, 100)

# A shell starts background jobs with Ctrl-C ignored, which the programs that tests interrupt would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A worker holds TensorFlow, and starts processes that hold it.
WORKER_MEMORY = 3 << 30
# Files that take longest, and their processor seconds (27 and 28 November 2026, beside other work). Files that mostly
# wait for processes have a third of their wall seconds where that is more. They begin first, in this order, and the
# last worker ends not long after the others. Files below a quarter of a minute need no place here.
LONGEST = {
    "horovod/keras_module_test.py": 56,
    "tfmat_tests/docs_test.py": 50,
    "identification/sampling_test.py": 41,
    "tools/cluster_test.py": 40,
    "training/features_test.py": 38,
    "launch/star_test.py": 38,
    "cli/uncertainty_test.py": 34,
    "identification/record_answers_test.py": 33,
    "training/several_workers_test.py": 32,
    "identification/posterior_test.py": 30,
    "tuning/search_test.py": 30,
    "identification/pretrained_test.py": 30,
    "end_to_end/restarts_test.py": 29,
    "end_to_end/own_data_test.py": 26,
    "identification/record_likelihood_test.py": 25,
    "workflow/fronts_test.py": 24,
    "identification/record_fit_test.py": 24,
    "specimens/slurm_test.py": 24,
    "backends/horovod_test.py": 24,
    "backends/pipeline_test.py": 23,
    "scaling/study_test.py": 22,
    "large_batch/commands_test.py": 21,
    "end_to_end/stopping_test.py": 21,
    "end_to_end/terminal_test.py": 21,
    "identification/bayes_risk_test.py": 19,
    "launch/trial_slurm_test.py": 19,
    "identification/measured_likelihood_test.py": 19,
    "backends/dtensor_convolution_test.py": 17,
    "end_to_end/slurm_test.py": 17,
    "tfmat_tests/workflow_test.py": 17,
    "large_batch/learning_curve_test.py": 17,
    "networks/plastic_spectrum_test.py": 17,
    "training/trainer_folder_test.py": 17,
    "training/trainer_test.py": 16,
    "training/profile_test.py": 16,
    "backends/offload_test.py": 16,
    "networks/law_fit_test.py": 16,
    "identification/predictions_test.py": 16,
    "backends/dtensor_equality_test.py": 15,
    "networks/flow_test.py": 15,
    "tuning/slurm_test.py": 15,
    "identification/next_test_test.py": 15,
    "cli/evaluate_test.py": 15,
}
# Under --all those with the larger matrices come before them (28 and 29 November 2026).
LARGEST = {
    "identification/measured_likelihood_test.py": 890,
    "backends/horovod_test.py": 480,
    "backends/dtensor_equality_test.py": 390,
    "tuning/search_test.py": 230,
    "tools/horovod_setup_test.py": 220,
    "training/several_workers_test.py": 210,
    "end_to_end/stopping_test.py": 200,
    "backends/dtensor_clients_test.py": 150,
    "identification/posterior_test.py": 140,
    "training/features_test.py": 100,
    "backends/dtensor_layers_test.py": 90,
}
if not QUICK:
    LONGEST = LARGEST | {file: LONGEST[file] for file in LONGEST if file not in LARGEST}


class FileByFile(LoadScopeScheduling):
    """A worker takes a file at a time, since its tests share what they make; one takes all that need SLURM."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "slurm" if file.endswith("slurm_test.py") else file


def pytest_xdist_make_scheduler(config: pytest.Config, log) -> FileByFile:
    return FileByFile(config, log)


def pytest_xdist_setupnodes(specs: list[execnet.XSpec]) -> None:
    """Workers, and what their tests start, are forks of one process, so that TensorFlow is loaded once."""
    server = fork_server()
    os.environ[SHARED] = str(server.folder)
    for spec in specs:
        spec.python = server.python_command


class FailuresAtOnce:
    """In a log whose end is lost, a failure is told nevertheless."""

    def __init__(self, reporter: pytest.TerminalReporter):
        self._reporter = reporter

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._reporter.ensure_newline()
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = (crash.message if crash else report.longreprtext).strip().partition("\n")[0]
            self._reporter.write_line(f"FAILED {report.nodeid} ({report.when}): {reason[:200]}")
            self._reporter.flush()


@pytest.hookimpl(trylast=True)  # after the reporter has come
def pytest_configure(config: pytest.Config) -> None:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if hasattr(config, "workerinput"):
        # It lives longer than the programs that are forks too, which say where they stand after a while.
        faulthandler.cancel_dump_traceback_later()
    elif reporter and config.getoption("dist") != "no":
        config.pluginmanager.register(FailuresAtOnce(reporter))


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Three for two processors, since tests often wait, as far as memory goes; none for files that are named."""
    if all(argument.partition("::")[0].endswith(".py") for argument in config.args):
        return 0
    by_memory = psutil.virtual_memory().available // WORKER_MEMORY
    return max(1, min(3 * len(os.sched_getaffinity(0)) // 2, by_memory))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all", action="store_true", help="also run the larger matrices (@pytest.mark.large)"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    order = {file: number for number, file in enumerate(LONGEST)}

    def place(item: pytest.Item) -> int:
        file = item.nodeid.partition("::")[0]
        return order.get("/".join(file.split("/")[-2:]), len(order))

    items.sort(key=place)
    if config.getoption("--all"):
        return
    skip = pytest.mark.skip(reason="one of the larger matrices: ./tools/test --all")
    for item in items:
        if "large" in item.keywords:
            item.add_marker(skip)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Random weights that a test does not seed are the same in each of its runs, whatever ran before it."""
    os.environ[BLANK] = "" if item.get_closest_marker("pictures") else "1"
    may_be_blank()
    graphs.may_be_plain()
    if keras := sys.modules.get("keras"):
        keras.utils.set_random_seed(0)


@pytest.fixture(scope="session")
def run_all(pytestconfig: pytest.Config) -> bool:
    """True under --all, for tests that choose their own cases."""
    return bool(pytestconfig.getoption("--all"))


@pytest.fixture(scope="session")
def session_folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """One folder for all workers of this session."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@pytest.fixture(scope="session", autouse=True)
def state_home(session_folder: pathlib.Path) -> Iterator[None]:
    """Files of laws that tests name are remembered in the session's folder, not in the home folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(session_folder / "state"))
        yield


@pytest.fixture(scope="session")
def real_curves() -> pathlib.Path:
    """The folder of real measured curves (holds `304L_astm_e8/`); the test is skipped where there is none."""
    folder = os.environ.get("TFMAT_REAL_CURVES")
    if not folder:
        pytest.skip("TFMAT_REAL_CURVES names no folder of real measured curves")
    return pathlib.Path(folder)


@pytest.fixture(scope="session")
def programs() -> ForkServer:
    """Starts `tfmat ...` and `python ...` without the seconds that TensorFlow takes to load."""
    return fork_server()


@pytest.fixture
def screenshots(tmp_path: pathlib.Path) -> pathlib.Path:
    """Where pictures of pages are kept: $TFMAT_SCREENSHOTS, else the test's own folder."""
    folder = pathlib.Path(os.environ.get("TFMAT_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """A Chromium; the test is skipped where there is none."""
    from tfmat_tests.report.browser import open_browser

    with open_browser() as found:
        yield found
