"""What a config asks of the backends, and refusals of what they do not do, before TensorFlow is loaded."""

from typing import Any

from tfmat.backends.mesh import BATCH, parse_rules
from tfmat.backends.options import BackendOptions
from tfmat.backends.schedule import TRANSPORTS, check_mesh, has_stages, micro_batches_of
from tfmat.config import Config
from tfmat.errors import InputError

NOT_ON_A_MESH = (
    "does not work with --backend=dtensor, whose devices would add up parts of products in bfloat16; leave it at "
    "float32"
)
NO_NOISE_IN_PARTS = (
    "optimizer.gradient_noise does not work with zero_stage, where its numbers would depend on how many processes "
    "there are; leave out one of them"
)


def backend_options(config: Config, **others: Any) -> BackendOptions:
    """What the config tells the backends, and `others`; InputError where mesh or rules for layouts cannot be read."""
    return BackendOptions.on_mesh(
        config.mesh,
        stages=config.stages,
        micro_batches=config.micro_batches,
        schedule=config.schedule,
        layouts=parse_rules(config.layouts),
        zero_stage=config.zero_stage,
        compression=config.compression,
        compression_rank=config.compression_rank,
        compression_fraction=config.compression_fraction,
        reduction=config.reduction,
        bucket_mb=config.bucket_mb,
        local_steps=config.local_steps,
        outer_learning_rate=config.outer_learning_rate,
        outer_momentum=config.outer_momentum,
        overlap_meetings=config.overlap_meetings,
        quorum=config.quorum,
        averaging=config.averaging,
        staleness_scaling=config.staleness_scaling,
        accumulate=config.accumulate,
        recompute=config.model.recompute,
        offload=config.offload,
        offload_dir=config.offload_dir,
        timeline=config.trace_steps is not None,
        **others,
    )


def check_config_for(backend: str, config: Config, options: BackendOptions) -> None:
    """InputError where the config asks for what the backend does not do."""
    check_profile(config, options, backend)
    check_zero(options, backend, config.optimizer.gradient_noise)
    check_stages(config, options, backend)
    check_offload(config, options, backend)
    if backend == "asynchronous":
        check_asynchronous(config, options)
    else:
        check_of_asynchronous(config, backend)
    if backend == "dtensor":
        check_dtensor(config, options)


def check_offload(config: Config, options: BackendOptions, backend: str) -> None:
    """InputError where slots are to be on disk, and cannot be."""
    if config.offload == "none":
        return
    check_slots_on_disk(options, backend)
    if config.jit_compile:
        raise InputError("jit_compile does not work with offload; leave out one of them")


def check_slots_on_disk(options: BackendOptions, backend: str) -> None:
    """InputError where processes cannot each have their slots on disk."""
    if options.offload == "none":
        return
    if backend not in ("single", *TRANSPORTS):
        raise InputError(
            f"offload={options.offload} is for --backend=single, horovod and mpi; with --backend={backend} leave it out"
        )
    if options.processes.size == 1:
        return
    if options.zero_stage:
        raise InputError(
            "offload does not work with zero_stage, which already has each process keep a part of the slots; leave out "
            "one of them"
        )
    if options.local_steps > 1:
        raise InputError(
            "offload does not work with local_steps, whose checkpoints bring the slots of all processes together in "
            "memory; leave out one of them"
        )


def check_dtensor(config: Config, options: BackendOptions) -> None:
    """InputError where the config asks for what --backend=dtensor does not do, with the nearest that it does."""
    check_offload(config, options, "dtensor")
    for key, value, default in (
        ("compression", config.compression, "none"),
        ("reduction", config.reduction, "flat"),
        ("bucket_mb", config.bucket_mb, None),
        ("local_steps", config.local_steps, 1),
        ("accumulate", config.accumulate, 1),
        ("data.sharding", config.data.sharding, "partition"),
    ):
        if value != default:
            raise InputError(
                f"{key}={value} is for --backend=horovod and mpi; with --backend=dtensor leave it at "
                f"{str(default).lower()}"
            )
    if config.jit_compile:
        raise InputError("jit_compile does not work with --backend=dtensor; leave it out")
    if config.precision != "float32":
        raise InputError(f"precision={config.precision} {NOT_ON_A_MESH}")
    if config.model.batch_normalization == "local":
        raise InputError(
            "model.batch_normalization=local does not work with --backend=dtensor, whose layers see the global batch; "
            "use synchronized"
        )
    if config.optimizer.gradient_noise:
        raise InputError(
            "optimizer.gradient_noise does not work with --backend=dtensor, which would draw other numbers for weights "
            "that are divided; leave it out"
        )


