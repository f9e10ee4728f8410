"""Archives of torch.export and TorchScript: the module's own parameters and MACs by each way, nothing unpickled."""

from __future__ import annotations

import io
import json
import pickle
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

import perfpass
from perfpass.errors import FormatError, LimitError, PerfPassError, ShapeError, UnsupportedError
from perfpass.graph import OpGraph, costs
from perfpass.importers import torch_recorder, torch_repeated
from perfpass.importers.formats import (
    Content,
    archive,
    recognised,
    script_program,
    torch_export,
    torch_replay,
    torchscript,
)
from perfpass.importers.formats.script_pickle import Record, ScriptPickle, StoredTensor
from perfpass.importers.formats.sizes import Sizes

IMAGE = (3, 16, 16)


class Network(torch.nn.Module):
    """Convolution, normalisation, pooling, attention, a loop and a choice."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(8, 8) for _ in range(3)])
        self.register_buffer("shift", torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.convolution(x)))
        x = torch.nn.functional.max_pool2d(x, 2).flatten(2).transpose(1, 2)
        x = torch.nn.functional.scaled_dot_product_attention(x, x, x)
        for layer in self.layers:
            x = layer(x)
        if x.shape[0] > 0:
            x = torch.nn.functional.gelu(x)
        for i in range(2):
            x = x + self.shift * i
        return x.mean(1)


def exported(dynamic: bool = False) -> bytes:
    shapes = {"x": {0: torch.export.Dim("batch", min=2, max=64)}} if dynamic else None
    stream = io.BytesIO()
    program = torch.export.export(Network().eval(), (torch.zeros(2, *IMAGE),), dynamic_shapes=shapes)
    torch.export.save(program, stream)
    return stream.getvalue()


def scripted() -> bytes:
    stream = io.BytesIO()
    torch.jit.save(torch.jit.script(Network().eval()), stream)
    return stream.getvalue()


def traced() -> bytes:
    stream = io.BytesIO()
    torch.jit.save(torch.jit.trace(Network().eval(), torch.zeros(2, *IMAGE)), stream)
    return stream.getvalue()


def frozen() -> bytes:
    stream = io.BytesIO()
    torch.jit.save(torch.jit.freeze(torch.jit.script(Network().eval())), stream)
    return stream.getvalue()


@pytest.fixture(scope="module")
def archives() -> dict[str, bytes]:
    return {"exported": exported(), "scripted": scripted(), "traced": traced()}


def written(content: bytes, folder: Path) -> str:
    path = folder / "model.bin"  # content decides, not the suffix
    path.write_bytes(content)
    return str(path)


def rezipped(content: bytes, change: Callable[[str, bytes], bytes | None]) -> bytes:
    """The archive with other entries; None drops one."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as before, zipfile.ZipFile(stream, "w") as after:
        for name in before.namelist():
            entry = change(name, before.read(name))
            if entry is not None:
                after.writestr(name, entry)
    return stream.getvalue()


def totals(graph: OpGraph) -> tuple[int, int]:
    counted = costs.count(graph).totals
    return counted["macs"], counted["parameters"]


def kinds(graph: OpGraph) -> list[str]:
    return sorted(graph.op_name(n) for n in range(graph.node_count) if graph.op_name(n) not in ("slice", "reshape"))


@pytest.mark.parametrize("way", [exported, scripted, traced, frozen])
def test_the_same_network_by_each_way_is_the_module_itself(way: Callable[[], bytes], tmp_path: Path) -> None:
    whole = perfpass.load(Network(), input_shape=IMAGE, batch=2)
    path = written(way(), tmp_path)
    given_shapes = {} if way in (exported, traced) else {"input_shape": {"x": (2, *IMAGE)}}
    graph = perfpass.load(path, **given_shapes)
    if way is frozen:
        # Freezing folds the normalisation's four vectors into the convolution, and shift x i into one for each pass.
        macs, parameters = totals(graph)
        assert macs == totals(whole)[0] and parameters == totals(whole)[1] - 4 * 8 + 8
    else:
        assert totals(graph) == totals(whole)
        assert kinds(graph) == kinds(whole)
    assert not graph.unknown_operators


