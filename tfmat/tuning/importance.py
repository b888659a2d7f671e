"""How much each hyper-parameter matters, as far as the trials tell."""

import numpy as np

from tfmat.tuning.space import Choice, Search
from tfmat.tuning.state import DIVERGED, DONE, STOPPED, SearchState

# With fewer a forest says nothing.
FEWEST_TRIALS = 8
_TREES = 128


def importances(search: Search, state: SearchState) -> dict[str, float]:
    """Hyper-parameter -> its share of what they all explain, largest first; {} with too few trials.

    The mean decrease in impurity of a random forest (Breiman, Machine Learning 45, 2001) that predicts what the oracle
    was told: the logarithm of the objective for losses. A hyper-parameter that does not exist for a trial has the
    middle of its range there; words are split into one column each, whose shares are added.
    """
    trials = [t for t in state.with_state(DONE, STOPPED, DIVERGED) if t.oracle_value is not None]
    trials = [t for t in trials if t.fraction == max(other.fraction for other in trials)]
    targets = np.array([trial.oracle_value for trial in trials], float)
    if len(trials) < FEWEST_TRIALS or np.ptp(targets) == 0:
        return {}
    from sklearn.ensemble import RandomForestRegressor

    columns, owners = [], []
    for name in search.space:
        for column in _columns(search, name, [trial.values.get(name) for trial in trials]):
            columns.append(column)
            owners.append(name)
    forest = RandomForestRegressor(_TREES, min_samples_leaf=2, random_state=0)
    forest.fit(np.stack(columns, axis=1), targets)
    shares = dict.fromkeys(search.space, 0.0)
    for owner, share in zip(owners, forest.feature_importances_, strict=True):
        shares[owner] += float(share)
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _columns(search: Search, name: str, values: list) -> list[np.ndarray]:
    """One column of numbers, or one a word: [trials] each."""
    parameter = search.space[name]
    if isinstance(parameter, Choice) and isinstance(parameter.keys[0], str):
        return [np.array([value == key for value in values], float) for key in parameter.keys]
    known = [float(value) for value in values if value is not None]
    middle = float(np.median(known)) if known else 0.0
    return [np.array([middle if value is None else float(value) for value in values])]
