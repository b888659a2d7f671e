"""Networks that answer: what `model.json` says of `model.keras`, how sure answers are, and records -> labels -> values.

TensorFlow is loaded where a network is opened, and not before."""

import contextlib
import dataclasses
import hashlib
import itertools
import os
import pathlib
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import scipy
from msgspec import Meta, Struct, ValidationError, convert

from tfmat.errors import InputError
from tfmat.files import read_json, write_json
from tfmat.identification.posterior import (
    Posterior,
    even_normal,
    independent_normal,
    with_wider_half,
)
from tfmat.identification.results import COVERAGE
from tfmat.launch.processes import all_in_processes, in_threads
from tfmat.materials.law import PRIOR_VARIANCE, Array, Law, Parameter
from tfmat.materials.registry import DEFAULT_LAW, file_digest, is_file, law_class
from tfmat.records.record import CurveTarget
from tfmat.records.simulation import CurveSettings, RecordForm

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from tfmat.networks.law_fit import LawFit

# --------------------------------------------------------------------------------------------------
# The network's own error bars, made true on curves that it did not learn from. NumPy only.
#
# Split conformal prediction on standardised errors: V. Vovk, A. Gammerman, G. Shafer, Algorithmic Learning in a
# Random World (2005), ch. 2; J. Lei et al., Distribution-free predictive inference for regression, J. American
# Statistical Association 113 (2018) 1094-1111, section 5.2. Quantiles of both signs, so that an interval need not be
# symmetric.


# A label is known to lie between 0 and 1, whatever the network expects.
_MOST_STD = float(np.sqrt(PRIOR_VARIANCE))
# A spread is looked for among so many from this part of one to so many times it: half a per cent from each other.
_STEP, _VALUES = 1.2, 73
# The least coverage of regions of 95 %, and standard errors below which holding too many is chance.
_LEAST_COVERAGE, _CHANCE = 0.94, 3.0
# Cumulative probabilities of the stored quantiles.
_PROBABILITIES = np.arange(1, 200) / 200


@dataclasses.dataclass(frozen=True)
class Calibration:
    """How standardised errors z = (label - network's label) / network's std are distributed; p parameters.

    Attributes:
      num_curves: that they were measured on; 0: not measured, Gaussian.
      probabilities: [k], rising.
      quantiles: [p, k], of z.
      z_std: [p], root mean square of z.
    """

    num_curves: int
    probabilities: Array
    quantiles: Array
    z_std: Array

    @classmethod
    def gaussian(cls, num_parameters: int) -> "Calibration":
        """The network taken at its word."""
        quantiles = np.tile(scipy.special.ndtri(_PROBABILITIES), (num_parameters, 1))
        return cls(0, _PROBABILITIES, quantiles, np.ones(num_parameters))

    @classmethod
    def measured(cls, true_labels: Array, labels: Array, std: Array) -> "Calibration":
        """The calibration that curves show which the network did not learn from.

        Args:
          true_labels, labels, std: [curves, p]; the network's labels cut to 0-1, its std as it gives them.
        """
        z = (true_labels - labels) / bounded(std)
        quantiles = np.quantile(z, _PROBABILITIES, axis=0).T
        return cls(len(z), _PROBABILITIES, quantiles, np.sqrt(np.mean(z**2, axis=0)))

    def std(self, std: Array) -> Array:
        """Calibrated standard deviations on the labels' scale; same shape [curves, p] as the network's `std`."""
        return np.minimum(bounded(std) * self.z_std, _MOST_STD)

    def interval(self, labels: Array, std: Array, coverage: float = COVERAGE) -> Array:
        """Limits between which the true label lies with this probability, cut to 0-1: [curves, p, 2].

        Args:
          labels, std: [curves, p], what the network says.
        """
        limits = [
            [np.interp(p, self.probabilities, row) for row in self.quantiles]
            for p in (0.5 - coverage / 2, 0.5 + coverage / 2)
        ]
        ends = [labels + bounded(std) * np.array(limit) for limit in limits]
        return np.clip(np.stack(ends, axis=2), 0.0, 1.0)

    def stored(self, names: Sequence[str]) -> "StoredCalibration":
        """As model.json has it."""
        errors = {
            name: _Errors(float(self.z_std[i]), np.round(self.quantiles[i], 5).tolist())
            for i, name in enumerate(names)
        }
        return StoredCalibration(self.num_curves, np.round(self.probabilities, 6).tolist(), errors)


