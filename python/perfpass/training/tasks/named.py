"""python -m perfpass.training.tasks.named [--write FILE]: `predict` asked every question of the records of networks.

Each row of kind ``network`` whose definition is known is asked as `perfpass.records.named` says, and compared with what
its laboratory measured. Nothing was trained on these rows. Prints errors, coverage and widths by source, runtime and
domain; ``--write`` keeps all residuals as Parquet.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.devices import device
from perfpass.errors import PerfPassError
from perfpass.graph import OPERATORS
from perfpass.graph.table import Tables
from perfpass.prediction import SUPPORT_LEVELS
from perfpass.predictors import sparsity
from perfpass.predictors.estimate import Runs
from perfpass.predictors.lane import predictor_of
from perfpass.predictors.roofline import PAGEABLE_COPY_BYTES_S
from perfpass.predictors.training_step.predictor import Derivation, StepPredictor, options
from perfpass.predictors.way import Way
from perfpass.predictors.workload import PRECISIONS
from perfpass.records import schema, tables
from perfpass.records.location import data_directory
from perfpass.records.named import REPLAYED, questions
from perfpass.whole_file import replacing

if TYPE_CHECKING:
    import pandas

    from perfpass.records.tables import RecordedTable, RecordedTables

WIDTHS = {"float64": 32, "float32": 32, "float16": 16, "bfloat16": 16, "float8": 8}
_KEPT = [
    "source", "domain", "model", "runtime", "precision", "batch", "sequence", "mode", "variant", "server", "caveats",
    "software_year", "percentile", "timing",
]  # fmt: skip
_BY = ["source", "device", "precision", "asked_runtime", "mode", "optimizer"]
# A measured time this far below what the peak allows is a wrong shape, precision or unit, not a fast kernel.
ABOVE_PEAK = 1.02
_SPARSE = 2.0  # 2:4 sparsity doubles the peak
_SPARSE_CAVEAT = "sparse_2_4"
# A request's time has the server, the network and copies in it.
_CLIENT_CAVEAT = "time_of_a_servers_client"
_MODELS_OWN = "the model in the server"  # a timing begins with it
# (source, engine) whose files write GELU out in halves. ONNX Runtime puts it together where the divisor is the root of
# two to 1e-5 (GeluFusion), which no half is: the bias and five operators stay kernels of their own, in a file of any
# such network (seen with 1.31, whose optimised graph of these five has a Gelu in fp32 and none in fp16).
_GELU_WRITTEN_OUT = {("deeplearningexamples", "onnxruntime")}
_GELU, _GELU_KERNELS = OPERATORS.index("gelu"), 6
# (source, engine, domain) whose result comes back to the host inside of what is timed, in fp32: optimum's benchmark
# runs its encoder by a session without I/O bindings ("use_io_binding: false" in the configuration beside each of these
# runs), and both ways to halves (optimum's O4, TensorRT's fp16 flag) keep the types of inputs and outputs.
_RESULT_COPIED = {
    ("optimum_benchmark", engine, "language") for engine in ("onnxruntime", "onnxruntime+tensorrt")
}  # fmt: skip
# (source, engine) whose files write layer norms out (opset 13, before the operator of 17), in containers of 2021: that
# TensorRT (8.0 to 8.2) runs two reductions and what is pointwise before and after the second, four kernels.
_NORM_WRITTEN_OUT = {("deeplearningexamples", "tensorrt")}
_NORM, _NORM_KERNELS = OPERATORS.index("layer_norm"), 4


Chosen = Callable[[Way, str], Any]


def residuals(
    folder: Path | None = None, predictors: Chosen | None = None, mode: str | None = None
) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """What was measured and predicted for every question that can be asked, and the rows that cannot, with reasons.

    ``predictors``: of inference, by the way of running and the source that asks (default: those that ship). ``mode``:
    questions of "inference" or "training" alone, so that the other's predictor need not be there. Columns: those of
    `measured`, ``median_s``, ``low_s``, ``high_s``, ``level`` (of support), ``distance`` (to the nearest measured
    network; NaN where nothing was learned), ``reasons``, ``lacks`` (what makes the interval wide, by the causes of the
    predictor). The index is that of networks.parquet.
    """
    frame, refused, known = measured(folder)
    frame = frame if mode is None else frame[frame["mode"] == mode]
    return graded(frame, known, predictors), refused


def graded(frame: pandas.DataFrame, known: RecordedTables, predictors: Chosen | None = None) -> pandas.DataFrame:
    """``frame`` of `measured` with what is predicted, as of `residuals`."""
    import pandas

    chosen = predictors or (lambda way, _: predictor_of(way))
    parts = [_graded(part, way, known, chosen) for way, part in ways(frame)]
    return pandas.concat(parts).loc[frame.index]


def measured(folder: Path | None = None) -> tuple[pandas.DataFrame, pandas.DataFrame, RecordedTables]:
    """Every question that can be asked, the rows that cannot with reasons, and the tables of networks.

    Columns: those of the records, the table that was asked, ``measured_s`` (without copies of the input),
    ``roofline_s`` (FLOPs at the peak of the precision) and ``above_peak``.
    """
    data = folder or data_directory()
    rows = schema.read(data / "records" / "networks.parquet", "network")
    known = tables.load(data / "graphs", "networks")
    return *asked_of(rows, known), known


def asked_of(rows: pandas.DataFrame, known: RecordedTables) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """Of ``rows`` those that can be asked, and the others, as `measured` says."""
    import pandas

    asked = questions(rows, known)
    samples = rows.batch * asked.table_size.where(rows.throughput_unit == "tok", 1)
    seconds = rows.latency_ms.fillna(1e3 * samples / rows.throughput_per_s) * 1e-3
    asked.loc[(asked.refused == "") & seconds.isna(), "refused"] = "no time measured"
    rates = {name: device(name).peak_flops for name in set(asked.device) if name}
    pairs = zip(asked.device, asked.precision, strict=True)
    lacks = np.array([bool(name) and _rate(precision) not in rates[name] for name, precision in pairs])
    asked.loc[(asked.refused == "") & lacks, "refused"] = "the device lacks the precision"
    good = asked.refused == ""
    frame = rows.loc[good, _KEPT].assign(
        measured_s=seconds[good], asked_runtime=asked.runtime[good], precision_stated=rows.precision[good],
        **{n: asked.loc[good, n] for n in asked.columns if n not in ("runtime", "refused", "batch")},
    )  # fmt: skip
    frame["optimizer"] = frame.optimizer.fillna("")
    refused = rows.loc[~good, _KEPT].assign(network=asked.network[~good], refused=asked.refused[~good])
    frame["measured_s"] -= _copied_s(frame, known)
    floors = [_floor(part, way, known) for way, part in ways(frame)]
    frame["roofline_s"] = pandas.concat(floors) if floors else np.zeros(0)
    frame["above_peak"] = frame.roofline_s > ABOVE_PEAK * frame.measured_s
    return frame, refused


def _copied_s(frame: pandas.DataFrame, known: RecordedTables) -> np.ndarray:
    """[N] seconds of copies in fp32 where a source timed them, too; half of the measured time at most.

    Pictures to the device, an encoder's states from it.
    """
    copied = frame.timing.str.startswith(schema.INPUT_COPIED).to_numpy()
    result = [key in _RESULT_COPIED for key in zip(frame.source, frame.runtime, frame.domain, strict=True)]
    keys = list(zip(frame.table_source, frame.table_model, frame.table_size, strict=True))
    elements = {key: known.table(*key, 1).statics["input_elements_per_sample"] for key in set(keys)}
    states = {key: _states(known.table(*key, 1)) for key, back in zip(keys, result, strict=True) if back}
    each = np.where(copied, [elements[key] for key in keys], 0.0)
    each = each + [states[key] if back else 0.0 for key, back in zip(keys, result, strict=True)]
    whole = 4.0 * each * frame.batch.to_numpy() / PAGEABLE_COPY_BYTES_S
    return np.minimum(whole, 0.5 * frame.measured_s.to_numpy())


def _states(table: RecordedTable) -> float:
    """Elements of an encoder's last hidden states: what its last normalization writes."""
    return float(np.asarray(table.output_elements)[np.asarray(table.op) == _NORM][-1])


