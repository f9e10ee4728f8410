"""A process that answers for months keeps a bounded number of what it was asked."""

from __future__ import annotations

import ast

# Functions whose answers are all kept, of arguments that are few whatever is asked.
FEW = {
    # Names of what ships: models, boards' geometries, predictors, families, tables, groups of other packages.
    "importers/catalogue.py:entry": "entries of the catalogue; another name raises",
    "importers/sound_models.py:refused": "two keys",
    "devices/mig.py:geometry": "geometries of mig.toml; another name raises",
    "predictors/calibration/correction.py:digest_of": "areas",
    "predictors/calibration/steps.py:digest_of": "areas",
    "predictors/serving/order.py:_model": "measured families",
    "predictors/learned/ratio_trees.py:load": "areas",
    "predictors/learned/ratio_trees.py:_makes": "the boards of an artefact",
    "graph/step.py:_operators": "constants of the module",
    "graph/step.py:_classes": "constants of the module",
    "extensions.py:_declared": "groups of entry points",
    "serve/results.py:_fields": "types of results",
    # Bounded by what else there is.
    "importers/torch_operators.py:written_arguments": "PyTorch's operators",
    "importers/torch_shapes.py:_makes_one_tensor": "PyTorch's operators",
    "importers/operators.py:_of_environment": "values of an environment variable in one process",
    "predictors/learned/ladder.py:_runs": "lengths of a ladder",
    # Made anew by each call of the function around them.
    "deploy/pack/packing.py:inside": "one packing",
    "predictors/judged.py:here": "one prediction",
    "predictors/learned/component_widths.py:lack": "one question",
}
# They run once and end.
PROGRAMS = ("training", "study", "records", "evidence", "measure")


def _unbounded(root):
    home = root / "python" / "perfpass"
    for path in sorted(home.rglob("*.py")):
        inside = path.relative_to(home)
        if inside.parts[0] in PROGRAMS:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and _takes_arguments(node):
                said = {ast.unparse(one) for one in node.decorator_list}
                if said & {"cache", "functools.cache", "lru_cache(maxsize=None)", "lru_cache(None)"}:
                    yield f"{inside.as_posix()}:{node.name}"


def _takes_arguments(function: ast.FunctionDef) -> bool:
    given = function.args
    return bool(given.posonlyargs or given.args or given.kwonlyargs or given.vararg or given.kwarg)


def test_what_is_kept_of_what_users_ask_is_bounded(root):
    assert set(_unbounded(root)) == set(FEW)
