"""Which TVM is there. Relay left TVM after 0.19 and what is read of Relax has its names since 0.27."""

from __future__ import annotations

from importlib.util import find_spec

from perfpass.errors import UnsupportedError, missing_package

_NEEDS = {
    "relay": ("tvm.relay", "Relay", "TVM 0.19 (tvm_perfpass.relax serves today's)"),
    "relax": ("tvm.tirx", "Relax as it is since apache-tvm 0.27", "apache-tvm 0.27 (tvm_perfpass itself serves Relay)"),
}


def has(dialect: str) -> bool:
    """Whether the installed TVM has ``dialect`` ("relay" or "relax")."""
    return find_spec("tvm") is not None and find_spec(_NEEDS[dialect][0]) is not None


def need(dialect: str) -> None:
    """Nothing where the installed TVM has ``dialect`` ("relay" or "relax"); UnsupportedError that says what lacks."""
    module, what, remedy = _NEEDS[dialect]
    try:
        import tvm
    except ImportError as error:
        raise missing_package(error, {"relay": "tvm", "relax": "relax"}[dialect], what) from error
    if not has(dialect):
        raise UnsupportedError(f"TVM {tvm.__version__} lacks {what} (module {module}); needed is {remedy}")
