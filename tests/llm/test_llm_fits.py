"""What is known to have run fits; what cannot fit does not."""

from __future__ import annotations

import pytest

import perfpass
from offline_batches import predict_batch
from perfpass.devices import device
from perfpass.errors import ArgumentError, FileError
from perfpass.llm import language_model
from perfpass.llm.costs import GGUF_BITS, Parallelism, Quantization, routed_bytes, weight_bytes
from perfpass.llm.llama_cpp import layers_alone
from perfpass.llm.memory import served
from perfpass.llm.serving import Serving
from perfpass.predictors.generation.features import ONE_SEQUENCE, RUNTIMES, memory
from perfpass.predictors.generation.predictor import Batch, batch_of
from perfpass.records import schema
from perfpass.records.location import data_directory
from perfpass.training.serving.dataset import serving_of

RECORDS = data_directory() / "records"
LOAD = {"input_length": 512, "output_length": 128, "concurrency": 1}
# Models of 12 x 10^9 parameters and more that ML.ENERGY's first leaderboard ran in 16 bits on one "V100", of which it
# does not state the memory; we take 16 GB. 24 to 26 GB of weights ran on one, so it had 32.
V100 = {
    "BAIR/koala-13b",
    "OpenAssistant/oasst-sft-1-pythia-12b",
    "camel-ai/CAMEL-13B-Combined-Data",
    "databricks/dolly-v2-12b",
    "lmsys/vicuna-13B",
    "metaai/llama-13B",
    "nomic-ai/gpt4all-13b-snoozy",
    "openaccess-ai-collective/manticore-13b-chat-pyg",
}


def test_every_batch_of_the_records_that_ran_fits():
    rows = schema.read(RECORDS / "generation.parquet", "generation")
    rows = rows[(rows.output_tokens > 0) & (rows.task != "text-to-image")]
    keys = ["source", "runtime", "model", "device", "n_devices", "input_tokens", "output_tokens", "precision"]
    asked, refused, models = 0, set(), {}
    for row in rows.drop_duplicates(keys).itertuples():
        try:
            model = models.get(row.model) or models.setdefault(row.model, language_model(row.model))
        except FileError:
            continue  # no configuration of it ships
        runtime = row.runtime if row.runtime in RUNTIMES else "vllm"
        precision = row.precision if row.precision in ("fp16", "bf16") else "fp16"
        lengths = max(1, int(row.input_tokens)), max(1, int(row.output_tokens))
        batch = Batch(model, device(row.device), runtime, max(1, int(row.n_devices)), 1, *lengths, precision)
        asked += 1
        if not memory(batch).fits:
            refused.add((row.source, row.model, row.device))
    assert refused == {("mlenergy", name, "v100-sxm2-16gb") for name in V100}
    assert asked > 1000


def as_stated(row):
    """The row, in 16 bits where it states no precision."""
    return row if row.gemm_quantization else row._replace(gemm_quantization="bf16", moe_quantization="bf16")


@pytest.mark.parametrize("table", ["serving.parquet", "serving_load.parquet"])
def test_every_server_of_the_records_that_ran_fits(table):
    rows = schema.read(RECORDS / table, "serving")
    # 22 rows of DeepSeek-V3 on GB200 state a split of 1 for everything and no number of GPUs: the 354 to 627 GiB of
    # weights were on no single one.
    split = rows[["tensor_parallel", "data_parallel", "moe_expert_parallel"]].max(axis=1)
    unstated = (rows.family == "deepseek-v3") & (split == 1) & (rows.n_devices < 1)
    assert unstated.sum() in (22, 0)
    rows = rows[~unstated]
    models, refused = {}, []
    for row in rows.drop_duplicates([c for c in rows.columns if c not in ("ttft_ms", "tpot_ms")]).itertuples():
        name = row.family if table == "serving.parquet" else row.model
        try:
            model = models.get(name) or models.setdefault(name, language_model(name))
        except FileError:
            continue  # an encoder-decoder
        if not served(model, device(row.device), serving_of(as_stated(row), model)).fits:
            refused.append((name, row.device, row.tensor_parallel))
    assert not refused


# Model, file type, bytes of the file, tokens of context, peak MiB of the device's memory beside the desktop's:
# lhl/strix-halo-testing at 5ee14b5b0ecf (Apache-2.0), llama-bench on a Ryzen AI Max+ 395 with flash attention, HIP.
STRIX_HALO = [
    ("llama-2-7b", "q4_0", 3825065984, 128, 3875),
    ("llama-2-7b", "q4_0", 3825065984, 4096, 5865),
    ("llama-2-7b", "q4_k_m", 4080263168, 8192, 8174),
    ("llama-3.1-8b", "q4_k_m", 4912898304, 128, 4655),
    ("llama-3.1-8b", "q4_k_m", 4912898304, 8192, 5846),
    ("qwen3-30b-a3b", "q4_k_m", 17709692928, 4096, 17556),
    ("llama-4-scout", "q4_k_m", 61985006336, 4096, 59919),
    ("qwen3-235b-a22b", "q3_k_s", 104146921472, 4096, 100197),
]


