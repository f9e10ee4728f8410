"""Whatever is written is written whole: nothing but `perfpass.whole_file` opens a file to write."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("python", "tvm_perfpass", "ort_extension")
# Who opens files itself, and why that is whole.
ALLOWED = {
    "python/perfpass/whole_file.py": "the function itself",
    "python/perfpass/predictors/learned/artefacts.py": "a folder beside, which takes the artefact's place",
    "python/perfpass/cli/running.py": "/dev/null",
    "python/perfpass/measure/host.py": "/proc",
}
AT_ONCE = {"write_text", "write_bytes"}
# Calls whose first argument is a path or a stream: only a stream is right. `replacing` gives one.
GIVEN_A_STREAM = {"savez", "savez_compressed", "to_parquet", "to_csv", "write_table", "savefig"}
STREAMS = {"file", "picture", "buffer"}


def found_in(source: str) -> list[str]:
    """What opens a file to write in a module, by line."""
    out = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in AT_ONCE or (name in ("open", "NamedTemporaryFile") and _writes(node)):
            out.append(f"{node.lineno}: {name}")
        position = 1 if name == "write_table" else 0
        if name in GIVEN_A_STREAM and (len(node.args) <= position or ast.unparse(node.args[position]) not in STREAMS):
            out.append(f"{node.lineno}: {name} of a path")
    return out


def _writes(call: ast.Call) -> bool:
    modes = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
    texts = [mode.value for mode in modes if isinstance(mode, ast.Constant) and isinstance(mode.value, str)]
    return any(len(text) <= 3 and set(text) & set("wax+") for text in texts)


def test_files_are_written_by_the_function_that_writes_them_whole():
    found = {
        name: lines
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (lines := found_in(path.read_text())) and (name := str(path.relative_to(ROOT))) not in ALLOWED
    }
    assert not found, "write it with perfpass.whole_file"


@pytest.mark.parametrize(
    "line",
    [
        "path.write_text(text)",
        "open(path, 'w')",
        "path.open(mode='ab')",
        "NamedTemporaryFile('w')",
        "np.savez(path, a=a)",
        "table.to_parquet(folder / 'a.parquet')",
        "pyarrow.parquet.write_table(table, path)",
        "figure.savefig(path)",
    ],
)
def test_another_way_to_write_is_found(line):
    assert found_in(line)
    assert not found_in("open(path)\nnp.savez(file)\npyarrow.parquet.write_table(table, file)\npath.open('rb')")