class _Errors(Struct):
    """The errors of one parameter; see `Calibration`."""

    z_std: Annotated[float, Meta(gt=0)]
    quantiles: list[float]


class StoredCalibration(Struct):
    """The entry `calibration` of model.json."""

    num_curves: int
    probabilities: list[float]
    parameters: dict[str, _Errors]

    def of(self, names: Sequence[str]) -> Calibration:
        """The calibration of these parameters; KeyError or ValueError where it does not fit them."""
        errors = [self.parameters[name] for name in names]
        if any(len(each.quantiles) != len(self.probabilities) for each in errors):
            raise ValueError("quantiles do not fit")
        return Calibration(
            self.num_curves,
            np.array(self.probabilities),
            np.array([each.quantiles for each in errors]),
            np.array([each.z_std for each in errors]),
        )


@dataclasses.dataclass(frozen=True)
class Spread:
    """How much wider the posteriors of a network are that it says too narrow, on curves that it did not learn from.

    A posterior head makes of the labels numbers z that are standard normal where it is right. A network that begins to
    know its records by heart is too sure of others; one factor for all z, as the temperature of a classifier, mends
    that on average: C. Guo et al., On calibration of modern neural networks, ICML 2017, arXiv:1706.04599.

    Attributes:
      num_curves: that it was measured on; 0: not measured, the network taken at its word.
      value: standard deviation of the normal distribution that draws are made of.
    """

    num_curves: int
    value: Annotated[float, Meta(gt=0)]

    def better(
        self,
        densities: Array,
        squares: Array,
        true_density: Array,
        true_square: Array,
        num_labels: int,
    ) -> "Spread":
        """The spread, near this one, by which joint regions of highest density hold as many truths as they say.

        They do on average over all regions, from 0 to 100 %, and regions of 95 % hold 94 at the least, as nearly as any
        spread makes them. It makes posteriors narrower only where they hold more truths than chance would have it.
        Draws of this spread stand for draws of another, weighed by the ratio of both densities.

        Args:
          densities: [curves, draws], logarithms of this spread's density at its draws.
          squares: [curves, draws], sums of the squares of the draws' z.
          true_density, true_square: [curves], the same of the true labels.
          num_labels: how many numbers z there are.
        """

        def regions(value: float) -> Array:
            """The smallest region that holds each truth, by its probability: even from 0 to 1 where all is right."""
            more = -0.5 * (value**-2 - self.value**-2)
            weights = np.exp(more * squares - num_labels * np.log(value / self.value))
            denser = densities + more * squares > (true_density + more * true_square)[:, None]
            return np.asarray(np.sum(weights * denser, axis=1) / np.sum(weights, axis=1))

        # A network that has hardly learnt anything is never right on average; the nearest to that is taken.
        values = self.value * np.geomspace(1.0 / _STEP, _STEP, _VALUES)
        needed = np.stack([regions(value) for value in values])
        misses = np.maximum(_LEAST_COVERAGE - np.mean(needed <= COVERAGE, axis=1), 0.0)
        off = np.abs(needed.mean(axis=1) - 0.5)
        value, count = float(values[np.lexsort((off, misses))[0]]), len(true_density)
        if value < 1.0 and regions(1.0).mean() >= 0.5 - _CHANCE * np.sqrt(1.0 / 12.0 / count):
            value = 1.0
        return Spread(count, round(value, 4))


def bounded(std: Array) -> Array:
    """The network's standard deviations, none larger than for a label of which nothing is known."""
    return np.minimum(std, _MOST_STD)


