"""What a run that is started again records of its losses."""

import json
import pathlib

from tfmat.launch.mpirun import FILE, History


def test_the_line_and_the_file_say_the_same_ratio(tmp_path: pathlib.Path) -> None:
    """Rounded twice, 0.64752 would be 0.6475 and then 0.647 in the one, and 0.648 in the other."""
    history = History(tmp_path)
    history.count(100_000.0, 64_752.0)
    written = json.loads((tmp_path / FILE).read_text("utf-8"))
    assert written["ettr"] == 0.6475
    assert f"effective training time ratio (ETTR) {written['ettr']:.3f};" in history.summary()
