"""Tasks, splits, graphs, methods and baselines that every predictor is trained and graded on."""
