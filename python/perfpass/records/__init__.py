"""Measured records and the operator graphs of the models they name. docs/records.md is the schema."""
