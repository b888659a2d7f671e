"""The scaling study: data set, measurements, report."""

import os
import pathlib
from typing import TYPE_CHECKING, Any

from tfmat.config import Config, Settings
from tfmat.console import log
from tfmat.data.dataset import PackedDataset
from tfmat.errors import InputError, WorkerLostError
from tfmat.files import as_json, locked
from tfmat.workflow.job import check_training_fits, curve_settings, make_dataset, named_dataset

if TYPE_CHECKING:
    from tfmat.launch.mpirun import Host
    from tfmat.launch.slurm import Site, SlurmJob
    from tfmat.scaling.measure import Run, Study
    from tfmat.scaling.study import Matrix


def scale(
    config: Config,
    matrix: "Matrix",
    *,
    workdir: str,
    data_dir: str,
    assumptions: dict[str, Any],
    slurm: "tuple[SlurmJob, Site] | None" = None,
    hosts: "tuple[Host, ...]" = (),
    dry_run: bool = False,
) -> None:
    """Measures what is missing in the study's folder, and writes its report.

    Args:
      config, matrix: checked, see `tfmat.scaling.study`.
      workdir: folder of the study.
      data_dir: folder of data sets, or one data set.
      assumptions: of the report; what is not in it stays as it was.
      slurm: what each job has in common, and the site; None measures on this machine or on `hosts`.
      hosts: machines that mpirun reaches, each with its workers.
      dry_run: prints the first job instead.

    Raises:
      InputError, Interrupted.
      WorkerLostError: some launches failed; all others are measured, and the report is written.
    """
    from tfmat.launch.machine import describe_session
    from tfmat.scaling.measure import check_same_study, measure_study
    from tfmat.scaling.study import read_measurements

    folder = pathlib.Path(workdir)
    dataset = _dataset(config, data_dir, _num_train(matrix))
    check_training_fits(Settings.of(config), num_outputs=len(dataset.parameters), form=dataset.form)
    busy = f"another tfmat scale works in {folder}; wait for it, or use another --workdir"
    with locked(folder, busy):
        check_same_study(folder, config)
        session = describe_session()
        study = _study(config, matrix, dataset, folder, session, slurm, hosts)
        if dry_run and slurm:
            print(_first_script(study, slurm, folder), end="")
            return
        run = _runner(slurm, folder)
        total, failed = measure_study(study, workdir=folder, session=session, run=run)
        if read_measurements(folder).repetitions:
            from tfmat.scaling.report import write_scaling_report

            page, verdict = write_scaling_report(folder, assumptions)
            print(f"{verdict}\nreport: {page}")
        else:
            log("nothing was measured: there is no report")
    if failed:
        raise WorkerLostError(
            f"{len(failed)} of {total} launches failed, the first: {failed[0].what}: {failed[0].reason}; the rest is "
            "measured. Start the same command again to try them again"
        )


def _num_train(matrix: "Matrix") -> int:
    sizes = [size for runs in matrix.runs for size in runs.values("dataset_size")]
    return max([matrix.dataset_size, *sizes])


def _dataset(config: Config, data_dir: str, num_train: int) -> PackedDataset:
    dataset = named_dataset(config, data_dir)
    if dataset is None:
        # A quarter of the curves validates.
        config.data.num_curves = -(-num_train * 4 // 3)
        return make_dataset(config, curve_settings(config), data_dir)
    if dataset.num_train < num_train:
        raise InputError(
            f"{data_dir} has {dataset.num_train:,} training examples, the study asks for {num_train:,}; give a "
            "larger data set or a smaller dataset_size"
        )
    return dataset


def _study(
    config: Config,
    matrix: "Matrix",
    dataset: PackedDataset,
    folder: pathlib.Path,
    session: dict[str, Any],
    slurm: Any,
    hosts: "tuple[Host, ...]",
) -> "Study":
    from tfmat.scaling.measure import Study, local_machine, networks_and_libraries, slurm_machine
    from tfmat.scaling.study import config_of_model

    log("looking at networks and libraries")
    configs = {
        name: as_json(config_of_model(config, matrix, name).to_dict())
        for name in ("default", *matrix.models)
    }
    models, sums_with = networks_and_libraries(configs, len(dataset.parameters), folder)
    if slurm is None:
        machine = local_machine(session, sums_with, matrix, hosts)
    else:
        template, site = slurm
        machine = slurm_machine(
            site, matrix, sums_with, partition=template.partition, most_nodes=template.nodes
        )
    # Processes of other machines cannot see this one.
    watch = None if slurm or hosts else os.getpid()
    return Study(config, matrix, machine, models, dataset.folder.resolve(), watch)


def _runner(slurm: Any, folder: pathlib.Path) -> "Run":
    from tfmat.scaling.measure import SlurmLaunches, run_locally

    if slurm is None:
        return run_locally
    template, site = slurm
    return SlurmLaunches(template, site, folder).run


def _first_script(study: "Study", slurm: Any, folder: pathlib.Path) -> str:
    from tfmat.launch.slurm import job_script
    from tfmat.scaling.measure import LAUNCHES, job_of
    from tfmat.scaling.study import Measurements

    template, site = slurm
    first = study.rounds(Measurements(), (folder / LAUNCHES).resolve())[0][0]
    return job_script(job_of(first, template, site), site)
