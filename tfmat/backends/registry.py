"""Backends, exchanges and extras by name, each imported only when it is asked for; and what goes with what.

Every combination that does not work is declared here, before TensorFlow is loaded: a `Clash` of a backend or an extra
with other keys. Refusals and the table in docs/parallel.md follow from these declarations.
"""

import importlib
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tfmat.backends.base import Backend
from tfmat.config import BATCH, OPTIONS, STAGE, Parallelism, Settings
from tfmat.errors import InputError, nearest
from tfmat.launch.processes import (
    Processes,
    find_processes,
    make_virtual_devices,
    prepare_tensorflow,
)

# --------------------------------------------------------------------------------------------------
# A run's wishes, and those that do not go together.


class Asked(NamedTuple):
    """A backend, and what its processes are to do.

    Attributes:
      backend, settings, processes: of a run.
      further: keys of the config -> values that hold before those of the settings.
    """

    backend: str
    settings: Settings
    processes: Processes
    further: Mapping[str, Any] = {}

    @property
    def options(self) -> Parallelism:
        """The section on parallelism."""
        return self.settings.parallel

    def value(self, key: str) -> Any:
        """The value of a key; `backend` is one too, and so is whether there are `pipeline stages`."""
        if key == "backend":
            return self.backend
        if key == "pipeline stages":
            return self.options.has_stages
        return self.further[key] if key in self.further else self.settings.value(key)

    def says(self, key: str) -> bool:
        """Whether a key has another value than its default."""
        value, default = self.value(key), default_of(key)
        return value != default and bool(value or default)

    @property
    def several(self) -> bool:
        """Whether there are several processes."""
        return self.processes.size > 1


def default_of(key: str) -> Any:
    """The default of a key of the config."""
    return OPTIONS[key].default if key in OPTIONS else None


class Clash(NamedTuple):
    """Keys that do not go with something.

    Attributes:
      text: of the error, in which key, value, default and backend stand in braces.
      keys: that must have their defaults.
      but: further values with which they go.
      only: the values with which they do not; none: all others.
      when: in which cases.
    """

    text: str
    keys: tuple[str, ...]
    but: tuple[Any, ...] = ()
    only: tuple[Any, ...] = ()
    when: Callable[[Asked], bool] = lambda asked: True

    def check(self, asked: Asked) -> None:
        """InputError where one of the keys does not go."""
        for key in self.keys if self.when(asked) else ():
            value = asked.value(key)
            if asked.says(key) and value not in self.but and (not self.only or value in self.only):
                shown = {"value": str(value).lower(), "default": str(default_of(key)).lower()}
                raise InputError(
                    self.text.format(key=key, asked=asked, backend=asked.backend, **shown)
                )


class Extra(NamedTuple):
    """Something that the processes of a run do beside the plain step.

    Attributes:
      key: of the config, by which it is asked for; `pipeline stages` by the mesh.
      backends: with which it has an effect.
      module: that has it: `add_to(step, backend)` changes what a step is made of; `instead_of` is the class of another
        backend. None where the step does it by itself.
      example: a value, for docs and tests.
      clashes: what it does not go with, on these backends.
      elsewhere: the error of other backends; empty where they have their own, or no process to do it with.
      check: for what depends on numbers.
    """

    key: str
    backends: tuple[str, ...]
    module: str | None = None
    example: Any = True
    clashes: tuple[Clash, ...] = ()
    elsewhere: str = ""
    check: Callable[[Asked], None] = lambda asked: None


def check(asked: Asked) -> None:
    """InputError where what is asked for does not go together."""
    check_backend(asked.backend)
    _check_mesh(asked)
    for extra in EXTRAS:
        if asked.says(extra.key):
            clashes = extra.clashes
            if asked.backend not in extra.backends:
                clashes = (Clash(extra.elsewhere, (extra.key,)),) if extra.elsewhere else ()
            else:
                extra.check(asked)
            for clash in clashes:
                clash.check(asked)
    for clash in BACKENDS[asked.backend].clashes:
        clash.check(asked)


