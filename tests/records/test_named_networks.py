"""Networks that records name: their definitions, and the questions that records put to `predict`."""

from __future__ import annotations

import numpy as np
import pytest

from perfpass.devices import device
from perfpass.graph import OPERATORS
from perfpass.predictors.roofline import PAGEABLE_COPY_BYTES_S
from perfpass.predictors.way import Way
from perfpass.records import schema, tables
from perfpass.records.location import data_directory
from perfpass.records.named import ASKED_AS, questions
from perfpass.records.named_models import network_of
from perfpass.training.inference import operator_rows
from perfpass.training.inference.operator_rows import Rows
from perfpass.training.tasks import named
from recorded_networks import measured


@pytest.fixture(scope="module")
def rows():
    return schema.read(data_directory() / "records" / "networks.parquet", "network")


@pytest.fixture(scope="module")
def known():
    return tables.load(None, "networks")


def test_most_records_are_questions_with_a_table(rows, known):
    asked = questions(rows, known)
    # Detectors and loops whose time is more than the network's have a table, too.
    more = asked.refused.str.contains("boxes and masks behind|what loads the pictures")
    assert 300 < more.sum() < 400
    assert (asked.refused == "").sum() + more.sum() > 9600
    assert (asked.refused == "the definition has no table").sum() < 100


def test_a_row_is_asked_as_it_was_run(rows, known):
    one = rows[(rows.source == "demobert") & (rows.network == "bert-large") & (rows.sequence == 384)].head(1)
    asked = questions(one, known).iloc[0]
    assert (asked.table_model, asked.table_size) == ("bert-large/BertForQuestionAnswering", 384)
    assert (asked.runtime, asked.shape_from) == ("tensorrt", "stated")


def test_attention_runs_in_parts_in_frameworks_of_its_time(rows):
    models = questions(rows[rows.source == "kernl"]).table_model
    runtime = rows[rows.source == "kernl"].runtime
    assert models[runtime == "torch"].str.endswith("+eager").all()
    assert not models[runtime == "tensorrt"].str.endswith("+eager").any()


def test_attention_runs_in_parts_in_engines_of_a_general_graph_before_tensorrt_8_6(rows):
    triton = rows[(rows.source == "deeplearningexamples") & rows.network.str.startswith("bert") & (rows.server != "")]
    asked = questions(triton)
    assert set(asked.runtime) >= {"tensorrt", "onnxruntime"}
    assert asked.table_model.str.endswith("+eager").all()
    plugins = rows[(rows.source == "demobert") & (rows.n_devices == 1)]
    assert not questions(plugins).table_model.str.endswith("+eager").any()


def test_attention_that_fastertransformer_does_not_fuse_runs_in_parts(rows):
    own = rows[(rows.source == "fastertransformer") & rows.runtime.isin(["faster_transformer", "tensorrt"])]
    vit = own[own.network.str.startswith("vit") & (own.device == "t4")]
    parts = questions(vit).table_model.str.endswith("+eager")
    large = vit.network.str.endswith("384")
    assert large.any() and parts[large].all()  # 577 tokens
    assert (~large).any() and not parts[~large].any()  # 197, in halves and 8 bits
    bert = own[(own.network == "bert-base") & (own.sequence > 0) & (own.device == "t4")]
    assert (questions(bert).table_model.str.endswith("+eager") == (bert.precision == "fp32")).all()


def test_fp32_with_tf32_switched_off_is_no_question_of_an_engine_that_uses_it(rows):
    plugin = rows[(rows.source == "fastertransformer") & (rows.runtime == "tensorrt") & (rows.precision == "fp32")]
    refused = questions(plugin[plugin.network.str.startswith("vit")]).refused
    off = refused.str.contains("TF32 switched off")
    assert (off == plugin.device[off.index].str.startswith("a100")).all() and 0 < off.sum() < len(off)


def test_optimums_first_level_leaves_attention_in_parts(rows):
    whisper = rows[rows.variant.str.startswith("whisper_auto_opt(") & (rows.runtime == "onnxruntime")]
    parts = questions(whisper).table_model.str.endswith("+eager")
    assert (parts == whisper.variant.str.endswith("; O1")).all() and parts.any()


