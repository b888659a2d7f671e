"""One process of a launch: takes its place, and measures steps, trainings or sums."""

import contextlib
import dataclasses
import importlib
import itertools
import json
import os
import pathlib
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tfmat.backends.base import Collectives
from tfmat.config import Config, DataSection, EpochPlan, Settings, check_config, goes_in_pieces
from tfmat.console import printable
from tfmat.errors import InputError, TfmatError
from tfmat.files import make_folder, read_json, write_json
from tfmat.launch.processes import Processes, find_processes
from tfmat.launch.runtime import prepare_mpi
from tfmat.launch.watchdog import ByNote, Star, meet
from tfmat.scaling.study import RankUse

# --------------------------------------------------------------------------------------------------
# `python -m tfmat.scaling.worker SPEC`: one process of a launch. Measures, and leaves `rank-N.json` beside the file.
#
# Every process of the launch gets the same file, finds out by the launcher's environment which one it is, and takes its
# share of the processors. The file's keys:
#
#   program         `module:function`, called with the file's content, the processes of the launch and the file's folder
#   processors      of each process
#   environment     variables that are set first; `path`, if there, goes before sys.path
#   watch           number of the process with which all of them end, or null
#
# The function's result is the answer. All other keys are between it and who asks.


SPEC = "spec.json"
_WORKER_LOOKS = 1.0
_PATIENCE = 300.0  # seconds until all processes are there


def main(path: str) -> None:
    """Measures what the file asks for."""
    spec = read_json(path)
    folder = pathlib.Path(path).resolve().parent
    processes = find_processes()
    _end_with(spec["watch"])
    os.environ["TMPDIR"] = str(make_folder(folder / "tmp"))
    os.environ.update(spec["environment"])
    sys.path[:0] = spec.get("path", [])
    _take_processors(spec, processes)
    module, _, function = spec["program"].partition(":")
    answer = getattr(importlib.import_module(module), function)(spec, processes, folder)
    write_json(answer_file(folder, processes.rank), answer)


def answer_file(folder: pathlib.Path, rank: int) -> pathlib.Path:
    """Where a process leaves its answer."""
    return folder / f"rank-{rank}.json"


def _take_processors(spec: dict[str, Any], processes: Processes) -> None:
    """Binds this process to its own processors, as many for each, unless the launcher has done so."""
    available, width = sorted(os.sched_getaffinity(0)), spec["processors"]
    # The rank, not the local one: machines may share their processors, as the nodes of tools/cluster do.
    if len(available) <= width:
        return
    first = processes.rank * width % len(available)
    os.sched_setaffinity(0, {available[(first + i) % len(available)] for i in range(width)})


def _end_with(process: int | None) -> None:
    """Ends this process soon after the study or mpirun has gone: they may have been killed."""
    if process is None:
        return
    parent = os.getppid()

    def watch() -> None:
        while True:
            # Its parent is the study, or mpirun.
            if os.getppid() != parent or not pathlib.Path(f"/proc/{process}").exists():
                os._exit(1)
            time.sleep(_WORKER_LOOKS)

    threading.Thread(target=watch, daemon=True).start()


def join_others(processes: Processes, folder: pathlib.Path) -> Star:
    """The link to the other processes, for those that have no other; where one does not come, all end."""
    return meet(processes, ByNote(processes, str(folder)), time.monotonic() + _PATIENCE)


# --------------------------------------------------------------------------------------------------
# Times the steps of a backend as the main job runs them: many in one call of the graph, gathered inside it.


_FIRST_STEPS, _TRIAL_STEPS = 3, 10
_FEWEST_CALLS = 3
_SPLIT_SHARE = 0.5  # of the time, for the parts of a step


def measure_steps(
    spec: dict[str, Any], processes: Processes, folder: pathlib.Path
) -> dict[str, Any]:
    """`tasks`: what this process measured of each, in their order; see answers.py."""
    config = check_config(Config(spec["config"]))
    prepare(spec, config, processes)
    from tfmat.data.dataset import PackedDataset

    dataset = PackedDataset.open(spec["dataset"], verify=False)
    with (
        make_variant_backend(spec, processes, folder) as backend,
        _barrier(backend, processes, folder) as barrier,
    ):
        bench = _Bench(spec, config, dataset, backend, barrier)
        answers = [bench.measure(task, spec["seconds"]) for task in spec["tasks"]]
        if spec["split"]:
            try:
                backend.time_steps()
            except InputError:
                return {"tasks": answers}  # meshes and GPUs do not tell
            for task, answer in zip(spec["tasks"], answers, strict=True):
                split = bench.measure(task, _SPLIT_SHARE * spec["seconds"])
                # Where time goes is measured with the stamps, how long it takes without them.
                answer["use"] = split["use"] | {
                    name: answer["use"][name] for name in ("cpu_utilisation", "memory_bytes")
                }
        return {"tasks": answers}