def test_the_latency_of_an_archive_is_that_of_its_module(archives: dict[str, bytes], tmp_path: Path) -> None:
    whole = perfpass.predict(Network(), input_shape=IMAGE, batch=2, device="A100")
    for name in ("exported", "traced"):
        found = perfpass.predict(written(archives[name], tmp_path), device="A100")
        assert found.latency_ms.median == pytest.approx(whole.latency_ms.median, rel=0.05)


def test_an_open_batch_is_set_and_a_fixed_one_scaled(archives: dict[str, bytes], tmp_path: Path) -> None:
    at_two, parameters = totals(perfpass.load(Network(), input_shape=IMAGE, batch=2))
    opened = written(exported(dynamic=True), tmp_path)
    (only,) = torch_export.inputs(Path(opened))
    assert isinstance(only.shape[0], str) and only.shape[1:] == IMAGE
    assert totals(perfpass.load(opened, batch=6)) == (3 * at_two, parameters)
    with pytest.raises(ShapeError, match="--batch"):
        perfpass.load(opened)
    assert totals(perfpass.load(written(archives["exported"], tmp_path), batch=6)) == (3 * at_two, parameters)


def test_nodes_have_the_paths_of_their_modules(archives: dict[str, bytes], tmp_path: Path) -> None:
    for name in ("exported", "traced"):
        graph = perfpass.load(written(archives[name], tmp_path))
        found = {graph.string(int(graph.node_name[n])) for n in range(graph.node_count)}
        assert {"layers.0.aten.addmm", "layers.2.aten.addmm"} <= found


def test_a_program_of_the_older_form_is_read(archives: dict[str, bytes], tmp_path: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(archives["exported"])) as archive:
        program = archive.read(next(n for n in archive.namelist() if n.endswith("models/model.json")))
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as older:
        older.writestr("serialized_exported_program.json", program)
        older.writestr("version", "6")
    graph = perfpass.load(written(stream.getvalue(), tmp_path))
    assert totals(graph) == totals(perfpass.load(Network(), input_shape=IMAGE, batch=2))


def test_a_custom_operator_is_unknown_with_its_shapes_and_named(archives: dict[str, bytes], tmp_path: Path) -> None:
    def other(name: str, entry: bytes) -> bytes:
        return entry.replace(b"torch.ops.aten.gelu.default", b"torch.ops.mine.gelu.default")

    graph = perfpass.load(written(rezipped(archives["exported"], other), tmp_path))
    assert list(graph.unknown_operators) == ["mine.gelu.default"]


def test_experts_count_alike_by_the_product_that_transformers_exports(tmp_path: Path) -> None:
    pytest.importorskip("transformers.integrations.moe")  # defines transformers::grouped_mm_fallback

    class Experts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(4, 16, 32))
            self.register_buffer("ends", torch.tensor([2, 6, 6, 10], dtype=torch.int32))

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return torch.ops.transformers.grouped_mm_fallback(rows, self.weight, self.ends)

    torch.export.save(torch.export.export(Experts(), (torch.zeros(10, 16),)), path := tmp_path / "experts.pt2")
    graph = perfpass.load(path)
    assert not graph.unknown_operators
    assert costs.count(graph).totals["macs"] == 10 * 16 * 32


