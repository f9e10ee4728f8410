"""Learning the predictors of the literature from this repository's records."""