def in_units(
    parameters: Sequence[Parameter], labels: Array, std: Array, interval: Array
) -> tuple[Array, Array]:
    """Calibrated std [curves, p] and interval [curves, p, 2] of labels [curves, p] in the parameters' units.

    The std to first order; the ends of the interval exactly, so that it is not symmetric on a logarithmic scale.
    """
    values, limits = np.empty_like(std), np.empty_like(interval)
    for i, parameter in enumerate(parameters):
        values[:, i] = std[:, i] * parameter.slope(parameter.from_unit_interval(labels[:, i]))
        limits[:, i] = parameter.from_unit_interval(interval[:, i])
    return values, limits


# --------------------------------------------------------------------------------------------------
# Networks on disk: what `model.json` says of `model.keras`, and which network answers.


# 2 says of the uncertainty too, 3 of a whole posterior; what has none is still written as 1.
FORMATS = (1, 2, 3)
DEFAULT_WORKDIR = "runs/quickstart"
_FOLDER = pathlib.Path(__file__).resolve().parents[1] / "pretrained"
# In a law's folder there: the network that answers where samples of a posterior are asked for.
_POSTERIOR = "posterior"


class NetworkFile(Struct, kw_only=True, omit_defaults=True):
    """The stored `model.json`.

    Attributes:
      parameters: the identified ones, in the order of the model's outputs.
      curves: the settings of the simulation as `CurveSettings.to_json` gives them; None for a user's own curves.
      num_points, input_scale: of the model's input.
      calibration, spread: added when the training is over.
    """

    format: int
    law: str | None = None
    parameters: tuple[Parameter, ...]
    curves: dict[str, Any] | None
    num_points: int
    input_scale: tuple[float, ...] = ()
    uncertainty: str = "none"
    calibration: StoredCalibration | None = None
    spread: Spread = Spread(0, 1.0)


@dataclasses.dataclass(frozen=True)
class Sidecar:
    """The meaning of a model's inputs and outputs, or of a law's alone (see `law_alone`).

    Attributes:
      file: where it was read; None where there is no model.
      parameters: the identified ones, in the order of the model's outputs.
      settings: the simulation that the model was trained on, or None for a user's own labelled curves.
      law: its law, or None where no law is known (then nothing can be re-simulated).
      target: the form of the measured curves that the model takes; of one test where its records have several.
      calibration: of the standard deviations that the model answers beside the labels, or None where it answers none.
      uncertainty: the model's head: `none`, `gaussian` or `flow`.
      spread: of the posteriors of a `flow`.
    """

    file: pathlib.Path | None
    parameters: tuple[Parameter, ...]
    settings: CurveSettings | None
    law: Law | None
    target: CurveTarget
    calibration: Calibration | None = None
    uncertainty: str = "none"
    spread: Spread = Spread(0, 1.0)

    @property
    def form(self) -> RecordForm:
        """The meaning of the points and channels of the model's records."""
        return RecordForm.of(self.settings) if self.settings else RecordForm(self.target.num_points)


def law_alone(law: str) -> Sidecar:
    """The sidecar of a law alone, for least squares without a network: by name or `path/to/file.py:ClassName`.

    Its curves may end at any strain; otherwise the law's own defaults hold.
    """
    settings = CurveSettings(law=law)
    built = settings.build_law()
    target = dataclasses.replace(CurveTarget.of(settings, built), max_strain=None)
    return Sidecar(None, built.identified, settings, built, target)


def model_files(workdir: str | os.PathLike) -> tuple[pathlib.Path, pathlib.Path]:
    """The model of a run and its sidecar; raises InputError where one is missing."""
    workdir = pathlib.Path(workdir)
    files = workdir / "model.keras", workdir / "model.json"
    for file in files:
        if not file.is_file():
            raise InputError(
                f"{workdir} holds no trained model ({file.name} is missing); "
                f"train one with: tfmat train --workdir={workdir}"
            )
    return files


