"""TraPPM: what ships answers, says what it knows, and says what PyTorch Geometric says of the whole graph."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import perfpass
from perfpass import features
from perfpass.errors import ArtefactError
from perfpass.predictors.learned import arrays as weights
from perfpass.predictors.learned import artefacts
from perfpass.predictors.published.answer import WEIGHTS
from perfpass.predictors.published.graph_classes import classes, first_rounds
from perfpass.predictors.published.run_features import run_features
from perfpass.predictors.published.trappm import TrappmPredictor

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def resnet():
    return perfpass.load(EXAMPLES / "resnet50.onnx")


def test_inference_has_trappms_time_and_our_memory_and_says_so(resnet):
    ours = perfpass.predict(resnet, "rtx-4090", batch=1, precision="amp")
    found = perfpass.predict(resnet, "rtx-4090", batch=1, precision="amp", predictor="trappm")
    assert found.latency_ms != ours.latency_ms
    assert ours.latency_ms.median / 4 < found.latency_ms.median < ours.latency_ms.median * 4
    assert found.peak_memory_bytes == ours.peak_memory_bytes and found.power_w == ours.power_w
    assert found.mig == ours.mig
    assert found.throughput_per_s.median == pytest.approx(1e3 / found.latency_ms.median)
    assert any("not said by TraPPM but by perfpass: peak memory" in reason for reason in found.support.reasons)
    assert found.provenance["predictor"] == "trappm" and found.provenance["beside"] == ours.provenance["predictor"]


def test_a_training_step_has_trappms_memory_with_the_networks_that_it_was_learned_from(resnet):
    ours = perfpass.predict(resnet, "rtx-3090", batch=1, mode="training")
    found = perfpass.predict(resnet, "rtx-3090", batch=1, mode="training", predictor="trappm")
    assert found.peak_memory_bytes != ours.peak_memory_bytes and found.power_w == ours.power_w
    assert found.energy_j.median == pytest.approx(found.power_w.median * found.latency_ms.median / 1e3)
    assert any("TraPPM learned memory from" in reason for reason in found.support.reasons)
    assert any("not said by TraPPM but by perfpass: energy, power" in reason for reason in found.support.reasons)


def test_a_device_that_it_never_learned_from_is_outside_with_wider_bounds():
    resnet = perfpass.load(EXAMPLES / "resnet50.onnx", batch=32)
    known = perfpass.predict(resnet, "rtx-4090", batch=32, precision="amp", predictor="trappm")
    unknown = perfpass.predict(resnet, "h100-sxm5-80gb", batch=32, precision="amp", predictor="trappm")
    assert unknown.support.level == "outside"
    assert unknown.latency_ms.high / unknown.latency_ms.median > known.latency_ms.high / known.latency_ms.median


def test_the_command_line_answers_with_trappm(capsys):
    from perfpass.cli import main

    arguments = ["predict", str(EXAMPLES / "resnet50.onnx"), "--device", "rtx-4090", "--json", "--predictor", "trappm"]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["provenance"]["predictor"] == "trappm"


def runs_of(*precisions: str) -> np.ndarray:
    how = {"runtime": "torch", "layout": "nchw", "mode": "training", "optimizer": "sgd"}
    return np.stack([run_features(perfpass.device("rtx-3090"), precision=p, **how) for p in precisions])


def test_ways_to_run_share_one_embedding_and_any_batch_of_them_is_the_same(resnet):
    predictor, runs = TrappmPredictor.load(), runs_of("amp", "fp32")
    together = predictor.outputs(resnet, runs, ("training_step",))["training_step"]
    alone = [predictor.outputs(resnet, run[None], ("training_step",))["training_step"][0] for run in runs]
    assert (together > 0).all()
    np.testing.assert_allclose(together, alone, rtol=1e-5)


def test_what_ships_says_what_pytorch_geometric_says_of_the_whole_graph(resnet):
    """Encoder and regressor, layer by layer on all nodes, from the artefact's own numbers."""
    import torch
    import torch_geometric.nn as geometric

    predictor = TrappmPredictor.load()
    stored = weights.unpack(artefacts.Artefact(artefacts.shipped("trappm")).read(WEIGHTS), "shipped")
    arrays = {name: torch.from_numpy(values.astype(np.float64)) for name, values in stored.items()}
    found = features.extract(resnet, "trappm")
    edges = torch.from_numpy(found.edge_index.astype(np.int64))

    def scaled(values, prefix, log):
        squeezed = torch.sign(values) * torch.log1p(values.abs()) if log else values
        return ((squeezed - arrays[f"{prefix}.mean"]) * arrays[f"{prefix}.factor"]).clip(-8, 8)

    def run(prefix, layers, h):
        for i, layer in enumerate(layers):
            own = {n.removeprefix(f"{prefix}.{i}."): v for n, v in arrays.items() if n.startswith(f"{prefix}.{i}.")}
            if layer["kind"] == "sage":
                conv = geometric.SAGEConv(layer["inputs"], layer["outputs"], aggr=layer["aggregation"]).double()
                conv.load_state_dict(own)
                h = conv(h, edges)
            elif layer["kind"] == "batch_norm":
                norm = torch.nn.BatchNorm1d(layer["inputs"]).double().eval()
                norm.load_state_dict(own | {"num_batches_tracked": torch.tensor(0)})
                h = norm(h)
            elif layer["kind"] == "dense":
                h = h @ own["weight"].T + own["bias"]
            elif layer["kind"] == "relu":
                h = h.relu()
        return h

    nodes = torch.from_numpy(found.nodes.astype(np.float64))
    spec, run_ = predictor.manifest["regressor"], runs_of("fp32")
    with torch.no_grad():
        embedding = run("encoder.graph", predictor.manifest["encoder"]["graph"], scaled(nodes, "encoder.nodes", True))
        inputs = torch.cat([torch.from_numpy(found.statics.astype(np.float64)), embedding.sum(0)]).log1p()
        inputs = torch.cat([inputs, torch.from_numpy(run_[0].astype(np.float64))])
        for task in ("latency", "training_step", "memory"):
            h = run(f"{task}.graph", spec["graph"], scaled(nodes, f"{task}.nodes", True)).sum(0)
            joined = torch.cat([h.sign() * h.abs().log1p(), scaled(inputs, f"{task}.statics", False)])[None]
            raw = run(f"{task}.head", spec["head"], joined)[0]
            expected = (raw * arrays[f"{task}.targets.scale"] + arrays[f"{task}.targets.mean"]).exp()
            np.testing.assert_allclose(predictor.outputs(resnet, run_, (task,))[task], expected.numpy(), rtol=1e-4)
    on = classes(found.nodes, found.edge_index, predictor.encoder.spec.rounds)
    np.testing.assert_allclose(predictor.embedding(on), embedding.sum(0).numpy(), rtol=1e-5, atol=1e-3)


