"""`tfmat report` as a user calls it."""

import pytest

from tfmat.cli.main import main
from tfmat_tests.report.run_folder import write_run


def test_the_page_is_written_and_its_path_said(tmp_path, capsys):
    write_run(tmp_path / "run")
    assert main(["report", f"--workdir={tmp_path / 'run'}"]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{tmp_path / 'run' / 'report.html'}\n"
    assert captured.err == ""
    assert (tmp_path / "run" / "report.html").read_text("utf-8").startswith("<!DOCTYPE html>")
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize("argument", ["--workdir=none", "--workdir=.", "run"])
def test_a_wrong_call_gets_one_line_and_status_2(argument, refused):
    assert refused("report", argument)