class Repeating(torch.nn.Module):
    """Blocks alike, with what a call written again must not miss: views, writes through them, masks, parts, aliases."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(8, 8) for _ in range(blocks)])
        self.norm = torch.nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            y = layer(x)
            turned = y.view(2, 4, 8).transpose(1, 2).contiguous()
            first, second = turned.transpose(1, 2).reshape(8, 8).chunk(2, 1)
            y = torch.cat([second, first], 1) * (y + y) + torch.zeros_like(y)
            y = y.masked_fill(torch.sigmoid(y) > 0.5, 0.0)
            y[:, 0] = y[:, 1]
            part = y[:, :4]
            part.mul_(2)
            x = self.norm(torch.nn.functional.relu_(y)) + x
        return x


def _of_repeating(blocks: int, way: str, folder: Path) -> str:
    module, sample, path = Repeating(blocks).eval(), torch.ones(8, 8), folder / f"{way}{blocks}.bin"
    if way == "exported":
        torch.export.save(torch.export.export(module, (sample,)), str(path))
    else:
        torch.jit.save(torch.jit.trace(module, sample, check_trace=False), str(path))
    return str(path)


def _described(graph: OpGraph) -> list[tuple[object, ...]]:
    return [
        (
            *(graph.op_name(n), graph.source_op_name(n), graph.label(n), tuple(graph.node_inputs(n))),
            *(tuple(graph.node_outputs(n)), [graph.shape(t) for t in graph.node_outputs(n)]),
        )
        for n in range(graph.node_count)
    ]


@pytest.mark.parametrize("way", ["exported", "traced"])
def test_a_call_that_is_written_again_is_the_call_itself(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _of_repeating(4, way, tmp_path)
    found = perfpass.load(path)
    monkeypatch.setattr(torch_repeated.RepeatedCalls, "call", lambda self, function, args, kwargs, run: run())
    run = perfpass.load(path)
    assert _described(found) == _described(run)
    assert costs.count(found).totals == costs.count(run).totals and found.notes == run.notes


class SameTwice(torch.nn.Module):
    """A tensor with itself by another name, then the same call on two: what the first reads once, the second twice."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, z = torch.relu(x), torch.nn.functional.silu(x)
        return torch.mul(y, y.detach()) + torch.mul(y, z)


class Widths(torch.nn.Module):
    """Columns of two tensors apart, then of one, as boxes have them: only the second is the width of a box."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, z = torch.relu(x), torch.nn.functional.silu(x)
        apart, width = y[:, 2] - z[:, 0], y[:, 2] - y[:, 0]
        return apart[torch.where(width >= 1)[0]]


@pytest.mark.parametrize("way", ["exported", "traced"])
@pytest.mark.parametrize("kind", [SameTwice, Widths])
def test_calls_alike_on_tensors_that_lie_otherwise_are_two(
    way: str, kind: type[torch.nn.Module], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "Repeating", lambda blocks: kind())
    path = _of_repeating(1, way, tmp_path)
    found = perfpass.load(path)
    monkeypatch.setattr(torch_repeated.RepeatedCalls, "call", lambda self, function, args, kwargs, run: run())
    assert _described(found) == _described(perfpass.load(path))


def test_a_long_list_of_tensors_is_not_compared_with_as_many_results() -> None:
    replay = torch_replay.Replay({})
    with replay.recording():
        x = replay.tensor((2, 3), torch.float32)
        replay.input(x, "x")
        for count in (8, 20_000):
            replay.call("aten.broadcast_tensors.default", [[x] * count], {}, "")
    assert len(replay._repeated._known) == 1


@pytest.mark.parametrize("way", ["exported", "traced"])
def test_pytorch_runs_an_operator_of_blocks_alike_once(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Plain(torch.nn.Module):
        def __init__(self, blocks: int) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([torch.nn.Linear(8, 8) for _ in range(blocks)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = torch.relu(layer(x)).view(2, 4, 8).transpose(1, 2).reshape(8, 8) + x
            return x

    ran: dict[int, int] = {}
    for blocks in (3, 9):
        monkeypatch.setattr(sys.modules[__name__], "Repeating", Plain)
        path = _of_repeating(blocks, way, tmp_path)
        calls: list[str] = []
        dispatch = torch_recorder.Recorder.__torch_dispatch__

        def counted(self: Any, func: Any, *given: Any, calls: list[str] = calls, run: Any = dispatch) -> Any:
            if not self.paused:
                calls.append(str(func))
            return run(self, func, *given)

        with monkeypatch.context() as here:
            here.setattr(torch_recorder.Recorder, "__torch_dispatch__", counted)
            graph = perfpass.load(path)
        assert [graph.op_name(n) for n in range(graph.node_count)].count("dense") == blocks
        ran[blocks] = len(calls)
    assert ran[9] == ran[3]


@pytest.mark.parametrize("batch", [None, 4])
def test_a_scripted_program_asks_for_its_shape(archives: dict[str, bytes], tmp_path: Path, batch: int | None) -> None:
    path = written(archives["scripted"], tmp_path)
    assert [i.name for i in torchscript.inputs(Path(path))] == ["x"]
    with pytest.raises(ShapeError, match="no shape in the file; give one with --input-shape x="):
        perfpass.load(path, batch=batch)


def test_whole_numbers_are_found_where_an_embedding_takes_them(tmp_path: Path) -> None:
    stream = io.BytesIO()
    torch.jit.save(torch.jit.script(torch.nn.Sequential(torch.nn.Embedding(50, 8), torch.nn.Linear(8, 4))), stream)
    (name,) = [i.name for i in torchscript.inputs(Path(written(stream.getvalue(), tmp_path)))]
    graph = perfpass.load(written(stream.getvalue(), tmp_path), input_shape={name: (2, 7)})
    assert totals(graph) == (2 * 7 * 8 * 4, 50 * 8 + 8 * 4 + 4)


class Runs:
    """A pickle that would run code."""

    def __reduce__(self) -> Any:
        return (print, ("this must never run",))


class Chosen(torch.nn.Module):
    """An operator whose `self` is not its first argument, and PyTorch's own layer of attention."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = torch.nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found, _ = self.heads(x, x, x, need_weights=False)
        return torch.where(found > 0, found, x)


