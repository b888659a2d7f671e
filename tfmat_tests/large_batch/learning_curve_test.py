"""`tfmat learning_curve` as a user calls it, on some hundred curves, and its answers in words."""

import keras
import numpy as np
import pandas as pd
import pytest

from tfmat.cli.main import main
from tfmat.cli.studies import learning_curve_lines
from tfmat.config import load_config
from tfmat.files import read_json, write_json
from tfmat.large_batch.sweeps import (
    LearningCurve,
    Run,
    answers,
    law_of,
    prepare_data,
    run_once,
    weights_at,
    with_keys,
)
from tfmat.networks.factory import build_model
from tfmat.workflow import plan_job

SMALL = [
    "--config=smoke", "--config.data.num_test=40", "--config.global_batch_size=25", "--config.train_for=4epochs",
    "--config.model.conv_filters=4", "--config.model.kernel_sizes=5", "--config.model.hidden_units=8",
]  # fmt: skip


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder, data = tmp_path_factory.mktemp("study"), tmp_path_factory.mktemp("data")
    arguments = [
        "learning_curve", *SMALL, f"--workdir={folder}", f"--data_dir={data}", "--seeds=1",
        "--curves=25,50,100,200",
    ]  # fmt: skip
    assert main(arguments) == 0
    return folder, arguments


def test_every_point_is_an_ordinary_run(study):
    folder, _ = study
    content = read_json(folder / "learning_curve.json")
    assert [point["curves"] for point in content["points"]] == [25, 50, 100, 200]
    for point in content["points"]:
        run = folder / f"curves-{point['curves']:07d}-width-1-seed-0"
        config = read_json(run / "config.json")
        assert config["num_examples"] == point["curves"] and config["train_for"] == "4epochs"
        etas = read_json(run / "evaluation.json")["reference"]["parameters"]
        assert point["errors"] == {name: each["eta"] for name, each in etas.items()}
    # The test curves, and so the best possible, are the same for all.
    risks = [
        read_json(run / "evaluation.json")["reference"]["parameters"]["G0"]["bayes_risk"]
        for run in folder.glob("curves-*")
    ]
    np.testing.assert_allclose(risks, risks[0], rtol=1e-6)
    table = pd.read_csv(folder / "learning_curve.csv")
    assert table.eta_a.tolist() == [point["errors"]["a"] for point in content["points"]]
    assert list(content["laws"]) == ["G0", "a"]


@pytest.mark.pictures
def test_what_is_done_is_not_repeated_and_more_curves_go_on(study, capsys):
    folder, arguments = study
    before = {file: file.stat().st_mtime_ns for file in folder.glob("*/metrics.jsonl")}
    assert len(before) == 4
    assert main([*arguments, "--curves=25,50,100,200,400"]) == 0
    shown = capsys.readouterr()
    assert "5 of 5: 400 curves" in shown.err and "1 of 5" not in shown.err
    assert {file: file.stat().st_mtime_ns for file in before} == before
    assert shown.out.startswith("G0: falls as curves^-") and "\na: falls as" in shown.out
    assert shown.out.endswith("learning_curve.png\n")
    assert (folder / "learning_curve.png").stat().st_size > 10_000


def test_runs_of_another_config_are_not_mixed_in(study, refused):
    _, arguments = study
    for key, before in (("data.noise_mpa=2", None), ("optimizer.learning_rate=0.01", 0.001)):
        name, _, value = key.partition("=")
        shown = refused(*arguments, f"--config.{key}")
        assert f"was started with {name}={before}, not {float(value)}" in shown


def test_runs_that_diverged_are_left_out(study, capsys):
    folder, arguments = study
    file = folder / "curves-0000025-width-1-seed-0" / "status.json"
    saved = read_json(file)
    write_json(file, {**saved, "state": "diverged"})
    try:
        assert main([*arguments, "--curves=25,50,100,200,400"]) == 0
        content = read_json(folder / "learning_curve.json")
        assert content["diverged"] == ["curves-0000025-width-1-seed-0"]
        assert len(content["points"]) == 4
        capsys.readouterr()
        assert main(arguments) == 3
        assert "1 of 4 runs diverged, which leaves 3 numbers of curves" in capsys.readouterr().err
    finally:
        write_json(file, saved)


def test_the_first_curves_of_a_set_are_those_of_a_smaller_set(tmp_path, refused):
    """A run on a part of a data set has the weights of a run on a set of that size, bit for bit."""
    small = {"model__conv_filters": "4", "model__kernel_sizes": "5", "train_for": "2epochs"}
    weights, data = [], str(tmp_path / "data")
    for name, size in (
        ("a", {"data__num_curves": 1600}),
        ("b", {"data__num_curves": 3000, "data__num_train": 1200}),
    ):
        config = with_keys(
            load_config("smoke"), global_batch_size=400, data__num_test=40, **small, **size
        )
        dataset = prepare_data(config, data, 400)
        run_once(config, dataset, tmp_path / name)
        assert read_json(tmp_path / name / "config.json")["num_examples"] == 1200
        weights.append(keras.models.load_model(tmp_path / name / "final.keras").get_weights())
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)
    arguments = [
        "learning_curve",
        *SMALL,
        f"--data_dir={dataset.folder}",
        f"--workdir={tmp_path}/c",
    ]
    assert "data.num_train=4000 is more than the 2250 training curves" in refused(
        *arguments, "--curves=500,1000,2000,4000"
    )


