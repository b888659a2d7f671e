"""Exit statuses, and the nearest valid name."""

import pytest

from tfmat import errors


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.TfmatError, 1),
        (errors.InputError, 2),
        (errors.DivergedError, 3),
        (errors.WorkerLostError, 4),
        (errors.Interrupted, 75),
    ],
)
def test_exit_status(error: type[errors.TfmatError], status: int) -> None:
    assert error.exit_status == status
    assert issubclass(error, errors.TfmatError)


def test_input_errors_are_value_errors_for_those_who_call_from_python() -> None:
    assert issubclass(errors.InputError, ValueError)


@pytest.mark.parametrize(
    ("name", "valid", "hint"),
    [
        ("voca", ["swift", "voce"], "; did you mean 'voce'?"),
        ("voce", ["voce"], "; did you mean 'voce'?"),
        ("xyz", ["swift", "voce"], "; valid: swift, voce"),
        ("xyz", ["voce", "swift"], "; valid: swift, voce"),
        ("xyz", [], ""),
        ("lr", iter(["learning_rate", "law"]), "; valid: law, learning_rate"),
    ],
)
def test_nearest(name: str, valid: list[str], hint: str) -> None:
    assert errors.nearest(name, valid) == hint