@pytest.mark.parametrize("way", ["exported", "scripted"])
def test_arguments_keep_their_order_and_attention_its_kernel(way: str, tmp_path: Path) -> None:
    module, path, x = Chosen().eval(), tmp_path / "archive", torch.zeros(2, 6, 16)
    if way == "exported":
        torch.export.save(torch.export.export(module, (x,)), path)
        found = perfpass.load(path)
    else:
        torch.jit.save(torch.jit.script(module), path)
        found = perfpass.load(path, input_shape={"x": (2, 6, 16)})
    whole = perfpass.load(module, input_shape=(6, 16), batch=2)
    assert not found.unknown_operators
    assert costs.count(found).totals["macs"] == costs.count(whole).totals["macs"]
    assert costs.count(found).totals["parameters"] == costs.count(whole).totals["parameters"]


def test_pickles_stay_refused_and_nothing_of_them_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "weights.pt"
    torch.save({"w": torch.ones(2)}, path)
    with pytest.raises(UnsupportedError, match="never unpickled"):
        perfpass.load(str(path))
    with pytest.raises(UnsupportedError, match="none of TorchScript's own"):
        ScriptPickle(pickle.dumps(Runs(), protocol=2), "data.pkl")
    hostile = rezipped(scripted(), lambda n, e: pickle.dumps(Runs(), protocol=2) if n.endswith("data.pkl") else e)
    with pytest.raises(UnsupportedError, match="none of TorchScript's own"):
        perfpass.load(written(hostile, tmp_path), input_shape={"x": (1, *IMAGE)})
    assert "must never run" not in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore")  # torch.ao.quantization is deprecated, its files are not
