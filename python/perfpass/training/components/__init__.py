"""Fitting and grading areas that are sums of learned components."""
