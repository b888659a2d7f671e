"""A description whose program starts in milliseconds: a bar of two straight lines, in sh and awk."""

import pathlib

LENGTH, AREA, MODULUS, END = 50.0, 20.0, 70e3, 1.0
# Writes the curve, and one line into `../../started` and `../../ended` each: what was run, and how often. The file
# `../../trouble` is done in between.
SOLVER = f"""
. ./bar.in
echo "$yields $slope" >> ../../started
if [ -f ../../trouble ]; then . ../../trouble; fi
awk -v y="$yields" -v k="$slope" 'BEGIN {{
    print "a bar"; print "u, f"
    for (i = 0; i <= 40; i++) {{
        u = {END} * i / 40; e = u / {LENGTH}; if (y / {MODULUS} < e) e = y / {MODULUS}
        printf "%.17g, %.17g\\n", u, (({MODULUS} - k) * e + k * u / {LENGTH}) * {AREA}
    }}
}}' > curve.csv
echo "$yields $slope" >> ../../ended
echo "${{said-all done}}"
"""
DESCRIPTION = f"""
command = ["sh", "solve.sh"]
templates = ["bar.in"]
files = ["solve.sh"]
finished = "all done"
time_limit = 20
[parameters.yields]
unit = "MPa"
low = 100
high = 300
[parameters.slope]
unit = "MPa"
low = 100
high = 10000
scale = "log"
[curve]
file = "curve.csv"
displacement = "u"
force = "f"
gauge_length = {LENGTH}
area = {AREA}
end = {END}
[laboratory]
noise_of_maximum = [1e-3, 5e-3]
"""


def bar_folder(folder: pathlib.Path) -> pathlib.Path:
    """Writes the description into a folder `bar` of `folder`."""
    bar = folder / "bar"
    bar.mkdir()
    (bar / "simulator.toml").write_text(DESCRIPTION)
    (bar / "bar.in").write_text("yields={{ yields }}\nslope={{ slope }}\n")
    (bar / "solve.sh").write_text(SOLVER)
    return bar


def trouble(store: pathlib.Path, text: str) -> pathlib.Path:
    """What the program does beside its work, in sh."""
    store.mkdir(parents=True, exist_ok=True)
    file = store / "trouble"
    file.write_text(text)
    return file