def test_a_program_of_pytorchs_own_quantisation_is_refused_with_what_to_give_instead(tmp_path: Path) -> None:
    class Quantised(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.quantize_per_tensor(torch.ones(2, 2), 0.1, 0, torch.qint8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.weight.dequantize()

    path = tmp_path / "quantised.pt"
    torch.jit.trace(Quantised(), torch.ones(2, 2)).save(str(path))
    with pytest.raises(UnsupportedError, match=r"PyTorch quantised.*precision int8"):
        perfpass.load(str(path))


def test_a_compiled_package_is_refused_with_its_reason(tmp_path: Path) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("m/archive_format", "pt2")
        archive.writestr("m/data/aotinductor/model/model.so", b"\x7fELF")
    with pytest.raises(UnsupportedError, match="AOTInductor"):
        perfpass.load(written(stream.getvalue(), tmp_path))


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("torch.ops.aten.relu.default", "torch.ops.aten.from_file.default", "from_file"),
        ("torch.ops.aten.relu.default", "os.system", "not called here"),
        ("torch.ops.aten.relu.default", "_operator.attrgetter", "not called here"),
    ],
)
def test_a_program_calls_operators_of_pytorch_alone(before: str, after: str, says: str, tmp_path: Path) -> None:
    hostile = rezipped(exported(), lambda _, entry: entry.replace(before.encode(), after.encode()))
    if "from_file" in after:  # an operator that is not called is one without a meaning
        assert "aten.from_file.default" in perfpass.load(written(hostile, tmp_path)).unknown_operators
        return
    with pytest.raises(UnsupportedError, match=says):
        perfpass.load(written(hostile, tmp_path))


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("    while True:\n      y = 1\n    return x", LimitError),
        ("    return " + "(" * 400 + "x" + ")" * 400, LimitError),
        ("    return (self).forward(x, )", LimitError),
        ("    return open('/etc/passwd')", UnsupportedError),
        ("    return x.__class__.__base__", FormatError),
        ("    return __import__('os').system('true')", UnsupportedError),
        ("    return [y for y in x]", UnsupportedError),
        ("    y = torch.zeros([1099511627776, 1099511627776])\n    return y", PerfPassError),
        ("    y = 3\n    for i in range(64):\n      y = y * y\n    return x", LimitError),
        ("    y = [1]\n    for i in range(64):\n      y = torch.add(y, y)\n    return x", LimitError),
        ("    y = 1099511627776 * [1]\n    return x", LimitError),
        ("    y = [1]\n    z = torch.extend(y, range(1099511627776))\n    return x", LimitError),
        ("    y = [x]\n    for i in range(64):\n      y = [y, y]\n    return torch.cat(y)", LimitError),
        ("    y = [x]\n    for i in range(64):\n      y = [y, y]\n    return y", LimitError),
        ("    y = '%999999999999d' % 1\n    return x", FormatError),
        ("    for y in torch.zeros([1099511627776]):\n      z = 1\n    return x", LimitError),
        ("    y = torch.split(torch.zeros([1099511627776]), 1)\n    return x", LimitError),
        ("    y = [0] * 1048576\n    for i in range(200):\n      z = torch.copy(y)\n    return x", LimitError),
        ("    y = (1,)\n    for i in range(400):\n      y = (y,)\n    z = {y: 1}\n    return x", FormatError),
        ("    y = (1,)\n    for i in range(400):\n      y = (y,)\n    return torch.cat(y)", LimitError),
        (
            "    y, z = (1,), (1,)\n    for i in range(64):\n      y, z = (y, y), (z, z)\n    w = y == z\n    return x",
            LimitError,
        ),
        (
            "    y = ('a',)\n    for i in range(64):\n      y = (y, y)\n    ops.prim.RaiseException(y)\n    return x",
            UnsupportedError,
        ),
        ("    y = torch.unbind_copy(torch.zeros([100000000], dtype=6), 0)\n    return x", LimitError),
        ("    y = torch.split_copy(torch.zeros([100000000], dtype=6), 1)\n    return x", LimitError),
        ("    y = torch.hsplit(torch.zeros([100000000], dtype=6), 100000000)\n    return x", LimitError),
        ("    y = annotate()\n    return x", FormatError),
        ("    y = [1]\n    y[7] = 1\n    return x", FormatError),
    ],
)
def test_a_hostile_program_is_refused(
    body: str, kind: type[PerfPassError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script_program, "_MOST_STEPS", 5000)
    text = f"class Network(Module):\n  def forward(self: __torch__.Network,\n    x: Tensor) -> Tensor:\n{body}\n"

    def other(name: str, entry: bytes) -> bytes:
        if not name.endswith(".py"):
            return entry
        return text.encode() if b"def forward" in entry and b"scaled_dot" in entry else entry

    with pytest.raises(kind):
        perfpass.load(written(rezipped(scripted(), other), tmp_path), input_shape={"x": (1, *IMAGE)})


@pytest.mark.parametrize("layers", [1, 12])
def test_the_list_of_an_archive_is_read_as_often_however_many_files_it_has(
    layers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(layers)))
    torch.jit.trace(module.eval(), torch.zeros(2, 4)).save(str(tmp_path / "m.pt"))
    lists: list[Path] = []
    monkeypatch.setattr(archive, "_check_directory", lists.append)
    torchscript.read(tmp_path / "m.pt", Sizes())
    assert len(lists) == 1


