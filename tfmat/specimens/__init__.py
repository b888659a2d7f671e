"""Specimens as laws: simulations that are programs of their own, such as finite-element solvers."""
