"""`tfmat generate` through the program's own entry point: what it prints, its exit status, and what it leaves."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

from tfmat.cli.main import main
from tfmat.data.dataset import PackedDataset, dataset_folder
from tfmat.records.simulation import CurveSettings
from tfmat_tests.processes import wait_for

ROOT = pathlib.Path(__file__).parents[2]


def _flags(data_dir: pathlib.Path) -> tuple[str, ...]:
    return ("--num_curves=2000", "--num_test=50", f"--data_dir={data_dir}")


def test_says_where_the_set_is_and_how_to_use_it(tmp_path, capsys):
    assert main(["generate", *_flags(tmp_path)]) == 0
    out, err = capsys.readouterr()
    folder = dataset_folder(tmp_path, CurveSettings(), 0, 2000, 50)
    # 2,050 curves of 200 points and 3 channels and 2 labels, float32.
    assert err == (
        f"writing 2,050 curves (4.9 MB) into {folder}; `tfmat clean` lists data sets and deletes them\n"
    )
    assert f"data set  {folder}\n" in out
    assert "2,000 (1,500 train, 500 validate) and 50 to test, 200 points each" in out
    assert "G0 (MPa), a (MPa^-3)" in out
    assert "2,050 curves written" in out and "curves/s" in out
    assert out.endswith(f"tfmat train --data_dir={folder} --workdir=runs/{folder.name}\n")
    PackedDataset.open(folder)
    assert main(["generate", *_flags(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert not err and "complete already; every shard checked" in out


def test_flags_become_settings(tmp_path, done):
    flags = "--law=voce --range=Q=50,1600 --range b=1,40 --fix=E=193000 --max_strain=0.1,0.5"
    flags += " --strength_mpa=none --noise_mpa=2 --noise_relative=0.01 --seed=7 --num_threads=1"
    done("generate", *_flags(tmp_path), *flags.split())
    settings = CurveSettings(
        law="voce",
        ranges={"Q": (50.0, 1600.0), "b": (1.0, 40.0)},
        fixed={"E": 193_000.0},
        max_strain=(0.1, 0.5),
        strength_cut_off=False,
        noise_mpa=2.0,
        noise_relative=0.01,
    )
    dataset = PackedDataset.open(dataset_folder(tmp_path, settings, 7, 2000, 50))
    assert dataset.settings is not None and dataset.settings.to_json() == settings.to_json()
    assert "E" not in [parameter.name for parameter in dataset.parameters]


def test_flags_of_tests_become_settings(tmp_path, done, refused):
    flags = "--tests=planar,uniaxial --test_range=max_strain=1,3 --missing_tests=0.4"
    done("generate", *_flags(tmp_path), "--law=ogden", *flags.split(), "--num_points=20")
    tests = {"tests": ("planar", "uniaxial"), "test_ranges": {"max_strain": (1.0, 3.0)}}
    settings = CurveSettings(law="ogden", **tests, missing_tests=0.4, num_points=20)
    dataset = PackedDataset.open(dataset_folder(tmp_path, settings, 0, 2000, 50))
    assert dataset.features.shape[1:] == (40, 3)
    said = refused("generate", *_flags(tmp_path), "--law=ogden", "--tests=planer")
    assert "there is no test 'planer'; did you mean 'planar'?" in said


def test_flags_of_a_laboratory_become_settings(tmp_path, done, refused):
    base = ("--law=voce_chaboche_1", "--num_points=60", "--test_range=cycles=1,3")
    flags = ("--laboratory", "--noise_told", "--stress_offset=1,2", "--measured_points=20,60")
    done("generate", *_flags(tmp_path), *base, *flags)
    settings = CurveSettings(
        law="voce_chaboche_1",
        test_ranges={"cycles": (1.0, 3.0)},
        num_points=60,
        laboratory=True,
        noise_told=True,
        stress_offset=(1.0, 2.0),
        measured_points=(20, 60),
    )
    dataset = PackedDataset.open(dataset_folder(tmp_path, settings, 0, 2000, 50))
    assert dataset.features.shape[1:] == (60, 4) and dataset.settings is not None
    assert dataset.settings.strain_offset == settings.build_law().laboratory["strain_offset"]
    for wrong, said in (
        ("--noise_correlation=0.5,1", "--noise_correlation is (0.5, 1.0); give 0.999 at most"),
        ("--toe=0.001,0.01", "--toe is of tests whose strain rises from zero and does not turn"),
        ("--machine_stiffness=1e5", "--machine_stiffness: '1e5' is not LOW,HIGH"),
        ("--noise_told", "--noise_told has nothing to tell"),
    ):
        assert said in refused("generate", *_flags(tmp_path), *base, wrong)


def test_damage_and_its_repair(tmp_path, done, refused):
    done("generate", *_flags(tmp_path))
    (folder,) = tmp_path.iterdir()
    shard = folder / "shard-00000-of-00001.labels"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1])
    # What the error message of `open` says to do.
    assert "2,050 curves written" in done("generate", f"--data_dir={folder}")
    assert shard.read_bytes() == whole
    said = refused("generate", f"--data_dir={folder}", "--seed=1")
    assert "is a data set itself; leave out --seed" in said


def test_own_curves(tmp_path, done, refused):
    strain = np.linspace(0.0, 0.01, 50)
    modulus = np.linspace(1000.0, 2000.0, 20)[:, None]
    arrays = {"strain": strain, "stress": modulus * strain, "parameters": modulus}
    np.savez(tmp_path / "mine.npz", **arrays, names=["E"], units=["MPa"])
    out = done("generate", f"--from={tmp_path}/mine.npz", f"--data_dir={tmp_path}/data")
    (folder,) = (tmp_path / "data").iterdir()
    assert (
        folder.name.startswith("mine-18-")
        and f"--data_dir={folder} --workdir=runs/{folder.name}" in out
    )
    said = refused("generate", f"--from={tmp_path}/mine.npz", "--num_curves=5")
    assert "--from packs curves that exist already; leave out --num_curves" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--num_curve=10",), "unknown flag --num_curve; did you mean '--num_curves'?"),
        (("--num_curves=3",), "--num_curves=3"),
        (("--num_curves=many",), "--num_curves is 'many'; give a whole number"),
        (("--num_test=-1",), "--num_test"),
        (("--seed=-1",), "--seed=-1"),
        (("--noise_mpa=-1",), "--noise_mpa=-1"),
        (("--noise_relative=2",), "--noise_relative is 2.0; give a fraction below 1"),
        (("--law=vooce",), "did you mean 'voce'"),
        (
            ("--range=G0=8000,2000",),
            "range of G0 (law hahn_tsai) is 8000 to 2000 MPa; give low < high, e.g. --range=G0=",
        ),
        (("--range=G1=1,2",), "no parameter 'G1'; did you mean 'G0'?"),
        (("--range=G0",), "--range=G0: give --range=NAME=LOW,HIGH"),
        (("--range=G0=5",), "--range: '5' is not LOW,HIGH"),
        (("--fix=G0=stiff",), "--fix: 'stiff' is not a number"),
        (("--max_strain=0.05,0.01",), "--max_strain is (0.05, 0.01); give 0 < low <= high"),
        (("--from=none.npz",), "cannot read none.npz: there is no such file"),
    ],
)
def test_one_line_for_each_mistake(refused, arguments, message):
    said = refused("generate", *arguments)
    assert message in said and "--config." not in said


def test_interrupted_it_goes_on_later(tmp_path, done):
    # Two full shards, of which the first is finished when Ctrl-C comes. As a process, for the signal.
    arguments = ["--num_curves=180000", "--num_test=0", f"--data_dir={tmp_path}", "--num_threads=1"]
    child = subprocess.Popen(
        [sys.executable, "-m", "tfmat", "generate", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # On a busy machine this process must still be quick enough to come before its end.
        preexec_fn=lambda: os.nice(15),
    )
    wait_for(lambda: list(tmp_path.glob("*/shard-00000-*.labels")))
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=300)
    (folder,) = tmp_path.iterdir()
    assert child.returncode == 75, err
    assert not out and "the same command goes on" in err and "Traceback" not in err
    assert not list(folder.glob(".*.tmp"))
    assert [path.name for path in folder.glob("shard-*")] and not list(folder.glob("shard-00001-*"))
    assert "48,928 curves written" in done("generate", *arguments)
    PackedDataset.open(folder)
    shutil.rmtree(folder)  # 430 MB, which pytest would keep for a while
