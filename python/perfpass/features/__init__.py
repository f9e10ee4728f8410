"""What predictors read: node features in named schemas, and the table of distinct operators.

The schemas: docs/reference/schemas.md.
"""

from __future__ import annotations

from perfpass.features.files import load, save
from perfpass.features.matrix import SCHEMAS, Features, extract, names
from perfpass.graph.table import OperatorTable, Tables, operator_table

__all__ = ["SCHEMAS", "Features", "OperatorTable", "Tables", "extract", "load", "names", "operator_table", "save"]
