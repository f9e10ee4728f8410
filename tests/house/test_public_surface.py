"""What a user can import, and that importing it costs little."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import perfpass
from house.imports import Sources

# What users import; modules that a face lists beside it are for the other rooms (tests/house/test_layers.py).
SURFACE = {
    "perfpass": "Client Decision Device Interval Limits OpGraph PerfPassError Prediction advise annotate choose "
    "declare_operator device diff fit load pack predict predict_llm predict_offline simulate_llm sweep symbolic "
    "Switches train_cost train_network_cost",
    "perfpass.deploy.advise": "Advice advise",
    "perfpass.deploy.choose": "Choice Option Targets choose",
    "perfpass.deploy.sweep": "Sweep served_model sweep",
    "perfpass.graph": "ATTRIBUTES DTYPES OPERATORS OPERATOR_CLASSES OPERATOR_CLASS_OF ROLES OpGraph at_batch",
    "perfpass.features": "SCHEMAS Features OperatorTable Tables extract load names operator_table save",
    "perfpass.importers": "load named_shapes",
    "perfpass.devices": "PRECISIONS Device MigGeometry MigProfile add_file catalogue device",
    "perfpass.predictors": "predict predict_graph",
    "perfpass.evidence": "Evidence Part by_name load of path question_of",
    "perfpass.search": "Candidate Features Scorer Scores Template",
    "perfpass.llm": "EngineBatch LanguageModel Parallelism Quantization Serving MemoryFit Step StepCosts StepTime "
    "cache_bytes language_model step_costs step_time weight_bytes",
    "perfpass.deploy.fit": "Change DeviceFit Fit Largest Load Need Settings Subject fit need shown_in_use",
    "perfpass.deploy.pack": "Fleet Gpu Instance Layout Model Option Pool Problems Standing fleet_of hinted pack "
    "pack_options read_fleet standing",
    "perfpass.deploy.outputs": "check_formats files write_files",
    "perfpass.deploy.training_files": "Settings read",
    "perfpass.torch": "Estimate Watch estimate",
    "perfpass.deploy.tune": "Brought ENGINES SlotTuning Tuning split_words tune tune_slots",
    "perfpass.report": "FleetPlots Picture RunPlots ServedPlots SweepPlots notebook_html plots_of",
    "perfpass.simulators": "Deployed InferTime SIMULATORS files",
    "perfpass.cli": "command main",
    "tvm_perfpass": "PerformanceInstrument PredictPerformance build import_relay read_prediction read_schedules",
    "tvm_perfpass.relay": "METRICS PREFIX PerformanceInstrument PredictPerformance Walk attributes build import_module "
    "predict_module prediction_of read_prediction walk",
    "tvm_perfpass.relax": "PerformanceInstrument PredictPerformance build load read_prediction",
    "ort_extension": "DoesNotFitError DriftWarning InferenceSession MissesTargetError NotPredictedError "
    "PredictionWarning RecordsWarning RefusedError Verdict",
}
HEAVY = ("torch", "onnx", "tvm", "pandas", "scipy", "xgboost", "networkx", "shtab", "importlib.metadata", "numpy")
PACKAGES = sorted(Sources.of(Path(__file__).resolve().parents[2]).packages)


def names_of(module: str) -> tuple[set[str], set[str]]:
    """The names and the modules that a face lists."""
    package = importlib.import_module(module)
    inside = {found.name for found in pkgutil.iter_modules(package.__path__)}
    listed = set(getattr(package, "__all__", ()))
    lazy = getattr(package, "_HOME", {})
    modules = {name for name in listed & inside if name not in lazy and not callable(getattr(package, name, None))}
    return listed - modules, modules


@pytest.mark.parametrize(("module", "names"), SURFACE.items())
def test_the_public_surface_is_exactly_this(module, names):
    assert sorted(names_of(module)[0]) == sorted(names.split())


@pytest.mark.parametrize("module", PACKAGES)
def test_whatever_a_face_lists_can_be_imported(module):
    names, modules = names_of(module)
    package = importlib.import_module(module)
    for name in modules:
        importlib.import_module(f"{module}.{name}")
    if module != "tvm_perfpass.relax":  # another TVM, whose tests are in tests/adapters/relax
        assert [name for name in names if getattr(package, name, None) is None] == []


def test_an_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        _ = perfpass.nonsense


def test_every_error_is_one_root_with_an_exit_code_of_its_own():
    from perfpass import errors

    kinds = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, errors.PerfPassError)]
    codes = [k.exit_code for k in kinds]
    assert len(set(codes)) == len(codes) and min(codes) == 1 and 0 not in codes


@pytest.mark.parametrize("statement", ["import perfpass", "import perfpass.cli; import perfpass.cli.parser"])
def test_importing_is_light(statement):
    code = f"import sys; {statement}; print([m for m in {HEAVY!r} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