def read_sidecar(workdir: str | os.PathLike) -> Sidecar:
    """Reads the sidecar of a run's best model; raises InputError where there is none or it is damaged."""
    file = model_files(workdir)[1]
    content: Any = read_json(file)
    try:
        if content["format"] not in FORMATS:
            raise InputError(
                f"{file} has format {content['format']}; this tfmat reads formats up to {FORMATS[-1]}"
            )
        found = convert(content, NetworkFile)
        parameters, num_points, curves = found.parameters, found.num_points, found.curves
        settings = CurveSettings.from_json(curves, file.parent) if curves else None
        calibration = _calibration(found)
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, ValidationError) as error:
        raise InputError(
            f"{file} is damaged ({type(error).__name__}: {error}); train again"
        ) from error
    law = settings.build_law() if settings else None
    target = CurveTarget.of(settings, law) if settings and law else CurveTarget(num_points)
    expected = RecordForm.of(settings).num_points if settings else num_points
    if expected != num_points:
        raise InputError(
            f"{file} is damaged: {num_points} points, but its curves have {expected}; train again"
        )
    if law and [p.name for p in law.identified] != [p.name for p in parameters]:
        raise InputError(f"{file}: its parameters are not those of law {law.name}; train again")
    return Sidecar(
        file, parameters, settings, law, target, calibration, found.uncertainty, found.spread
    )


def write_calibration(workdir: str | os.PathLike, found: Calibration | Spread) -> None:
    """Adds the calibration of a run's best model to its sidecar."""
    file = model_files(workdir)[1]
    names = [parameter.name for parameter in read_sidecar(workdir).parameters]
    content: Any = read_json(file)
    added: Any = (
        {"spread": found} if isinstance(found, Spread) else {"calibration": found.stored(names)}
    )
    write_json(file, {**content, **added})


def _calibration(found: NetworkFile) -> Calibration | None:
    if found.uncertainty != "gaussian":
        return None
    names = [parameter.name for parameter in found.parameters]
    # None where the training is not over.
    return found.calibration.of(names) if found.calibration else Calibration.gaussian(len(names))


def pretrained_laws() -> list[str]:
    """Laws that a network comes with."""
    return sorted(file.parent.name for file in _FOLDER.glob("*/model.keras"))


def name_of(folder: pathlib.Path) -> str:
    """The name for users of the network in a folder, which is a run's or comes with tfmat."""
    if not folder.is_relative_to(_FOLDER):
        return str(folder)
    return f"{' '.join(folder.relative_to(_FOLDER).parts)} that comes with tfmat"


def find_network(
    workdir: str | os.PathLike | None, law: str | None = None, *, posterior: bool = False
) -> pathlib.Path | None:
    """The folder of the network that answers; None where there is none for the law, so that least squares answers.

    Args:
      workdir: a run's folder. None: runs/quickstart, where that holds a network of the law that is asked for;
        otherwise the network for the law that comes with tfmat.
      law: of the network, by name or `path/to/file.py:ClassName`; None: any, hahn_tsai of those that come with tfmat.
      posterior: whether samples are asked for: of two networks that come with tfmat the one with a whole posterior
        answers then. The other one is quicker.

    Raises:
      InputError: no network in `workdir`, or one of another law.
    """
    name = None if law is None else law_class(law).name
    if workdir is not None:
        folder = pathlib.Path(workdir)
        of = read_sidecar(folder).law
        found = of.name if of else None
        if name not in (None, found):
            raise InputError(
                f"the network in {workdir} is of law {found}, not {name}; name another run's folder (workdir)"
            )
        if law is not None and not _is_of(folder, law):
            raise InputError(
                f"the network in {workdir} is of a law {found} in another file than {law}; leave the law out, or name "
                "another run's folder (workdir)"
            )
        return folder
    folder = pathlib.Path(DEFAULT_WORKDIR)
    if (folder / "model.keras").is_file() and (law is None or _is_of(folder, law)):
        return folder
    name = name or DEFAULT_LAW
    if name not in pretrained_laws():
        return None
    folder = _FOLDER / name / _POSTERIOR
    return folder if posterior and folder.is_dir() else folder.parent