def of_the_runtime(frame: pandas.DataFrame) -> pandas.Series:
    """Whether a row's time is that of the network in its runtime, without a server's queue or its client."""
    own = (frame.server == "") | frame.timing.str.startswith(_MODELS_OWN)
    return own & ~frame.caveats.str.contains(_CLIENT_CAVEAT)


def _floor(part: pandas.DataFrame, way: Way, known: RecordedTables) -> pandas.Series:
    """Seconds of the FLOPs at the peak."""
    import pandas

    asked = tables_of(part, way, known)
    sparse = np.where(part.caveats.str.contains("sparsity"), _SPARSE, 1.0)
    return pandas.Series(peak_s(asked.tables, way)[asked.at] / sparse, index=part.index)


def peak_s(tables: Tables, way: Way) -> np.ndarray:
    """[N] seconds of the FLOPs of N graphs at the peak of the precision; a training step has those of three passes."""
    flops = 2.0 * tables.sums(tables.table.macs * tables.count)
    return flops * (3.0 if way.optimizer is not None else 1.0) / way.device.peak(_rate(way.precision))


def _rate(precision: str) -> str:
    return PRECISIONS.get(precision, ("", ""))[1]


def ways(frame: pandas.DataFrame) -> Iterator[tuple[Way, pandas.DataFrame]]:
    """The questions of one source on one device in one software, together."""
    for (source, name, precision, runtime, _, optimizer), part in frame.groupby(_BY):
        replayed = (source, runtime) in REPLAYED
        yield Way(device(name), precision, runtime, "nchw", optimizer or None, cuda_graph=replayed), part