def test_gelu_that_onnxruntime_does_not_put_together_is_six_kernels(rows, known):
    triton = rows[(rows.source == "deeplearningexamples") & (rows.runtime == "onnxruntime") & (rows.server != "")]
    record = triton[(triton.network == "bert-large") & (triton.device == "t4")]
    asked = questions(record).assign(source=record.source, runtime=record.runtime, caveats="")
    count = {}
    for runtime in ("onnxruntime", "tensorrt"):
        table = named.tables_of(asked.head(1), Way(device("t4"), "fp16", runtime), known).tables.table
        count[runtime] = table.count[table.op == OPERATORS.index("gelu")].sum()
    assert count == {"onnxruntime": 24 * 6, "tensorrt": 24}


def test_layer_norms_that_a_file_writes_out_are_four_kernels_in_engines_of_their_time(rows, known):
    count = {}
    for source, runtime in (
        ("deeplearningexamples", "tensorrt"),
        ("deeplearningexamples", "onnxruntime"),
        ("demobert", "tensorrt"),
    ):
        one = rows[(rows.source == source) & (rows.runtime == runtime) & (rows.network == "bert-large")].head(1)
        asked = questions(one).assign(source=one.source, runtime=one.runtime, caveats="")
        table = named.tables_of(asked, Way(device("t4"), "fp16", runtime), known).tables.table
        count[source, runtime] = table.count[table.op == OPERATORS.index("layer_norm")].sum()
    fused = count["demobert", "tensorrt"]
    assert fused == count["deeplearningexamples", "onnxruntime"] == 2 * 24 + 1
    assert count["deeplearningexamples", "tensorrt"] == 4 * fused


def test_paddles_deployed_predictor_is_asked_as_a_compiled_graph_and_teaches_as_it_did(rows):
    paddle = rows[rows.runtime == "paddle"]
    found = questions(paddle).runtime.groupby(paddle.source).unique()
    assert {source: list(values) for source, values in found.items()} == {
        "deeplearningexamples": ["torch"],
        "paddle_zoo": ["torch.compile"],
    }
    frame, _, known = measured()
    taught = Rows.joined(operator_rows.networks(operator_rows.on_gpus(frame), known)).names
    taught = taught[taught.runtime == "paddle"]
    assert len(taught) and taught.precision.str.endswith(", eager").all()


def test_a_model_of_pytorch_that_was_exported_whole_ran_whole(rows):
    tft = rows[(rows.network == "tft") & (rows.server == "triton")]
    scripts = tft[tft.runtime == "torchscript"]
    assert len(scripts) == 66
    assert (scripts.precision == "fp32").all() and (scripts.precision_from == "inferred").all()
    assert (tft[tft.runtime == "tensorrt"].precision == "fp16").all()  # the engine's own choice of kernels


def test_a_copy_that_a_source_timed_is_not_the_networks_time(rows):
    frame, _, _ = measured()
    zoo = frame[(frame.source == "paddle_zoo") & (frame.network == "squeezenet1_1") & (frame.batch == 8)]
    zoo = zoo[zoo.asked_runtime == "tensorrt"]
    stated_s = rows.latency_ms[zoo.index] * 1e-3
    assert len(zoo) == 1
    assert (stated_s - zoo.measured_s).iloc[0] == pytest.approx(8 * 3 * 224 * 224 * 4 / PAGEABLE_COPY_BYTES_S)
    # Of BGE in sessions without I/O bindings: 256 tokens' states of 768, in fp32.
    bge = frame[(frame.source == "optimum_benchmark") & (frame.domain == "language") & (frame.batch == 8)]
    sessions = bge[bge.runtime.isin(["onnxruntime", "onnxruntime+tensorrt"])]
    assert sorted(sessions.runtime) == ["onnxruntime", "onnxruntime+tensorrt"]
    copied_s = rows.latency_ms[bge.index] * 1e-3 - bge.measured_s
    assert copied_s[sessions.index].to_numpy() == pytest.approx(8 * 256 * 768 * 4 / PAGEABLE_COPY_BYTES_S)
    assert np.allclose(copied_s.drop(sessions.index), 0.0)
    kernl = frame[frame.source == "kernl"]
    assert np.allclose(kernl.measured_s, rows.latency_ms[kernl.index] * 1e-3)


