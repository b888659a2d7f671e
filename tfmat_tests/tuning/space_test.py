"""What a search's definition accepts, says and becomes."""

import json
import pathlib
import re

import pytest

from tfmat.config import check_config, default_config, load_config
from tfmat.errors import InputError
from tfmat.tuning import Choice, Float, Int, Search
from tfmat.tuning.search import config_text, load_search

SPACE = pathlib.Path(__file__).with_name("space.py")


@pytest.mark.parametrize(
    ("search", "message"),
    [
        (Search(space={}), "the search space is empty"),
        (Search(space={"optimizer.lr": Float(1, 2)}), "unknown config key 'optimizer.lr'"),
        (Search(space={"own.": Float(1, 2)}), "unknown config key 'own.'"),
        (
            Search(space={"own.kinds": Choice(("a", None), "b")}),
            "give a number, a word, or a tuple",
        ),
        (Search(space={"model.dropout": Float(0.3, 0.1)}), "give low < high"),
        (Search(space={"model.dropout": Float(0.0, 0.1, scale="log")}), "give 0 < low < high"),
        (Search(space={"model.dropout": Float(0.0, 1.0)}), "model.dropout is 1.0; it must be"),
        (Search(space={"optimizer.name": Choice("adam")}), "two or more different values"),
        (Search(space={"optimizer.name": Choice("adam", "adm")}), "did you mean 'adam'"),
        (Search(space={"model.pool_size": Int(1, 4, step=0)}), "give whole numbers"),
        (
            Search(space={"optimizer.momentum": Float(0.5, 0.9, only_if={"optimizer.name": ("sgd",)})}),
            "exists only for values of optimizer.name, which must be a Choice before it",
        ),
        (
            Search(
                space={
                    "optimizer.name": Choice("adam", "sgd"),
                    "optimizer.momentum": Float(0.5, 0.9, only_if={"optimizer.name": ("lars",)}),
                }
            ),
            "'lars' is no choice of optimizer.name",
        ),
        (Search(space={"model.dropout": Float(0, 0.5)}, algorithm="bayes"), "'bayesian'"),
        (Search(space={"model.dropout": Float(0, 0.5)}, max_trials=0), "give 1 or more"),
        (Search(space={"model.dropout": Float(0, 0.5)}, max_trials=None), "only hyperband"),
    ],
)  # fmt: skip
def test_a_wrong_search_is_refused_in_one_line(search, message):
    with pytest.raises(InputError) as error:
        search.check()
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("space", "objective", "message"),
    [
        ('"loss_weights": Choice((1.0, 1.0), (1.0, 0.01))', "val_loss", "changes what val_loss"),
        ('"loss_weights": Choice((1.0, 1.0), (1.0, 0.01))', "val_mse_a", ""),
        ('"model.uncertainty": Choice("gaussian", "flow")', "val_loss", "changes what val_loss"),
        ('"model.uncertainty": Choice("none", "gaussian")', "val_loss", ""),  # one squared error
        ('"data.noise_mpa": Float(0.1, 2.0)', "val_mse_a", "changes what val_mse_a measures"),
        ('"law": Choice("voce", "swift")', "val_loss", "changes what val_loss measures"),
        ('"own.penalty": Float(0.1, 2.0)', "val_loss", "own.penalty is for a --trial_command"),
        ('"train_for": Choice("1epochs", "2epochs")', "val_loss", "is one for all trials"),
        ('"data.num_curves": Choice(1000, 2000)', "val_loss", ""),
    ],
)
def test_a_space_whose_trials_cannot_be_compared_is_refused(space, objective, message, tmp_path):
    """A weight of 0.01 for one parameter had the smallest loss, and was called the best."""
    path = tmp_path / "search.py"
    path.write_text(
        "from tfmat.config import default_config as get_config\n"
        "from tfmat.tuning import Choice, Float, Search\n"
        f"def get_search():\n    return Search(space={{{space}}}, objective={objective!r})\n"
    )
    load_search(path, own_trials=True)
    if not message:
        load_search(path)
        return
    with pytest.raises(InputError, match=message):
        load_search(path)


def test_a_search_survives_json():
    _, search = load_search(SPACE)
    again = Search.from_json(json.loads(json.dumps(search.to_json())))
    assert json.dumps(again.to_json()) == json.dumps(search.to_json())
    assert again.config_values({"model.hidden_units": "125,125"}) == {
        "model.hidden_units": (125, 125)
    }


def test_a_key_that_the_search_chooses_cannot_be_given():
    with pytest.raises(InputError, match="the search chooses model.dropout"):
        load_search(SPACE, [("model.dropout", "0.1")])
    with pytest.raises(InputError, match="val_loss of model.uncertainty=flow may be negative"):
        load_search(SPACE, [("model.uncertainty", "flow")])


def test_a_config_without_a_search_is_refused(tmp_path):
    path = tmp_path / "plain.py"
    path.write_text(
        "from tfmat.config import default_config\ndef get_config():\n    return default_config()\n"
    )
    with pytest.raises(InputError, match=r"does not define get_search\(\)"):
        load_search(path)


def test_the_config_that_comes_with_tfmat_holds_a_search():
    base, search = load_search("configs/tune.py")
    assert base.global_batch_size == 750 and search.max_trials == 12


def test_config_text_is_a_config_of_its_own(tmp_path):
    base = default_config()
    with base.ignore_type():
        base.loss_weights = (8.0, 1.0)
    base.ranges["G0"] = (10.0, 20.0)
    base.data.noise_mpa = 2.0
    values = {"optimizer.learning_rate": 0.00123456789012345, "model.hidden_units": (125, 125)}
    path = tmp_path / "trial.py"
    path.write_text(config_text(base.to_dict(), values, "A trial."))
    expected = base.copy_and_resolve_references()
    expected.optimizer.learning_rate = 0.00123456789012345
    expected.model.hidden_units = (125, 125)
    assert load_config(path).to_dict() == check_config(expected).to_dict()


def test_the_guides_example(tmp_path):
    guide = pathlib.Path(__file__).resolve().parents[2] / "docs" / "tuning.md"
    program, *_ = re.findall(r"```python\n(.*?)```", guide.read_text("utf-8"), re.DOTALL)
    path = tmp_path / "guide.py"
    path.write_text(program)
    base, search = load_search(path)
    assert base.train_for == "10m" and search.max_trials == 40
