"""Runs docs/guides/looking.ipynb and keeps its outputs.

python benchmarks/publish/notebook.py
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "docs" / "guides" / "looking.ipynb"


def executed(path: Path = NOTEBOOK) -> Any:
    """The notebook with the outputs of a new kernel, in the repository's root; a cell that fails is an error."""
    found = nbformat.read(path, as_version=4)
    with TemporaryDirectory() as folder:
        place = f"{folder}/kernel"  # its sockets: no port is opened
        kernel = AsyncKernelManager(
            kernel_name="python3", transport="ipc", ip=place, connection_file=f"{folder}/kernel.json"
        )
        NotebookClient(found, km=kernel, timeout=600, resources={"metadata": {"path": str(ROOT)}}).execute()
    for cell in found.cells:
        cell.metadata.pop("execution", None)  # when it ran
    found.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return found


if __name__ == "__main__":
    notebook = executed()
    nbformat.validate(notebook)
    nbformat.write(notebook, NOTEBOOK)
    print(f"{NOTEBOOK}: {NOTEBOOK.stat().st_size / 1e3:,.0f} kB")
