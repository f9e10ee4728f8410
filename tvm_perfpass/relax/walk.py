"""A Relax module as an OpGraph, by the native walk or, where that cannot speak to the loaded TVM, by its plain twin.

The native walk reads TVM's objects through the reflection of tvm-ffi's C API: the offset of every field is looked up by
the field's name (``tvm_perfpass/native/relax/reflection.hpp``), so nothing is known at build time.
"""

from __future__ import annotations

import atexit
import warnings
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import tvm
from tvm import relax, tirx

from perfpass.errors import ArgumentError, GraphError, ShapeError, UnsupportedError
from perfpass.graph import OpGraph
from tvm_perfpass.relax.kernels import Kernel, kernel
from tvm_perfpass.relax.operators import RULES
from tvm_perfpass.relax.walk_plain import PlainWalker, address
from tvm_perfpass.walked import Walk, parameter_names

try:
    from tvm_perfpass import _relax
except ImportError:  # not built for this system
    _relax = None  # type: ignore[assignment]

MADE_FOR = "apache-tvm 0.27"


def load(
    module: tvm.IRModule,
    bindings: Mapping[str, int] | None = None,
    params: Mapping[str, Any] | Iterable[str] | None = None,
) -> OpGraph:
    """The operator graph of a Relax module: what its ``main`` function runs, calls of other functions inlined.

    ``bindings``: a value for every symbolic size that main's inputs name, by the name of the variable, such as
    ``{"n": 8}``. ``params``: the parameters of ``main`` that are weights (names, or arrays by name). Without it they
    are those that a frontend kept as inputs (``keep_params_as_input``, ``keep_params_in_input``), or else variables
    that stand in an operator's weight slot, with a note on the graph.

    The module is not changed. Raises ShapeError for symbolic sizes without a value and shapes that depend on data,
    ArgumentError for bindings that the module does not have, UnsupportedError for what has no operator graph
    (recursion, planned memory, gradients) and for a release of TVM that lacks what is read, GraphError for a module
    that is not well formed.
    """
    return walk(module, bindings, params).graph


def walk(
    module: tvm.IRModule,
    bindings: Mapping[str, int] | None = None,
    params: Mapping[str, Any] | Iterable[str] | None = None,
) -> Walk:
    """As load, with the fused function of every node (``Walk.kernel_group``)."""
    main, functions = _functions(module)
    names = _parameters(main, parameter_names(params))
    sizes = _sizes(main, bindings or {})
    kernels = {var: kernel(var.name_hint, f) for var, f in functions if isinstance(f, tirx.PrimFunc)}
    native = _native()
    try:
        if native is not None:
            try:
                return Walk(*_walk_native(native, main, functions, kernels, names, sizes))
            except _relax.AbiError as error:
                _say_slow(str(error))
        return walk_plain(module, bindings, params)
    except ShapeError as error:
        raise _with_names(error, main, bindings or {}) from None


def walk_plain(
    module: tvm.IRModule,
    bindings: Mapping[str, int] | None = None,
    params: Mapping[str, Any] | Iterable[str] | None = None,
) -> Walk:
    """As walk, by TVM's Python interface alone."""
    main, functions = _functions(module)
    names = _parameters(main, parameter_names(params))
    sizes = {address(var): size for var, size in _sizes(main, bindings or {})}
    try:
        kernels = {address(var): kernel(var.name_hint, f) for var, f in functions if isinstance(f, tirx.PrimFunc)}
        walker = PlainWalker(main, {address(var): f for var, f in functions}, kernels, names, sizes)
        graph, groups = walker.run()
    except AttributeError as error:  # a name that another release has changed
        raise UnsupportedError(
            f"TVM {tvm.__version__} lacks what is read ({error}); tvm_perfpass.relax is made for {MADE_FOR}"
        ) from error
    return Walk(graph, groups)


def _walk_native(
    native: Any,
    main: relax.Function,
    functions: list[tuple[Any, Any]],
    kernels: Mapping[Any, Kernel],
    names: list[str] | None,
    sizes: list[tuple[Any, int]],
) -> tuple[OpGraph, Any]:
    core, groups = native.walk(
        address(main),
        [(address(var), address(function)) for var, function in functions],
        [
            (address(var), k.name, k.op, list(k.order), [address(s) for s in k.shapes], [address(e) for e in k.extents])
            for var, k in kernels.items()
        ],
        names,
        [(address(var), size) for var, size in sizes],
    )
    return OpGraph(core), groups


def _functions(module: tvm.IRModule) -> tuple[relax.Function, list[tuple[Any, Any]]]:
    if not isinstance(module, tvm.IRModule):
        raise ArgumentError(f"expected a tvm.IRModule, got {type(module).__name__}")
    functions = list(module.functions.items())
    main = next((function for var, function in functions if var.name_hint == "main"), None)
    if main is None:
        names = ", ".join(sorted(var.name_hint for var, _ in functions)) or "no function"
        raise GraphError(f"the module has no function 'main'; it has {names}")
    if not isinstance(main, relax.Function):
        raise UnsupportedError(
            f"'main' is a {type(main).__name__}, not a Relax function; predict for the module before it is lowered"
        )
    return main, functions


def _parameters(main: relax.Function, names: list[str] | None) -> list[str] | None:
    """The names of main's parameters that are weights; without any said, those after the inputs of a frontend."""
    if names is not None:
        return names
    count = main.attrs["num_input"] if main.attrs is not None and "num_input" in main.attrs else None
    return None if count is None else [var.name for var in list(main.params)[int(count) :]]


def _sizes(main: relax.Function, bindings: Mapping[str, int]) -> list[tuple[Any, int]]:
    """The symbolic variables of main that are given, with their values."""
    if not bindings:
        return []
    found = [(var, bindings[var.name]) for var in relax.analysis.defined_symbolic_vars(main) if var.name in bindings]
    known = {var.name for var, _ in found}
    if unknown := sorted(str(name) for name in set(bindings) - known):
        allowed = ", ".join(sorted({v.name for v in relax.analysis.defined_symbolic_vars(main)})) or "none"
        raise ArgumentError(f"bindings name {', '.join(unknown)}; the symbolic sizes of main are {allowed}")
    for var, size in found:
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size < 2**48:
            raise ArgumentError(f"bindings['{var.name}'] is {size!r}; it must be a whole number from 0 to 2^48")
    return found


def _with_names(error: ShapeError, main: relax.Function, bindings: Mapping[str, int]) -> ShapeError:
    """The error, with all symbolic sizes that have no value."""
    free = sorted({var.name for var in relax.analysis.defined_symbolic_vars(main)} - set(bindings))
    if not free or "no value" not in str(error):
        return error
    example = ", ".join(f"'{name}': 8" for name in free)
    return ShapeError(f"{error}; give every symbolic size of main a value, for example bindings={{{example}}}")


@cache
def _native() -> Any:
    """The native walker; None (with one warning) where it cannot speak to the loaded TVM."""
    if _relax is None:
        _say_slow("it is not built for this system")
        return None
    try:
        import tvm_ffi.libinfo

        return _relax.Walker(str(tvm_ffi.libinfo.find_libtvm_ffi()), RULES)
    except (_relax.AbiError, ImportError, AttributeError) as error:
        _say_slow(str(error))
        return None


atexit.register(_native.cache_clear)  # before nanobind looks for objects that outlive the interpreter


def _say_slow(reason: str) -> None:
    warnings.warn(
        f"the native Relax walk cannot read TVM {tvm.__version__} ({reason}; it is made for {MADE_FOR}); walking in "
        "Python",
        RuntimeWarning,
        stacklevel=3,
    )