@pytest.mark.parametrize("batch", [1, 64])
def test_recurrent_layers_of_stored_tables_have_their_steps(known, batch):
    table = known.table("definitions", "tft", 192, batch, 16)
    rows = table.op == OPERATORS.index("lstm")
    assert list(zip(table.b[rows], table.m[rows], strict=True)) == [(168, batch), (24, batch)]
    assert (table.n[rows] == 4 * 128).all() and (table.k[rows] == 128).all()
    table = tables.load().table("timm", "sequencer2d_s", 224, batch, 16)
    rows = table.op == OPERATORS.index("lstm")
    # Rows and columns of 32 by 32 pictures' patches, then of 16 by 16, both ways.
    assert table.count[rows].tolist() == [8.0, 28.0] and table.b[rows].tolist() == [32, 16]
    assert table.m[rows].tolist() == [32 * batch, 16 * batch]


def test_what_a_backend_makes_of_a_model_is_what_is_asked(rows):
    triton = rows[(rows.network == "wide-and-deep") & rows.variant.str.contains("Automatic FP16")]
    assert questions(triton).precision.eq("amp").all()
    gpunet = rows[rows.variant.str.contains("accelerator: NVIDIA TensorRT")].head(20)
    assert questions(gpunet).runtime.eq("tensorrt").all()


def test_several_devices_and_generation_are_no_questions(rows):
    assert questions(rows[rows.n_devices > 1].head(20)).refused.eq("several devices").all()
    assert questions(rows[(rows.output_tokens > 0) & (rows.n_devices == 1)].head(20)).refused.ne("").all()


def test_what_is_timed_around_a_network_is_no_question(rows):
    asked = questions(rows)
    moved = rows.variant.str.contains("lowvram|medvram") & (rows["mode"] == "inference")
    assert moved.sum() > 200 and asked[moved].refused.ne("").all()
    graphs = (rows.runtime == "torch") & rows.variant.isin(["CUDA graphs on", "Cuda graphs"])
    assert set(rows.source[graphs]) == {"deeplearningexamples", "kernl"}
    assert asked[graphs].refused.eq("replayed as a CUDA graph").all()
    detectors = (rows.source == "deeplearningexamples") & asked.network.isin(["mask-rcnn-resnet50", "efficientdet-d0"])
    assert detectors.sum() > 0 and asked[detectors].refused.ne("").all()
    boxes = rows.caveats.str.contains("ends_with_post_processing") | (
        (rows.source == "detectron2") & (rows["mode"] == "inference")
    )
    assert boxes.sum() > 80 and asked[boxes].refused.ne("").all()
    inside = (rows.source == "mmdeploy") & (rows.task == "detection")
    assert inside.sum() > 20 and asked[inside].refused.ne("").all()
    loops = asked.network.isin(["ssd300-resnet50", "nnunet-2d", "nnunet-3d"]) & (rows.runtime == "torch")
    forward = loops & (rows["mode"] == "inference")
    assert forward.sum() == 50 and asked[forward].refused.eq("what loads the pictures is timed, too").all()
    assert asked[loops & (rows["mode"] == "training")].refused.eq("").any(), "steps hold their data by definition"


def test_a_prompt_with_all_its_tokens_is_generation(rows):
    """Also where the record does not say how many tokens: LLaMA-2 took 7 to 26 times what one pass takes."""
    generated = rows[rows.timing.str.startswith("prompt and all new tokens")]
    assert (generated.output_tokens < 0).any()
    assert questions(generated).refused.ne("").all()


def test_sparse_weights_are_asked_as_sparse(rows, known):
    record = rows[rows.caveats.str.contains("sparse_2_4")].head(1)
    asked = questions(record).assign(caveats=record.caveats, source=record.source)
    way = Way(device(asked.device.iloc[0]), "fp16", "tensorrt")
    sparse = named.tables_of(asked, way, known).tables
    dense = named.tables_of(asked.assign(caveats=""), way, known).tables
    assert 0.5 < sparse.table.flops.sum() / dense.table.flops.sum() < 0.7
    assert sparse.table.weight_bytes.sum() < dense.table.weight_bytes.sum()


