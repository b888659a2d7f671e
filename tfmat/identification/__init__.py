"""A trained network's answers: parameters of measured curves, and how good the answers are on a test set."""