@dataclass(frozen=True, eq=False)
class Asked:
    """K different networks at a batch each; ``at`` [N] is that of each question."""

    tables: Tables
    each: list[RecordedTable]
    batch: np.ndarray
    at: np.ndarray


def tables_of(part: pandas.DataFrame, way: Way, known: RecordedTables) -> Asked:
    """The operator tables of questions that are asked in one way; of sparse weights where the record states them."""
    sparse = part.caveats.str.contains(_SPARSE_CAVEAT)
    parts = _parts(part, way)
    keys = list(zip(part.table_source, part.table_model, part.table_size, part.batch, sparse, parts, strict=True))
    unique = {key: i for i, key in enumerate(sorted(set(keys)))}
    bits, rate = WIDTHS[PRECISIONS[way.precision][0]], _rate(way.precision)
    each = [known.table(source, model, size, batch, bits) for source, model, size, batch, *_ in unique]
    each = [sparsity.as_run(t, rate, way.runtime) if key[4] else t for key, t in zip(unique, each, strict=True)]
    each = [_written_out(t, key[5]) for key, t in zip(unique, each, strict=True)]
    return Asked(
        Tables.joined(each), each, np.array([key[3] for key in unique]), np.array([unique[key] for key in keys])
    )


def _parts(part: pandas.DataFrame, way: Way) -> list[tuple[tuple[int, int], ...]]:
    """Of each question the operators that its file has in parts that the engine leaves apart, and their kernels."""
    found = []
    for source, engine in zip(part.source, part.runtime, strict=True):
        asked_as = (source, engine) if engine == way.runtime else ()
        gelu = way.precision == "fp16" and asked_as in _GELU_WRITTEN_OUT
        pairs = ((gelu, (_GELU, _GELU_KERNELS)), (asked_as in _NORM_WRITTEN_OUT, (_NORM, _NORM_KERNELS)))
        found.append(tuple(pair for written_out, pair in pairs if written_out))
    return found


