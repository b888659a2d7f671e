"""tools/frozen: a file compares with itself as clean, and each change is a line of its own."""

import concurrent.futures
import importlib.util
import json
import pathlib

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "frozen.py"


def test_a_changed_number_a_changed_text_and_a_lost_key_are_told(tmp_path, monkeypatch, capsys):
    spec = importlib.util.spec_from_file_location("frozen", TOOL)
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # set by the tool, put back after the test
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    spec.loader.exec_module(tool)
    monkeypatch.setattr(tool, "POOL", lambda: concurrent.futures.ThreadPoolExecutor(1))
    kept = {"E": 200.0, "text": "one\ntwo", "seconds": 1.0, "table": "a,b,c,d\n1,2,3,4,5\n"}
    monkeypatch.setattr(tool, "tasks", lambda: [("laws", "voce", lambda: kept)])
    file = tmp_path / "frozen.json"
    assert tool.main(["write", str(file), "--part=laws"]) == 0
    written = json.loads(file.read_text())["laws"]["voce"]
    assert written["table"] == [{"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0, "more": [5.0]}]
    kept["seconds"], kept["E"] = 2.0, 200.0 * (1 + 1e-12)
    assert tool.main(["compare", str(file)]) == 0
    kept |= {"E": 201.0, "text": "one\nthree"}
    del kept["table"]
    capsys.readouterr()
    assert tool.main(["compare", str(file)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "laws/voce/E: 200.0 -> 201.0 (0.005)" in lines
    assert "laws/voce/text/1: two -> three" in lines
    assert sum("(none)" in line for line in lines) == 5 and len(lines) == 7
