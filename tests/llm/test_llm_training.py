"""Memory of training a decoder: the published formulas, what sharding and recomputation leave, adapters."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfpass.errors import ArgumentError
from perfpass.llm.activations import saved_by_layer
from perfpass.llm.architecture import Attention, LanguageModel, Layer, Mlp
from perfpass.llm.configuration import language_model
from perfpass.llm.recipe import FROZEN, RECOMPUTATIONS, SHARDINGS, Adapter, Kernels, Layout, Recipe
from perfpass.llm.training import adapter_parameters, in_flight, stage_layers, training_memory


def gpt(hidden=512, layers=12, heads=8):
    each = hidden // heads
    layer = Layer(Attention(heads, heads, each, each), dense=Mlp(4 * hidden, 2), norms=4 * hidden)
    return LanguageModel("gpt", "gpt", hidden, 50_304, ((layers, layer),), tied=True)


GPT3 = Recipe(4, 1024, precision="bf16", optimizer="adam", kernels=Kernels("unfused", dropout=True))


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (Layout(), 34 * 512 + 5 * 8 * 1024),
        (Layout(tensor=4), (10 + 24 / 4) * 512 + 5 * 8 * 1024 / 4),
        (Layout(tensor=4, sequence_parallel=True), 34 * 512 / 4 + 5 * 8 * 1024 / 4),
    ],
)
def test_a_layer_keeps_what_korthikanti_et_al_count(layout, expected):
    """arXiv:2205.05198, equations 1, 2 and 4, for a token."""
    saved = saved_by_layer(gpt().layers[0][1], 512, layout, GPT3)
    assert saved.whole == pytest.approx(expected)
    assert saved.whole - saved.kept("selective") == pytest.approx(5 * 8 * 1024 / layout.tensor)
    assert saved.kept("full") == 2 * 512 / (layout.tensor if layout.sequence_parallel else 1)


@pytest.mark.parametrize(
    ("sharding", "bytes_each"), [("none", 16), ("zero1", 4 + 12 / 64), ("zero2", 2 + 14 / 64), ("zero3", 16 / 64)]
)
def test_zero_leaves_its_papers_bytes_of_a_parameter(sharding, bytes_each):
    """arXiv:1910.02054, figure 1: K = 12, 64 replicas."""
    model = gpt(1024, 24, 16)
    recipe = dataclasses.replace(GPT3, precision="fp16")
    held = training_memory(model, Layout(data=64, sharding=sharding), recipe).stages[0].held
    assert held == pytest.approx(model.parameters * bytes_each, rel=0.001)


def test_stages_share_parameters_and_the_last_one_has_the_logits():
    model = language_model("llama-3.1-8b")
    whole = training_memory(model, Layout(), Recipe(1, 4096)).stages[0]
    found = training_memory(model, Layout(pipeline=4), Recipe(1, 4096, micro_batches=8))
    assert sum(s.weights for s in found.stages) == pytest.approx(whole.weights, rel=1e-4)
    assert found.stages[3].working > found.stages[2].working
    assert [len(layers) for layers in stage_layers(gpt(layers=10), 4)] == [3, 3, 2, 2]


@pytest.mark.parametrize(
    ("pipeline", "virtual", "stage", "micro_batches", "expected"),
    [(4, 1, 0, 8, 4), (4, 1, 3, 8, 1), (4, 1, 0, 2, 2), (1, 1, 0, 8, 1), (4, 3, 3, 8, 3), (4, 2, 0, 8, 5.5)],
)
def test_what_is_under_way_is_that_of_the_schedule(pipeline, virtual, stage, micro_batches, expected):
    assert in_flight(Layout(pipeline=pipeline, virtual=virtual), stage, micro_batches) == expected


def test_zero_bubble_schedules_hold_what_their_paper_says():
    """arXiv:2401.10241, table 2: p and 2 p - 1 micro-batches on every stage."""
    for stage in range(4):
        assert in_flight(Layout(pipeline=4, schedule="zb_h1"), stage, 16) == 4
        assert in_flight(Layout(pipeline=4, schedule="zb_h2"), stage, 16) == 7
    assert in_flight(Layout(pipeline=4, schedule="zb_h2"), 0, 5) == 5


@pytest.mark.parametrize("sharding", ["none", "zero2", "zero3"])
def test_what_is_offloaded_stands_on_the_host(sharding):
    model, layout = language_model("llama-3.1-8b"), Layout(data=4, sharding=sharding)
    recipe = Recipe(1, 4096)
    stays = training_memory(model, layout, recipe).stages[0]
    states = stays.master + stays.moments + stays.gradients
    before = stays
    for offload, all_of_it in (("optimizer", states), ("parameters", states + stays.weights)):
        found = training_memory(model, layout, dataclasses.replace(recipe, offload=offload)).stages[0]
        assert found.host == pytest.approx(all_of_it)
        assert found.peak < before.peak and found.activations == stays.activations
        before = found


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_states_on_the_host_leave_gradients_where_they_are(precision):
    # Megatron-LM's: of each parameter that a rank steps weight, gradient and two moments in single precision.
    model, layout = language_model("llama-3.1-8b"), Layout(data=4, sharding="zero1")
    recipe = Recipe(1, 4096, precision=precision)
    stays = training_memory(model, layout, recipe).stages[0]
    found = training_memory(model, layout, dataclasses.replace(recipe, offload="states")).stages[0]
    assert found.gradients == stays.gradients == 4 * model.parameters
    assert found.weights == stays.weights and stays.peak - found.peak == stays.master + stays.moments
    assert found.host == pytest.approx(16 * model.parameters / 4)


def test_inputs_of_layers_on_the_host_leave_two_of_them():
    model = language_model("llama-3.1-8b")
    full = training_memory(model, Layout(), Recipe(1, 4096, recompute="full")).stages[0]
    found = training_memory(model, Layout(), Recipe(1, 4096, recompute="offloaded")).stages[0]
    assert found.host == pytest.approx(30 * 2 * 4096 * 4096)
    assert full.peak - found.peak == pytest.approx(found.host)


def test_magnitudes_of_dora_are_an_element_of_each_output():
    layer, hidden = language_model("llama-2-7b").layers[0][1], 4096
    plain, decomposed = (adapter_parameters(layer, hidden, Adapter(8, decomposed=d)) for d in (False, True))
    assert decomposed - plain == 2 * 4096


@given(
    sharding=st.integers(0, len(SHARDINGS) - 2),
    tensor=st.sampled_from([1, 2, 4]),
    context=st.sampled_from([1, 2]),
    data=st.sampled_from([1, 2, 8]),
    micro_batch=st.integers(1, 4),
    recompute=st.integers(0, len(RECOMPUTATIONS) - 2),
    precision=st.sampled_from(["bf16", "fp16", "fp8", "amp", "bf16_true", "fp32"]),
)
def test_what_saves_memory_never_costs_it(sharding, tensor, context, data, micro_batch, recompute, precision):
    model = gpt()
    recipe = Recipe(micro_batch, 2048, precision=precision, recompute=RECOMPUTATIONS[recompute])
    layout = Layout(tensor=tensor, context=context, data=data, sharding=SHARDINGS[sharding])
    found = training_memory(model, layout, recipe)
    more = dataclasses.replace(layout, sharding=SHARDINGS[sharding + 1])
    assert training_memory(model, more, recipe).stages[0].held <= found.stages[0].held + 1
    wider = dataclasses.replace(layout, tensor=2 * tensor)
    assert training_memory(model, wider, recipe).peak_bytes < found.peak_bytes
    again = dataclasses.replace(recipe, recompute=RECOMPUTATIONS[recompute + 1])
    assert training_memory(model, layout, again).stages[0].activations <= found.stages[0].activations
    larger = dataclasses.replace(recipe, micro_batch=micro_batch + 1)
    assert training_memory(model, layout, larger).peak_bytes > found.peak_bytes


def test_adapters_have_the_parameters_that_peft_prints():
    """Peft on Llama-2-7B: rank 8 on q_proj and v_proj, 4,194,304 trainable parameters."""
    model = language_model("llama-2-7b")
    layers = stage_layers(model, 1)[0]
    assert sum(adapter_parameters(layer, model.hidden, Adapter(8)) for layer in layers) == 4_194_304


def test_a_frozen_model_holds_its_quantized_weights_and_small_states():
    model = language_model("llama-2-7b")
    recipe = Recipe(1, 512, precision="bf16_true", adapter=Adapter(8))
    plain = training_memory(model, Layout(), recipe).stages[0]
    assert plain.weights == pytest.approx(2 * model.parameters, rel=0.01)
    assert plain.gradients + plain.moments < 0.01 * plain.weights
    packed = dataclasses.replace(recipe, adapter=Adapter(8, frozen="nf4"))
    tables = 2 * model.vocabulary * model.hidden
    expected = FROZEN["nf4"] * (model.parameters - tables) + 2 * tables
    assert training_memory(model, Layout(), packed).stages[0].weights == pytest.approx(expected, rel=0.01)


def test_a_quantized_head_is_small_where_it_lies_and_unpacked_for_its_product():
    model = language_model("llama-3.1-8b")

    def stage(head_frozen):
        adapter = Adapter(16, frozen="nf4", head_frozen=head_frozen)
        return training_memory(model, Layout(), Recipe(1, 128, adapter=adapter)).stages[0]

    wide, packed = stage(False), stage(True)
    assert packed.weights < wide.weights
    assert packed.working - wide.working >= 2 * model.vocabulary * model.hidden * 0.9


def test_experts_are_split_over_their_groups_alone():
    model = language_model("mixtral-8x7b")
    recipe = Recipe(1, 4096)
    alone = training_memory(model, Layout(data=8), recipe).stages[0]
    spread = training_memory(model, Layout(data=8, expert=8), recipe).stages[0]
    beside = model.parameters - model.expert_parameters
    assert alone.weights == pytest.approx(2 * model.parameters, rel=1e-3)
    assert spread.weights == pytest.approx(2 * (beside + model.expert_parameters / 8), rel=1e-3)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Layout(tensor=0), "tensor must be"),
        (lambda: Layout(sharding="zero4"), "zero4"),
        (lambda: Layout(virtual=2), "pipeline of 2"),
        (lambda: Layout(schedule="gpipe"), "gpipe"),
        (lambda: Layout(pipeline=2, virtual=2, schedule="zb_h1"), "one chunk"),
        (lambda: Recipe(1, 1, offload="disk"), "disk"),
        (lambda: Layout(expert=3, data=4), "do not divide"),
        (lambda: Recipe(0, 1), "micro_batch"),
        (lambda: Recipe(1, 1, precision="fp5"), "fp5"),
        (lambda: Adapter(8, ("head",)), "head"),
        (lambda: training_memory(gpt(), Layout(pipeline=13), Recipe(1, 8)), "13 pipeline stages"),
        (lambda: training_memory(language_model("nemotron-h-56b"), Layout(), Recipe(1, 8)), "recurrent"),
    ],
)
def test_what_cannot_be_laid_out_is_refused_in_words(call, words):
    with pytest.raises(ArgumentError, match=words):
        call()
