"""Tables and files of any size on any number of machines: the batch predictor, and the planner of blocks."""
