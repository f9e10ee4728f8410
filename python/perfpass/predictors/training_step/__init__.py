"""A training step: forward, backward and optimizer."""
