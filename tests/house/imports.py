"""Every import of the repository's packages, those inside functions and under TYPE_CHECKING too."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PACKAGES = {"perfpass": "python/perfpass", "tvm_perfpass": "tvm_perfpass", "ort_extension": "ort_extension"}
COMPILED = ("perfpass._core", "tvm_perfpass._relay", "tvm_perfpass._relax")


@dataclass(frozen=True)
class Import:
    """``module`` imports ``target``, a module, and from it ``name`` (None: the module itself)."""

    module: str
    line: int
    target: str
    name: str | None

    def __str__(self) -> str:
        what = f"{self.target}.{self.name}" if self.name else self.target
        return f"{self.module}, line {self.line}: {what}"


@cache
def _statements(text: str) -> list[ast.Import | ast.ImportFrom]:
    """The import statements of a module, wherever they stand; a text is read once."""
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]


@dataclass(frozen=True)
class Sources:
    """The text of every module, by its dotted name; ``packages`` are those with an ``__init__``."""

    text: Mapping[str, str]
    packages: frozenset[str]

    @classmethod
    def of(cls, root: Path) -> Sources:
        """Those of a checkout."""
        text, packages = {}, set()
        for top, folder in PACKAGES.items():
            for path in sorted((root / folder).rglob("*.py")):
                name = ".".join((top, *path.relative_to(root / folder).with_suffix("").parts))
                if path.stem == "__init__":
                    name = name.removesuffix(".__init__")
                    packages.add(name)
                text[name] = path.read_text(encoding="utf-8")
        return cls(text, frozenset(packages))

    def imports(self) -> list[Import]:
        """Imports of our own modules. ``from package import module`` is an import of the module."""
        return [found for module in self.text for found in self._of(module)]

    def _of(self, module: str) -> Iterator[Import]:
        for node in _statements(self.text[module]):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name.split(".")[0] in PACKAGES:
                        yield Import(module, node.lineno, alias.name, None)
            else:
                base = node.module or ""
                if node.level:
                    parts = module.split(".") if module in self.packages else module.split(".")[:-1]
                    base = ".".join([*parts[: len(parts) - node.level + 1], *([base] if base else [])])
                if base.split(".")[0] not in PACKAGES:
                    continue
                for alias in node.names:
                    inner = f"{base}.{alias.name}"
                    if inner in self.text or inner in COMPILED:
                        yield Import(module, node.lineno, inner, None)
                    else:
                        yield Import(module, node.lineno, base, alias.name)

    def face(self, package: str) -> set[str]:
        """The names of a package's ``__all__``."""
        for node in ast.parse(self.text[package]).body:
            if isinstance(node, ast.Assign) and any(getattr(t, "id", None) == "__all__" for t in node.targets):
                return set(ast.literal_eval(node.value))
        return set()

    def package_of(self, module: str) -> str:
        """The package that a module stands in; a package stands in itself."""
        return module if module in self.packages else module.rpartition(".")[0]


def room_of(module: str) -> str:
    """A room is a part of perfpass (``graph``), or an adapter as a whole; perfpass's own face is ``perfpass``."""
    parts = module.split(".")
    return parts[1] if parts[0] == "perfpass" and len(parts) > 1 else parts[0]


def circles(imports: list[Import], packages: frozenset[str]) -> list[list[str]]:
    """Modules that import each other, directly or over others. Faces do not count: they import what they list."""
    edges: dict[str, set[str]] = {}
    for one in imports:
        if one.target not in packages and one.target not in COMPILED and one.target != one.module:
            edges.setdefault(one.module, set()).add(one.target)
    import networkx

    graph = networkx.DiGraph([(a, b) for a, targets in edges.items() for b in targets])
    return sorted(sorted(part) for part in networkx.strongly_connected_components(graph) if len(part) > 1)