def source_of(
    law: str | None,
    workdir: str | os.PathLike | None = None,
    *,
    least_squares: bool = True,
    samples: bool = False,
    details: bool = False,
) -> tuple[Sidecar, pathlib.Path | None]:
    """The description of what answers, and the folder of the network that has a part in it; None: least squares alone.

    A network that has a part loads TensorFlow. It has one where there is no least squares or no law, and where the law
    itself errs (see `recommended_method`). So it has where samples start from its posterior, or somebody asks for it.

    Args:
      law: by name or file; None: that of the network in `workdir`.
      workdir: as of `find_network`; least_squares, samples: whether these are asked for.
      details: whether the network's answer is to stand beside that of least squares.
    """
    folder = find_network(workdir, law, posterior=samples)
    if folder is None:
        return law_alone(str(law)), None
    sidecar = read_sidecar(folder)
    has_a_part = (
        workdir is not None
        or details
        or not least_squares
        or sidecar.law is None
        or bool(sidecar.law.own_error)
        or (samples and sidecar.uncertainty != "none")
    )
    return sidecar, folder if has_a_part else None


def check_samples(
    samples: int,
    uncertainty: str,
    fixed: Collection[str] = (),
    *,
    is_sampled: bool = False,
) -> None:
    """InputError where there is no posterior to draw from.

    Args:
      samples: that are asked for.
      uncertainty: the network's head, `none` where there is no network.
      fixed: parameters that are given, about which no network was asked.
      is_sampled: whether a law's likelihood is sampled about the fit of least squares where no network answers.
    """
    if samples < 1:
        raise InputError(f"samples is {samples}; give 1 or more")
    if (fixed or uncertainty == "none") and not is_sampled:
        raise InputError(
            "samples need least squares of a known law, corrected (leave --noleast_squares and --nocorrect out), or a "
            "network that says how sure it is and knows all parameters; train one with model.uncertainty=flow"
        )


def _is_of(folder: pathlib.Path, law: str) -> bool:
    """Whether the network in `folder` is of the law that `law` names; files of one name may hold different laws."""
    settings = read_sidecar(folder).settings
    if settings is None or law_class(law).name != law_class(settings.law).name:
        return False
    return not is_file(law) or file_digest(law) == file_digest(settings.law)


# --------------------------------------------------------------------------------------------------
# The outputs of a network around the law's fits: each record is fitted once, many of them by all processors.


# Records of one task of a fork: short NumPy calls pay for many at once, and all processors have some.
_TOGETHER = 128
# Records whose outputs are kept.
_MOST_KEPT = 65_536


class AroundFits:
    """Records -> outputs; means, draws and densities ask for the same ones.

    Args:
      model: whose first layer is `fit`.

    Attributes:
      fit: the layer.
    """

    def __init__(self, model: "keras.Model", fit: "LawFit"):
        import keras
        import tensorflow as tf

        self.fit = fit
        behind = keras.Model(fit.output, model.outputs[0])
        self._behind = tf.function(
            lambda fits: behind(fits, training=False),
            input_signature=[tf.TensorSpec(fit.output.shape, tf.float32)],
            autograph=False,
        )
        self._columns = behind.output_shape[-1]
        self._kept: dict[bytes, Array] = {}

    @classmethod
    def of(cls, model: "keras.Model") -> "AroundFits | None":
        """The outputs of a model around fits; None where a model sees its records in another way."""
        from tfmat.networks.law_fit import LawFit

        fits = [each for each in model.layers if isinstance(each, LawFit)]
        return cls(model, fits[0]) if fits else None

    def outputs(self, features: np.ndarray) -> Array:
        """Answers records [records, points, channels] with [records, columns]; fits those that are not known yet."""
        keys = _digests(features)
        found = {key: self._kept[key] for key in keys if key in self._kept}
        if missing := [place for place, key in enumerate(keys) if key not in found]:
            fits = self._fitted(features[missing])
            found |= self._keep([keys[place] for place in missing], fits)
        return np.array([found[key] for key in keys]).reshape(len(keys), self._columns)

    def know(self, features: np.ndarray, fits: np.ndarray) -> None:
        """Takes what the layer says of these records, [records, numbers], whose outputs are asked for later."""
        self._keep(_digests(features), fits)

    @contextlib.contextmanager
    def afresh(self) -> Iterator[None]:
        """Within it all records are fitted, also those that are known already."""
        kept, self._kept = self._kept, {}
        try:
            yield
        finally:
            self._kept = kept

    def _fitted(self, features: np.ndarray) -> np.ndarray:
        # NumPy fits, and holds the interpreter: threads would wait for each other.
        starts = range(0, len(features), _TOGETHER)
        blocks = [np.asarray(features[i : i + _TOGETHER], np.float32) for i in starts]
        given = [(block, self.fit.graph_of_spectra(block).numpy()) for block in blocks]
        if (
            len(given) == 1
        ):  # at once: for a few records processes would take longer to prepare than to fit
            return self.fit.fits(*given[0]).astype(np.float32)
        found = all_in_processes(lambda one: self.fit.fits(*one), given, len(given))
        return np.concatenate(found).astype(np.float32)

    def _keep(self, keys: list[bytes], fits: np.ndarray) -> dict[bytes, Array]:
        new = dict(zip(keys, self._behind(fits).numpy(), strict=True))
        self._kept.update(new)
        too_many = max(0, len(self._kept) - _MOST_KEPT)
        for oldest in list(itertools.islice(self._kept, too_many)):
            del self._kept[oldest]
        return new