def prepare(spec: dict[str, Any], config: Config, processes: Processes) -> None:
    """Imports TensorFlow as `tfmat train` would for these workers."""
    from tfmat.launch.runtime import prepare_tensorflow

    mesh = spec["variant"]["mesh"]
    prepare_tensorflow(
        one_thread_an_operation=goes_in_pieces(config.model),
        processors=None if mesh else spec["processors"],
        gpu=processes.local_rank if processes.size > 1 else None,
        virtual_devices=spec["variant"]["workers"] if mesh else 1,
        own_program=True,
    )


def make_variant_backend(spec: dict[str, Any], processes: Processes, folder: pathlib.Path) -> Any:
    """The variant's backend."""
    from tfmat.backends import make_backend

    variant, config = spec["variant"], check_config(Config(spec["config"]))
    settings = Settings.of(config)
    if variant["mesh"]:
        settings = Settings.with_keys(
            mesh=variant["mesh"],
            zero_stage=variant["zero_stage"],
            recompute=config.model.recompute,
        )
    return make_backend(variant["backend"], settings, processes=processes, folder=str(folder))


@contextlib.contextmanager
def _barrier(
    backend: Any, processes: Processes, folder: pathlib.Path
) -> Iterator[Callable[[], object]]:
    """A function that returns when all processes of the launch have called it, also those that exchange nothing."""
    if backend.world_size == processes.size:
        yield backend.collectives.barrier
        return
    others = join_others(processes, folder)
    try:
        yield others.barrier
    finally:
        others.close()


