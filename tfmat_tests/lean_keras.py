"""Imported before Keras: it then takes two thirds of its time to load.

Keras loads scikit-learn, pandas and matplotlib where they are there, for wrappers and pictures of which the ranks that
tests start make no use; it does without them where they cannot be imported. Without effect on the tests themselves.
"""

import sys

if "pytest" not in sys.modules:
    for name in ("matplotlib", "pandas", "sklearn"):
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]
