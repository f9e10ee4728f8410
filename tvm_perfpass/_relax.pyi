from typing import Any

class AbiError(Exception): ...

class Walker:
    def __init__(self, library: str, rules: dict[str, Any]) -> None: ...
    def offset_of(self, type_key: str, field: str) -> int: ...
    def walk(
        self,
        main: int,
        functions: list[tuple[int, int]],
        kernels: list[tuple[int, str, str, list[int], list[int], list[int]]],
        parameters: list[str] | None,
        sizes: list[tuple[int, int]],
    ) -> tuple[Any, Any]: ...
