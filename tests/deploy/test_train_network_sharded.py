"""Networks that are no language models, their states shared by ranks, checkpointed, or on the host."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import perfpass
from perfpass.cli import main
from perfpass.deploy.train_network_advice import search_network_layouts, train_network_advice
from perfpass.errors import ArgumentError, UnsupportedError
from perfpass.graph.blocks import blocks, places
from perfpass.graph.checkpointed import checkpointed
from perfpass.graph.optimizers import OPTIMIZERS
from perfpass.graph.saved import saved_activations
from perfpass.predictors.training_step import sharded

SHARDINGS = sharded.SHARDINGS
ADAM = OPTIMIZERS["adamw"]
BATCH, SIZE = 24, 64
RUN = {"micro_batch": 16, "optimizer": "adamw"}


@pytest.fixture(scope="module")
def steps():
    """One device's steps, by network: what is counted of their parameters."""
    found = {}
    for name in ("resnet18", "timm:vit_tiny_patch16_224", "timm:convnext_atto", "densenet121"):
        step = perfpass.predict(name, "a100", batch=4, mode="training", optimizer="adamw")
        found[name] = step.asked.run()
    return found


def test_blocks_are_what_is_numbered():
    names = [
        "stem.weight",
        "layer1.0.conv1.weight",
        "layer1.0.bn1.weight",
        "layer1.1.conv1.weight",
        "layer1.1.bn1.bias",
    ]
    assert blocks(names) == ("layer1.0", "layer1.1")
    assert places(["layer1.1.conv1", "layer1.10.conv1", "stem"], blocks(names)).tolist() == [1, -1, -1]
    nested = [f"layers.{i}.blocks.{j}.{part}.weight" for i in (0, 1) for j in (0, 1) for part in ("norm", "mlp.fc")]
    assert blocks(nested) == ("layers.0.blocks.0", "layers.0.blocks.1", "layers.1.blocks.0", "layers.1.blocks.1")
    assert blocks(["d.layer1.norm.weight", "d.layer1.conv.weight"]) == ("d.layer1",)
    assert blocks(["weight", "0.weight", "1.bias"]) == ()


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 64])
@pytest.mark.parametrize("sharding", ["zero1", "zero2", "zero3"])
def test_what_ranks_own_is_the_whole(steps, sharding, ranks):
    for run in steps.values():
        found = sharded.parameters(run.graph, 4.0)
        owned = sharded.split(found, sharding, ranks)
        whole = found.elements.sum()
        assert (ranks == 1 or owned.sum() == whole) and len(owned) == ranks and (owned >= 0).all()
        assert found.units.sum() == found.bytes == 4 * whole
        fullest = sharded.rank(found, sharding, ranks, ADAM, lists=True)
        assert fullest.owned == 4 * owned.max() and fullest.states == 8 * owned.max()
        on_host = sharded.offloaded(fullest, found, "optimizer")
        assert on_host.host == fullest.gradients + fullest.states and on_host.states == 0
        if sharding == "zero3":
            assert sharded.offloaded(fullest, found, "parameters").host == on_host.host + fullest.owned


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_more_sharding_never_takes_more_memory(recompute):
    for name in ("resnet18", "timm:vit_tiny_patch16_224"):
        step = None
        for ranks in (2, 8):
            found = [
                perfpass.train_network_cost(name, "a100", gpus=ranks, sharding=s, recompute=recompute, **RUN)
                for s in SHARDINGS
            ]
            for bound in ("median", "high"):
                memory = [getattr(one.memory_in_use_bytes, bound) for one in found]
                assert memory == sorted(memory, reverse=True)
                assert step is None or all(now <= before for now, before in zip(memory, step[bound], strict=True))
            step = {b: [getattr(one.memory_in_use_bytes, b) for one in found] for b in ("median", "high")}
            assert all(one.step_s.low < one.step_s.median < one.step_s.high for one in found)
            width = [one.step_s.high / one.step_s.low for one in found]
            assert min(width[1:]) > width[0]  # nothing sharded was measured
            assert all(sum(one.parts_s.values()) == pytest.approx(one.step_s.median) for one in found)