def test_the_layers_of_one_class_are_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(9)), torch.nn.Linear(4, 6), torch.nn.ReLU())
    torch.jit.trace(module.eval(), torch.zeros(2, 4)).save(str(tmp_path / "m.pt"))
    parsed: list[str] = []
    plain = script_program._definitions

    def counted(text: str, where: str) -> dict[str, Any]:
        parsed.append(where)
        return plain(text, where)

    monkeypatch.setattr(script_program, "_definitions", counted)
    graph = perfpass.load(tmp_path / "m.pt")
    assert graph.node_count == 11
    assert len(parsed) < 6  # what holds them, a Relu, products by how their long names are broken into lines
    assert costs.count(graph).totals["macs"] == 2 * (9 * 16 + 24)


def test_the_text_of_a_program_is_bounded(tmp_path: Path) -> None:
    """A syntax tree is a thousand times as large as its text."""
    hostile = rezipped(scripted(), lambda name, entry: b"x=1\n" * (1 << 20) + entry if name.endswith(".py") else entry)
    with pytest.raises(LimitError, match="larger than"):
        perfpass.load(written(hostile, tmp_path), input_shape={"x": (1, *IMAGE)})


def test_a_program_that_unpacks_to_more_than_its_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_export, "_MOST_PROGRAM_BYTES", 1000)
    with pytest.raises(LimitError, match="larger than 1000 bytes"):
        perfpass.load(written(exported(), tmp_path))


def test_sizes_of_a_pickle_are_read_as_data() -> None:
    with zipfile.ZipFile(io.BytesIO(scripted())) as archive:
        found = ScriptPickle(
            archive.read(next(n for n in archive.namelist() if n.endswith("data.pkl"))), "data.pkl"
        ).value
    assert isinstance(found, Record)
    stored = found.fields["convolution"].fields["weight"]
    assert isinstance(stored, StoredTensor) and stored.shape == (8, 3, 3, 3) and stored.dtype == "float32"


def test_lists_that_hold_one_another_many_times_are_refused() -> None:
    """A list, a pair of it, a pair of that pair: 60 pairs unfold to 2^60 lists."""
    pairs = b"".join(b"h" + bytes([i]) + b"\x86q" + bytes([i + 1]) for i in range(60))
    with pytest.raises(LimitError, match="within one another"):
        ScriptPickle(b"\x80\x02]q\x00" + pairs + b".", "data.pkl")


@pytest.mark.parametrize("step", [b"h\x07", b"j\x07\x00\x00\x00", b"X\x01\x00\x00\x00\xff"])
def test_a_damaged_archive_is_told_the_byte_at_which_it_is(step):
    content = b"\x80\x02" + b"K\x01" * 10 + step + b"K\x01" * 4 + b"."
    with pytest.raises(FormatError, match="damaged at byte 22;"):
        ScriptPickle(content, "data.pkl")