def check_config_for(backend: str, settings: Settings, processes: Processes) -> None:
    """InputError where a run's settings ask for what the backend does not do."""
    check(Asked(backend, settings, processes, {"global_batch_size": settings.global_batch_size}))


def check_further(backend: Backend, further: Mapping[str, Any], optimizer: Any = None) -> None:
    """InputError where a backend cannot build what is asked for besides its settings.

    Args:
      further: keys of the config -> values.
      optimizer: functional; its wishes are keys of the config, too.
    """
    wishes: dict[str, Any] = {}
    if optimizer is not None:
        wishes = {
            "optimizer.gradient_noise": optimizer.gradient_noise or 0.0,
            "optimizer.sam_rho": optimizer.sam_rho or 0.0,
            "optimizer.clip_norm": optimizer.global_clipnorm,
        }
    check(Asked(backend.name, backend.settings, backend.processes, {**wishes, **further}))


# --------------------------------------------------------------------------------------------------
# The declarations.


class Kind(NamedTuple):
    """A backend.

    Attributes:
      where: module and class.
      clashes: keys that it does not go with.
      transport: module and class of its processes' collectives; none where it has its own.
    """

    where: str
    clashes: tuple[Clash, ...]
    transport: str = ""


# Backends whose processes each hold the model, or a stage of it.
TRANSPORTS = ("horovod", "mpi")
# A step with stages is one graph that holds each micro-batch by itself.
MOST_MICRO_BATCHES = 64

_NO = "{key} does not work with --backend={backend}; leave it out"
_OF_ASYNCHRONOUS = Clash(
    "{key}={value} is for --backend=asynchronous; with --backend={backend} leave it out",
    ("quorum", "averaging", "staleness_scaling"),
)
_SINGLE = "tfmat.backends.single:SingleBackend"
_OF_PROCESSES = "{key}={value} is for --backend=horovod and mpi; "

BACKENDS = {
    "asynchronous": Kind(
        "tfmat.backends.asynchronous:AsynchronousBackend",
        (
            Clash(
                f"{_OF_PROCESSES}leave it out with --backend=asynchronous",
                ("compression", "reduction", "bucket_mb", "accumulate", "zero_stage"),
            ),
            Clash(
                f"{_OF_PROCESSES}leave it out with --backend=asynchronous",
                ("local_steps",),
                when=lambda asked: not asked.options.averaging,
            ),
            Clash(
                f"{_OF_PROCESSES}with --backend={{backend}} leave it at {{default}}",
                ("data.sharding",),
            ),
            Clash(_NO, ("jit_compile", "optimizer.gradient_noise")),
            Clash(_NO, ("optimizer.clip_norm",), when=lambda asked: not asked.options.averaging),
            Clash(_NO, ("optimizer.sam_rho",)),
            Clash(
                "{key}={value} does not work with --backend={backend}; leave it out",
                ("model.batch_normalization",),
                only=("synchronized",),
                when=lambda asked: asked.several,
            ),
        ),
        "tfmat.backends.asynchronous:ServedCollectives",
    ),
    "dtensor": Kind(
        "tfmat.backends.dtensor:DTensorBackend",
        (
            _OF_ASYNCHRONOUS,
            Clash(
                f"{_OF_PROCESSES}with --backend={{backend}} leave it at {{default}}",
                (
                    *("compression", "reduction", "bucket_mb", "local_steps", "accumulate"),
                    "data.sharding",
                ),
            ),
            Clash(_NO, ("jit_compile",)),
            Clash(
                "{key}={value} does not work with --backend=dtensor, whose devices would add up parts of products in "
                "bfloat16; leave it at float32",
                ("precision",),
            ),
            Clash(
                "{key}={value} does not work with --backend=dtensor, whose layers see the global batch; use "
                "synchronized",
                ("model.batch_normalization",),
                only=("local",),
            ),
            Clash(
                "{key} does not work with --backend=dtensor, which would draw other numbers for weights that are "
                "divided; leave it out",
                ("optimizer.gradient_noise",),
            ),
        ),
        "tfmat.backends.dtensor:MeshCollectives",
    ),
    "single": Kind(_SINGLE, (_OF_ASYNCHRONOUS,)),
    "horovod": Kind(_SINGLE, (_OF_ASYNCHRONOUS,), "tfmat.backends.transports:HorovodCollectives"),
    "mpi": Kind(_SINGLE, (_OF_ASYNCHRONOUS,), "tfmat.backends.transports:MpiCollectives"),
}


