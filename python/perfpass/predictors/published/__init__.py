"""Predictors of the literature behind the interface of ours."""