def test_a_rank_holds_what_pytorch_s_own_sharding_leaves_it():
    pytest.importorskip("torchvision")
    import traced_ranks as traced

    script = [sys.executable, str(Path(traced.__file__)), "ddp", *SHARDINGS[1:]]
    done = subprocess.run(script, capture_output=True, text=True, check=True, timeout=300)
    rows = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("[{")))
    graph = _graph(traced.network(), traced.SIZE)
    found = sharded.parameters(graph, 4.0)
    assert (found.block >= 0).any() and len(found.units) == 5
    for kind, sharding in (("ddp", "none"), *((s, s) for s in SHARDINGS[1:])):
        owned = sharded.split(found, sharding, traced.RANKS) * 4
        mine = {row["rank"]: row for row in rows if row["kind"] == kind}
        stepped = sorted((mine[r]["states"] for r in mine), reverse=True)
        assert stepped == sorted((2 * owned).tolist(), reverse=True)
        fullest = sharded.rank(found, sharding, traced.RANKS, ADAM, lists=False)
        assert max(row["weights"] for row in mine.values()) == fullest.weights
        assert max(row["gradients"] for row in mine.values()) == fullest.gradients
        if sharding in ("zero2", "zero3"):
            assert [mine[r]["weights"] for r in range(traced.RANKS)] == owned.tolist()
            assert sum(row["gradients"] for row in mine.values()) == found.bytes


def _graph(module, size: int = SIZE):
    """As its training step is counted."""
    step = perfpass.predict(module, "a100", batch=BATCH, input_shape=(3, size, size), mode="training")
    return step.asked.run().graph


def _module(name: str):
    """A network of torchvision, small enough that its activations weigh more than its parameters."""
    from perfpass.importers import torchvision_schemas

    torchvision_schemas.define()
    import torchvision

    if name == "vit":
        sizes = {"num_layers": 6, "num_heads": 3, "hidden_dim": 96, "mlp_dim": 384, "num_classes": 10}
        return torchvision.models.VisionTransformer(image_size=SIZE, patch_size=8, **sizes).train()
    return getattr(torchvision.models, name)(weights=None, num_classes=10).train()


def _checkpointed_module(name: str):
    """A network of which every block is checkpointed."""
    from torch.utils.checkpoint import checkpoint

    made = _module(name)
    names = [n for n, _ in made.named_parameters()]
    for block in blocks(names):
        module = made.get_submodule(block)
        forward = module.forward

        def again(*given, forward=forward):
            kept = [list(one) if isinstance(one, list) else one for one in given]  # a list grows from layer to layer
            return checkpoint(forward, *kept, use_reentrant=False)

        module.forward = again
    return made


@pytest.mark.parametrize("name", ["resnet18", "vit", "convnext_tiny", "densenet121", "swin_t"])
def test_checkpointing_takes_what_a_real_step_says(name):
    torch = pytest.importorskip("torch")
    _module(name)
    from perfpass.importers.torch_allocations import allocations

    images = torch.randn(BATCH, 3, SIZE, SIZE)

    def peak(module) -> int:
        def step():
            module(images).sum().backward()

        # oneDNN lays tensors out anew by the processor's instruction set (resnet18: 81 MB without, 108 with AVX2).
        with torch.backends.mkldnn.flags(enabled=False):
            step()
            module.zero_grad()
            return allocations(step).peak_bytes

    measured = peak(_checkpointed_module(name)) / peak(_module(name)) - 1
    graph = _graph(_module(name))
    less, whole = checkpointed(graph, "float32"), saved_activations(graph, "float32")
    counted = (less.backward + less.gradients) / (whole.backward + whole.gradients) - 1
    print(f"{name}: measured {100 * measured:+.1f} %, counted {100 * counted:+.1f} %")
    assert counted == pytest.approx(measured, rel=0.2) and measured < 0
    assert 0.3 < less.again.mean() <= 1 and less.blocks >= 6


