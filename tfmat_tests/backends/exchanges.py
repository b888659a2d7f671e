"""What a step on a mesh exchanges, counted in the graphs that DTensor made of it."""


def exchanges(plan, batch_size):
    """(numbers that the arithmetic says, numbers in the graphs, how many messages DTensor joined to longer ones)."""
    import numpy as np
    from tensorflow.python.eager import context

    from tfmat.backends.layouts import collectives_of_step

    total, joined = 0, 0
    for name in context.context().list_function_names():
        for node in context.context().get_function_def(name).node_def:
            if node.op.startswith("Collective"):
                (shape,) = node.attr["_output_shapes"].list.shape
                total += int(np.prod([dimension.size for dimension in shape.dim]))
                joined += "Combined" in node.input[0]
    return sum(each.bytes for each in collectives_of_step(plan, batch_size)) // 4, total, joined
