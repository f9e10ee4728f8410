"""Models by name as ONNX files, for the runtimes that open such: PyTorch's TorchScript exporter, random weights."""

from __future__ import annotations

import contextlib
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfpass.errors import FileError, UnsupportedError
from perfpass.importers.model_sources import is_out_of_memory
from perfpass.measure.configuration import Configuration
from perfpass.measure.models import Built
from perfpass.measure.runners.prepared import Prepared

_OPSET = 17


@contextlib.contextmanager
def model_file(configuration: Configuration, built: Built | None, prepared: Prepared | None) -> Iterator[Path]:
    """The file to open: the user's, what another process prepared, or an export that lasts as long as the context.

    Raises FileError where it is not there, UnsupportedError where the exporter cannot.
    """
    if built is not None:
        with tempfile.TemporaryDirectory(prefix="perfpass-export-") as folder:
            path = Path(folder) / "model.onnx"
            export(built, configuration, path)
            yield path
        return
    path = Path(configuration.name if prepared is None else prepared.path)
    if not path.is_file():
        raise FileError(f"{path}: no such file")
    yield path


def prepare(configuration: Configuration, built: Built, folder: str) -> Prepared:
    """The model as an ONNX file in ``folder``."""
    path = Path(folder) / "model.onnx"
    export(built, configuration, path)
    return Prepared(str(path), [], facts(configuration, built) | {"model_file_bytes": path.stat().st_size})


def facts(configuration: Configuration, built: Built | None) -> dict[str, Any]:
    """What a record says of an exported model, and of a file its threads."""
    known = {} if built is None else built.facts(configuration) | {"opset": _OPSET}
    return known | {"threads": configuration.threads}


def export(built: Built, configuration: Configuration, path: Path) -> None:
    """Writes the model as ONNX with PyTorch's TorchScript exporter, at the configuration's batch.

    Raises UnsupportedError where the exporter cannot.
    """
    import torch

    built.module.eval().float()
    _fill_zeros(built.module)
    inputs = built.inputs(configuration, "cpu")
    built.module.cpu()
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                built.positional(tuple(inputs)),
                tuple(inputs.values()),
                str(path),
                input_names=list(inputs),
                opset_version=_OPSET,
                dynamo=False,
            )
    except MemoryError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise UnsupportedError(
            f"{configuration.model} cannot be exported to ONNX: {' '.join(str(error).split())[:300]}"
        ) from error


def _fill_zeros(module: Any) -> None:
    """Gives parameters that are zero throughout small random values, as training would.

    A last normalization that starts at zero makes the folded weights of its convolution zero, and the exporter stores
    equal tensors once: the file would lack up to half of a trained network's bytes.
    """
    import torch

    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.numel() > 1 and not parameter.any():
                parameter.normal_(std=0.02)
