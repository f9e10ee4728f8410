"""Measured records and the operator graphs of the models they name. docs/reference/records.md is the schema."""
