"""The mesh and the hardening curve of the notched bar, as `bar.inp` takes them."""

import math

RADIUS, NOTCH, LENGTH = 6.0, 3.0, 15.0  # mm: of the bar, of its net section, and half the length
ACROSS, ALONG = 6, 12  # elements of 8 nodes; 72 of them are as good as 800


def derive(values):
    """Names for the template, from the values of one run."""
    plastic = [0.1 * i / 20 for i in range(21)] + [0.12 + 1.38 * i / 39 for i in range(40)]
    hardening = [
        (values["sigma0"] + values["Q"] * (1 - math.exp(-values["b"] * strain)), strain)
        for strain in plastic
    ]
    return {"hardening": hardening, **mesh(values["notch_radius"])}


def mesh(notch_radius):
    """Nodes (number, r, z), elements (number, eight nodes), and the nodes of three edges."""
    nodes, numbers = [], {}
    for j in range(2 * ALONG + 1):
        s = j / (2 * ALONG)
        z = LENGTH * (0.35 * s + 0.65 * s**2.2)
        inside = math.sqrt(max(notch_radius**2 - min(z, notch_radius) ** 2, 0.0))
        edge = min(NOTCH + notch_radius - inside, RADIUS) if z < notch_radius else RADIUS
        for i in range(2 * ACROSS + 1):
            if i % 2 and j % 2:
                continue
            numbers[i, j] = len(nodes) + 1
            nodes.append((len(nodes) + 1, edge * i / (2 * ACROSS), z))
    corners = ((0, 0), (2, 0), (2, 2), (0, 2), (1, 0), (2, 1), (1, 2), (0, 1))
    elements = []
    for j in range(0, 2 * ALONG, 2):
        for i in range(0, 2 * ACROSS, 2):
            elements.append((len(elements) + 1, [numbers[i + p, j + q] for p, q in corners]))
    return {
        "nodes": nodes,
        "elements": elements,
        "bottom": [numbers[i, 0] for i in range(2 * ACROSS + 1)],
        "top": [numbers[i, 2 * ALONG] for i in range(2 * ACROSS + 1)],
        "axis": [numbers[0, j] for j in range(2 * ALONG + 1)],
    }
