"""The main job: training a network on a data set, and what follows it."""
