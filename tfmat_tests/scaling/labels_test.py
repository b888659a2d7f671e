"""What points are called: apart, short, and what most points share left out."""

import dataclasses

import pytest

from tfmat.report.figures import bars, legend_below, new_figure
from tfmat.scaling.model import Cost, name_among, summarise
from tfmat.scaling.study import Labels, Measurements, Model, Point, Repetition

SMALL, LARGE = Model("default", 10, 40), Model("large", 100, 400)
TWO = Point("horovod", 2, 150, 75, "weak", "here", SMALL, 60_000, collectives="mpi")
ONE = dataclasses.replace(TWO, backend="single", workers=1, global_batch_size=75, collectives="")


def other(point: Point = TWO, **changes) -> Point:
    return dataclasses.replace(point, **changes)


# The usual ones first: three of seven.
STUDY = [
    ONE, TWO, other(workers=4, global_batch_size=300), other(model=LARGE), other(ONE, model=LARGE),
    other(dataset_size=15_000), other(processors_a_worker=2),
]  # fmt: skip


def test_only_what_is_unusual_is_named():
    labels = Labels(STUDY)
    assert [labels[point] for point in STUDY] == [
        "single, 75 a worker", "horovod mpi, 75 a worker", "horovod mpi, 75 a worker",
        "horovod mpi, 75 a worker, large network", "single, 75 a worker, large network",
        "horovod mpi, 75 a worker, 15,000 examples", "horovod mpi, 75 a worker, 2 processors a worker",
    ]  # fmt: skip
    assert Labels([other(model=LARGE)])[other(model=LARGE)] == "horovod mpi, 75 a worker"


@pytest.mark.parametrize(
    "change",
    [
        {"model": LARGE}, {"dataset_size": 15_000}, {"processors_a_worker": 2}, {"hardware": "there"},
        {"transport": "tcp"}, {"placement": "spread"}, {"nodes": 2}, {"ranks_per_node": 2}, {"zero_stage": 1},
        {"collectives": "gloo"}, {"backend": "dtensor", "mesh": "batch:2"}, {"scaling": "strong"},
        {"global_batch_size": 300, "batch_a_worker": 150}, {"workers": 4}, {"oversubscribed": True},
    ],
)  # fmt: skip
def test_no_two_points_have_the_same_name(change):
    """Whatever it is that tells them apart."""
    runs = [Repetition(point, 0, 1, 1.0) for point in (ONE, TWO, other(**change))]
    names = [each.name for each in summarise(Measurements(tuple(runs)))]
    assert len(set(names)) == 3


def test_meshes_of_one_size_are_told_apart():
    meshes = ("batch:2,model:4", "batch:4,model:2")
    points = [other(backend="dtensor", workers=8, collectives="", mesh=mesh) for mesh in meshes]
    labels = Labels(points)
    assert [labels[point] for point in points] == [
        f"dtensor batch,model, 75 a worker, {mesh}" for mesh in meshes
    ]


def test_points_are_in_a_reader_s_order():
    labels, mixed = Labels(STUDY), STUDY[::-1]
    names = [(p.workers, labels[p]) for p in sorted(mixed, key=labels.order)]
    assert names[:3] == [(1, "single, 75 a worker")] + [(n, "horovod mpi, 75 a worker") for n in (2, 4)]  # fmt: skip
    assert [name.rpartition(", ")[2] for _, name in names[3:]] == [
        "2 processors a worker", "15,000 examples", "large network", "large network",
    ]  # fmt: skip


def test_a_long_name_stays_inside_its_picture():
    """Both in a legend of one column and beside a bar."""
    name = "2 × parameter server, asynchronous updates, tcp, 750 a worker, large network, 15,000 examples"
    figure = new_figure(4.3, 3.0)
    panel = figure.subplots()
    panel.plot([1], [1], label=name)
    bars(panel, [name], "")
    legend_below(panel)
    figure.draw_without_rendering()
    for part in (figure.legends[0], *panel.get_yticklabels()):
        extent = part.get_window_extent()
        assert extent.x0 >= 0
        assert extent.x1 <= figure.bbox.width
    assert panel.get_position().width > 0.4


def test_the_verdict_names_the_data_set_where_there_are_several():
    usual, small = (Cost(other(dataset_size=n), name, None, 1.0, 1.0, None, None)
                    for n, name in ((60_000, "2 × a"), (15_000, "2 × a, 15,000 examples")))  # fmt: skip
    assert name_among(usual, [usual]) == "2 × a"
    assert name_among(usual, [usual, small]) == "2 × a, 60,000 examples"
    assert name_among(small, [usual, small]) == "2 × a, 15,000 examples"
