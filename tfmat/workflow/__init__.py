"""The main job, made of what the rooms offer."""

from tfmat.workflow.job import (
    calibrate_run,
    curve_settings,
    main_job,
    make_dataset,
    plan_job,
    sidecar,
)

__all__ = [
    "calibrate_run",
    "curve_settings",
    "main_job",
    "make_dataset",
    "plan_job",
    "sidecar",
]
