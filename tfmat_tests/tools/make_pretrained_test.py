"""tools/make_pretrained: what it says of a network, and what it refuses. The training itself is tested elsewhere."""

import importlib.util
import json
import pathlib
import shutil
import subprocess

import pytest

from tfmat.identification.networks import find_network, pretrained_laws
from tfmat_tests.processes import forked_python

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "make_pretrained.py"


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("make_pretrained", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _config(folder, curves):
    """What the page reads of a run's config.json."""
    config = {
        "data": {"num_curves": curves},
        "seed": 0,
        "train_for": "6epochs",
        "global_batch_size": 150,
        "total_steps": 12_000,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder / "config.json"


@pytest.mark.parametrize("law", pretrained_laws())
def test_the_page_has_command_data_and_accuracy(tool, law, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = shutil.copytree(find_network(None, law), tmp_path / "run")
    shutil.copyfile(_config(tmp_path, 400_000), run / "config.json")
    page = tool.readme(law, ["--config.train_for=6epochs", "--data_dir=/somewhere"], run)
    assert f"    tools/make_pretrained {law} --config.train_for=6epochs\n" in page
    assert "400,000 simulated" in page and "12,000 steps" in page
    for said in {
        "hahn_tsai": ("noise_mpa 1.0;", "max_strain 0.01–0.05;"),
        "ogden": ("tests uniaxial, equibiaxial, planar", "missing_tests 0.35", "toe 0.001–0.02"),
        "voce_chaboche": ("tests cyclic", "noise_correlation 0.1–0.8"),
    }.get(law, ("measured_points 15–400;", "misfit 0.001–0.02", "max_strain 0.005–0.6;")):
        assert said in page
    evaluation = json.loads((run / "evaluation.json").read_text())
    # Where curves depart from their law nobody knows the best that is possible; of a laboratory's records it is not
    # worked out.
    known = law == "hahn_tsai"
    assert ("Bayes risk" in page) == (evaluation["reference"] is not None) == known
    for name, scores in evaluation["coverage"].items():
        rows = [line for line in page.splitlines() if line.startswith(f"    │ {name} ")]
        assert any(f" {100 * scores['95']:.1f} %" in row for row in rows)
        if known:
            eta = f"{evaluation['reference']['parameters'][name]['eta']:.2f} ±"
            assert any(eta in row for row in rows)


def test_every_network_that_comes_with_tfmat_can_be_made_again(tool):
    assert set(tool.LAWS) == set(pretrained_laws())
    there = {
        law for law in tool.LAWS if find_network(None, law, posterior=True).name == "posterior"
    }
    assert there == set(tool.POSTERIORS)


def test_the_page_of_a_posterior_says_whether_it_is_right_on_average(tool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = find_network(None, "hahn_tsai", posterior=True)
    run = shutil.copytree(folder, tmp_path / "run")
    shutil.copyfile(_config(tmp_path, 200_000), run / "config.json")
    page = tool.readme("hahn_tsai/posterior", [], run)
    assert "    tools/make_pretrained hahn_tsai/posterior\n" in page
    checked = json.loads((run / "evaluation.json").read_text())["posterior"]
    held = (
        f"{each} %: {100 * checked['joint_coverage'][each]:.1f} %" for each in ("50", "90", "95")
    )
    assert ", ".join(held) in " ".join(page.split()) and f"{checked['log_score']:.3f} ± " in page
    rows = page.partition("the joint posterior")[2].splitlines()
    assert sum(" no │" in row for row in rows) == sum(
        not each["inside_band"] for each in (*checked["ranks"].values(), checked["tarp"])
    )


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("hahn_tasi", "did you mean 'hahn_tsai'"),
        ("ludwik/posterior", "no recipe for ludwik/posterior; give one of hahn_tsai/posterior, "),
        ("--workdir=runs/x", "--workdir=runs/x cannot be given here"),
        ("--quiet", "--quiet cannot be given here"),
    ],
)
def test_a_wrong_argument_is_refused_at_once(argument, message):
    done = subprocess.run([forked_python(), str(TOOL), argument], capture_output=True, text=True)
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr
