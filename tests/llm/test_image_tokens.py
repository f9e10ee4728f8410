"""Against the processors of transformers themselves, which need neither weights nor a tokenizer for it."""

from __future__ import annotations

import types
from unittest import SkipTest

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpass.errors import ArgumentError, UnsupportedError
from perfpass.importers import torchvision_schemas
from perfpass.llm.image_tokens import RULES, seen
from perfpass.llm.vision import Images, vision

SIDES = st.integers(16, 5000)


@pytest.fixture(scope="module", autouse=True)
def _torchvision():
    """The processors import it; its build for another torch lacks the operators that it names."""
    torchvision_schemas.define()


def tokens(family: str, width: int, height: int) -> int:
    return seen(family, RULES[family][1], width, height).tokens


def processor(name: str, **facts):
    """A processor's method on facts of its published configuration, without building a tokenizer."""
    transformers = pytest.importorskip("transformers")
    kind = getattr(transformers, name)
    holder = types.SimpleNamespace(**facts)
    holder._merge_kwargs = lambda **_: {"images_kwargs": {}}
    for method in ("_get_num_multimodal_tokens", "_get_number_of_features", "_get_unpadded_features"):
        if hasattr(kind, method):
            setattr(holder, method, types.MethodType(getattr(kind, method), holder))
    return lambda width, height: holder._get_num_multimodal_tokens([(height, width)]).num_image_tokens[0]


def image_processor(module: str, name: str, **facts):
    try:
        found = __import__(f"transformers.models.{module}", fromlist=[name])
    except ImportError as error:
        raise SkipTest(str(error)) from error
    return getattr(found, name)(**facts)


@pytest.fixture(scope="module")
def published():
    """Token counts by the processors of transformers, with the limits of published preprocessor files."""
    qwen = image_processor(
        "qwen2_vl.image_processing_qwen2_vl", "Qwen2VLImageProcessor", min_pixels=3136, max_pixels=12_845_056
    )
    tiles = image_processor(
        "got_ocr2.image_processing_got_ocr2",
        "GotOcr2ImageProcessor",
        size={"height": 448, "width": 448},
        max_patches=12,
        crop_to_patches=True,
    )
    canvases = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]
    next_processor = types.SimpleNamespace(size={"shortest_edge": 336}, image_grid_pinpoints=canvases)
    square = types.SimpleNamespace(crop_size={"height": 336, "width": 336})
    long = types.SimpleNamespace(size={"longest_edge": 1024})
    small = types.SimpleNamespace(size={"longest_edge": 1540})
    clip = {"patch_size": 14, "num_additional_image_tokens": 1, "vision_feature_select_strategy": "default"}
    return {
        "qwen2_vl": processor("Qwen2VLProcessor", image_processor=qwen),
        "internvl": processor("InternVLProcessor", image_processor=tiles, image_seq_length=256),
        "llava": processor("LlavaProcessor", image_processor=square, **clip),
        "llava_next": processor("LlavaNextProcessor", image_processor=next_processor, **clip),
        "pixtral": processor("PixtralProcessor", image_processor=long, patch_size=16, spatial_merge_size=1),
        "mistral3": processor("PixtralProcessor", image_processor=small, patch_size=14, spatial_merge_size=2),
        "gemma3": processor("Gemma3Processor", image_seq_length=256),
    }


@pytest.mark.parametrize("family", ["qwen2_vl", "internvl", "llava", "llava_next", "pixtral", "mistral3", "gemma3"])
@settings(max_examples=40, deadline=None)
@given(width=SIDES, height=SIDES)
def test_tokens_are_those_of_the_familys_processor(published, family, width, height):
    if max(width, height) / min(width, height) <= 200:
        assert tokens(family, width, height) == published[family](width, height)


@settings(max_examples=40, deadline=None)
@given(width=SIDES, height=SIDES)
def test_tiles_of_llama_4_are_those_of_its_processor(width, height):
    torch = pytest.importorskip("torch")
    from transformers.image_utils import SizeDict
    from transformers.models.llama4 import image_processing_llama4 as llama4
    from transformers.models.llama4.processing_llama4 import Llama4Processor

    canvases = llama4.find_supported_resolutions(16, SizeDict(height=336, width=336))
    high, wide = llama4.get_best_fit((height, width), torch.tensor(canvases))
    text = Llama4Processor._prompt_split_image(None, (int(high) // 336, int(wide) // 336), 144)
    assert tokens("llama4", width, height) == text.count("<|")


def test_phi_3_5_vision_has_the_tokens_of_its_own_formula():
    """num_img_tokens of processing_phi3_v.py: a square of 16 crops is 4 x 4 of 336 pixels."""
    assert tokens("phi3_v", 1344, 1344) == (16 + 1) * 144 + 1 + (4 + 1) * 12


@pytest.mark.parametrize(("width", "height"), [(0, 10), (10, -1), (10, 10**7), (True, 10)])
def test_sizes_that_no_image_has_are_refused(width, height):
    with pytest.raises(ArgumentError):
        seen("qwen2_vl", RULES["qwen2_vl"][1], width, height)


QWEN = {
    "model_type": "qwen2_5_vl",
    "hidden_size": 3584,
    "vision_config": {
        "depth": 32,
        "hidden_size": 1280,
        "intermediate_size": 3420,
        "num_heads": 16,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "window_size": 112,
        "fullatt_block_indexes": [7, 15, 23, 31],
    },
}


def test_towers_have_the_parameters_of_transformers_modules():
    facts = {"hidden_size": 1280, "out_hidden_size": 3584, "depth": 32, "intermediate_size": 3420, "num_heads": 16}
    torch = pytest.importorskip("torch")
    from transformers.models.clip.configuration_clip import CLIPVisionConfig
    from transformers.models.clip.modeling_clip import CLIPVisionModel
    from transformers.models.pixtral.configuration_pixtral import PixtralVisionConfig
    from transformers.models.pixtral.modeling_pixtral import PixtralVisionModel
    from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLVisionConfig
    from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VisionTransformerPretrainedModel
    from transformers.models.siglip.configuration_siglip import SiglipVisionConfig
    from transformers.models.siglip.modeling_siglip import SiglipVisionModel

    clip = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 23, "num_attention_heads": 16}
    siglip = {**clip, "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27}
    with torch.device("meta"):
        towers = {
            "qwen2_5_vl": Qwen2_5_VisionTransformerPretrainedModel(Qwen2_5_VLVisionConfig(**facts)),
            "llava": CLIPVisionModel(CLIPVisionConfig(**clip, image_size=336, patch_size=14)),
            "gemma3": SiglipVisionModel(
                SiglipVisionConfig(**siglip, image_size=896, patch_size=14, vision_use_head=False)
            ),
            "pixtral": PixtralVisionModel(PixtralVisionConfig()),
        }
    for family, module in towers.items():
        read = vision(QWEN if family == "qwen2_5_vl" else {"model_type": family, "text_config": {"hidden_size": 4096}})
        ours = read.parameters if family == "qwen2_5_vl" else read.tower.parameters
        # Position embeddings of SigLIP at 896 pixels are 1 % of it.
        assert ours == pytest.approx(sum(p.numel() for p in module.parameters()), rel=0.015), family


def test_a_model_that_sees_nothing_says_so():
    with pytest.raises(UnsupportedError, match="vision-language family"):
        vision("llama-3.1-8b")


def test_no_images_are_no_tokens():
    assert Images(vision(QWEN), count=0).tokens == 0
    assert Images(vision(QWEN), count=3, width=1024, height=768).tokens == 3 * 999
