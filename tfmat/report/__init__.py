"""Tables and pictures, made from plain numbers and files. No TensorFlow."""