def test_gradients_that_micro_batches_add_to_stand_beside_the_activations():
    once = perfpass.train_network_cost("timm:vit_tiny_patch16_224", "a100", gpus=2, **RUN)
    twice = perfpass.train_network_cost("timm:vit_tiny_patch16_224", "a100", gpus=2, global_batch=64, **RUN)
    more = twice.memory_in_use_bytes.median - once.memory_in_use_bytes.median
    assert 0.5 * once.gradient_bytes < more < 1.2 * once.gradient_bytes


def test_what_waits_on_the_host_costs_time_and_frees_memory():
    plain, states, weights = (
        perfpass.train_network_cost("timm:vit_tiny_patch16_224", "a100", gpus=2, sharding="zero3", offload=o, **RUN)
        for o in sharded.OFFLOADS
    )
    assert plain.memory_in_use_bytes.median > states.memory_in_use_bytes.median >= weights.memory_in_use_bytes.median
    assert plain.step_s.median < states.step_s.median <= weights.step_s.median
    assert plain.rank_bytes["host"] == 0 < states.rank_bytes["host"] < weights.rank_bytes["host"]
    slow = perfpass.train_network_cost(
        "timm:vit_tiny_patch16_224", "a100", gpus=2, sharding="zero3", offload="optimizer", host_gb_s=1.0, **RUN
    )
    assert slow.parts_s["the host"] > 10 * states.parts_s["the host"]


@pytest.mark.parametrize(
    ("where", "asked", "error", "said"),
    [
        ("a100", {"offload": "parameters"}, ArgumentError, "sharding=zero3"),
        ("cpu", {"offload": "optimizer"}, ArgumentError, "the host itself"),
        ("a100", {"sharding": "zero4"}, ArgumentError, "zero3"),
        ("a100", {"recompute": "selective"}, ArgumentError, "full"),
    ],
)
def test_what_cannot_be_shared_is_refused(where, asked, error, said):
    with pytest.raises(error, match=said):
        perfpass.train_network_cost("resnet18", where, **asked)


def test_a_network_without_named_blocks_is_not_checkpointed():
    torch = pytest.importorskip("torch")
    plain = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
    with pytest.raises(UnsupportedError, match="blocks"):
        perfpass.train_network_cost(plain, "a100", input_shape=(8,), micro_batch=2, recompute="full")


def test_advice_takes_less_memory_by_its_price_in_time():
    found = train_network_advice("timm:vit_tiny_patch16_224", "a100", gpus=4, **RUN)
    words = [one.words for one in found.changes]
    assert "recompute full" in words and "sharding zero3" in words
    assert all(one.memory < -0.01 and one.time_low <= one.time <= one.time_high for one in found.changes)
    assert all(one.found.global_batch == found.asked.global_batch for one in found.changes)
    again = next(one for one in found.changes if one.words == "recompute full")
    assert 0.1 < again.time < 0.5 and again.same_training
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["changes"][0]["words"] in str(found)
    with pytest.raises(ArgumentError, match="whole nodes"):
        train_network_advice("resnet18", "a100", gpus=12)


def test_a_search_has_the_quickest_first():
    found = search_network_layouts("resnet18", "a100", gpus=2, global_batch=64, micro_batch=16)
    assert found.tried == 8 and len(found.best) == 8
    times = [one.step_s.median for one in found.best]
    assert times == sorted(times) and all(one.global_batch == 64 for one in found.best)
    with pytest.raises(ArgumentError, match="global batch"):
        search_network_layouts("resnet18", "a100", gpus=3, global_batch=64)


def test_the_command_shards_and_advises(capsys):
    asked = ["train-cost", "resnet18", "--device", "a100", "--gpus", "2", "--micro-batch", "16"]
    assert main([*asked, "--sharding", "zero3", "--recompute", "full", "--advise", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["sharding"] == "zero3" and told["rank_bytes"]["gathered"] > 0 and told["advice"]
    assert main([*asked, "--search", "--global-batch", "32"]) == 0
    assert "layouts fit; the quickest" in capsys.readouterr().out