def check_zero(options: BackendOptions, backend: str, gradient_noise: float = 0.0) -> None:
    """InputError where processes that divide the optimizer's slots are asked for what does not go with that."""
    if not options.zero_stage or backend not in ("horovod", "mpi"):
        return
    if options.zero_stage == 3:
        raise InputError(
            f"zero_stage=3 divides the weights too, which --backend={backend} keeps whole; use zero_stage=2, or "
            "--backend=dtensor"
        )
    if options.compression not in ("none", "fp16"):
        raise InputError(
            f"compression={options.compression} does not work with zero_stage, where each process receives a part of "
            "the summed gradients; use fp16 or none, or zero_stage=0"
        )
    for key, value, default in (
        ("reduction", options.reduction, "flat"),
        ("bucket_mb", options.bucket_mb, None),
        ("local_steps", options.local_steps, 1),
    ):
        if value != default:
            raise InputError(
                f"{key}={value} does not work with zero_stage on --backend={backend}; leave it at "
                f"{str(default).lower()}, or use zero_stage=0"
            )
    if gradient_noise:
        raise InputError(NO_NOISE_IN_PARTS)


def check_asynchronous(config: Config, options: BackendOptions) -> None:
    """InputError where the config asks for what --backend=asynchronous does not do, before anything starts."""
    check_options_of_asynchronous(options)
    if config.data.sharding != "partition":
        raise InputError(
            f"data.sharding={config.data.sharding} is for --backend=horovod and mpi; with --backend=asynchronous leave "
            "it at partition"
        )
    several = options.processes.size > 1
    for key, given in (
        ("jit_compile", config.jit_compile),
        ("optimizer.gradient_noise", config.optimizer.gradient_noise),
        ("optimizer.clip_norm", config.optimizer.clip_norm and not config.averaging),
        ("optimizer.sam_rho", config.optimizer.sam_rho),
        (
            "model.batch_normalization=synchronized",
            several and config.model.batch_normalization == "synchronized",
        ),
    ):
        if given:
            raise InputError(f"{key} does not work with --backend=asynchronous; leave it out")


def check_stages(config: Config, options: BackendOptions, backend: str) -> None:
    """InputError where the config asks for stages that cannot be had, or for what does not work with them."""
    check_mesh(options, backend)
    if not has_stages(options.mesh):
        return
    for key, given in (
        ("jit_compile", config.jit_compile),
        ("optimizer.gradient_noise", config.optimizer.gradient_noise),
        ("optimizer.sam_rho", config.optimizer.sam_rho),
        (
            "model.batch_normalization=synchronized",
            config.model.batch_normalization == "synchronized",
        ),
    ):
        if given:
            raise InputError(f"{key} does not work with pipeline stages; leave it out")
    part = config.global_batch_size // options.mesh.size(BATCH)
    if part < micro_batches_of(options):
        raise InputError(
            f"global_batch_size={config.global_batch_size} gives each worker {part} examples, which cannot go through "
            f"the stages as micro_batches={micro_batches_of(options)}; use a larger batch or fewer micro_batches"
        )


def check_options_of_asynchronous(options: BackendOptions) -> None:
    """InputError for what --backend=asynchronous does not do, and for a quorum of more workers than there are."""
    keys = ["compression", "reduction", "bucket_mb", "accumulate", "zero_stage"]
    keys += (
        ["outer_learning_rate", "outer_momentum", "overlap_meetings"]
        if options.averaging
        else ["local_steps"]
    )
    for key in keys:
        value = getattr(options, key)
        if value != getattr(BackendOptions, key):
            raise InputError(
                f"{key}={value} is for --backend=horovod and mpi; leave it out with --backend=asynchronous"
            )
    for key, given in (
        ("quorum", options.quorum is not None),
        ("staleness_scaling", options.staleness_scaling != "none"),
    ):
        if given and options.averaging:
            raise InputError(
                f"{key} is for gradients that workers send to servers, and averaging has none; leave out one of them"
            )
    workers = options.processes.size
    if options.quorum and options.quorum > workers:
        raise InputError(
            f"quorum={options.quorum} is more than the workers, of which there are {workers}; give at most {workers}"
        )
    if options.quorum and options.staleness_scaling != "none":
        raise InputError(
            "staleness_scaling is for gradients of older weights, of which quorum takes none; leave out one of them"
        )


def check_of_asynchronous(config: Config, backend: str) -> None:
    """InputError for keys of --backend=asynchronous with another backend, which would not heed them."""
    for key, value, default in (
        ("quorum", config.quorum, None),
        ("averaging", config.averaging, False),
        ("staleness_scaling", config.staleness_scaling, "none"),
    ):
        if value != default:
            raise InputError(
                f"{key}={str(value).lower()} is for --backend=asynchronous; with --backend={backend} leave it out"
            )


def check_profile(config: Config, options: BackendOptions, backend: str) -> None:
    """InputError where the parts of steps are to be measured, and cannot be."""
    if not config.profile:
        return
    for name, given in (
        ("--backend=dtensor", backend == "dtensor"),
        ("--backend=asynchronous", backend == "asynchronous"),
        ("accumulate", config.accumulate > 1),
        ("local_steps", config.local_steps > 1),
        ("bucket_mb", config.bucket_mb is not None),
        ("pipeline stages", has_stages(options.mesh)),
        ("jit_compile", config.jit_compile),
    ):
        if given:
            raise InputError(f"profile=true does not work with {name} yet; leave out one of them")
