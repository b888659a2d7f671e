"""The main job: curves -> network -> accuracy -> the parameters of an example curve."""

import concurrent.futures
import contextlib
import dataclasses
import json
import math
import pathlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfmat.backends.base import Backend, Collectives
from tfmat.backends.registry import check_backend, check_config_for, make_backend
from tfmat.config import Config, DataSection, Settings, default_config, goes_in_pieces
from tfmat.console import log, open_console, printable, progress_bar
from tfmat.data.dataset import (
    Kept,
    PackedDataset,
    check_is_no_dataset,
    check_memory,
    dataset_folder,
    generate_dataset,
    is_complete,
    is_dataset,
)
from tfmat.errors import InputError
from tfmat.files import make_folder, write_json
from tfmat.launch.processes import (
    Processes,
    available_threads,
    find_processes,
    in_processes,
    one_thread_a_product,
    prepare_tensorflow,
    processors_per_rank,
    told_of_binding,
)
from tfmat.records.files import (
    example_curve,
    find_records,
    load_records,
    write_example_curve,
    write_example_tests,
)
from tfmat.records.record import MeasuredRecord
from tfmat.records.simulation import CurveSettings, RecordForm
from tfmat.training.run_folder import RunFolder

if TYPE_CHECKING:
    import keras

    from tfmat.identification.evaluate import Evaluated
    from tfmat.identification.networks import Calibration, Identifier, NetworkFile, Spread
    from tfmat.identification.results import Evaluation
    from tfmat.training.run import RunResult

# --------------------------------------------------------------------------------------------------
# The data set that a config asks for: how its curves are simulated, and where it lies.


# Keys of the section `data` that are called the same in CurveSettings, but for the number of points.
_OF_CURVES = [
    field.name
    for field in dataclasses.fields(CurveSettings)
    if hasattr(DataSection, field.name) and field.name != "num_points"
]


def curve_settings(config: Config) -> CurveSettings:
    """The config's settings of curves."""
    return CurveSettings(
        law=config.law,
        ranges=dict(config.ranges),
        fixed=dict(config.fixed),
        num_points=config.data.num_points,
        tests=tuple(config.tests or ()),
        test_ranges=dict(config.test_ranges),
        **{name: getattr(config.data, name) for name in _OF_CURVES},
    )


def named_dataset(config: Config, data_dir: str) -> PackedDataset | None:
    """The data set that `data_dir` is, whose settings then replace the config's; None for a folder of data sets."""
    if not is_dataset(data_dir):
        check_is_no_dataset(data_dir)
        return None
    dataset = PackedDataset.open(data_dir)
    _adopt(config, dataset)
    return dataset


def make_dataset(
    config: Settings | Config, settings: CurveSettings, data_dir: str
) -> PackedDataset:
    """The verified data set that the config asks for, made if it is not there or not finished."""
    counts = seed_and_counts(config)
    folder = dataset_folder(data_dir, settings, **counts)
    if is_complete(folder):
        # Not `generate_dataset`, which would mend a damaged shard without a word: the user must hear of it.
        return PackedDataset.open(folder)
    started = time.monotonic()
    with progress_bar("simulating", "curves") as show:
        dataset = generate_dataset(settings, data_dir=data_dir, progress=show, **counts)
    log(f"simulated in {time.monotonic() - started:.1f} s")
    return dataset


def seed_and_counts(config: Settings | Config) -> dict[str, int]:
    data = config.data
    seed = config.seed if data.seed is None else data.seed
    return {"seed": seed, "num_curves": data.num_curves, "num_test": data.num_test}


def _adopt(config: Config, dataset: PackedDataset) -> None:
    """Makes the config say what the data set is."""
    settings = dataset.settings
    law = settings.law if settings else "imported"
    if config.law not in (law, default_config().law):
        raise InputError(
            f"the data set {dataset.folder} is of law {law}, --law is {config.law}; leave --law out"
        )
    config.law = law
    config.data.num_curves = dataset.num_train + dataset.num_validation
    config.data.num_test = dataset.num_test
    config.data.num_points = dataset.form.points
    if settings is None:
        return
    for name in _OF_CURVES:
        with config.data.ignore_type():
            config.data[name] = getattr(settings, name)
    with config.ignore_type():
        config.tests = settings.tests or None
    for name in ("ranges", "fixed", "test_ranges"):
        values = getattr(settings, name)
        config[name] = Config(dict(values))