@pytest.mark.parametrize(("name", "kind", "file_bytes", "context", "peak_mib"), STRIX_HALO)
def test_llama_cpp_takes_what_was_measured(name, kind, file_bytes, context, peak_mib):
    model, board = language_model(name), device("ryzen-ai-max-plus-395")
    stored = Quantization(kind, kind, "fp16")
    assert weight_bytes(model, Parallelism(), stored, towers=False) == pytest.approx(file_bytes, rel=0.07)
    found = layers_alone(model, board, 1, stored, context=context)
    # The two largest ran since more than Linux' half of the memory was given to the GPU.
    assert found.fits and bool(found.reason) == (found.least.high > board.usable_bytes / 2) == (file_bytes > 60e9)
    assert found.total_bytes == pytest.approx(peak_mib * 2**20, rel=0.17)
    assert perfpass.predict_llm(name, board, precision=kind, **LOAD).memory.fits


# GPTQ in groups of 128 with 2,048 tokens on boards of 24 GiB: turboderp/exllama at 3b013cd53c7d (MIT).
LLAMA_33B = {
    "model_type": "llama",
    "hidden_size": 6656,
    "num_hidden_layers": 60,
    "num_attention_heads": 52,
    "intermediate_size": 17920,
    "vocab_size": 32000,
}
LLAMA_65B = {
    **LLAMA_33B,
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "intermediate_size": 22016,
}


@pytest.mark.parametrize(("config", "boards"), [(LLAMA_33B, 1), (LLAMA_65B, 2)])
def test_consumer_boards_hold_what_they_held(config, boards):
    asked = {"input_length": 1920, "output_length": 128, "concurrency": 1, "precision": "int4", "tp": boards}
    newest = perfpass.predict_llm(config, "rtx-4090", **asked).memory
    assert newest.answer == "perhaps" and newest.reason.endswith("take no more than usual")
    found = perfpass.predict_llm(config, "rtx-4090", runtime_version="0.10", **asked)  # fills 0.9, where it is 0.92 now
    assert found.memory.fits and found.memory.most_requests >= 1
    assert "settings chosen by hand" in found.memory.reason and "groups of 128" in found.memory.reason
    assert not any("do not fit" in reason for reason in found.support.reasons)
    assert found.memory.reason in str(found)


@pytest.mark.parametrize(
    ("model", "board", "options"),
    [
        ("llama-3.1-70b", "rtx-4090", {"precision": "bf16"}),
        ("llama-3.1-70b", "rtx-4090", {"precision": "q4_k_m"}),
        ("llama-3.1-70b", "h100", {"precision": "bf16"}),
        ("llama-2-13b", "l4", {"precision": "bf16"}),
        ("llama-2-7b", "rtx-3060-12gb", {"precision": "bf16"}),
        ("llama-3.1-8b", "gtx-1650", {"precision": "q4_k_m"}),
        ("qwen3-235b-a22b", "ryzen-ai-max-plus-395", {"precision": "q6_k"}),
        ("deepseek-v3", "h100", {"tp": 8}),
        ("mixtral-8x7b", "a100-80gb", {"precision": "bf16"}),
    ],
)
def test_what_cannot_fit_does_not(model, board, options):
    found = perfpass.predict_llm(model, board, **{"tp": 1, **LOAD, **options})
    assert not found.memory.fits and found.memory.most_requests == 0 and found.memory.reason
    assert found.support.level == "outside" and any("do not fit" in reason for reason in found.support.reasons)


def test_layers_that_llama_cpp_leaves_to_the_host_are_counted():
    model, stored = language_model("llama-3.1-70b"), Quantization("q4_k_m", "q4_k_m", "fp16")
    found = layers_alone(model, device("rtx-4090"), 1, stored, context=4096)
    assert not found.fits and found.layers == 80 and 30 <= found.host_layers <= 45  # 42.5 GB of file, 24 GiB of board
    assert f"leave {found.host_layers} of 80 layers to the host (-ngl {80 - found.host_layers})" in found.reason
    two = layers_alone(model, device("rtx-4090"), 2, stored, context=4096)
    assert two.fits and two.host_layers == 0 and two.reason == ""
    longer = layers_alone(model, device("rtx-4090"), 1, stored, context=65536)
    assert longer.host_layers > found.host_layers
    shared = layers_alone(model, device("apple-m2"), 1, stored, context=4096)
    assert not shared.fits and shared.host_layers == 0 and "host" not in shared.reason


