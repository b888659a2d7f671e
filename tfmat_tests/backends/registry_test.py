"""What goes with what: each refusal, and the table of the docs against them."""

import pathlib

import pytest

from tfmat.backends import make_backend, registry
from tfmat.backends.registry import BACKENDS, EXCHANGES, Asked, check, check_config_for
from tfmat.config import OPTIONS, OptimizerSection, Parallelism, Settings
from tfmat.errors import InputError
from tfmat.launch.processes import Processes


def asked(backend, keys, processes=2):
    """By keys of the config."""
    own = {key: value for key, value in keys.items() if hasattr(Parallelism, key)}
    further = {key: value for key, value in keys.items() if key not in own}
    several = Processes(size=processes, local_size=processes)
    if "recompute" in further:
        own["recompute"] = further.pop("recompute")
    return Asked(backend, Settings.with_keys(**own), several, further)


BACKENDS_FOLDER = pathlib.Path(registry.__file__).parent
STAGES = {"mesh": "stage:2"}
AVERAGING = {"averaging": True}
REFUSED = [
    ("single", STAGES, "for --backend=horovod or mpi"),
    ("dtensor", {"mesh": "batch:2,stage:2"}, "--backend=dtensor has no stages"),
    ("asynchronous", STAGES, "has no stages"),
    ("mpi", {"mesh": "stage:3"}, "for 3 processes, there are 2; start 3"),
    ("mpi", {"mesh": "model:2,stage:2"}, "model is for --backend=dtensor"),
    ("mpi", {**STAGES, "compression": "fp16"}, "compression=fp16 does not work with"),
    ("mpi", {**STAGES, "local_steps": 4}, "local_steps=4 does not work"),
    ("mpi", {**STAGES, "zero_stage": 1}, "zero_stage=1 does not work"),
    ("mpi", {**STAGES, "accumulate": 2}, "leave it out, use more micro_batches"),
    ("mpi", {**STAGES, "reduction": "hierarchical"}, "reduction=hierarchical does"),
    ("mpi", {**STAGES, "bucket_mb": 1.0}, "bucket_mb=1.0 does not work"),
    ("mpi", {"mesh": "stage:17"}, "micro_batches=68; give 1 to 64"),  # four for each stage
    ("mpi", {"mesh": "batch:2", "stages": "hidden"}, "stages=hidden is for pipeline stages"),
    ("mpi", {**STAGES, "jit_compile": True}, "jit_compile does not work with pipeline stages"),
    ("mpi", {**STAGES, "optimizer.gradient_noise": 0.1}, "gradient_noise does not work"),
    ("mpi", {**STAGES, "model.batch_normalization": "synchronized"}, "synchronized does not work"),
    ("mpi", {**STAGES, "optimizer.sam_rho": 0.05}, "optimizer.sam_rho does not work"),
    ("mpi", {**STAGES, "global_batch_size": 7}, "7 examples, which cannot go through"),
    ("mpi", {**STAGES, "profile": True}, "profile=true does not work with pipeline stages"),
    *(("single", {"profile": True, key: value}, f"profile=true does not work with {key}")
      for key, value in (("accumulate", 2), ("bucket_mb", 1.0), ("jit_compile", True))),
    ("mpi", {"profile": True, "local_steps": 4}, "profile=true does not work with local_steps"),
    *((backend, {"profile": True}, f"profile=true does not work with --backend={backend}")
      for backend in ("dtensor", "asynchronous")),
    *((backend, {"zero_stage": stage, **others}, message)
      for backend in ("horovod", "mpi")
      for stage, others, message in (
        (3, {}, "zero_stage=3 divides the weights too, .* use zero_stage=2"),
        (1, {"compression": "topk"}, "compression=topk does not work .* use fp16"),
        (2, {"reduction": "hierarchical"}, "reduction=hierarchical .* leave it at flat"),
        (2, {"bucket_mb": 1.0}, "bucket_mb=1.0 .* leave it at none"),
        (2, {"local_steps": 4}, "local_steps=4 does not work .* leave it at 1"),
        (1, {"optimizer.gradient_noise": 0.1}, "gradient_noise does not work with zero_stage"),
      )),
    *((backend, {"offload": "slots"}, f"with --backend={backend} leave it out")
      for backend in ("dtensor", "asynchronous")),
    ("mpi", {"offload": "slots", "zero_stage": 2}, "offload does not work with zero_stage"),
    ("mpi", {"offload": "slots", "local_steps": 4}, "offload does not work with local_steps"),
    ("single", {"offload": "slots", "jit_compile": True}, "jit_compile does not work with offload"),
    ("single", {"recompute": "every:1", "jit_compile": True},
     "jit_compile does not work with recompute=every:1, whose"),
    ("asynchronous", {"quorum": 3}, "quorum=3 is more than the workers, of which there are 2"),
    ("asynchronous", {"quorum": 2, "staleness_scaling": "sqrt"}, "for gradients of older weights"),
    ("asynchronous", {"local_steps": 16}, "local_steps=16 is for --backend=horovod"),
    *(("asynchronous", {**also, key: value}, f"{key}={value} is for --backend=horovod")
      for also in ({}, AVERAGING)
      for key, value in (("compression", "fp16"), ("accumulate", 2), ("bucket_mb", 1.0))),
    ("asynchronous", {"data.sharding": "independent"}, "is for --backend=horovod and mpi; with"),
    *(("asynchronous", {key: value}, f"{key} does not work with --backend=asynchronous")
      for key, value in (("jit_compile", True), ("optimizer.gradient_noise", 0.1),
                         ("optimizer.clip_norm", 1.0), ("optimizer.sam_rho", 0.05))),
    ("asynchronous", {"model.batch_normalization": "synchronized"}, "=synchronized does not work"),
    ("asynchronous", {**AVERAGING, "quorum": 2}, "quorum is for gradients that workers send"),
    ("asynchronous", {**AVERAGING, "staleness_scaling": "sqrt"}, "staleness_scaling is for gra"),
    ("asynchronous", {**AVERAGING, "local_steps": 16, "outer_momentum": 0.5}, "outer_momentum=0.5"),
    *((backend, {key: value}, f"{key}={str(value).lower()} is for --backend=asynchronous; with")
      for backend, key, value in (("horovod", "averaging", True), ("single", "quorum", 2),
                                  ("dtensor", "staleness_scaling", "sqrt"))),
    *(("dtensor", {key: value}, f"{key}={value} is for --backend=horovod and mpi; with --backend=d")
      for key, value in (("compression", "fp16"), ("reduction", "hierarchical"),
                         ("bucket_mb", 1.0), ("local_steps", 4), ("accumulate", 2),
                         ("data.sharding", "independent"))),
    ("dtensor", {"jit_compile": True}, "jit_compile does not work with --backend=dtensor"),
    ("dtensor", {"precision": "auto"}, "precision=auto does not work .* leave it at float32"),
    ("dtensor", {"model.batch_normalization": "local"}, "local does not work .* use synchronized"),
    ("dtensor", {"optimizer.gradient_noise": 0.1}, "gradient_noise does not work .* divided"),
]  # fmt: skip


