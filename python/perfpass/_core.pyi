# The compiled core. Its docstrings say what it takes and returns; its arrays have no static types.
from typing import Any

def __getattr__(name: str) -> Any: ...