def test_a_precision_is_that_of_the_runtime_it_was_said_of(rows):
    bert = rows[(rows.source == "lightseq") & (rows.network == "bert-base") & (rows.device == "T4")]
    assert (bert[bert.runtime == "lightseq"].precision == "fp16").all()
    assert (bert[bert.runtime == "torch"].precision_from == "unknown").all()


def test_a_picture_is_asked_with_its_own_steps(rows, known):
    pictures = rows[rows.network.isin(["stable-diffusion-1.5", "stable-diffusion-2"])]
    asked = questions(pictures, known)
    asked = asked[asked.refused == ""]
    steps = asked.table_model.str.extract(r"-(\d+)-steps")[0].astype(int)
    stated = pictures.steps[asked.index]
    assert (steps[stated > 0] == stated[stated > 0]).all() and set(steps) == {20, 30, 50}
    fifty, twenty = (known.table("definitions", f"stable-diffusion-1.5-{n}-steps", 512, 1, 16) for n in (50, 20))
    unet = (fifty.macs * fifty.count).sum() - (twenty.macs * twenty.count).sum()
    assert unet == pytest.approx(30 * 2 * 401.6e9, rel=0.001)  # two copies of each sample


def test_a_search_around_a_decoder_is_no_question(rows):
    searches = rows[(rows.source == "fastertransformer") & (rows.task == "translation")]
    assert len(searches) > 400
    assert questions(searches).refused.eq("generation, not one pass of a graph").all()


def test_names_of_sources():
    assert network_of("paddle_zoo", "ResNet50_vd_ssld") == "resnet50d"
    assert network_of("paddle_zoo", "ResNet50_vd_v2") == ""
    assert network_of("mmdeploy", "ResNeXt") == "resnext50_32x4d"
    assert network_of("openmmlab", "backbone=YOLOv5-l | size=1280 | amp=Yes | arch=P6") == ""
    assert network_of("openmmlab", "", "retinanet_ghm_r50_fpn_1x_coco") == "retinanet-resnet50"
    assert network_of("openmmlab", "", "faster_rcnn_r50_fpn_dconv_c3-c5_1x_coco") == ""
    assert network_of("vision_pages", "RT-DETR-R50-m") == ""


def test_parameters_as_published(known):
    published = {"bert-base/BertModel": 109.5e6, "bert-large/BertForQuestionAnswering": 334e6, "resnet50": 25.6e6}
    for model, stated in published.items():
        graphs = known.graphs[known.graphs.model == model]
        assert np.allclose(graphs.parameters, stated, rtol=0.01), model


def test_bytes_at_eight_bits(known):
    wide, half, narrow = (known.table("torchvision", "resnet50", 224, 4, bits) for bits in (32, 16, 8))
    assert np.all(narrow.bytes_read <= half.bytes_read)
    assert narrow.weight_bytes.sum() == pytest.approx(wide.weight_bytes.sum() / 4, rel=1e-3)


def test_runtimes_are_those_of_predict():
    from perfpass.predictors.workload import RUNTIMES

    assert set(ASKED_AS.values()) <= set(RUNTIMES)


@pytest.mark.parametrize("name", ["quartznet15x5", "hifigan", "unet-medical", "nnunet-3d", "fastpitch", "neumf"])
def test_definitions_have_the_parameters_that_are_stated(name):
    torch = pytest.importorskip("torch")
    from perfpass.importers.definitions import definition

    own = definition(name)
    found = sum(p.numel() for p in own.module().parameters())
    assert torch.is_tensor(next(own.module().parameters()))
    assert found == pytest.approx(own.parameters, rel=0.01)


def test_every_table_of_ours_has_a_definition(known):
    pytest.importorskip("torch")
    from perfpass.importers.definitions import definition

    ours = known.graphs[known.graphs.source == "definitions"]
    assert len(ours) > 40
    assert all(definition(name.partition("@")[0]).paper for name in ours.model)