@pytest.mark.parametrize("width", [0.5, 4.0])
def test_a_width_has_the_weights_of_the_network_that_it_makes(width, tmp_path):
    config = load_config("smoke")
    folders = {"workdir": str(tmp_path / "run"), "data_dir": str(tmp_path / "data")}
    job = plan_job(config, **folders, backend="single")
    units = ",".join(str(round(width * each)) for each in config.model.hidden_units)
    wider = with_keys(config, model__hidden_units=units).model
    model = build_model(wider, num_outputs=2, num_points=config.data.num_points)
    assert weights_at(job, config, width) == model.count_params()


def size_of(width):
    """Parameters of a network of 1,000 numbers and 1,000 more for each of its 100 units."""
    return 1000 + 1000 * round(100 * width)


def content_of(wanted):
    """A study of G with errors 1 + 0.02 + (curves / 10,000)^-1 + 0.2 (parameters / 101,000)^-1, without scatter."""
    points = [
        Run(curves, width, 0, size_of(width), {"G": error})
        for curves in (5000, 10_000, 20_000, 40_000)
        for width in (0.5, 1.0, 2.0)
        for error in [1.02 + 1e4 / curves + 0.2 * 101_000 / size_of(width)]
    ]
    laws = {"G": answers(law_of(points, "G", "η"), points, "G", wanted, size_of)}
    return LearningCurve("η", wanted, points, [], laws)


def test_curves_and_width_for_a_wanted_error(tmp_path):
    """1.3 takes 10,000 / (0.28 - 0.2) curves at width 1, and 20,200 / (0.28 - 0.25) parameters for 40,000 curves."""
    content = content_of(1.3)
    law = content.laws["G"]
    assert law.networks[1].curves.value == pytest.approx(10_000 / 0.08, rel=0.02)
    assert law.networks[0].limit.value == pytest.approx(1.02 + 0.2 * 101 / 51, rel=0.01)
    largest, endless = law.sizes
    assert largest.curves == 40_000 and endless.curves is None
    assert largest.parameters.value == pytest.approx(20_200 / 0.03, rel=0.05)
    assert largest.width.value == pytest.approx(20_200 / 0.03 / 1e5, rel=0.05)
    assert endless.parameters.value == pytest.approx(20_200 / 0.28, rel=0.05)
    write_json(tmp_path / "content.json", content, infinite_is_null=True)
    written = read_json(tmp_path / "content.json")["laws"]["G"]["networks"][0]
    assert written["curves"]["value"] is None and written["reached"] == law.networks[0].reached
    said = learning_curve_lines("G", content)
    assert said[0].startswith("G: falls as curves^-1.00 (")
    assert said[1].startswith(
        "  width 0.5 (51,000 parameters): no number of curves gives η ≤ 1.3; try a longer"
    )
    assert said[2].startswith("  width 1 (101,000 parameters): η ≤ 1.3 takes about 1")
    assert "data.num_curves=1" in said[2] and "guess" not in said[2]
    assert said[4].startswith("  with 40,000 curves: η ≤ 1.3 takes about width 6.")
    assert said[5].startswith("  with endless curves: η ≤ 1.3 takes about width 0.7")


def test_an_answer_far_away_is_told_to_be_a_guess():
    content = content_of(1.22 + 1e4 / 1e6)
    said = learning_curve_lines("G", content)
    assert "a guess, more than 10 times the 40,000 curves that were measured" in said[2]
    content = content_of(1.019)
    said = learning_curve_lines("G", content)
    assert all("no number of curves gives η ≤ 1.019" in line for line in said[1:4])
    assert said[4:] == [
        "  with 40,000 curves: no width gives η ≤ 1.019",
        "  with endless curves: no width gives η ≤ 1.019",
    ]


def test_runs_below_the_limit_of_the_fit_are_told():
    content = content_of(1.3)
    content.laws["G"].networks[0].reached = 1.1
    said = learning_curve_lines("G", content)
    assert said[1].startswith("  note: width 0.5 already came below the limit of the fit")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--curves=1000,x"], "--curves=1000,x: give positive whole numbers"),
        (["--curves=1000,2000,2000,4000"], "--curves has 3 different numbers"),
        (["--curves=20,2000,3000,4000"], "--curves has 20, fewer than global_batch_size=50"),
        (["--widths=1,2"], "--widths=1,2: give one positive number, or 3 or more"),
        (["--widths=1,1.001,2"], "two of them make the same network, model.hidden_units=125"),
        (["--widths=-1"], "--widths=-1: give positive numbers"),
        (["--wanted=0"], "--wanted=0: give a positive number"),
        (["--config.train_for=0.001epochs"], "train_for is '0.001epochs', less than one step"),
    ],
)
def test_mistakes_get_one_line(arguments, line, refused):
    assert line in refused("learning_curve", "--config=smoke", *arguments)
