"""What predictors read: the table of distinct operators, and node features in named schemas (docs/schemas.md)."""

from __future__ import annotations

from perfpass.features.table import OperatorTable, operator_table

__all__ = ["OperatorTable", "operator_table"]