class ExchangeKind(NamedTuple):
    """An exchange of gradients.

    Attributes:
      where: module and class.
      messages: weights (with shape and itemsize), workers, options -> bytes of each sum, one after the other. A
        collection counts as the sum in a ring that has each worker send as much.
    """

    where: str
    messages: Callable[[Sequence[Any], int, Parallelism], list[float]]


# FEWEST_COMPRESSED: numbers of a gradient from which on it is compressed; biases and small kernels are few bytes, and
# lose most.
FEWEST_COMPRESSED = 4_096


def is_large(shape: Sequence[int]) -> bool:
    """Whether a gradient of that shape is compressed."""
    return math.prod(shape) >= FEWEST_COMPRESSED


def has_low_rank(shape: Sequence[int], rank: int) -> bool:
    """Whether a large gradient is sent as a product of that rank: where it saves half at least."""
    if len(shape) < 2 or not is_large(shape):
        return False
    rows, columns = math.prod(shape[:-1]), shape[-1]
    return 2 * rank * (rows + columns) <= rows * columns


def _bytes(weights: Sequence[Any]) -> float:
    return sum(math.prod(weight.shape) * weight.itemsize for weight in weights)


def _large(weights: Sequence[Any]) -> list[int]:
    """Numbers of each weight whose gradient is compressed."""
    return [math.prod(weight.shape) for weight in weights if is_large(weight.shape)]


def _rest(weights: Sequence[Any]) -> float:
    """Bytes of the others' gradients."""
    return _bytes([weight for weight in weights if not is_large(weight.shape)])


def _of_powersgd(weights: Sequence[Any], workers: int, options: Parallelism) -> list[float]:
    """Two sums: of the left factors with all that is not compressed, and of the right ones."""
    rank = options.compression_rank
    factored = [weight for weight in weights if has_low_rank(weight.shape, rank)]
    left = sum(rank * w.itemsize * math.prod(w.shape[:-1]) for w in factored)
    right = sum(rank * w.itemsize * w.shape[-1] for w in factored)
    whole = _bytes(weights) - _bytes(factored)
    return [whole + left, right] if right else [whole]


# Keys are the names of `--config.compression`.
EXCHANGES = {
    "none": ExchangeKind("tfmat.backends.exchange:Exchange", lambda weights, *_: [_bytes(weights)]),
    "fp16": ExchangeKind(
        "tfmat.backends.exchange:Float16", lambda weights, *_: [_bytes(weights) / 2]
    ),
    "bf16": ExchangeKind(
        "tfmat.backends.exchange:BFloat16",
        lambda weights, workers, _: [_bytes(weights) / 2 * workers / 2],
    ),
    "int8": ExchangeKind(
        "tfmat.backends.exchange:Int8",
        lambda weights, *_: [sum(_large(weights)), _rest(weights)],
    ),
    "sign": ExchangeKind(
        "tfmat.backends.exchange:Sign",
        lambda weights, workers, _: [
            sum(n / 8 + 4 for n in _large(weights)) * workers / 2,
            _rest(weights),
        ],
    ),
    "topk": ExchangeKind(
        "tfmat.backends.exchange:TopK",
        lambda weights, workers, options: [
            sum(8 * max(1, round(options.compression_fraction * n)) for n in _large(weights))
            * workers
            / 2,
            _rest(weights),
        ],
    ),
    "powersgd": ExchangeKind("tfmat.backends.exchange:PowerSGD", _of_powersgd),
}