def test_a_batch_says_its_memory_and_a_refusal_says_the_layers():
    found = predict_batch("llama-3.1-8b", "rtx-4060", runtime="llama.cpp", precision="q4_k_m", batch=512,
                            input_tokens=512, output_tokens=512)  # fmt: skip
    assert found.memory.fits and found.to_dict()["memory"]["fits"] is True
    with pytest.raises(ArgumentError, match=r"does not fit into 1 x .*would leave \d+ of 80 layers to the host"):
        predict_batch("llama-3.1-70b", "rtx-4090", runtime="llama.cpp", precision="q4_k_m", batch=512,
                        input_tokens=512, output_tokens=512)  # fmt: skip


def test_more_memory_or_boards_never_fit_less_and_more_bits_never_more():
    model = language_model("llama-3.1-8b")
    boards = ("gtx-1650", "rtx-2060", "rtx-4060", "rtx-3060-12gb", "rtx-4080", "rtx-4090", "rtx-5090", "a6000")
    kinds = sorted(GGUF_BITS, key=GGUF_BITS.__getitem__)
    for runtime in ("vllm", *sorted(ONE_SEQUENCE)):
        table = [
            [memory(batch_of(model, b, runtime=runtime, precision=k, input_tokens=512, output_tokens=128)).fits
             for k in kinds]
            for b in boards
        ]  # fmt: skip
        assert all(row == sorted(row, reverse=True) for row in table)
        assert all(column == sorted(column) for column in map(list, zip(*table, strict=True)))
        assert any(table[0]) and not all(table[0])
    for name in ("llama-2-13b", "llama-3.1-70b"):
        fits = [memory(batch_of(name, "rtx-4090", runtime="llama.cpp", devices=n, precision="q8_0", input_tokens=512,
                                output_tokens=128)).fits for n in (1, 2, 4, 8)]  # fmt: skip
        assert fits == sorted(fits) and fits[-1]


def test_fits_and_the_number_of_requests_agree():
    model = language_model("llama-3.1-8b")
    for board in ("rtx-2060", "rtx-4060", "t4", "a10g", "l4", "rtx-4090", "a100-40gb"):
        for kind in ("int4", "int8_wo", "q4_k_m", "bf16"):
            stored = batch_of(model, board, precision="fp16" if kind == "bf16" else kind, input_tokens=1,
                              output_tokens=1).precision  # fmt: skip
            for length in (512, 8192, 65536):
                found = served(model, device(board), Serving(length, 128, 4, quantization=Quantization(stored, stored)))
                assert found.fits == (found.most_requests >= 1)
                assert found.fits or found.reason
                if found.total_bytes > found.usable_bytes:
                    assert found.reason


def test_a_split_of_heads_that_ran_is_not_refused():
    lengths = {"batch": 1, "input_tokens": 128, "output_tokens": 128}
    found = predict_batch("qwen2.5-7b", "gaudi2-96gb", runtime="deepspeed", devices=8, precision="bf16", **lengths)
    assert found.memory.fits and found.support.level == "near"
    with pytest.raises(ArgumentError, match="28 attention heads do not divide into 8"):
        predict_batch("qwen2.5-7b", "gaudi2-96gb", runtime="vllm", devices=8, precision="bf16", **lengths)


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        # 68.0 GiB of 110.47 x 10^9 parameters, with the draft layer (rows of 1,408 in its experts)
        ("glm-4.5-air", 5.29),
        # llama-quantize's own count of a mixture of 2,688 and 1,856 (ggml-org/llama.cpp#28474): 5.00 without fallbacks
        ("nemotron-3-nano", 6.18),
        ("deepseek-v2-lite", 5.28),  # 10.36 GB of 15.7 x 10^9
        ("llama-3.1-8b", 4.89),  # the file that these types are stated for, whose rows all divide
    ],
)
def test_rows_that_256_does_not_divide_are_packed_wider_in_files_of_llama_cpp(name, bits):
    model = language_model(name)
    held = weight_bytes(model, Parallelism(), Quantization("q4_k_m", "q4_k_m", "fp16"))
    assert 8 * held / model.parameters == pytest.approx(bits, rel=0.025)


def test_experts_left_to_the_host_have_the_bytes_of_their_rows():
    model, named = language_model("glm-4.5-air"), Quantization("q4_k_m", "q4_k_m", "fp16")
    layer = next(layer for _, layer in model.layers if layer.experts)
    most, last = 4.8944, 4.8944 + (5.5 - 4.5 + 8.5 - 6.5625) / 2
    assert routed_bytes(layer, named.moe) == pytest.approx(128 * 4096 * 1408 * (2 * most + last) / 8)
    assert routed_bytes(layer, "q8_0") == pytest.approx(128 * 4096 * 1408 * 3 * 8.5008 / 8)
    assert routed_bytes(language_model("llama-3.1-8b").layers[0][1], "q4_k_m") == 0
