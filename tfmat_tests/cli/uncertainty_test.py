"""A network's own intervals in `tfmat identify` and `tfmat evaluate`, and the networks that come with tfmat."""

import csv
import json
import shutil

import numpy as np
import pytest

from tfmat.materials import find_law
from tfmat.records.files import write_example_curve


def test_identify_shows_both_intervals(uncertain_run, curve, tmp_path, done):
    outputs = [f"--json={tmp_path / 'out.json'}", f"--csv={tmp_path / 'out.csv'}"]
    text = done("identify", curve, f"--workdir={uncertain_run}", *outputs)
    assert text.count("95 % interval") == 1
    assert f"network: {uncertain_run}" in text.replace("\n", "")
    (result,) = json.loads((tmp_path / "out.json").read_text())
    entry = result["parameters"]["a"]
    with open(tmp_path / "out.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    unit = "[MPa^-3]"
    assert float(row[f"a {unit}"]) == entry["value"]
    assert float(row[f"a std {unit}"]) == entry["std"]
    assert [float(row[f"a ci95_{end} {unit}"]) for end in ("low", "high")] == entry["ci95"]
    assert (row["do_not_use"], row["method"]) == ("no", "least_squares")
    assert not any("network" in column for column in row)
    flags = [f"--workdir={uncertain_run}", "--details", *outputs]
    assert done("identify", curve, *flags).count("95 % interval") == 3
    with open(tmp_path / "out.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert float(row[f"a network {unit}"]) == entry["network"]
    for key in ("network_ci95", "least_squares_ci95"):
        assert [float(row[f"a {key}_{end} {unit}"]) for end in ("low", "high")] == entry[key]


def test_before_any_training_a_network_of_tfmat_answers(curve, tmp_path, done, refused):
    assert "network: hahn_tsai that comes with tfmat" in done(
        "identify", curve, f"--json={tmp_path / 'out.json'}", "--details"
    )
    (result,) = json.loads((tmp_path / "out.json").read_text())
    low, high = result["parameters"]["G0"]["ci95"]
    assert low < 6964 < high
    flags = ["--samples=400", "--nocorrect", f"--samples_file={tmp_path / 'drawn.npz'}"]
    assert "network: hahn_tsai posterior that comes with tfmat" in done("identify", curve, *flags)
    with np.load(tmp_path / "drawn.npz") as stored:
        assert list(stored["certificate"]) == ["amortised"]
        # A stiffer start and more softening go together.
        assert np.corrcoef(stored["samples"][0], rowvar=False)[0, 1] > 0.3
    metal = write_example_curve(find_law("swift"), tmp_path / "metal.csv")
    assert "network: swift that comes with tfmat" in done(
        "identify", metal, "--law=swift", "--details"
    )
    assert "network" not in done("identify", metal, "--law=ramberg_osgood")
    assert "mean 'swift'?" in refused("identify", metal, "--law=swfit")


def test_evaluate_reports_the_coverage(uncertain_run, tmp_path, done):
    workdir = shutil.copytree(uncertain_run, tmp_path / "run")
    text = done("evaluate", f"--workdir={workdir}", "--noreference")
    assert "the network's own intervals" in text
    content = json.loads((workdir / "evaluation.json").read_text())
    for scores in content["coverage"].values():
        assert f"{100 * scores['95']:.1f} %" in text
        assert {"50", "90", "95", "z_std", "nll", "mean_std"} <= set(scores)
    assert (workdir / "figures" / "calibration.png").read_bytes().startswith(b"\x89PNG")


def test_samples_go_into_a_file(posterior_run, uncertain_run, curve, tmp_path, done):
    other = shutil.copy(curve, tmp_path / "other.csv")
    for run, kind, more in (
        (posterior_run, "whole", []),
        (uncertain_run, "whole", []),
        (uncertain_run, "Gaussian of each parameter alone", ["--nocorrect"]),
    ):
        flags = [*more, "--samples=300", f"--samples_file={tmp_path / 'drawn.npz'}"]
        text = done("identify", curve, other, f"--workdir={run}", *flags)
        assert "300 samples of each curve" in text
        assert (kind in text) == (kind != "whole")
        with np.load(tmp_path / "drawn.npz") as stored:
            assert stored["samples"].shape == (2, 300, 2)
            assert stored["log_density"].shape == (2, 300)
            assert list(stored["parameters"]) == ["G0", "a"]
            assert list(stored["units"]) == ["MPa", "MPa^-3"]
            assert len(stored["curves"]) == 2
            assert stored["samples"][0, :, 0].mean() == pytest.approx(6964, rel=0.1)


def test_samples_of_a_law_without_a_network(curve, tmp_path, done):
    file = tmp_path / "drawn.npz"
    flags = ["--law=exponential_shear", "--samples=200", f"--samples_file={file}"]
    said = done("identify", curve, *flags)
    assert "that was there" not in said
    assert ", instead of the file that was there" in " ".join(
        done("identify", curve, *flags).split()
    )
    assert "200 samples of each curve" in said and "network" not in said
    with np.load(file) as stored:
        assert stored["samples"].shape[:2] == (1, 200) and np.isfinite(stored["samples"]).all()
        assert stored["certificate"][0] in ("corrected", "resampled", "do not trust")


def test_samples_that_cannot_be_drawn_are_refused(trained_run, posterior_run, curve, refused):
    for flags, said in (
        ([f"--workdir={trained_run.workdir}", "--samples=10", "--noleast_squares"], "samples need"),
        (["--law=ramberg_osgood", "--samples=10", "--nocorrect"], "samples need least squares"),
        ([f"--workdir={posterior_run}", "--samples=10", "--fix=G0=6900", "--nocorrect"], "samples need"),
        ([f"--workdir={posterior_run}", "--samples_file=s.npz"], "say how many: --samples=1000"),
    ):  # fmt: skip
        assert said in refused("identify", curve, *flags)