def _check_mesh(asked: Asked) -> None:
    """InputError where a mesh with stages, or of a backend whose processes are its devices, cannot be had."""
    backend, options = asked.backend, asked.options
    mesh = options.mesh
    if backend not in TRANSPORTS:
        if STAGE in mesh.names:
            raise InputError(
                f"mesh {mesh}: the axis {STAGE} is for --backend={' or '.join(TRANSPORTS)}, each of whose processes "
                f"takes a part of the network; --backend={backend} has no stages"
            )
    elif not options.has_stages:
        for key in ("stages", "micro_batches"):
            if asked.says(key):
                raise InputError(
                    f"{key}={asked.value(key)} is for pipeline stages; give a mesh such as {STAGE}:2 with it, or leave "
                    "it out"
                )


def _check_stages(asked: Asked) -> None:
    """InputError where the stages of a mesh cannot be had."""
    mesh, count = asked.options.mesh, asked.processes.size
    for name in mesh.names:
        if name not in (BATCH, STAGE):
            raise InputError(
                f"mesh {mesh}: --backend={asked.backend} has the axes {BATCH} and {STAGE}; {name} is for "
                "--backend=dtensor, which has no stages"
            )
    if mesh.num_devices != count:
        raise InputError(
            f"mesh {mesh} is for {mesh.num_devices} processes, there {f'are {count}' if count > 1 else 'is one'}; "
            f"start {mesh.num_devices} (mpirun -np {mesh.num_devices}), or give another mesh"
        )
    parts = asked.options.num_micro_batches
    if not 1 <= parts <= MOST_MICRO_BATCHES:
        raise InputError(f"micro_batches={parts}; give 1 to {MOST_MICRO_BATCHES}")
    batch = asked.further.get("global_batch_size")
    part = parts if batch is None else batch // mesh.size(BATCH)
    if part < parts:
        raise InputError(
            f"global_batch_size={batch} gives each worker {part} examples, which cannot go through "
            f"the stages as micro_batches={parts}; use a larger batch or fewer micro_batches"
        )


def _check_quorum(asked: Asked) -> None:
    quorum, workers = asked.options.quorum or 0, asked.processes.size
    if quorum > workers:
        raise InputError(
            f"quorum={quorum} is more than the workers, of which there are {workers}; give at most {workers}"
        )


_OF_SERVERS = "{key} is for gradients that workers send to servers, and averaging has none; leave out one of them"
_NO_STAGES = "{key}={value} does not work with pipeline stages; leave it out"