def number_node(target: str, *arguments: dict[str, Any]) -> dict[str, Any]:
    inputs = [{"name": name, "arg": arg, "kind": 1} for name, arg in zip("ab", arguments, strict=False)]
    return {"target": target, "inputs": inputs, "outputs": [{"as_sym_int": {"as_name": "n"}}], "metadata": {}}


@pytest.mark.parametrize(
    ("nodes", "kind"),
    [
        (
            [
                number_node("_operator.mul", {"as_int": 1 << 40}, {"as_int": 1 << 40}),
                *[number_node("_operator.mul", *[{"as_sym_int": {"as_name": "n"}}] * 2)] * 64,
            ],
            LimitError,
        ),
        ([number_node("_operator.mul", {"as_ints": [1]}, {"as_int": 1 << 40})], FormatError),
        ([number_node("_operator.mod", {"as_string": "%999999999999d"}, {"as_int": 1})], FormatError),
        ([number_node("_operator.floordiv", {"as_int": 1}, {"as_int": 0})], FormatError),
    ],
)
def test_hostile_arithmetic_of_an_export_is_one_error(
    nodes: list[dict[str, Any]], kind: type[PerfPassError], tmp_path: Path
) -> None:
    def other(name: str, entry: bytes) -> bytes:
        if not name.endswith("models/model.json"):
            return entry
        program = json.loads(entry)
        program["graph_module"]["graph"]["nodes"][:0] = nodes
        return json.dumps(program).encode()

    with pytest.raises(kind):
        perfpass.load(written(rezipped(_EXPORTED, other), tmp_path))


def test_an_input_that_says_nothing_is_one_error(tmp_path: Path) -> None:
    def other(name: str, entry: bytes) -> bytes:
        if not name.endswith("models/model.json"):
            return entry
        program = json.loads(entry)
        program["graph_module"]["signature"]["input_specs"][-1]["user_input"]["arg"] = {}
        return json.dumps(program).encode()

    with pytest.raises(FormatError, match="damaged"):
        perfpass.load(written(rezipped(_EXPORTED, other), tmp_path))


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_damaged_pickles_are_data_or_one_error(data: st.DataObject) -> None:
    with zipfile.ZipFile(io.BytesIO(_SCRIPTED)) as archive:
        content = bytearray(archive.read(next(n for n in archive.namelist() if n.endswith("data.pkl"))))
    for _ in range(data.draw(st.integers(1, 5))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        ScriptPickle(bytes(content), "data.pkl")
    except PerfPassError as error:
        assert str(error)


@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_damaged_programs_are_a_graph_or_one_error(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Values of the program's JSON replaced at random."""
    with zipfile.ZipFile(io.BytesIO(_EXPORTED)) as archive:
        name = next(n for n in archive.namelist() if n.endswith("models/model.json"))
        program = json.loads(archive.read(name))
    for _ in range(data.draw(st.integers(1, 3))):
        place: Any = program["graph_module"]
        while isinstance(place, (dict, list)) and place:
            keys = sorted(place) if isinstance(place, dict) else range(len(place))
            key = data.draw(st.sampled_from(list(keys)))
            if not isinstance(place[key], (dict, list)) or not place[key] or data.draw(st.integers(0, 9)) == 0:
                place[key] = data.draw(st.sampled_from([None, -1, 1 << 70, "x", [], {}, {"as_int": 3}, True, 0.5]))
                break
            place = place[key]
    content = rezipped(_EXPORTED, lambda n, entry: json.dumps(program).encode() if n == name else entry)
    path = written(content, tmp_path_factory.mktemp("damaged"))
    try:
        found = recognised(Content.of(Path(path)))
        assert found is not None and found.name == "torch_export"
        costs.count(perfpass.load(path))
    except PerfPassError as error:
        assert str(error)


_EXPORTED, _SCRIPTED = exported(), scripted()