# --------------------------------------------------------------------------------------------------
# The part of a network that has no weights and takes most of its time, computed once, before the first step.


# Short NumPy calls pay for many records at once; still there is work for several processes, and progress to tell.
_RECORDS_IN_BLOCK, _LEAST_IN_BLOCK, _MOST_IN_BLOCK, _BLOCKS = 512, 1024, 4096, 16
_BLOCKS_A_THREAD = 4
_ALL = slice(None)
_WORTH_TELLING = 3.0  # seconds


def trained_part(
    model: "keras.Model", features: np.ndarray, kept: Kept
) -> tuple["keras.Model", np.ndarray]:
    """The trained part of a network, and its inputs from records; by one process that is alone."""
    from tfmat.networks.factory import parted

    front, trained = parted(model)
    if front is None:
        return trained, features
    return trained, represented(front, features, Collectives(), kept)


def know_fits(
    identifier: "Identifier", dataset: "PackedDataset", rows: slice | None = None
) -> None:
    """Has a network around fits know its outputs, so that nothing asked of it later waits for fits.

    All processors fit what was not kept. Other networks need nothing of it.

    Args:
      rows: of the training and validation records; None is all test records.

    Raises:
      InputError: test records are none, or not of the network's task.
    """
    import keras

    from tfmat.identification.evaluate import check_same_task

    known = identifier.around_fits
    if known is None:
        return
    if rows is None:
        check_same_task(identifier, dataset)
    front = keras.Model(known.fit.input, known.fit.output)
    end = dataset.num_train + dataset.num_validation
    features = dataset.features[end:] if rows is None else dataset.features[:end]
    rows = rows or _ALL
    seen = represented(front, features, Collectives(), dataset.kept, rows)
    known.know(features[rows], seen)