def _written_out(table: RecordedTable, parts: tuple[tuple[int, int], ...]) -> RecordedTable:
    """Each operator of ``parts`` as so many of its kind on tensors of its size."""
    count = np.asarray(table.count)
    for operator, kernels in parts:
        count = count * np.where(np.asarray(table.op) == operator, kernels, 1)
    return replace(table, count=count)


def _graded(part: pandas.DataFrame, way: Way, known: RecordedTables, chosen: Chosen) -> pandas.DataFrame:
    """The rows of one way of running, predicted together."""
    asked = tables_of(part, way, known)
    joined, each, batch, at = asked.tables, asked.each, asked.batch, asked.at
    bits = WIDTHS[PRECISIONS[way.precision][0]]
    elements = np.array([t.statics["input_elements_per_sample"] for t in each]) * batch
    weights = np.array([t.statics["weight_bytes"] for t in each])
    activations = np.array([t.statics["peak_activation_bytes"] for t in each])
    none = np.zeros(len(each))
    if way.optimizer is not None:
        predictor: Any = StepPredictor.load()
        derived = Derivation(options(way.device, way.precision, way.optimizer), elements, bits / 8)
        columns, notes, _, _ = predictor.columns_of(joined, batch, way, derived)
        seconds, level = predictor.latency_s(columns), notes.level
    else:
        predictor = chosen(way, str(part.source.iloc[0]))
        runs = Runs(joined, batch, weights, activations, weights + activations, elements, elements, none, none)
        columns, notes = predictor.columns(runs, way)
        estimates = predictor.estimates(columns, way)
        seconds, level = estimates.latency_ms.scaled(1e-3), estimates.level
    distance = np.asarray(columns["distance"]) if "distance" in columns else np.full(len(each), np.nan)
    return part.assign(
        predictor=predictor.name,
        median_s=seconds.median[at],
        low_s=seconds.low[at],
        high_s=seconds.high[at],
        level=[SUPPORT_LEVELS[int(level[i])] for i in at],
        distance=distance[at],
        reasons=["; ".join(notes.reasons(i)) for i in at.tolist()],
        lacks=list(np.asarray(columns["lacks"])[at]),
    )


def summary(found: pandas.DataFrame, by: list[str]) -> pandas.DataFrame:
    """Per group: rows, MAPE and median bias in %, coverage in % and median width (high / low) of the intervals."""
    import pandas

    ratio = found.median_s / found.measured_s
    covered = (found.low_s <= found.measured_s) & (found.measured_s <= found.high_s)
    values = found.assign(
        error=100 * (ratio - 1).abs(), bias=100 * (ratio - 1), covered=100.0 * covered, width=found.high_s / found.low_s
    )
    groups = values.groupby(by)
    return pandas.DataFrame(
        {
            "rows": groups.size(),
            "MAPE %": groups.error.mean().round(1),
            "median APE %": groups.error.median().round(1),
            "bias %": groups.bias.median().round(1),
            "coverage %": groups.covered.mean().round(1),
            "width": groups.width.median().round(2),
            "above peak": groups.above_peak.sum(),
        }
    )


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=None, help="the folder of data (default: that of the repository)")
    parser.add_argument("--write", type=Path, default=None, help="a Parquet file for all residuals")
    options_ = parser.parse_args()
    try:
        found, refused = residuals(options_.data)
    except PerfPassError as error:
        print(error, file=sys.stderr)
        return 1
    for by in (["mode"], ["source", "mode"], ["source", "runtime", "mode"], ["domain", "mode"], ["level", "mode"]):
        print(summary(found, by).to_string(), end="\n\n")
    above = found[found.above_peak]
    print(above.groupby(["source", "network", "device", "precision", "runtime"]).size().to_string(), end="\n\n")
    print(refused.groupby(["refused", "source"]).size().to_string())
    if options_.write:
        with replacing(options_.write) as file:
            found.to_parquet(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
