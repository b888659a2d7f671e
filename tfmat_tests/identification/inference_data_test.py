"""Samples as ArviZ takes them: what is in the tree, and that its file comes back the same."""

import numpy as np
import pytest

import tfmat
from tfmat.curves.example import example_curve
from tfmat.errors import InputError
from tfmat.identification import inference_data as module
from tfmat.identification.inference_data import inference_data, write_inference_data


def test_the_tree_holds_the_samples_and_comes_back_from_its_file(posterior_run, tmp_path):
    path = str(example_curve("hahn_tsai"))
    (answer,) = tfmat.identify(path, workdir=posterior_run, samples=50)
    (without,) = tfmat.identify(path, workdir=posterior_run)
    tree = inference_data([answer, without])
    posterior = tree["posterior"]
    assert posterior["G0"].dims == ("chain", "draw", "curve")
    assert posterior["a"].attrs["units"] == "MPa^-3"
    np.testing.assert_array_equal(posterior["G0"].values[0, :, 0], answer.samples.values[:, 0])
    status = answer.posterior.certificate.status
    assert posterior.attrs["certificate"][0] == status
    lp = tree["sample_stats"]["lp"].values
    np.testing.assert_array_equal(lp[0, :, 0], answer.samples.log_density)
    assert np.isnan(lp[0, :, 1]).all()
    import xarray

    write_inference_data([answer], tmp_path / "x.nc")
    with xarray.open_datatree(tmp_path / "x.nc", engine="h5netcdf") as read:
        np.testing.assert_array_equal(
            read["posterior"]["a"].values[0, :, 0], answer.samples.values[:, 1]
        )
        assert read.attrs["law"] == "hahn_tsai"
        assert np.atleast_1d(read["posterior"].attrs["certificate"]).tolist() == [status]
    with pytest.raises(InputError, match="no answer has samples"):
        inference_data([without])


def test_without_arviz_there_is_one_line(monkeypatch):
    monkeypatch.setattr(module, "_PACKAGES", ("arviz_base", "no_such_package"))
    with pytest.raises(
        InputError, match=r"need no_such_package; run `.* 'arviz-base\[h5netcdf\]'`"
    ):
        module.check_arviz()
