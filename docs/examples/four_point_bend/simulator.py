"""The mesh and the hardening curve of the bent beam, as `beam.inp` takes them."""

import math

# Elements over the height, within the inner rollers and beyond; four times as many change the peak force by 0.2 %.
ACROSS, WITHIN, BEYOND = 6, 2, 4


def derive(values):
    """Names for the template, from the values of one run."""
    plastic = [0.0, *(2e-4 * 1000 ** (i / 59) for i in range(60))]
    hardening = [
        (values["sigma0"] + values["Q"] * (1 - math.exp(-values["b"] * strain)), strain)
        for strain in plastic
    ]
    return {
        "hardening": hardening,
        **mesh(values["height"], values["inner_span"] / 2, values["outer_span"] / 2),
    }


def mesh(height, inner, outer):
    """Nodes (number, x, y), elements (number, eight nodes), rollers (number, x), and what these hold.

    A roller is a node that has the mean deflection of its section: the nodes' mean with the weights of the integral
    along the edges of the elements, 1, 4 and 1 sixth of each.
    """
    along = [inner * i / (2 * WITHIN) for i in range(2 * WITHIN)]
    along += [inner + (outer - inner) * i / (2 * BEYOND) for i in range(2 * BEYOND + 1)]
    nodes, numbers = [], {}
    for i, x in enumerate(along):
        for j in range(2 * ACROSS + 1):
            if i % 2 and j % 2:
                continue
            numbers[i, j] = len(nodes) + 1
            nodes.append((len(nodes) + 1, x, height * (j / (2 * ACROSS) - 0.5)))
    corners = ((0, 0), (2, 0), (2, 2), (0, 2), (1, 0), (2, 1), (1, 2), (0, 1))
    elements = []
    for i in range(0, len(along) - 1, 2):
        for j in range(0, 2 * ACROSS, 2):
            elements.append((len(elements) + 1, [numbers[i + p, j + q] for p, q in corners]))
    sections = [
        [numbers[i, j] for j in range(2 * ACROSS + 1)] for i in (0, 2 * WITHIN, len(along) - 1)
    ]
    weights = [4 if j % 2 else 2 for j in range(2 * ACROSS + 1)]
    weights[0] = weights[-1] = 1
    rollers = [(len(nodes) + 1, inner), (len(nodes) + 2, outer)]
    means = [
        [*zip(section, (one / (6 * ACROSS) for one in weights), strict=True), (roller, -1)]
        for section, (roller, _) in zip(sections[1:], rollers, strict=True)
    ]
    return {
        "nodes": nodes,
        "elements": elements,
        "rollers": rollers,
        "middle": sections[0],
        "inner": sections[1],
        "means": means,
    }
