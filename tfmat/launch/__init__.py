"""How a process starts: its place among others, and a quiet TensorFlow."""