# In the order in which they change a step.
EXTRAS = (
    Extra(
        "profile",
        ("single", *TRANSPORTS),
        elsewhere="profile=true does not work with --backend={backend} yet; leave out one of them",
        clashes=(
            Clash(
                "profile=true does not work with {key} yet; leave out one of them",
                ("accumulate", "local_steps", "bucket_mb", "pipeline stages", "jit_compile"),
            ),
        ),
    ),
    Extra(
        "accumulate",
        ("single", *TRANSPORTS),
        example=2,
        clashes=(
            Clash(
                "jit_compile does not work with accumulate; leave out one of them", ("jit_compile",)
            ),
        ),
    ),
    Extra("compression", TRANSPORTS, example="powersgd"),
    Extra("reduction", TRANSPORTS, example="hierarchical"),
    Extra("bucket_mb", TRANSPORTS, example=1.0),
    Extra(
        "offload",
        ("single", *TRANSPORTS),
        "tfmat.backends.offload",
        example="slots",
        elsewhere="{key}={value} is for --backend=single, horovod and mpi; with --backend={backend} leave it out",
        clashes=(
            Clash(
                "offload does not work with zero_stage, which already has each process keep a part of the slots; leave "
                "out one of them",
                ("zero_stage",),
                when=lambda asked: asked.several,
            ),
            Clash(
                "offload does not work with local_steps, whose checkpoints bring the slots of all processes together "
                "in memory; leave out one of them",
                ("local_steps",),
                when=lambda asked: asked.several,
            ),
            Clash(
                "jit_compile does not work with offload; leave out one of them", ("jit_compile",)
            ),
        ),
    ),
    Extra(
        "zero_stage",
        TRANSPORTS,
        "tfmat.backends.zero",
        example=2,
        clashes=(
            Clash(
                "zero_stage=3 divides the weights too, which --backend={backend} keeps whole; use zero_stage=2, or "
                "--backend=dtensor",
                ("zero_stage",),
                only=(3,),
            ),
            Clash(
                "compression={value} does not work with zero_stage, where each process receives a part of the summed "
                "gradients; use fp16 or none, or zero_stage=0",
                ("compression",),
                but=("fp16",),
            ),
            Clash(
                "{key}={value} does not work with zero_stage on --backend={backend}; leave it at {default}, or use "
                "zero_stage=0",
                ("reduction", "bucket_mb", "local_steps"),
            ),
            Clash(
                "optimizer.gradient_noise does not work with zero_stage, where its numbers would depend on how many "
                "processes there are; leave out one of them",
                ("optimizer.gradient_noise",),
            ),
        ),
    ),
    # By its layouts.
    Extra("zero_stage", ("dtensor",), example=2),
    Extra("local_steps", TRANSPORTS, "tfmat.backends.local_steps", example=16),
    Extra(
        "model.recompute",
        ("single", *TRANSPORTS, "dtensor", "asynchronous"),
        "tfmat.backends.segments",
        example="every:2",
        clashes=(
            Clash(
                "jit_compile does not work with recompute={asked.settings.model.recompute}, whose order of operations "
                "XLA does not keep; leave out one of them",
                ("jit_compile",),
            ),
        ),
    ),
    Extra(
        "pipeline stages",
        TRANSPORTS,
        "tfmat.backends.pipeline",
        check=_check_stages,
        clashes=(
            Clash(
                "{key}={value} does not work with pipeline stages; leave it out, use more micro_batches",
                ("accumulate",),
            ),
            Clash(
                _NO_STAGES,
                ("compression", "local_steps", "zero_stage", "reduction", "bucket_mb"),
            ),
            Clash(
                "{key} does not work with pipeline stages; leave it out",
                ("jit_compile", "optimizer.gradient_noise", "optimizer.sam_rho"),
            ),
            Clash(_NO_STAGES, ("model.batch_normalization",), only=("synchronized",)),
        ),
    ),
    Extra(
        "averaging",
        ("asynchronous",),
        "tfmat.backends.asynchronous",
        clashes=(
            Clash(_OF_SERVERS, ("quorum", "staleness_scaling")),
            Clash(
                f"{_OF_PROCESSES}leave it out with --backend=asynchronous",
                ("outer_learning_rate", "outer_momentum", "overlap_meetings"),
            ),
        ),
    ),
    Extra(
        "quorum",
        ("asynchronous",),
        example=2,
        check=_check_quorum,
        clashes=(
            Clash(
                "staleness_scaling is for gradients of older weights, of which quorum takes none; leave out one of "
                "them",
                ("staleness_scaling",),
            ),
        ),
    ),
    Extra("staleness_scaling", ("asynchronous",), example="sqrt"),
)


# --------------------------------------------------------------------------------------------------
# Objects by these names.


def _load(where: str) -> Any:
    module, name = where.split(":")
    return getattr(importlib.import_module(module), name)


def check_backend(name: str) -> None:
    """Raises InputError where there is no such backend."""
    if name not in BACKENDS:
        raise InputError(f"unknown backend '{name}'{nearest(name, BACKENDS)}")


def add_extras(step: Any, backend: Backend) -> None:
    """Has the extras that a backend's settings ask for change its step."""
    for add_to in _hooks(Asked(backend.name, backend.settings, backend.processes), "add_to"):
        add_to(step, backend)


