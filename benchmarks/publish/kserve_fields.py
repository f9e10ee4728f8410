"""The fields of KServe's InferenceService, read off its published Python models, for the tests of what is written.

    pip download --no-deps kserve==0.21.0
    python benchmarks/publish/kserve_fields.py tests/deploy/kserve_fields.json kserve-*.whl

Nothing is imported or run: the package asks for a server's requirements, and these are tables of its modules. Of the
models by which a predictor serves a model: the type of each field, "str", "list[str]" or a model of Kubernetes.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import zipfile
from pathlib import Path

MODELS = ("InferenceService", "InferenceServiceSpec", "PredictorSpec", "ModelSpec", "ModelFormat")


def fields(text: str) -> dict[str, str]:
    """Type by key of a model's module."""
    tables = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id in ("openapi_types", "attribute_map")
    }
    return {tables["attribute_map"][name]: kind for name, kind in sorted(tables["openapi_types"].items())}


def main() -> None:
    output, wheel = map(Path, sys.argv[1:])
    found: dict[str, object] = {"source": " ".join(wheel.name.split("-")[:2])}
    with zipfile.ZipFile(wheel) as files:
        for model in MODELS:
            module = re.sub(r"(?<!^)(?=[A-Z])", "_", model).lower()
            found[f"V1beta1{model}"] = fields(files.read(f"kserve/models/v1beta1_{module}.py").decode())
    output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
