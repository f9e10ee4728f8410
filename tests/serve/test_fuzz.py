"""Whatever the description allows, and what it does not, is answered as the description says: never with a fault."""

from __future__ import annotations

import pytest

from serve.fuzzing import OPERATIONS, fuzz

EXAMPLES = 8


@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_question_is_a_fault(operation):
    found = fuzz(operation, EXAMPLES)
    assert found and not any(status >= 500 for status in found)