def _hooks(asked: Asked, hook: str) -> Iterator[Any]:
    """The functions `hook` of the extras that are asked for and that the backend takes."""
    for extra in EXTRAS:
        if extra.module and asked.backend in extra.backends and asked.says(extra.key):
            found = getattr(importlib.import_module(extra.module), hook, None)
            if found:
                yield found


def make_exchange(collectives: Any, weights: Sequence[Any], options: Parallelism) -> Any:
    """The exchange that the options name; one worker alone leaves its gradients as they are."""
    name = options.compression if collectives.size > 1 else "none"
    return _load(EXCHANGES[name].where)(collectives, weights, options)


def make_backend(
    name: str,
    settings: Settings | None = None,
    *,
    processes: Processes | None = None,
    folder: str = ".",
    **keys: Any,
) -> Backend:
    """The backend called `name`, or what an extra puts in its place; InputError where there is none.

    Args:
      name: as in `--backend=NAME`.
      settings: of a run, or `keys`: of a config that say how steps are computed, such as `accumulate=2`, see
        `Settings.with_keys`.
      processes, folder: see Backend.
    """
    asked = Asked(name, settings or Settings.with_keys(**keys), processes or find_processes())
    check(asked)
    kind, collectives = BACKENDS[name], None
    # A process alone has nobody to talk to; only a mesh has devices anyway.
    if kind.transport and (asked.several or name == "dtensor"):
        collectives = _load(kind.transport)(asked.processes, folder, asked.settings)
    make = [_load(kind.where), *_hooks(asked, "instead_of")][-1]
    backend: Backend = make(
        asked.settings, collectives, name, processes=asked.processes, folder=folder
    )
    return backend


def mesh_backend(
    mesh: str, *, layouts: Mapping[str, str] | None = None, zero_stage: int = 0
) -> Backend:
    """Starts a mesh of devices. Call it first: before any Keras model or tensor is made.

    Without GPUs the devices are virtual ones of the CPU, which TensorFlow makes only when it starts.

    Examples:
      >>> backend = tfmat.mesh_backend(  # doctest: +SKIP
      ...     "batch:2,model:2", layouts={"mlp1/kernel": "-,model", "mlp2/kernel": "model,-"}
      ... )
      >>> trainer = tfmat.Trainer(model, backend=backend)  # doctest: +SKIP

    Args:
      mesh: named axes and their devices; the examples of a batch are divided over the axis `batch`.
      layouts: regular expressions over variable paths -> for each dimension an axis or `-`, or `replicated`; the first
        that matches holds. Without one, dense layers are divided over the axis `model` as in Megatron-LM.
      zero_stage: what is divided over `batch` as well: 1 the optimizer's slots, 2 and gradients, 3 and weights.

    Raises:
      InputError: no such mesh, or TensorFlow has started with fewer devices.
    """
    rules = tuple((layouts or {}).items())
    settings = Settings.with_keys(mesh=mesh, layouts=rules, zero_stage=zero_stage)
    num_processes = find_processes().size
    devices = settings.parallel.mesh.devices_per_process(num_processes)
    if "tensorflow" not in sys.modules:
        prepare_tensorflow(virtual_devices=devices, start=num_processes == 1)
    import tensorflow as tf

    if not tf.config.list_physical_devices("GPU"):
        try:
            if devices > 1:
                make_virtual_devices(devices)
        except RuntimeError:
            pass  # it has started; the next lines say whether with enough devices
        # Several processes join before TensorFlow starts; `start` says whether it has.
        started = len(tf.config.list_logical_devices("CPU")) if num_processes == 1 else devices
        if started < devices:
            raise InputError(
                f"mesh {settings.parallel.mesh} needs {devices} devices, and TensorFlow has started with {started}; "
                "call tfmat.mesh_backend before the first Keras model or tensor is made"
            )
    backend = make_backend("dtensor", settings)
    backend.start_to_the_end()
    return backend