def _digests(features: np.ndarray) -> list[bytes]:
    """A number for each of the records."""
    records = np.ascontiguousarray(features, np.float32)
    return [hashlib.blake2b(each.data, digest_size=16).digest() for each in records]


# --------------------------------------------------------------------------------------------------
# A trained network that answers: curves -> labels -> values.


# A thread's share of a call: what a block's operations leave for each other stays in the processor's cache.
_BLOCK = 1024
# Draws of each curve, for the mean, std and intervals of a whole posterior; the same ones for every curve.
_EVEN_DRAWS = 512
# Drawn in one call: small enough for a processor's cache.
_DRAWS_PER_CALL = 16_384


class Identifier:
    """A network that turns curves into parameters.

    Attributes:
      around_fits: the network's outputs where it answers around the law's fits; None in others.
      parameters, settings, law, target, form, calibration, uncertainty, spread: see `Sidecar`.
    """

    calibration: Calibration | None = None

    def __init__(self, model: "keras.Model", sidecar: Sidecar):
        """Raises InputError where the model's shapes are not those that its sidecar describes."""
        import tensorflow as tf

        from tfmat.networks.flow import POSTERIOR

        self.parameters: tuple[Parameter, ...] = sidecar.parameters
        self.settings: CurveSettings | None = sidecar.settings
        self.law: Law | None = sidecar.law
        self.target: CurveTarget = sidecar.target
        self.form: RecordForm = sidecar.form
        self.calibration = sidecar.calibration
        self.uncertainty = sidecar.uncertainty
        self.spread = sidecar.spread
        self._columns = len(self.parameters) * (1 if sidecar.calibration is None else 2)
        if self.uncertainty == "flow":
            flows = [each for each in model.layers if each.name == POSTERIOR]
            if [getattr(each, "num_labels", 0) for each in flows] != [len(self.parameters)]:
                raise InputError(
                    f"the model has no posterior of {len(self.parameters)} parameters, which {sidecar.file} describes; "
                    "train again"
                )
            self._flow: Any = flows[0]
            self._columns = self._flow.columns
            self._draw = tf.function(
                self._drawn,
                input_signature=[
                    tf.TensorSpec([None, self._columns], tf.float32),
                    tf.TensorSpec([None, None, len(self.parameters)], tf.float32),
                    tf.TensorSpec([], tf.float32),
                ],
                autograph=False,
            )
        expected = ((None, *self.form.shape), (None, self._columns))
        found = (model.input_shape, model.output_shape)
        if found != expected:
            raise InputError(
                f"the model maps {found[0]} to {found[1]}, but {sidecar.file} describes "
                f"{expected[0]} to {expected[1]}; train again"
            )
        self.around_fits = AroundFits.of(model)
        # One traced function for any number of curves; a direct call would run op by op.
        self._predict = tf.function(
            lambda features: model(features, training=False),
            input_signature=[tf.TensorSpec([None, *self.form.shape], tf.float32)],
            autograph=False,
        )

    @classmethod
    def open(cls, workdir: str | os.PathLike) -> "Identifier":
        """Loads the best model of a run; raises InputError where there is none or it is damaged."""
        import keras

        import tfmat.networks.flow  # noqa: F401  its room registers all layers

        sidecar = read_sidecar(workdir)
        model_file = model_files(workdir)[0]
        try:
            model = keras.saving.load_model(model_file, compile=False)
        except (
            Exception
        ) as error:  # Keras raises anything, from OSError to KeyError, for a damaged file.
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise InputError(
                f"{model_file} cannot be loaded ({reason}); if it is damaged, train again"
            ) from error
        return cls(model, sidecar)

    def predict(self, features: np.ndarray) -> Array:
        """The network's own answers, unclipped.

        Args:
          features: [curves, points, 3], strain (-), stress (MPa), padding flag; for tests see `RecordForm`.

        Returns:
          [curves, identified parameters], labels scaled to 0-1.
        """
        if self.uncertainty == "flow":
            return self._even_draws(features).mean
        return self._outputs(features)[:, : len(self.parameters)]

    def predict_with_std(self, features: np.ndarray) -> tuple[Array, Array | None]:
        """The values of `predict`, and the network's standard deviations, same shape; None where it gives none."""
        if self.uncertainty == "flow":
            draws = self._even_draws(features)
            return draws.mean, draws.std
        if self.calibration is None:
            return self.predict(features), None
        outputs, count = self._outputs(features), len(self.parameters)
        return outputs[:, :count], np.exp(0.5 * outputs[:, count:])

    def answers(
        self, features: np.ndarray, coverages: Sequence[float] = (COVERAGE,)
    ) -> tuple[Array, Array | None, Array | None]:
        """Values, standard deviations, and intervals that hold the true labels with these probabilities.

        With a variance head both are calibrated. Intervals of a whole posterior, which has its spread, are of highest
        density.

        Returns:
          [curves, p], [curves, p] and [coverages, curves, p, 2]; None for both where the network gives neither.
        """
        if self.uncertainty == "flow":
            draws = self._even_draws(features)
            return draws.mean, draws.std, draws.intervals(coverages)
        labels, std = self.predict_with_std(features)
        if std is None or self.calibration is None:
            return labels, None, None
        cut = np.clip(labels, 0.0, 1.0)
        limits = [self.calibration.interval(cut, std, coverage) for coverage in coverages]
        return labels, self.calibration.std(std), np.stack(limits)

    def draws(self, features: np.ndarray, samples: int, *, seed: int = 0) -> Posterior:
        """Samples of the posterior of each curve's labels.

        Densities of a variance head are independent Gaussians, which know nothing of how parameters trade against each
        other.

        Args:
          features: see `predict`.
          samples: of each curve.
          seed: of the draw; a curve's samples also depend on its place among the curves.

        Raises:
          InputError: the network has no uncertainty head.
        """
        check_samples(samples, self.uncertainty)
        if self.uncertainty == "gaussian":
            labels, std, _ = self.answers(features)
            assert std is not None
            drawn = independent_normal(np.clip(labels, 0.0, 1.0), std, samples, seed)
            return dataclasses.replace(drawn, parameters=self.parameters)
        return self.draws_of(features, self._normal(len(features), samples, seed))

    def proposals(self, features: np.ndarray, samples: int) -> Posterior:
        """The `draws` of a whole posterior, and behind them as many wider ones, to be weighed by a likelihood.

        Weights of a network's own draws have a heavy tail where its posteriors end a little too early.
        """
        normal, proposed = with_wider_half(self._normal(len(features), 2 * samples))
        found = self.draws_of(features, normal)
        assert found.label_log_density is not None
        return dataclasses.replace(found, proposed=found.label_log_density + proposed)

    def _normal(self, curves: int, samples: int, seed: int = 0) -> np.ndarray:
        shape = (curves, samples, len(self.parameters))
        return np.random.default_rng(seed).standard_normal(shape, np.float32)

    def log_density(self, features: np.ndarray, labels: Array) -> Array:
        """Logarithm of the posterior density of labels, of a whole posterior.

        Labels [curves, p] have [curves]; several of each curve, [curves, labels, p], have [curves, labels].
        """
        outputs = np.asarray(self._outputs(features), np.float32)
        rows = np.asarray(labels, np.float32).reshape(-1, labels.shape[-1])
        told = np.repeat(outputs, len(rows) // max(len(outputs), 1), axis=0)
        density = self._flow.log_density(rows, told, self.spread.value)
        return np.asarray(density).reshape(labels.shape[:-1])

    def standardized(self, features: np.ndarray, labels: Array) -> Array:
        """Labels [curves, p] in the base space: standard normal where a posterior without its spread is right."""
        outputs = np.asarray(self._outputs(features), np.float32)
        return np.asarray(self._flow.standardized(np.asarray(labels, np.float32), outputs))

    def _even_draws(self, features: np.ndarray) -> Posterior:
        normal = even_normal(_EVEN_DRAWS, len(self.parameters)).astype(np.float32)
        return self.draws_of(features, np.broadcast_to(normal, (len(features), *normal.shape)))

    def draws_of(self, features: np.ndarray, normal: np.ndarray) -> Posterior:
        """Samples of a whole posterior, made of numbers [curves, samples, p] from a standard normal distribution."""
        outputs = np.asarray(self._outputs(features), np.float32)
        labels, log_density = np.empty(normal.shape), np.empty(normal.shape[:2])

        def draw(start: int) -> None:
            rows = slice(start, start + block)
            labels[rows], log_density[rows] = (
                each.numpy() for each in self._draw(outputs[rows], normal[rows], spread)
            )

        block, spread = max(1, _DRAWS_PER_CALL // normal.shape[1]), np.float32(self.spread.value)
        # TensorFlow lets other threads run while it computes.
        list(in_threads(draw, range(0, len(outputs), block)))
        return Posterior(labels, log_density, parameters=self.parameters)

    def _drawn(
        self, outputs: "tf.Tensor", normal: "tf.Tensor", spread: "tf.Tensor"
    ) -> tuple["tf.Tensor", "tf.Tensor"]:
        """Labels [curves, samples, p] and the logarithms of their densities from normal numbers of the same shape."""
        import tensorflow as tf

        curves, samples, columns = tf.unstack(tf.shape(normal))
        labels, log_density = self._flow.sample(
            tf.repeat(outputs, samples, axis=0),
            tf.reshape(normal, [-1, len(self.parameters)]),
            spread,
        )
        shape = [curves, samples]
        return tf.reshape(labels, [*shape, columns]), tf.reshape(log_density, shape)

    def afresh(self) -> contextlib.AbstractContextManager[None]:
        """Answers within it take their time, also where they are known already."""
        return self.around_fits.afresh() if self.around_fits else contextlib.nullcontext()

    def _outputs(self, features: np.ndarray) -> Array:
        if self.around_fits is not None:
            return self.around_fits.outputs(features)
        outputs = np.empty((len(features), self._columns))

        def answer(start: int) -> None:
            rows = slice(start, start + _BLOCK)
            block = np.ascontiguousarray(features[rows], np.float32)
            outputs[rows] = self._predict(block).numpy()

        list(in_threads(answer, range(0, len(features), _BLOCK)))
        return outputs

    def values(self, labels: Array) -> Array:
        """Labels [curves, identified parameters] -> values in the parameters' units, same shape."""
        return np.stack(
            [p.from_unit_interval(labels[:, i]) for i, p in enumerate(self.parameters)], axis=1
        )