def represented(
    front: "keras.Model",
    features: np.ndarray,
    collectives: Collectives,
    kept: Kept,
    rows: slice = _ALL,
) -> np.ndarray:
    """The front's numbers of records [records, points, channels], [records, ..., numbers]; the ranks share the work.

    Blocks are the same however many ranks there are, so that the numbers are too. Fits are kept block by block, so that
    what was interrupted goes on, and runs on the same records begin at once. Where only some `rows` are wanted, these
    alone come back, and only blocks that hold some of them are worked on.
    """
    from tfmat.networks.law_fit import LawFit

    shape = (len(features), *front.output_shape[1:])
    numbers = math.prod(shape[1:])
    check_memory(
        f"what a network sees of {len(features):,} records, {numbers} numbers each,",
        len(features) * numbers * 4,
        "take fewer records",
    )
    threads = available_threads()
    fitted = isinstance(front.layers[-1], LawFit)
    size, in_turn = _RECORDS_IN_BLOCK, _BLOCKS_A_THREAD
    if fitted:
        size, in_turn = min(max(_LEAST_IN_BLOCK, len(features) // _BLOCKS), _MOST_IN_BLOCK), 1
    start, stop, _ = rows.indices(len(features))
    firsts = range(start // size * size, stop, size)
    blocks = [slice(first, min(first + size, len(features))) for first in firsts]
    ranks, first_rank = len(collectives.gather(None)), collectives.rank == 0
    seen = np.empty(shape, np.float32)
    started = time.monotonic()
    together = in_turn * ranks * threads
    with (
        _seeing(front, features, threads, kept, alone=ranks == 1) as see,
        progress_bar("preparing", "records") if first_rank else contextlib.nullcontext() as show,
    ):
        for first in range(0, len(blocks), together):
            shared = blocks[first : first + together]
            answers = collectives.gather(list(see(shared[collectives.rank :: ranks])))
            for rank, answer in enumerate(answers):
                for part, block in zip(shared[rank::ranks], answer, strict=True):
                    seen[part] = block
            if show is not None:
                show(shared[-1].stop - firsts.start, blocks[-1].stop - firsts.start)
    seconds = time.monotonic() - started
    if first_rank and seconds > (0.0 if rows == _ALL else _WORTH_TELLING):
        log(f"prepared {stop - start:,} records in {seconds:.1f} s")
    return seen[rows]


@contextlib.contextmanager
def _seeing(
    front: "keras.Model", features: np.ndarray, threads: int, kept: Kept, *, alone: bool
) -> Iterator[Callable[[list[slice]], Iterable[np.ndarray]]]:
    """The front's numbers of some blocks, by threads of TensorFlow's.

    The fit of a law is NumPy, which threads would only wait for: forks do it where this process is alone. Several ranks
    keep the processors busy anyway.
    """
    import tensorflow as tf

    from tfmat.networks.law_fit import LawFit

    fit = front.layers[-1]
    if isinstance(fit, LawFit):
        config = json.dumps(fit.get_config(), sort_keys=True)

        def fits(given: tuple[slice, np.ndarray]) -> np.ndarray:
            return fit.fits(features[given[0]], given[1]).astype(np.float32)

        def see(parts: list[slice]) -> Iterable[np.ndarray]:
            keys = [kept.key(config, features[part]) for part in parts]
            found = [kept.read(key) for key in keys]
            missing = [place for place, one in enumerate(found) if one is None]
            given = [
                (
                    parts[place],
                    np.asarray(fit.graph_of_spectra(tf.constant(features[parts[place]]))),
                )
                for place in missing
            ]
            made = in_processes(fits, given) if alone else map(fits, given)
            for place, one in zip(missing, made, strict=True):
                kept.write(keys[place], one)
                found[place] = one
            return [one for one in found if one is not None]

        with one_thread_a_product():
            yield see
        return
    record = tf.TensorSpec([None, *features.shape[1:]])
    graph = tf.function(front, autograph=False).get_concrete_function(record)
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        yield lambda parts: pool.map(
            lambda part: np.asarray(graph(tf.constant(features[part]))), parts
        )


def train(dataset: PackedDataset, *, workdir: str, backend: Backend) -> "RunResult":
    """Trains the network of the backend's settings on the data set, with the sidecar of what its numbers mean."""
    from tfmat.networks.factory import build_for, losses_and_metrics, parted
    from tfmat.training.run import Run, make_source

    settings = backend.settings
    model = build_for(settings, dataset)
    num_train = curves_to_train(settings, dataset.num_train)
    if backend.rank == 0:
        _tell_network(model, len(dataset.parameters), backend)
    front, trained = parted(model)
    run = Run(
        trained,
        settings,
        backend,
        whole=model,
        **losses_and_metrics(
            settings, dataset, model, compiled=compiles_loss(settings, backend)
        )._asdict(),
        callbacks=_callbacks(settings, workdir, backend),
        sidecar=sidecar(settings, dataset),
        counted="curves",
        workdir=workdir,
    )
    rows = (
        slice(num_train),
        slice(dataset.num_train, dataset.num_train + dataset.num_validation),
    )
    features = dataset.features
    if front is not None and not _has_ended(workdir, backend):
        features = represented(front, features[: rows[1].stop], backend.collectives, dataset.kept)
    elif front is not None:  # nothing trains; only the shape counts
        features = np.broadcast_to(np.float32(0.0), (rows[1].stop, *front.output_shape[1:]))
    training, validation = ((features[part], dataset.labels[part]) for part in rows)
    return run.train(
        make_source(*training, settings, backend, shard_size=dataset.shard_size),
        backend.place(validation),
        {
            **settings.saved,
            "data_dir": str(dataset.folder.resolve()),
            "data_id": dataset.manifest.id,
        },
    )


def _tell_network(model: "keras.Model", num_outputs: int, backend: Backend) -> None:
    log(f"network: {model.count_params():,} parameters, {num_outputs} outputs")
    if backend.world_size > 1:
        log(f"{backend.name}: {backend.sharing(backend.settings.global_batch_size)}")
    if not backend.uses_mesh and backend.options.mesh.num_devices > 1:
        log(
            f"note: mesh={backend.options.mesh} is for --backend=dtensor; {backend.name} does not use it"
        )


def curves_to_train(config: Settings | Config, num_train: int) -> int:
    """How many of a data set's `num_train` training curves train; InputError where the config wants more."""
    wanted: int = config.data.num_train or num_train
    if wanted > num_train:
        raise InputError(
            f"data.num_train={wanted} is more than the {num_train} training curves that there are; give fewer, or "
            "more curves"
        )
    return wanted


def _has_ended(workdir: str, backend: Backend) -> bool:
    """Whether the run was trained before, as rank 0 finds it."""
    ended = backend.rank == 0 and RunFolder(workdir).status().ended
    return bool(backend.collectives.broadcast(ended))


def _callbacks(settings: Settings, workdir: str, backend: Backend) -> list[Any]:
    """Keras callbacks of this rank. They begin once this process is sure to train."""
    from keras.callbacks import EarlyStopping, LambdaCallback, TensorBoard

    from tfmat.launch.machine import record_session

    callbacks: list[Any] = []
    if backend.rank == 0:
        folder = make_folder(workdir)
        callbacks = [
            TensorBoard(str(folder / "tensorboard"), write_graph=False),
            LambdaCallback(on_train_begin=lambda logs: record_session(folder)),
        ]
    if settings.callbacks.early_stopping_patience:
        callbacks.append(EarlyStopping(patience=settings.callbacks.early_stopping_patience))
    return callbacks


def sidecar(config: Settings | Config, dataset: PackedDataset) -> "NetworkFile":
    """The meaning of the network's inputs and outputs: `model.json`."""
    from tfmat.identification.networks import NetworkFile

    return NetworkFile(
        format={"none": 1, "gaussian": 2, "flow": 3}[config.model.uncertainty],
        law=config.law,
        parameters=dataset.parameters,
        curves=dataset.settings.to_json() if dataset.settings else None,
        num_points=int(dataset.features.shape[1]),
        input_scale=dataset.input_scale,
        uncertainty=config.model.uncertainty,
    )


def compiles_loss(config: Settings, backend: Backend) -> bool:
    """Whether XLA compiles the loss of a posterior: not on a mesh, on GPUs, or where it compiles the whole step."""
    import tensorflow as tf

    on_cpu = not tf.config.list_logical_devices("GPU")
    return on_cpu and backend.name != "dtensor" and not config.jit_compile


# --------------------------------------------------------------------------------------------------
# After a training: calibrated intervals, the accuracy, an example, a report; each left in the run's folder.


# Intervals are made true on so many curves: with 50,000 errors the place of a 95 % interval's end is known to 0.1 % of
# coverage; fewer than 200 say nothing of it.
_FEWEST_CURVES, _MOST_CURVES = 200, 50_000
# A spread is found of so many curves and draws of each: of 95 % coverage 5,000 curves know 0.3. Draws of the last
# spread tell the next one well where that is near.
_SPREAD_CURVES, _SPREAD_DRAWS, _MOST_ROUNDS, _NEAR = 5000, 200, 4, 0.05
# Test curves of the reference.
REFERENCE_CURVES = 2000
# Posteriors of a network that are taken wider tell little of its records.
_DOUBTFUL_SPREAD = 1.5
# Draws of the example's posterior, for its picture.
_EXAMPLE_SAMPLES = 1000


def calibrate_run(workdir: str, dataset: PackedDataset) -> None:
    """Makes the best model's intervals true on validation curves, once; on rank 0 and after the training."""
    from tfmat.identification.networks import Identifier, Spread, read_sidecar, write_calibration

    about = read_sidecar(workdir)
    known = about.spread if about.uncertainty == "flow" else about.calibration
    if known is None or known.num_curves:
        return
    identifier = Identifier.open(workdir)
    if (rows := calibration_rows(identifier, dataset)) is not None:
        know_fits(identifier, dataset, rows)
    calibration = calibrate(identifier, dataset)
    if calibration is None:
        log("too few validation curves to calibrate the network's intervals")
        return
    write_calibration(workdir, calibration)
    if isinstance(calibration, Spread):
        doubt = ""
        if calibration.value > _DOUBTFUL_SPREAD:
            doubt = (
                "; one that is so sure of what it does not know needs more curves, or more steps"
            )
        log(
            f"the network's posteriors are taken {calibration.value:.3f} times as wide, as {calibration.num_curves:,} "
            f"validation curves show{doubt}"
        )
        return
    log(f"the network's intervals are calibrated on {calibration.num_curves:,} validation curves")


def calibration_rows(identifier: "Identifier", dataset: PackedDataset) -> slice | None:
    """The last validation curves, of which `calibrate` asks the network; None where it has no use for them.

    They never train and, but for the choice of the best epoch on the first of them, are as good as new; the test curves
    stay untouched.
    """
    count = min(dataset.num_validation, _MOST_CURVES)
    if identifier.uncertainty == "none" or count < _FEWEST_CURVES:
        return None
    end = dataset.num_train + dataset.num_validation
    return slice(
        end - min(count, _SPREAD_CURVES if identifier.uncertainty == "flow" else count), end
    )


def calibrate(identifier: "Identifier", dataset: PackedDataset) -> "Calibration | Spread | None":
    """The calibration of the network's std, or the spread of its posteriors, on the last validation curves.

    Returns:
      None where the network has neither, or the validation curves are too few.
    """
    from tfmat.identification.networks import Calibration

    rows = calibration_rows(identifier, dataset)
    if rows is None:
        return None
    features, true_labels = dataset.features[rows], np.asarray(dataset.labels[rows], np.float64)
    if identifier.uncertainty == "flow":
        return _spread(identifier, features, true_labels)
    labels, std = identifier.predict_with_std(features)
    assert std is not None
    return Calibration.measured(true_labels, np.clip(labels, 0.0, 1.0), std)


def _spread(identifier: "Identifier", features: np.ndarray, true_labels: np.ndarray) -> "Spread":
    """The spread by which the network's joint regions hold these truths as often as they say."""
    shape = (len(features), _SPREAD_DRAWS, true_labels.shape[1])
    normal = np.random.default_rng(0).standard_normal(shape, np.float32)
    squares = np.square(normal).sum(axis=2, dtype=np.float64)
    true_square = np.sum(np.square(identifier.standardized(features, true_labels)), axis=1)
    before = identifier.spread
    for _ in range(_MOST_ROUNDS):
        now = identifier.spread
        densities = identifier.draws_of(features, normal).label_log_density
        assert densities is not None
        true_density = identifier.log_density(features, true_labels)
        identifier.spread = now.better(
            densities, np.asarray(now.value**2 * squares), true_density, true_square, shape[2]
        )
        if abs(identifier.spread.value / now.value - 1.0) < _NEAR:
            break
    found, identifier.spread = identifier.spread, before
    return found


def evaluate_run(
    workdir: str, data_dir: str | None = None, num_reference: int = REFERENCE_CURVES
) -> "Evaluation":
    """Evaluates a run's network with a bar, writes evaluation.json, and returns it.

    Args:
      data_dir: a data set with test curves; None: the run's own.
      num_reference: test curves of the reference, on which posteriors are compared with exact ones; 0: none.

    Raises:
      InputError: there is no network, or its test curves are none.
    """
    from tfmat.identification.evaluate import evaluate, find_test_data
    from tfmat.identification.networks import Identifier, read_sidecar
    from tfmat.report.run_files import write_evaluation

    # A run that is not there is named before TensorFlow is loaded.
    read_sidecar(workdir)
    # Blocks of curves are answered side by side.
    prepare_tensorflow(one_thread_an_operation=True, own_program=True)
    identifier = Identifier.open(workdir)
    dataset = PackedDataset.open(find_test_data(workdir, data_dir))
    know_fits(identifier, dataset)
    with progress_bar("evaluating", "curves") as progress:
        evaluation = evaluate(identifier, dataset, progress)
    if num_reference:
        evaluation = _with_reference(evaluation, identifier, dataset, num_reference)
    write_evaluation(workdir, evaluation.scores, evaluation.answers)
    return evaluation.scores


def _with_reference(
    evaluation: "Evaluated", identifier: "Identifier", dataset: PackedDataset, num_curves: int
) -> "Evaluated":
    """The evaluation with the reference, or, where there can be none, without it and with a word about why."""
    from tfmat.identification.evaluate import add_reference, compare_posteriors

    try:
        with progress_bar("working out the best possible accuracy", "curves") as progress:
            evaluation = add_reference(evaluation, identifier, dataset, num_curves, progress)
        if (posterior := evaluation.scores.posterior) is not None:
            with progress_bar("comparing with exact posteriors", "curves") as progress:
                posterior.exact = compare_posteriors(identifier, dataset, num_curves, progress)
    except InputError as error:
        print(printable(error), file=sys.stderr)
    return evaluation


def evaluation_of(workdir: str) -> "Evaluation":
    """The content of evaluation.json of a run that is done; where there is none yet, the run is calibrated and
    evaluated.

    Raises:
      InputError: its data set is not there any more, or holds no test curves.
    """
    file = pathlib.Path(workdir) / "evaluation.json"
    if not file.exists():
        from tfmat.identification.evaluate import find_test_data

        dataset = PackedDataset.open(find_test_data(workdir), verify=False)
        prepare_tensorflow(own_program=True)
        calibrate_run(workdir, dataset)
        return _evaluate(workdir, dataset)
    from tfmat.report.run_files import read_evaluation

    return read_evaluation(file)


def _evaluate(workdir: str, dataset: PackedDataset) -> "Evaluation":
    """Writes evaluation.json, with the reference where there is one that is quick, and returns it."""
    from tfmat.identification.evaluate import add_reference, evaluate, reference_is_quick
    from tfmat.identification.networks import Identifier
    from tfmat.report.run_files import write_evaluation

    identifier = Identifier.open(workdir)
    know_fits(identifier, dataset)
    evaluation = evaluate(identifier, dataset)
    if reference_is_quick(dataset):
        with contextlib.suppress(InputError):  # there can be none, as the report says
            evaluation = add_reference(evaluation, identifier, dataset, REFERENCE_CURVES)
    write_evaluation(workdir, evaluation.scores, evaluation.answers)
    return evaluation.scores


def identify_example(workdir: str, settings: CurveSettings | None) -> None:
    """Identifies an example of the law, a curve or tests; leaves its picture and its answer in the run's folder."""
    if settings is None:
        return
    from tfmat.identification.answer import identify
    from tfmat.identification.networks import Identifier
    from tfmat.report.run_files import write_example_picture, write_example_posterior
    from tfmat.report.tables import identification_table

    try:
        path, measured = _example(workdir, settings)
        identifier = Identifier.open(workdir)
        samples = _EXAMPLE_SAMPLES if identifier.uncertainty == "flow" else 0
        results = identify(identifier, measured, samples=samples)
    except InputError as error:
        if not settings.programmes():
            raise
        # A user's own law or test may simulate what no reader takes for one; the network is trained all the same.
        log(f"no example was identified: {error}")
        return
    content = [result.entry() for result in results]
    write_json(pathlib.Path(workdir) / "example.json", content)
    write_example_picture(workdir, results[0].picture())
    if (posterior := results[0].posterior_picture()) is not None:
        write_example_posterior(workdir, posterior)
    open_console().print(identification_table(content))
    what = "tests are" if settings.programmes() else "curve is"
    log(f"the example {what} simulated: {path}")
    log(f"identify your own as this one: tfmat identify {path} --workdir={workdir}")


def _example(
    workdir: str, settings: CurveSettings
) -> "tuple[pathlib.Path, Sequence[MeasuredRecord]]":
    """The law's example, where it lies and what is read of it."""
    from tfmat.identification.networks import read_sidecar

    law = settings.build_law()
    if settings.programmes():
        path = write_example_tests(settings, pathlib.Path(workdir) / "example_tests")
    else:
        own_ranges = law.parameters == type(law).parameters
        path = (example_curve(law.name) if own_ranges else None) or write_example_curve(
            law, pathlib.Path(workdir) / "example_curve.csv"
        )
    measured, errors = load_records(find_records([str(path)], law), read_sidecar(workdir).target)
    if errors:
        raise InputError(str(errors[0]))
    return path, measured


# --------------------------------------------------------------------------------------------------
# The main job: curves -> network -> accuracy -> the parameters of an example curve.
#
# It is read from the config and checked before anything is made: here, or for another machine.


_FLOAT = 4  # bytes
# Weights, gradients and one slot of the optimizer; a mesh may divide all but the weights.
_COPIES = 3
# Numbers, and residuals of a fit, that layers of `tfmat.networks.law_fit` make of each test.
_SPECTRUM_NUMBERS, _RESIDUALS = 100, 32


@dataclasses.dataclass(frozen=True)
class Job:
    """The main job, read and checked before anything is made.

    Attributes:
      dataset: where `--data_dir` is one.
      data: the data set's folder.
    """

    settings: Settings
    curves: CurveSettings
    dataset: PackedDataset | None
    data: pathlib.Path

    @property
    def num_outputs(self) -> int:
        """Parameters that the network identifies."""
        dataset = self.dataset
        return len(dataset.parameters if dataset else self.curves.build_law().identified)

    @property
    def form(self) -> RecordForm:
        """The meaning of the points and channels of a record."""
        return self.dataset.form if self.dataset else RecordForm.of(self.curves)

    def build_network(self) -> "keras.Model":
        """The network that is to be trained, with its scales left out."""
        from tfmat.networks.factory import build_model

        model = self.settings.model
        return build_model(model, num_outputs=self.num_outputs, **self.form.network())

    @property
    def num_weights(self) -> int:
        """Trainable numbers of the network, see `count_parameters`; a variance head's too."""
        outputs = self.num_outputs * (2 if self.settings.model.uncertainty == "gaussian" else 1)
        return count_parameters(self.settings, num_outputs=outputs, form=self.form)


def plan_job(
    config: Config,
    *,
    workdir: str,
    data_dir: str,
    backend: str,
    processes: "Processes | None" = None,
) -> Job:
    """Reads everything once, and refuses what can be refused before anything is made, and without TensorFlow.

    Args:
      config, workdir, data_dir, backend: see `main_job`.
      processes: of a job on another machine; by default those that the launcher started here.
    """
    check_backend(backend)
    settings, processes = Settings.of(config), processes or find_processes()
    check_config_for(backend, settings, processes)
    if settings.model.uncertainty == "flow" and settings.loss_weights is not None:
        raise InputError(
            "loss_weights weigh squared errors, and model.uncertainty=flow has none; leave them out"
        )
    _check_processes(backend, settings, processes)
    curves = curve_settings(config)
    curves.build_law()
    dataset, folder = named_dataset(config, data_dir), pathlib.Path(data_dir)
    if dataset:
        settings = Settings.of(config)  # which says now what the data set is
    else:
        folder = dataset_folder(data_dir, curves, **seed_and_counts(config))
    job = Job(settings, curves, dataset, folder)
    _check_representation(settings, job.form, dataset)
    check_training_fits(settings, num_outputs=job.num_outputs, form=job.form, backend=backend)
    num_curves = settings.data.num_curves
    num_train = dataset.num_train if dataset else num_curves - num_curves // 4
    _check_lengths(settings, curves_to_train(settings, num_train))
    # The data set's identity tells an edited law file, and another set of imported curves, apart.
    identity = dataset.manifest.id if dataset else folder.name.rpartition("-")[2]
    RunFolder(workdir).check_config({**config.to_dict(), "data_id": identity})
    return job


def _check_processes(backend: str, settings: Settings, processes: Processes) -> None:
    if backend == "single" and processes.size > 1:
        raise InputError(
            f"{processes.launcher} started {processes.size} processes, but --backend=single is for one: each would "
            "train for itself in the same folder; use --backend=horovod or mpi, or --backend=dtensor with a mesh"
        )
    if backend == "dtensor":
        settings.parallel.mesh.devices_per_process(processes.size)


def _check_representation(
    config: Settings, form: RecordForm, dataset: PackedDataset | None
) -> None:
    representation, channels = config.model.representation, form.channels[3:]
    if representation == "fit" and dataset and not dataset.settings:
        raise InputError(
            "model.representation=fit needs the law that made the records, and imported curves name none; give "
            "--config.model.representation=points"
        )
    if representation in ("points", "fit"):
        return
    if channels or any(programme.drives == "stress" for programme in form.programmes):
        what = f"records that tell {' and '.join(channels)}" if channels else "driven stress"
        raise InputError(
            f"model.representation={representation} is for tests that drive the strain, not for {what}; "
            "give --config.model.representation=points"
        )


def _check_lengths(settings: Settings, num_train: int) -> None:
    """Refuses, before anything is made, what cannot be trained."""
    if settings.global_batch_size > num_train:
        raise InputError(
            f"global_batch_size is {settings.global_batch_size}, but data.num_curves={settings.data.num_curves} leaves "
            f"{num_train} for training; use a smaller batch or more curves"
        )
    duration, epochs = settings.train_for, settings.epochs(num_train)
    if not (duration.value if duration.seconds is not None else epochs.steps(duration)):
        raise InputError(f"train_for is '{duration}', less than one step; give more")


def check_training_fits(
    settings: Settings, *, num_outputs: int, form: RecordForm, backend: str = "single"
) -> None:
    """InputError where the network, or one batch, is larger than the machine's memory."""
    parameters = count_parameters(settings, num_outputs=num_outputs, form=form)
    copies = 1.0 if backend == "dtensor" else _COPIES - (settings.parallel.offload == "slots")
    # Each process makes the whole network once, before it keeps its stage.
    copies = 1 + (copies - 1) / settings.parallel.mesh.size("stage")
    check_memory(
        f"a network of {parameters:,} parameters (model.hidden_units={_words(settings.model.hidden_units)}, "
        f"model.conv_filters={_words(settings.model.conv_filters)}, {form.num_points} points)",
        int(copies * _FLOAT * parameters),
        "take a smaller one",
    )
    batch = settings.global_batch_size
    if backend == "single":
        check_memory(
            f"a batch of {batch:,} curves of {form.num_points:,} points",
            batch * math.prod(form.shape) * _FLOAT,
            "take a smaller global_batch_size, or fewer points",
        )


def count_parameters(config: Settings | Config, *, num_outputs: int, form: RecordForm) -> int:
    """The trainable numbers of `tfmat.networks.build_model`'s network, but for normalisation and uncertainty."""
    model, points, inputs, count = config.model, form.points, len(form.channels), 0
    for filters, kernel in zip(model.conv_filters, model.kernel_sizes, strict=True):
        count += (kernel * inputs + 1) * filters
        points, inputs = points // model.pool_size, filters
    inputs *= points
    if model.representation == "plastic_spectrum":
        count, inputs = 0, _SPECTRUM_NUMBERS
    if model.representation == "fit":
        count, inputs = 0, num_outputs * (num_outputs + 3) // 2 + 3
        inputs += _RESIDUALS * form.num_tests * form.more_than_noise
    elif form.num_tests > 1:  # the tests' own dense layer, which sees their tokens too
        count += (inputs + form.modes.shape[1] + 1) * model.hidden_units[0]
        inputs = model.hidden_units[0]
    for units in (*model.hidden_units, num_outputs):
        count += (inputs + 1) * units
        inputs = units
    return count


def _words(values: tuple[int, ...]) -> str:
    return ",".join(map(str, values)) or "none"


def main_job(
    config: Config, *, workdir: str, data_dir: str, backend: str = "single", report: bool = True
) -> None:
    """Makes the data set if it is not there, trains, evaluates, identifies an example; goes on where it was stopped.

    Args:
      data_dir: folder of data sets, or one data set, whose settings then replace those of the config.
      backend: how steps run. With several processes each of them calls this; rank 0 alone writes.
      report: whether the network is measured on the test curves, an example identified, and a report written.

    Raises:
      InputError, DivergedError, Interrupted.
    """
    processes = find_processes()
    if processes.rank == 0 and (bound := told_of_binding(processes)):
        log(f"note: {bound}")
    job = plan_job(config, workdir=workdir, data_dir=data_dir, backend=backend, processes=processes)
    dataset = job.dataset
    if processes.size == 1 and backend != "dtensor":  # it needs no TensorFlow for this
        dataset = dataset or make_dataset(job.settings, job.curves, data_dir)
    _prepare_tensorflow(job.settings, backend, processes, workdir)
    with make_backend(backend, job.settings, processes=processes, folder=workdir) as workers:
        # Before anything is simulated.
        workers.check_network(job.build_network)
        dataset = dataset or _dataset_for_all(job, data_dir, workers)
        train(dataset, workdir=workdir, backend=workers)
    if workers.rank != 0:
        return
    calibrate_run(workdir, dataset)
    if not report:
        return
    # Only now: they take half a second to load, for which a run that is refused would wait too.
    from tfmat.report.pages import write_training_report
    from tfmat.report.tables import evaluation_tables

    for table in evaluation_tables(_evaluate(workdir, dataset)):
        open_console().print(table)
    identify_example(workdir, dataset.settings)
    log(f"report: {write_training_report(workdir)}")


def _prepare_tensorflow(
    settings: Settings, backend: str, processes: Processes, workdir: str
) -> None:
    from tfmat.launch.machine import recorded_onednn

    options, on_mesh, several = settings.parallel, backend == "dtensor", processes.size > 1
    prepare_tensorflow(
        one_thread_an_operation=goes_in_pieces(settings.model),
        processors=processors_per_rank(processes) if several else None,
        waiting=int(backend == "mpi" and several and options.overlap_meetings),
        gpu=processes.local_rank if several and not on_mesh else None,
        virtual_devices=options.mesh.devices_per_process(processes.size) if on_mesh else 1,
        start=not (several and on_mesh),
        own_program=True,
        onednn=recorded_onednn(workdir),
    )


def _dataset_for_all(job: Job, data_dir: str, workers: Backend) -> PackedDataset:
    """The data set, made by rank 0 while the others wait, and then mapped by each: a node holds it in memory once."""
    if workers.rank == 0:
        workers.collectives.announce("simulating curves", 0)
        dataset = make_dataset(job.settings, job.curves, data_dir)
        workers.collectives.announce("starting", 0)
        workers.collectives.broadcast(str(dataset.folder))
        return dataset
    workers.collectives.announce("starting", 0)
    folder = workers.collectives.broadcast(None)
    try:
        # Once a node is enough; rank 0 has read it too.
        return PackedDataset.open(folder, verify=workers.processes.local_rank == 0)
    except InputError as error:
        raise InputError(
            f"rank {workers.rank}: {error}; every node must see the data set"
        ) from error