def copied(folder: Path, manifest: dict, content: bytes) -> Path:
    artefacts.write(folder / "copy", manifest, {WEIGHTS: content})
    return folder / "copy"


def test_a_damaged_artefact_is_one_error(tmp_path):
    shipped = artefacts.Artefact(artefacts.shipped("trappm"))
    manifest = {k: v for k, v in shipped.manifest.items() if k not in ("files", "schema_version")}
    content = shipped.read(WEIGHTS)
    arrays = weights.unpack(content, "shipped")
    assert TrappmPredictor(copied(tmp_path, manifest, content)).encoder.spec == TrappmPredictor.load().encoder.spec
    name = "training_step.head.0.weight"
    broken = [
        ({**manifest, "schema": "dippm"}, content),
        ({**manifest, "run_features": []}, content),
        ({k: v for k, v in manifest.items() if k != "encoder"}, content),
        (manifest, content[:100]),
        (manifest, weights.pack({k: v for k, v in arrays.items() if k != "encoder.nodes.mean"})),
        (manifest, weights.pack({k: v for k, v in arrays.items() if k != "memory.targets.mean"})),
        (manifest, weights.pack({**arrays, name: arrays[name][:, :3]})),
        (manifest, weights.pack({**arrays, name: np.full_like(arrays[name], np.nan)})),
    ]
    for other, bytes_ in broken:
        with pytest.raises(ArtefactError):
            TrappmPredictor(copied(tmp_path, other, bytes_))


def test_the_shipped_artefact_is_small_and_was_pretrained_on_many_graphs():
    assert sum(path.stat().st_size for path in artefacts.shipped("trappm").iterdir()) < 1.5e6
    assert TrappmPredictor.load().manifest["made"]["encoder"]["graphs"] > 25_000


def test_the_first_rounds_of_classes_are_the_classes_of_fewer_rounds(resnet):
    found = features.extract(resnet, "trappm")
    few, many = (classes(found.nodes, found.edge_index, rounds) for rounds in (2, 4))
    cut = first_rounds(many, 2)
    assert len(cut.levels) == len(few.levels)
    for mine, theirs in zip(cut.levels, few.levels, strict=True):
        np.testing.assert_array_equal(mine.count, theirs.count)
        np.testing.assert_array_equal(mine.source, theirs.source)
