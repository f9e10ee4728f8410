"""Triton and TVM in one process: each brings an LLVM, and what is loaded later must be bound to its own."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Like libtriton.so: a function of LLVM's name, called by a symbol that another library's may replace.
EXTENSION = """
#include <Python.h>
void *LLVMContextCreate(void) { return NULL; }
static PyObject *calls_its_own(PyObject *self, PyObject *none) { return PyBool_FromLong(LLVMContextCreate() == NULL); }
static PyMethodDef methods[] = {{"calls_its_own", calls_its_own, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "libtriton", NULL, -1, methods};
PyMODINIT_FUNC PyInit_libtriton(void) { return PyModule_Create(&module); }
"""

KERNEL = """
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

@triton.jit
def add(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, i < n) + 1, i < n)

def ptx():
    kinds = {"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    return triton.compile(ASTSource(add, kinds, {"BLOCK": 128}), target=GPUTarget("cuda", 80, 32)).asm["ptx"]
"""

COMPILED_BY_TVM = """
import numpy as np, tvm
from tvm import te

def incremented():
    a = te.placeholder((8,), name="a")
    b = te.compute((8,), lambda i: a[i] + 1.0)
    x, y = tvm.nd.array(np.ones(8, "float32")), tvm.nd.empty((8,))
    tvm.build(te.create_schedule(b.op), [a, b], "llvm")(x, y)
    return float(y.numpy().sum())
"""


def run(program: str, *folders: Path) -> subprocess.CompletedProcess[str]:
    places = {"PYTHONPATH": os.pathsep.join(map(str, folders)), "TRITON_CACHE_DIR": str(folders[0] / "triton-cache")}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=os.environ | places, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory) -> Path:
    """A folder with an extension `triton._C.libtriton` that has Triton's kind of symbols, and nothing else of it."""
    folder = tmp_path_factory.mktemp("triton")
    home = folder / "triton" / "_C"
    home.mkdir(parents=True)
    (home.parent / "__init__.py").write_text("")
    (source := folder / "libtriton.c").write_text(EXTENSION)
    include = sysconfig.get_path("include")
    subprocess.run(["cc", "-shared", "-fPIC", f"-I{include}", source, "-o", home / "libtriton.so"], check=True)
    return folder


SHOW = "import sys; from triton._C import libtriton; print(libtriton.calls_its_own(), sys.getdlopenflags())"


def test_an_extension_loaded_after_tvm_is_bound_to_its_own_llvm(stand_in):
    flags = sys.getdlopenflags()
    assert run(f"import tvm; {SHOW}", stand_in).stdout.split() == ["False", str(flags)]  # what would abort in LLVM
    for imports in ("import tvm, tvm_perfpass", "import tvm_perfpass, tvm"):
        assert run(f"{imports}; {SHOW}", stand_in).stdout.split() == ["True", str(flags)]


def test_without_an_llvm_for_all_an_extension_is_loaded_as_python_does(stand_in):
    loader = "; print(type(libtriton.__spec__.loader).__name__)"
    run_without = run(f"import tvm_perfpass; {SHOW}{loader}", stand_in)
    assert run_without.stdout.split()[0::2] == ["True", "ExtensionFileLoader"], run_without.stderr
    assert run(f"import tvm_perfpass, tvm; {SHOW}{loader}", stand_in).stdout.split()[2] == "_OwnSymbolsFirst"


@pytest.mark.skipif(find_spec("triton") is None, reason="no Triton")
@pytest.mark.parametrize("imports", ["import theirs, ours", "import ours, theirs"])
def test_triton_and_tvm_compile_in_one_process(tmp_path, imports):
    (tmp_path / "theirs.py").write_text(KERNEL)
    (tmp_path / "ours.py").write_text(COMPILED_BY_TVM)
    asked = "ours.incremented(), '.target sm_80' in theirs.ptx(), ours.incremented()"
    ran = run(
        f"import tvm_perfpass; {imports}; print({asked})",
        tmp_path,
        *map(Path, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))),
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["16.0", "True", "16.0"]


def test_the_tests_say_in_one_sentence_that_triton_does_not_load(tmp_path):
    home = tmp_path / "triton" / "_C"
    home.mkdir(parents=True)
    (home.parent / "__init__.py").write_text("")
    (home / "libtriton.py").write_text(
        "import os, sys\nprint('LLVM ERROR: options', file=sys.stderr, flush=True)\nos.abort()\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/house/test_house.py"]
    places = {"PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "1"}
    ran = subprocess.run(command, cwd=ROOT, env=os.environ | places, capture_output=True, text=True, check=False)
    assert ran.returncode == pytest.ExitCode.USAGE_ERROR
    assert (
        "Triton, which PyTorch's CUDA build brings, does not load in a process that has TVM" in ran.stdout + ran.stderr
    )
    assert "(exit status -6: LLVM ERROR: options)" in ran.stdout + ran.stderr
