"""The rooms of tests: what each may use. BUILD makes a target of each, and the test of imports reads this table."""

# Tests that look at the whole project as it lies in its folder; Bazel shows a test only what it depends on.
WHOLE_PROJECT = [
    "docs_test.py",
    "imports_test.py",
    "older_files_test.py",
    "packaging_test.py",
    "readme_test.py",
]

# Room -> rooms of tfmat/ that its tests use, rooms of tests whose files they use, other targets whose files they read,
# and whether they are light: without TensorFlow, and done in minutes.
ROOMS = {
    "backends": dict(tfmat = ["backends", "data", "launch", "training"], tests = ["launch", "training"]),
    "cli": dict(tfmat = ["cli"], tests = ["records", "report", "specimens"]),
    "data": dict(tfmat = ["data"]),
    "end_to_end": dict(tfmat = ["cli"], tests = ["specimens"], files = ["//tools"]),
    "horovod": dict(tfmat = ["horovod"]),
    "identification": dict(tfmat = ["cli", "identification"], tests = ["records", "specimens"]),
    "large_batch": dict(tfmat = ["cli", "large_batch"]),
    "launch": dict(tfmat = ["cli", "launch"], files = ["//tools"]),
    "materials": dict(tfmat = ["materials", "records"], light = True),
    "networks": dict(tfmat = ["networks", "workflow"]),
    "optimizers": dict(tfmat = ["optimizers", "training"]),
    # These files lie beside the rooms of tests: tests of modules without a room.
    "outside_rooms": dict(tfmat = ["cli"], tests = ["report", "scaling", "tuning"]),
    "records": dict(tfmat = ["data", "records"], light = True),
    "report": dict(tfmat = ["report"], light = True),
    "scaling": dict(tfmat = ["cli", "scaling"], tests = ["report"], files = ["//tools"]),
    "specimens": dict(tfmat = ["cli", "specimens"], files = ["//tools"]),
    "tools": dict(tfmat = ["cli"], files = ["//configs", "//tools"]),
    "training": dict(tfmat = ["horovod", "report", "training"], tests = ["backends"]),
    "tuning": dict(tfmat = ["cli", "tuning"], tests = ["report"], files = ["//tools"]),
    "workflow": dict(tfmat = ["cli"], tests = ["report", "specimens"]),
}