@dataclasses.dataclass(frozen=True)
class _Bench:
    """Builds the network anew for each task on one backend, and times it."""

    spec: dict[str, Any]
    config: Config
    dataset: Any
    backend: Any
    barrier: Callable[[], object]

    def measure(self, task: dict[str, Any], seconds: float) -> dict[str, Any]:
        from tfmat.training.meter import Meter

        source = self._build(task)
        spans = _spans(source.steps_per_epoch)
        meter = Meter(self.backend)
        rate = self._rate(source, spans, meter)
        count, calls = self._shape(source, rate, seconds)
        blocks = source.blocks(spans(count))
        self.barrier()
        meter.start()
        used, started, steps = time.process_time(), time.monotonic(), 0
        for block in itertools.islice(meter.each(blocks), calls):
            meter.train(block)
            steps += len(block.indices)
        elapsed = time.monotonic() - started
        used = (time.process_time() - used) / elapsed / len(os.sched_getaffinity(0))
        use = rank_use(meter.summary()["use"])
        use |= {"cpu_utilisation": used, **sent_bytes(self.backend.bytes_per_step)}
        return {"steps": steps, "seconds": elapsed, "use": use}

    def _build(self, task: dict[str, Any]) -> Any:
        """A new network on the backend; its source of batches."""
        from tfmat.backends.losses import per_example_function
        from tfmat.backends.step import choose_for, chosen_layers
        from tfmat.networks import build_for
        from tfmat.optimizers import make_functional
        from tfmat.training.run import make_source

        alone = self.backend.name == "single"
        batch = task["batch_a_worker" if alone else "global_batch_size"]
        size = self.spec["dataset_size"]
        settings = Settings(
            seed=self.config.seed, global_batch_size=batch, data=DataSection(reading="memory")
        )
        features, labels = self.dataset.features[:size], self.dataset.labels[:size]
        source = make_source(
            features, labels, settings, self.backend, shard_size=self.dataset.shard_size
        )
        optimizer = make_functional(_optimizer(self.config, batch, size, self.backend)(2**30, 0))
        model = build_for(self.config, self.dataset)
        choice = choose_for(self.backend, self.config.precision, model, batch)
        half = {"bfloat16": chosen_layers(model, choice)} if choice else {}
        mse = per_example_function("mean_squared_error")
        self.backend.build(model, optimizer, mse, {}, **half)
        self.backend.synchronize()
        return source

    def _rate(self, source: Any, spans: Any, meter: Any) -> float:
        """Steps a second, roughly. The first call, which compiles, is left out; so is the second, a warm-up."""
        rate, trial = 1.0, max(_TRIAL_STEPS, self.backend.meets_every)
        for count in (_FIRST_STEPS, trial, trial):
            (block,) = itertools.islice(source.blocks(spans(count)), 1)
            meter.train(block)
            rate = len(block.indices) / meter.call_seconds
        return float(self.backend.collectives.broadcast(rate))

    def _shape(self, source: Any, rate: float, seconds: float) -> tuple[int, int]:
        """Steps a call, as the main job has them where that is short enough, and calls."""
        from tfmat.training.run import steps_per_call

        longest = max(1, int(rate * seconds / _FEWEST_CALLS))
        count = min(steps_per_call(source, None, self.backend.world_size), longest)
        # Each call ends with a meeting of the workers, which must not come more often than it should.
        count = max(1, count // self.backend.meets_every) * self.backend.meets_every
        return count, max(_FEWEST_CALLS, round(rate * seconds / count))


def measure_training(
    spec: dict[str, Any], processes: Processes, folder: pathlib.Path
) -> dict[str, Any]:
    """`tasks`: the only one, trained as the main job does; rank 0 knows of all ranks."""
    config = check_config(Config(spec["config"]))
    prepare(spec, config, processes)
    from tfmat.data.dataset import PackedDataset
    from tfmat.networks import build_for
    from tfmat.training.trainer import Trainer

    (task,), run = spec["tasks"], folder / "run"
    size, batch = spec["dataset_size"], task["global_batch_size"]
    dataset = PackedDataset.open(spec["dataset"], verify=False)
    validation = slice(dataset.num_train, dataset.num_train + dataset.num_validation)
    with make_variant_backend(spec, processes, folder) as backend:
        trainer = Trainer(
            build_for(config, dataset),
            optimizer=_optimizer(config, batch, size, backend),
            backend=backend,
            workdir=str(run),
            seed=config.seed,
            checkpoint_every="1000epochs",
            precision=config.precision,
            quiet=True,
        )
        trainer.fit(
            dataset.features[:size],
            dataset.labels[:size],
            global_batch_size=batch,
            train_for=spec["variant"]["train_for"],
            validation=(dataset.features[validation], dataset.labels[validation]),
            num_validation=config.data.num_validation,
            shard_size=dataset.shard_size,
        )
        answers = _answers_of_run(run) if backend.rank == 0 else []
        return {"tasks": [backend.collectives.broadcast(answers)[backend.rank]]}


def _answers_of_run(run: pathlib.Path) -> list[dict[str, Any]]:
    """The answers of all ranks, from profile.json and metrics.jsonl."""
    from tfmat.scaling.model import training_lines

    ranks = read_json(run / "profile.json")["ranks"]
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    answers = []
    for rank in ranks:
        if not rank.get("timed_steps"):
            raise InputError("train_for is too short: everything ran in the call that compiles")
        seconds = rank["timed_steps"] * rank["step_seconds"]
        use = {**rank_use(rank["use"]), "node": rank["node"]}
        answers.append({"steps": rank["timed_steps"], "seconds": seconds, "use": use})
    # A step is as long as on the slowest rank.
    slowest = max(rank["step_seconds"] for rank in ranks)
    untimed = ranks[0]["steps"] - ranks[0]["timed_steps"]
    for answer in answers:
        answer["use"] |= sent_bytes(records[-1]["use"].get("bytes_sent_per_step", 0))
    answers[0]["training"] = training_lines(records, untimed, slowest)
    return answers


def rank_use(use: dict[str, Any]) -> dict[str, Any]:
    """The part of a Meter's summary that measurements keep, with the name of this machine."""
    known = {field.name for field in dataclasses.fields(RankUse)}
    return {"node": platform.node()} | {n: v for n, v in use.items() if n in known}


def sent_bytes(count: float) -> dict[str, int]:
    """`bytes_sent_per_step` of a RankUse; nothing where nothing was sent."""
    return {"bytes_sent_per_step": round(count)} if count else {}


def _spans(steps_per_epoch: int) -> Callable[[int], Iterator[Any]]:
    """A function of the steps in a call: spans without end, as the main job has them."""
    from tfmat.data.pipeline import Span

    def spans(count: int) -> Iterator[Any]:
        for epoch in itertools.count():
            for first in range(0, steps_per_epoch, count):
                yield Span(epoch, first, min(count, steps_per_epoch - first))

    return spans


def _optimizer(
    config: Config, batch: int, num_examples: int, backend: Any
) -> Callable[[int, int], Any]:
    from tfmat.optimizers import build_optimizer, build_schedule

    section, epochs = Settings.of(config).optimizer, EpochPlan(num_examples, batch)
    seen = backend.examples_of_a_step(batch)
    return lambda total, _: build_optimizer(section, build_schedule(section, epochs, total, seen))


# --------------------------------------------------------------------------------------------------
# Times sums over the workers by themselves: from 1 kB to 64 MB.


_BYTES_A_NUMBER = 4
# Seconds: of one timed call, which holds as many sums as fit; and of the calls of a size in one pass.
_CALL, _PASS = 0.01, 0.06
# All sizes take a turn in each pass, so that a moment in which the machine was busy spoils no size as a whole.
_PASSES = 5
_FEWEST, _MOST = 1, 6  # calls of a size in a pass


class BareMpi(Collectives):
    """MPI_Allreduce through mpi4py, without Horovod."""

    def start(self) -> None:
        prepare_mpi()
        from mpi4py import MPI

        self.world = MPI.COMM_WORLD

    def repeated_sums(self, num_values: int) -> Callable[[int], None]:
        values, total = np.zeros(num_values, np.float32), np.empty(num_values, np.float32)

        def sums(count: int) -> None:
            for _ in range(count):
                self.world.Allreduce(values, total)

        return sums

    def broadcast(self, value: Any) -> Any:
        return self.world.bcast(value)

    def gather(self, value: Any) -> list[Any]:
        return list(self.world.allgather(value))


def measure_sums(
    spec: dict[str, Any], processes: Processes, folder: pathlib.Path
) -> dict[str, Any]:
    """`sums`: for each size `bytes` and `seconds`, of one sum, in each of some calls, on this process."""
    variant = spec["variant"]
    if variant["backend"] == "mpi4py":
        workers: Collectives = BareMpi()
    else:
        prepare(spec, check_config(Config(spec["config"])), processes)
        workers = make_variant_backend(spec, processes, folder).collectives
    sizes = sorted(spec["sizes"])
    # DTensor's graphs of several sizes would take each other's names for their loops, and be refused (TensorFlow 2.21):
    # on a mesh each size has gone before the next one comes.
    groups = [[size] for size in sizes] if variant["backend"] == "dtensor" else [sizes]
    with workers:
        found = [answer for group in groups for answer in _measure_in_turns(workers, group)]
    return {"sums": found}


def _measure_in_turns(workers: Collectives, sizes: Sequence[int]) -> list[dict[str, Any]]:
    timings = [_Timing(workers, size) for size in sizes]
    for _ in range(_PASSES):
        for timing in timings:
            timing.one_pass()
    return [{"bytes": timing.size, "seconds": timing.seconds} for timing in timings]


class _Timing:
    """Sums of one size: how many make a call, and how long each took."""

    def __init__(self, workers: Collectives, size: int):
        self.size = size
        self.seconds: list[float] = []
        self._workers = workers
        self._sums = workers.repeated_sums(max(1, size // _BYTES_A_NUMBER))
        self._sums(2)
        seconds = min(_seconds(self._sums, 3) for _ in range(3))
        # Rank 0 decides, or the others would wait for sums that it does not do.
        self._count, self._calls = workers.broadcast(_plan(seconds))

    def one_pass(self) -> None:
        """Some more calls, which all workers begin together."""
        self._workers.barrier()
        self.seconds += [_seconds(self._sums, self._count) for _ in range(self._calls)]


def _plan(seconds: float) -> tuple[int, int]:
    """Sums a call, and calls a pass."""
    count = int(np.clip(_CALL / seconds, 1, 500))
    return count, int(np.clip(_PASS / (count * seconds), _FEWEST, _MOST))


def _seconds(sums: Callable[[int], None], count: int) -> float:
    started = time.perf_counter()
    sums(count)
    return (time.perf_counter() - started) / count


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except TfmatError as error:
        print(f"tfmat: {printable(error)}", file=sys.stderr, flush=True)
        sys.exit(error.exit_status)
