"""A Relay module as an OpGraph, by the native walk or, where that cannot speak to the loaded TVM, by its plain twin.

The native walk goes through TVM's C ABI and finds at run time where the fields of an expression lie, from the probe
objects built here; every offset is checked against TVM's own reflection (``tvm_perfpass/native/tvm_api.hpp``).
"""

from __future__ import annotations

import atexit
import warnings
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np
import tvm
from tvm import relay

from perfpass.errors import ArgumentError, GraphError, UnsupportedError
from perfpass.graph import OpGraph
from tvm_perfpass.relay.operators import RULES
from tvm_perfpass.walked import Walk, parameter_names

try:
    from tvm_perfpass import _relay
except ImportError:  # not built for this system
    _relay = None  # type: ignore[assignment]


def import_module(mod: tvm.IRModule, params: Mapping[str, Any] | Iterable[str] | None = None) -> OpGraph:
    """The operator graph of a Relay module: what its ``main`` function runs, calls of other functions inlined.

    ``params``: the parameters of ``main`` that are weights (the arrays that TVM's frontends return, or names).
    Without it, variables that stand in an operator's weight slot are counted as weights, with a note on the graph.
    The module is not changed. Raises ShapeError for dynamic shapes, UnsupportedError for what has no operator graph
    (recursion, references, pattern matches), GraphError for a module that is not well formed.
    """
    return walk(mod, params).graph


def walk(mod: tvm.IRModule, params: Mapping[str, Any] | Iterable[str] | None = None) -> Walk:
    """As import_module, with the fused function of every node."""
    names = parameter_names(params)
    complete = typed(mod)
    try:
        return _walk(complete, names)
    except GraphError:
        if complete is not mod:
            raise
    # Passes such as binding parameters leave single expressions without a type in a module that has them elsewhere.
    return _walk(_infer_types(mod), names)


def _walk(mod: tvm.IRModule, names: list[str] | None) -> Walk:
    main, functions = _functions(mod)
    native = _native()
    if native is not None:
        try:
            core, groups = native.walk(
                main.handle.value, [(var.handle.value, function.handle.value) for var, function in functions], names
            )
            return Walk(OpGraph(core), groups)
        except _relay.AbiError as error:
            _say_slow(str(error))
    from tvm_perfpass.relay.walk_plain import walk_plain

    return walk_plain(mod, names)


def typed(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with checked types everywhere; the module itself where it has them already."""
    if not isinstance(mod, tvm.IRModule):
        raise ArgumentError(f"expected a tvm.IRModule, got {type(mod).__name__}")
    main, _ = _functions(mod)
    try:
        main.body.checked_type  # noqa: B018 (raises where types are missing)
    except ValueError:
        return _infer_types(mod)
    return mod


def _infer_types(mod: tvm.IRModule) -> tvm.IRModule:
    try:
        with tvm.transform.PassContext():  # one without the instruments of a build that is under way
            return relay.transform.InferType()(mod)
    except tvm.error.TVMError as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise GraphError(f"the module does not type-check: {lines[-1] if lines else error}") from error


def _functions(mod: tvm.IRModule) -> tuple[relay.Function, list[tuple[Any, Any]]]:
    functions = mod.functions_items()
    main = next((function for var, function in functions if var.name_hint == "main"), None)
    if main is None:
        names = ", ".join(sorted(var.name_hint for var, _ in functions)) or "no function"
        raise GraphError(f"the module has no function 'main'; it has {names}")
    if not isinstance(main, relay.Function):
        raise UnsupportedError(
            f"'main' is a {type(main).__name__}, not a Relay function; predict for the module before it is lowered"
        )
    return main, functions


@cache
def _native() -> _relay.Walker | None:
    """The native walker, calibrated; None (with one warning) where it cannot speak to the loaded TVM."""
    if _relay is None:
        _say_slow("it is not built for this system")
        return None
    try:
        from tvm._ffi import base

        walker = _relay.Walker(base._LIB._name, RULES)
    except (_relay.AbiError, ImportError, AttributeError) as error:
        _say_slow(str(error))
        return None
    with tvm.transform.PassContext():  # as above: an instrument must not see the probes
        probes = _probes()
    walker.calibrate({key: [probe.handle.value for probe in objects] for key, objects in probes.items()})
    return walker


atexit.register(_native.cache_clear)  # before nanobind looks for objects that outlive the interpreter


def _say_slow(reason: str) -> None:
    warnings.warn(
        f"the native Relay walk cannot read this TVM ({reason}); walking in Python", RuntimeWarning, stacklevel=3
    )


def _inferred(expression: relay.Expr) -> relay.Call:
    return relay.transform.InferType()(tvm.IRModule.from_expr(expression))["main"].body


def _probes() -> dict[str, list[Any]]:
    """Objects of every class with fields, any two of which differ in all of them."""
    a, b, c = (relay.var(name, shape=(3 + i, 7)) for i, name in enumerate(("a", "bb", "cccc")))
    calls = [_inferred(e) for e in (relay.nn.softmax(a), relay.nn.log_softmax(b), relay.nn.leaky_relu(c, 0.1))]
    constants = [_inferred(relay.exp(relay.const(np.zeros((i + 2,), "float32")))).args[0] for i in range(3)]
    tuples = [relay.Tuple([x]) for x in (a, b, c)]
    types = [
        relay.TensorType((5, 11), "float32"),
        relay.TensorType((6, 13, 2), "int8"),
        relay.TensorType((7,), "uint16"),
    ]
    # Grown one by one in TVM, so that size and capacity differ; free_vars' result grows by doubling.
    arrays = [relay.analysis.free_vars(relay.Tuple([relay.var(f"v{i}") for i in range(n)])) for n in (3, 5, 6)]
    return {
        "relay.Call": calls,
        "relay.Var": [call.args[0] for call in calls],
        "relay.Id": [call.args[0].vid for call in calls],
        "relay.Constant": constants,
        "relay.Tuple": tuples,
        "relay.TupleGetItem": [
            relay.TupleGetItem(t, i) for t, i in zip(tuples, (1234567, 7654321, 23456), strict=True)
        ],
        "relay.Function": [relay.Function([x], y) for x, y in ((a, b), (b, c), (c, a))],
        "relay.Let": [relay.Let(a, b, c), relay.Let(b, c, a), relay.Let(c, a, b)],
        "relay.If": [relay.If(a, b, c), relay.If(b, c, a), relay.If(c, a, b)],
        "relay.TensorType": types,
        "TupleType": [relay.TupleType([t]) for t in types],
        "IntImm": [tvm.tir.IntImm("int64", value) for value in (1234567890123, 76543210987, 345678901234)],
        "Array": arrays,
    }
