"""A config.json's fields are checked once, for building it and for counting it, and the field is named."""

import json

import pytest

import perfpass
from perfpass.errors import FormatError, LimitError, UnsupportedError
from perfpass.importers.configuration_ranges import RANGES
from perfpass.importers.huggingface import trace_config
from perfpass.importers.model_sources import CONFIGURATIONS, read_configuration
from perfpass.llm import language_model

LLAMA = json.loads((CONFIGURATIONS / "llama-3.1-8b.json").read_text())
WRONG = [
    ("num_hidden_layers", 100_000),
    ("num_hidden_layers", 10**30),
    ("num_hidden_layers", -4),
    ("num_hidden_layers", 2.0),
    ("num_hidden_layers", True),
    ("num_attention_heads", 0),
    ("num_attention_heads", 10**9),
    ("num_key_value_heads", 33),
    ("num_key_value_heads", 64),
    ("hidden_size", 2**23),
    ("vocab_size", 0),
    ("vocab_size", 10**12),
    ("vocab_size", "many"),
    ("sliding_window", -5),
    ("sliding_window", -1),
    ("torch_dtype", "float4"),
    ("torch_dtype", 7),
    ("dtype", "half-ish"),
]


@pytest.mark.parametrize(("field", "value"), WRONG, ids=[f"{f}-{v}"[:40] for f, v in WRONG])
def test_predict_and_llm_refuse_the_same_fields_by_name(tmp_path, field, value):
    place = tmp_path / "config.json"
    place.write_text(json.dumps({**LLAMA, field: value}))
    for ask in (
        lambda: perfpass.predict(place, "h100"),
        lambda: language_model(place),
        lambda: language_model({**LLAMA, field: value}),
        lambda: language_model({"model_type": "llava", "text_config": {**LLAMA, field: value}}),
    ):
        with pytest.raises(FormatError, match=field):
            ask()


def test_images_past_what_a_tensor_may_hold_are_one_error():
    vit = {"model_type": "vit", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "patch_size": 8}
    for size in (10**9, 10**30):
        with pytest.raises((LimitError, UnsupportedError)):
            trace_config({**vit, "image_size": size})
    with pytest.raises(LimitError, match="an input of 1 x 1"):
        trace_config(LLAMA, mode="decode", sequence_length=10**15)


def test_what_models_have_is_taken():
    for place in sorted(CONFIGURATIONS.glob("*.json")):
        read_configuration(place, run_code=False)
    for field, value in (("sliding_window", None), ("torch_dtype", "torch.bfloat16"), ("dtype", "auto")):
        assert language_model({**LLAMA, field: value}).layer_count == 32
    assert all(least <= most for least, most in RANGES.values())
    per_stage = {"model_type": "segformer", "num_attention_heads": [1, 2, 5, 8]}
    assert read_configuration(per_stage) == per_stage


def test_a_network_of_diffusers_by_itself_names_what_to_give():
    unet = {"_class_name": "UNet2DConditionModel", "_diffusers_version": "0.42.1", "sample_size": 32}
    with pytest.raises(FormatError, match=r"network of diffusers \(UNet2DConditionModel\).*model_index\.json"):
        read_configuration(unet)
    with pytest.raises(FormatError, match=r"no Hugging Face model configuration$"):
        read_configuration({"_class_name": "UNet2DConditionModel"})
