"""Energy and power: the learned predictor, its features, and power while a training step runs."""