@pytest.mark.parametrize(("backend", "keys", "message"), REFUSED)
def test_refused(backend, keys, message):
    """In one line; what the options of a backend say by themselves, also where it is made without a config."""
    processes = {"model:2,stage:2": 4, "stage:17": 17}.get(keys.get("mesh"), 2)
    given = asked(backend, keys, processes)
    with pytest.raises(InputError, match=message) as caught:
        check(given)
    assert "\n" not in str(caught.value)
    if not given.further:
        with pytest.raises(InputError, match=message):
            make_backend(backend, given.settings, processes=given.processes)


@pytest.mark.parametrize(
    ("backend", "keys", "processes"),
    [
        *((backend, {}, 2) for backend in BACKENDS),
        *((backend, {"offload": "slots"}, 2) for backend in ("single", "horovod", "mpi")),
        ("mpi", {"offload": "slots", "zero_stage": 2}, 1),
        ("mpi", {"offload": "slots", "local_steps": 4}, 1),
        ("mpi", {"zero_stage": 2, "compression": "fp16"}, 2),
        ("mpi", {"optimizer.gradient_noise": 0.1}, 2),
        ("dtensor", {"zero_stage": 3}, 2),
        ("asynchronous", {**AVERAGING, "optimizer.clip_norm": 1.0, "local_steps": 4}, 2),
        ("asynchronous", {"model.batch_normalization": "synchronized"}, 1),
    ],
)
def test_taken(backend, keys, processes):
    check(asked(backend, keys, processes))


def test_settings_are_asked_for_all_their_keys():
    for backend in BACKENDS:
        check_config_for(backend, Settings(), Processes())
    noisy = Settings(optimizer=OptimizerSection(gradient_noise=0.1))
    with pytest.raises(InputError, match="gradient_noise does not work with --backend=dtensor"):
        check_config_for("dtensor", noisy, Processes())


def test_every_exchange_has_a_name_in_a_config_and_every_name_its_class():
    assert tuple(EXCHANGES) == OPTIONS["compression"].choices
    for kind in EXCHANGES.values():
        assert isinstance(registry._load(kind.where), type)


def test_no_core_module_imports_an_extra():
    extras = {extra.module for extra in registry.EXTRAS if extra.module}
    for name in ("base", "exchange", "step", "single", "transports", "dtensor", "layouts"):
        text = (BACKENDS_FOLDER / f"{name}.py").read_text("utf-8")
        assert not [module for module in extras if f"from {module} import" in text], name
