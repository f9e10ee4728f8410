"""Tests with today's TVM, in the environment of requirements-relax.txt: pytest tests/relax."""
