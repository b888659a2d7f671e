"""What the laboratories of each family of laws add to a record: options of `CurveSettings` with their ranges.

They are asked for (`data.laboratory`), never silently there. Drawn noise takes the place of the law's own `noise_mpa`.
What the material itself does, misfit and spread of the yield stress, is no laboratory's. Limits of ISO standards: an
extensometer of class 0.5 is off by 1.5 µm, one of class 1 by 3 µm (ISO 9513); the zero of a load cell of class 1 is off
by 0.1 % of its range (ISO 7500-1).
"""

Ranges = dict[str, tuple[float, float]]

# As 16 tension tests of 304L and 6061-T6 show it: their noise, recorded points, and zeroes that are up to 10 MPa off.
METAL_TENSION: Ranges = {
    "noise_of_maximum": (3e-4, 5e-3),
    "measured_points": (15, 400),
    "strain_offset": (5e-6, 2e-4),
}

# An extensometer of class 0.5 to 1 on 12 to 25 mm, a load cell of class 1 whose range is up to 1000 MPa of the
# specimen, a servo loop that the filters of the amplifiers smooth. The machine itself is outside of the gauge length.
METAL_CYCLIC: Ranges = {
    "noise_of_maximum": (5e-4, 5e-3),
    "noise_correlation": (0.1, 0.8),
    "strain_offset": (5e-6, 1.5e-4),
    "stress_offset": (0.1, 1.0),
}

# Strain gauges or image correlation on a ±45° coupon (ASTM D3518): gauges are zeroed to some 10 to 200 µm/m, images
# scatter more than they; loads of some kN on a cell of 100 kN.
PLY_SHEAR: Ranges = {
    "noise_of_maximum": (1e-3, 1e-2),
    "strain_offset": (1e-5, 2e-4),
    "stress_offset": (0.05, 0.5),
}

# Small forces, marks on the specimen that are read to some tenths of a millimetre on 25 mm, a strip that hangs loose at
# first, often points read by hand. No machine gives way: rubber is ten thousand times softer.
RUBBER: Ranges = {
    "noise_of_maximum": (2e-3, 2e-2),
    "measured_points": (12, 400),
    "strain_offset": (1e-3, 1e-2),
    "toe": (1e-3, 2e-2),
}

# Hopkinson bars ring (noise that swings over several points), and the strain of bars and crossheads holds what gives
# way beside the specimen.
RATES_AND_TEMPERATURES: Ranges = {
    "noise_of_maximum": (3e-3, 3e-2),
    "noise_correlation": (0.3, 0.95),
    "strain_offset": (1e-4, 1e-3),
    "machine_stiffness": (1e5, 1e6),
}

# An extensometer holds the strain, or a dead weight the stress, for hours: the room's temperature swings slowly, and
# the zero of the load cell drifts with it.
HELD_METAL: Ranges = METAL_CYCLIC | {"noise_correlation": (0.3, 0.95)}

# The same of polymers, which bear a fiftieth of the stress at a hundred times the strain.
HELD_POLYMER: Ranges = {
    "noise_of_maximum": (1e-3, 1e-2),
    "noise_correlation": (0.3, 0.95),
    "strain_offset": (1e-5, 2e-4),
    "stress_offset": (0.002, 0.02),
}
