"""The flags of serving engines, read off their published sources, for the tests of the command lines that are written.

    pip download --no-deps vllm==0.33.0 sglang==0.5.23
    pip download --no-deps --no-binary :all: llama-cpp-python==0.3.36
    python benchmarks/publish/engine_flags.py tests/deploy/engine_flags.json vllm-*.whl sglang-*.whl llama_cpp_*.tar.gz

Nothing is imported or run: flags are the arguments of `add_argument` (vLLM), the fields of the argument groups (SGLang)
and the tables of common/arg.cpp (llama.cpp). A flag's entry is "switch", "value", or the list of values that it takes.
TensorRT-LLM's entry (tensorrt_llm/commands/serve.py) is kept by hand, since its package is of gigabytes.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from datetime import date
from pathlib import Path

Flag = str | list[str]


def sources(archive: Path, wanted: str) -> dict[str, str]:
    """Text of an archive's files whose path holds the pattern ``wanted``."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as files:
            return {n: files.read(n).decode() for n in files.namelist() if re.search(wanted, n)}
    found = {}
    with tarfile.open(archive) as files:
        for one in files:
            if re.search(wanted, one.name) and (content := files.extractfile(one)):
                found[one.name] = content.read().decode()
    return found


def vllm(archive: Path) -> dict[str, Flag]:
    """Of `vllm serve`: the engine's arguments."""
    texts = sources(archive, r"vllm/(engine/arg_utils|config/\w+)\.py$")
    trees = [ast.parse(text) for text in texts.values()]
    aliases = {}
    fields: dict[str, str] = {}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and "Literal[" in (
                value := ast.unparse(node.value)
            ):  # fmt: skip
                aliases[node.targets[0].id] = re.findall(r"'([^']+)'", value)
            if isinstance(node, ast.ClassDef):
                for line in node.body:
                    if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                        fields.setdefault(line.target.id, ast.unparse(line.annotation))
    found: dict[str, Flag] = {}
    (engine,) = (ast.parse(text) for name, text in texts.items() if name.endswith("arg_utils.py"))
    for call in ast.walk(engine):
        if not isinstance(call, ast.Call) or getattr(call.func, "attr", "") != "add_argument":
            continue
        names = [a.value for a in call.args if isinstance(a, ast.Constant) and str(a.value).startswith("-")]
        rest = " ".join(ast.unparse(word) for word in call.keywords)
        field = re.search(r"\['(\w+)'\]", rest)
        kind = fields.get(field[1], "") if field else ""
        switch = "bool" in kind or "store_true" in rest or "BooleanOptionalAction" in rest
        listed = next((values for alias, values in aliases.items() if re.search(rf"\b{alias}\b", kind)), None)
        for name in names:
            found[name] = "switch" if switch else listed or "value"
            if switch and name.startswith("--"):
                found[f"--no-{name[2:]}"] = "switch"
    return {"--model": "value", "--host": "value", "--port": "value", **found}


def sglang(archive: Path) -> dict[str, Flag]:
    """Of `python -m sglang.launch_server`: the fields of its arguments."""
    texts = sources(archive, r"sglang/srt/arg_groups/(fields/\w+|choices)\.py$")
    constants: dict[str, list[str]] = {}
    for text in texts.values():
        for node in ast.parse(text).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.List | ast.Tuple):
                constants[ast.unparse(node.targets[0])] = list(_texts(node.value))
    found: dict[str, Flag] = {}
    for text in texts.values():
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.AnnAssign) or not ast.unparse(node.annotation).startswith("A["):
                continue
            said = ast.unparse(node.annotation)
            if "no_cli=True" in said:
                continue
            words = {k.arg: k.value for call in ast.walk(node.annotation) if isinstance(call, ast.Call)
                     for k in call.keywords}  # fmt: skip
            own = words.get("cli_name")
            names = [*_texts(own)] if own else [f"--{ast.unparse(node.target).replace('_', '-')}"]
            names += _texts(words["aliases"]) if "aliases" in words else []
            choices = words.get("choices")
            listed = constants.get(ast.unparse(choices)) or list(_texts(choices)) if choices else None
            switch = re.match(r"A\[(Optional\[)?bool\b", said) is not None
            found |= dict.fromkeys(names, "switch" if switch else listed or "value")
    return found


def _texts(node: ast.AST | None) -> Iterator[str]:
    if node is not None:
        yield from (one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str))


def llama_cpp(archive: Path) -> dict[str, Flag]:
    """Of `llama-server`: the options of common/arg.cpp."""
    (text,) = sources(archive, r"llama\.cpp/common/arg\.cpp$").values()
    found: dict[str, Flag] = {}
    for names, hint in re.findall(r"\{\s*((?:\"-[^\"]+\"\s*,?\s*)+)\}\s*,\s*(\"[^\"]*\")?", text):
        for name in re.findall(r'"(-[^"]+)"', names):
            values = re.findall(r"[\w.]+", hint) if re.match(r'"[\[{]', hint) else None
            # A switch has its help where others have the name of their value.
            found[name] = values or ("value" if re.fullmatch(r'"[A-Z0-9,.\[\]{}|_<>=+-]+"', hint) else "switch")
    return found


READ = {"vllm": vllm, "sglang": sglang, "llama_cpp_python": llama_cpp}
NAMES = {"llama_cpp_python": "llama.cpp"}


def main() -> int:
    """Writes what each archive holds under its engine's name."""
    place, *archives = map(Path, sys.argv[1:])
    known = json.loads(place.read_text()) if place.exists() else {}
    for archive in archives:
        engine, version = re.match(r"([a-z_]+)-([\d.]+\d)", archive.name).groups()  # type: ignore[union-attr]
        entry = {"source": f"{engine} {version}", "read": f"{date.today()}", "flags": READ[engine](archive)}
        known[NAMES.get(engine, engine)] = entry
    entries = [
        f' {json.dumps(name)}: {{"source": {json.dumps(entry["source"])}, "read": "{entry["read"]}", "flags": {{\n'
        + ",\n".join(f"  {json.dumps(flag)}: {json.dumps(kind)}" for flag, kind in sorted(entry["flags"].items()))
        + "\n }}"
        for name, entry in sorted(known.items())
    ]
    place.write_text("{\n" + ",\n".join(entries) + "\n}\n")
    for engine, entry in known.items():
        print(engine, entry["source"], len(entry["flags"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
