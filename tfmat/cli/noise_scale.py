"""Measures the gradient noise scale of a run: up to which batch a larger one still saves steps.

    tfmat noise_scale --workdir=runs/quickstart
    tfmat noise_scale --workdir=runs/quickstart --big=20000 --groups=20     a narrower band late in a run

At each checkpoint of the run (--config.checkpoint.keep=10 keeps more of them) the squared norm of the gradient is
measured with two batch sizes; their difference tells signal from noise (McCandlish et al. 2018, appendix A). It prints
a table, and writes noise_scale.json and figures/noise_scale.png and .svg into the run's folder, which may still train.

Around the noise scale B the batch trades time for work: at batch b a run needs 1 + B/b times the fewest steps and
1 + b/B times the fewest curves. It is a rule for plain gradient descent; with Adam take it as an order of magnitude.
"""

from absl.flags import FlagValues

from tfmat.cli.flags import text, whole

FLAGS = (
    text("workdir", "runs/quickstart", "folder of the run"),
    whole("small", 100, "curves of a small batch"),
    whole("big", 4000, "curves of a big one"),
    whole("groups", 40, "big batches a checkpoint"),
    whole("seed", 0, "of the choice of curves"),
)
NO_ARGUMENT = "; name the run with --workdir={}"


def run(flag_values: FlagValues, arguments: list[str]) -> int:
    """Measures, prints the table and the files; returns the exit status."""
    from tfmat.console import progress_bar
    from tfmat.launch.runtime import prepare_tensorflow

    prepare_tensorflow(own_program=True)
    from tfmat.large_batch.noise_of_run import describe_noise, noise_scale_of_run

    with progress_bar("measuring gradients", "groups") as progress:
        found = noise_scale_of_run(
            flag_values.workdir,
            small=flag_values.small,
            big=flag_values.big,
            groups=flag_values.groups,
            seed=flag_values.seed,
            progress=progress,
        )
    print(describe_noise(found))
    return 0
