"""The graph + language model learns in stages from a few real records: encoder, language model, answers, adaptation."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpass import load as load_graph
from perfpass.devices import device
from perfpass.errors import ArtefactError, FileError, UnsupportedError
from perfpass.features import extract
from perfpass.importers import torchvision_schemas
from perfpass.predictors.learned import artefacts
from perfpass.predictors.published.graph_classes import union, whole
from perfpass.predictors.published.graph_language import (
    ROUNDS,
    GraphLanguagePredictor,
    Run,
    described,
    embed,
    node_columns,
)
from perfpass.training.tasks.graphs import Graphs
from perfpass.training.tasks.tasks import Split, load

torchvision_schemas.define()
# All but a few tests need the network that the fixture trains.
pytestmark = pytest.mark.slow
SMALL = {"hidden": 16, "masked_steps": 8, "summary_steps": 4, "steps": 130, "networks": 8, "rank": 4, "rate": 6e-3}
BOUNDS = {"tasks": {"latency": {"low": -0.5, "high": 0.5, "measured": []}}}
# Real rows of a few small networks, many records each.
NETWORKS = ("resnet18", "resnet34", "vgg11", "vgg16", "efficientnet_b0", "regnetx_002")


@pytest.fixture(scope="module")
def task():
    rows = load("latency")
    chosen = rows.rows.model.isin(NETWORKS) & (rows.rows.img_size == 224) & (rows.rows.device.str.startswith("rtx"))
    return rows.subset(np.flatnonzero(chosen))


@pytest.fixture(scope="module")
def unlabelled(task):
    """What the stages before prediction see: each network at one batch."""
    return task.subset(np.flatnonzero(~task.rows.duplicated("model").to_numpy()))


@pytest.fixture(scope="module")
def split(task):
    draw = np.random.default_rng(0).permutation(len(task))
    cut = len(draw) // 4
    return Split("random", np.sort(draw[cut:]), draw[:0], np.sort(draw[:cut]))


@pytest.fixture(scope="module", autouse=True)
def own_folder(tmp_path_factory):
    """Stages of the tests stand apart from those of a user."""
    from perfpass.training.published.graph_language import corpus, stages

    place = tmp_path_factory.mktemp("stages")
    patch = pytest.MonkeyPatch()
    for module in (corpus, stages):
        patch.setattr(module, "folder", lambda: place)
    patch.setattr(stages, "LANGUAGE_STEPS", 12)
    yield place
    patch.undo()


@pytest.fixture(scope="module")
def fitted(task, split, unlabelled):
    from perfpass.training.published.graph_language import method

    return method("graph-language", unlabelled, **SMALL).fit(task, Graphs(), split)


def error(found, task, rows):
    return np.abs(found.predict(rows) / task.value[rows] - 1.0).mean()


def constant_error(task, split):
    guess = np.exp(np.log(task.value[split.train]).mean())
    return np.abs(guess / task.value[split.test] - 1.0).mean()


def test_the_soft_token_model_beats_a_constant_on_few_records(task, split, fitted):
    assert error(fitted, task, split.test) < 0.6 * constant_error(task, split)


@pytest.mark.parametrize("variant", ["graph-language-text", "graph-language-network"])
def test_a_variant_beats_a_constant_on_few_records(task, split, unlabelled, variant):
    from perfpass.training.published.graph_language import method

    found = method(variant, unlabelled, **{**SMALL, "most_tokens": 24}).fit(task, Graphs(), split)
    assert error(found, task, split.test) < 0.6 * constant_error(task, split)


def test_an_answer_in_digits_is_always_a_number(task, split, unlabelled):
    from perfpass.training.published.graph_language import method

    found = method("graph-language-digits", unlabelled, **{**SMALL, "steps": 2}).fit(task, Graphs(), split)
    predicted = found.predict(split.test[:5])
    assert np.isfinite(predicted).all() and (predicted > 0).all()


def test_few_rows_of_a_new_device_are_learned_after_the_others(task):
    from perfpass.training.published.graph_language.methods import few_rows

    names = task.rows.device.to_numpy(str)
    new, others = np.flatnonzero(names == "rtx-3090"), np.flatnonzero(names != "rtx-3090")
    split = Split("few", np.concatenate([others, new[:8]]), new[:0], new[8:])
    np.testing.assert_array_equal(few_rows(task, split), new[:8])
    assert not len(few_rows(task, Split("none", others, new[:0], new)))


def test_the_artefact_predicts_with_numpy_what_torch_does(task, split, fitted, tmp_path):
    from perfpass.training.published.graph_language.ship import contents

    manifest, files = contents(fitted, replace(fitted.model.settings))
    artefacts.write(tmp_path / "a", {**manifest, **BOUNDS}, files)
    predictor = GraphLanguagePredictor(tmp_path / "a")
    graphs = Graphs()
    for row in split.test[:6]:
        r = task.rows.iloc[row]
        run = Run(device(r.device), int(r.batch), r.precision, r.runtime, r.layout)
        found = predictor.latency_ms(graphs.at(task.keys[row], int(r.batch)), run)
        assert found == pytest.approx(float(fitted.predict(np.array([row]))[0]), rel=0.01)
    broken = {**manifest, **BOUNDS, "node_columns": ["macs"]}
    artefacts.write(tmp_path / "b", broken, files)
    with pytest.raises(ArtefactError, match="node_columns is not what this version computes"):
        GraphLanguagePredictor(tmp_path / "b")


def test_another_base_is_loaded_by_transformers_and_needed_to_predict(
    task, split, unlabelled, fitted, tmp_path, monkeypatch
):
    from perfpass.training.published.graph_language import method
    from perfpass.training.published.graph_language.ship import contents

    options = {**SMALL, "base": str(fitted.model.base.folder), "steps": 2}
    found = method("graph-language", unlabelled, **options).fit(task, Graphs(), split)
    assert not found.model.base.own
    manifest, files = contents(found, found.model.settings)
    artefacts.write(tmp_path / "a", {**manifest, **BOUNDS}, files)
    row = int(split.test[0])
    r = task.rows.iloc[row]
    run = Run(device(r.device), int(r.batch), r.precision, r.runtime, r.layout)
    predicted = GraphLanguagePredictor(tmp_path / "a").latency_ms(Graphs().at(task.keys[row], int(r.batch)), run)
    assert predicted == pytest.approx(float(found.predict(np.array([row]))[0]), rel=0.01)
    monkeypatch.delitem(sys.modules, "perfpass.predictors.published.language_model")
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(UnsupportedError, match="needs the package peft"):
        GraphLanguagePredictor(tmp_path / "a")


@pytest.mark.parametrize("name", ["resnet50", "vit_base_patch16_224"])
def test_classes_and_whole_graph_have_one_embedding(name, examples, fitted):
    graph = load_graph(examples / f"{name}.onnx")
    weights = {n: v.detach().numpy() for n, v in fitted.model.state_dict().items()}
    found, _ = described(graph)
    features = extract(graph)
    nodes = features.nodes[:, node_columns()]
    full = whole(nodes, features.edge_index, ROUNDS)
    assert len(found) < len(full)
    np.testing.assert_allclose(embed(weights, found), embed(weights, full), rtol=1e-4, atol=1e-5)
    from perfpass.training.published.graph_language.encoder import On

    with torch.no_grad():
        both = fitted.model.encoder(On(union([found, full]), "cpu"))[:, 0].numpy()
    np.testing.assert_allclose(both[0], both[1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(both[0], embed(weights, found)[0], rtol=1e-4, atol=1e-4)


def test_masked_autoencoding_lowers_its_loss_without_any_measurement(fitted):
    from perfpass.training.published.graph_language.encoder import Encoder, pretrain

    corpus = fitted.data.corpus
    torch.manual_seed(0)
    encoder = Encoder(16)
    encoder.scale_to(corpus)
    first = pretrain(encoder, corpus, 4, 0.5, 1e-4, 0, "cpu")
    last = pretrain(encoder, corpus, 50, 0.5, 5e-3, 0, "cpu")
    assert last < 0.8 * first


def test_a_frozen_base_and_encoder_stay_as_they_were(fitted):
    from perfpass.training.published.graph_language.stages import start

    settings_of = replace(fitted.model.settings, rank=2)
    model = start(settings_of, fitted.data, 0)
    learned = {n for n, p in model.language.named_parameters() if p.requires_grad}
    assert learned and all("lora_" in n for n in learned)
    from perfpass.training.published.graph_language.stages import encoder_weights

    masked = encoder_weights(settings_of, fitted.data.unlabelled, 0, "cpu")
    for name, values in model.encoder.state_dict().items():
        torch.testing.assert_close(values, masked[name])


@given(st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126), max_size=60))
@settings(max_examples=80)
def test_the_plain_tokenizer_is_that_of_the_library(fitted_tokenizers, text):
    plain, library = fitted_tokenizers
    assert plain.encode(text) == library(text.lower(), add_special_tokens=False)["input_ids"]


@pytest.fixture(scope="module")
def fitted_tokenizers(fitted):
    from perfpass.predictors.published.bpe import Tokenizer

    base = fitted.model.base
    return Tokenizer((base.folder / "tokenizer.json").read_bytes(), "here"), base.tokenizer


def test_sentences_are_embedded_by_a_local_folder_or_by_the_base_and_else_refused(fitted, tmp_path):
    import transformers

    from perfpass.training.published.graph_language import sentences

    texts = ["a graph of 53 conv", "two graphs", "a graph of 53 conv"]
    own = sentences.embeddings(texts, "", fitted.model.base)
    np.testing.assert_allclose(np.linalg.norm(own, axis=1), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(own[0], own[2])
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    transformers.BertModel(transformers.BertConfig(**sizes, vocab_size=600)).save_pretrained(tmp_path)
    fitted.model.base.tokenizer.save_pretrained(tmp_path)
    assert sentences.embeddings(texts, str(tmp_path), None).shape == (3, 32)
    with pytest.raises(FileError, match=r"no config\.json"):
        sentences.embeddings(texts, str(tmp_path / "none"), None)
    with pytest.raises(UnsupportedError, match="folder of a model"):
        sentences.embeddings(texts, "", None)


def test_an_adaptation_learns_the_new_device_and_leaves_the_first_model_as_it_was(task, fitted):
    names = task.rows.device.to_numpy(str)
    rows = np.flatnonzero(names == names[fitted.learned[0]])[:16]
    before = fitted.predict(rows)
    slower = replace(fitted, data=replace(fitted.data, target=fitted.data.target + 1.0))
    adapted = slower.adapted(rows)
    np.testing.assert_array_equal(fitted.predict(rows), before)
    wanted = task.value[rows] * np.e
    assert np.abs(adapted.predict(rows) / wanted - 1).mean() < 0.8 * np.abs(before / wanted - 1).mean()


def test_a_damaged_artefact_is_one_typed_error(fitted, tmp_path):
    from perfpass.training.published.graph_language.ship import contents

    manifest, files = contents(fitted, fitted.model.settings)
    whole_file = files["weights.safetensors"]
    artefacts.write(tmp_path / "bare", manifest, files)
    with pytest.raises(ArtefactError, match="tasks"):
        GraphLanguagePredictor(tmp_path / "bare")
    for name, content in {"cut": whole_file[:-100], "empty": b"", "noise": bytes(range(256)) * 8}.items():
        artefacts.write(tmp_path / name, {**manifest, **BOUNDS}, {**files, "weights.safetensors": content})
        with pytest.raises(ArtefactError):
            GraphLanguagePredictor(tmp_path / name)


def test_the_published_encoder_is_one_option_and_learns(fitted):
    from perfpass.training.published.graph_language.encoder import Encoder, pretrain
    from perfpass.training.published.graph_language.settings import PUBLISHED

    assert PUBLISHED.hidden == 1024 and ROUNDS == 5
    corpus = fitted.data.corpus
    few = replace(corpus, pairs=corpus.pairs[:2], parts=corpus.parts[:2])
    torch.manual_seed(0)
    encoder = Encoder(PUBLISHED.hidden)
    encoder.scale_to(few)
    before = encoder.layers[0].gin.lins[0].weight.detach().clone()
    assert np.isfinite(pretrain(encoder, few, 1, PUBLISHED.mask_share, 1e-3, 0, "cpu"))
    assert not torch.equal(encoder.layers[0].gin.lins[0].weight, before)
