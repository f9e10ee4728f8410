"""Networks that converters take: built with trained-like parameters, and what the torch route counts of them."""

from __future__ import annotations

from typing import Any

import torch

from perfpass.graph import costs
from perfpass.importers import torch as torch_importer
from perfpass.importers import torchvision_schemas

TORCHVISION = (
    "alexnet convnext_tiny densenet121 efficientnet_b0 googlenet mnasnet1_0 mobilenet_v2 mobilenet_v3_large "
    "mobilenet_v3_small regnet_x_800mf regnet_y_400mf resnet18 resnet50 resnext50_32x4d shufflenet_v2_x1_0 "
    "squeezenet1_1 swin_t vgg11 vit_b_16 deeplabv3_mobilenet_v3_large fcn_resnet50 r3d_18"
)
TIMM = (
    "coatnet_0_rw_224 convnext_atto deit_small_patch16_224 edgenext_small efficientformer_l1 ghostnet_100 lcnet_050 "
    "mixer_s32_224 mixnet_s mobilevit_s poolformer_s12 repvgg_a0 vit_tiny_patch16_224 xcit_nano_12_p16_224"
)
TRANSFORMERS = "albert bert deberta-v2 distilbert electra gpt2 gpt_neox llama opt qwen2 roberta t5-encoder"
_LENGTH = 64
_SIZES = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256}
FOLDED = "the converter folds batch normalisations, and drops constants and what no output needs (a BERT's pooler)"


def names() -> list[str]:
    """SOURCE:NAME of every network."""
    listed = {"torchvision": TORCHVISION, "timm": TIMM, "transformers": TRANSFORMERS}
    return [f"{source}:{name}" for source, text in listed.items() for name in text.split()]


class Hidden(torch.nn.Module):
    """A model of transformers that reads tokens alone and gives its first result alone: hidden states, or logits."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids)[0]


class Out(torch.nn.Module):
    """The segmentation of a model that gives several."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x)["out"]


def built(model: str) -> tuple[torch.nn.Module, torch.Tensor]:
    """The network with random parameters that are nowhere zero or one, and an input."""
    torchvision_schemas.define()
    source, _, name = model.partition(":")
    module, example = {"torchvision": _torchvision, "timm": _timm, "transformers": _transformers}[source](name)
    torch.manual_seed(0)
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.is_floating_point() and tensor.numel() > 1:
                tensor.uniform_(0.01, 0.1)
    return module.eval(), example


def counted(module: torch.nn.Module, example: torch.Tensor) -> dict[str, int]:
    """Totals of the torch route."""
    shape = tuple(example.shape[1:])
    given: Any = shape if example.is_floating_point() else ((shape, "int64"),)
    return costs.count(torch_importer.trace(module, given)).totals


def _torchvision(name: str) -> tuple[torch.nn.Module, torch.Tensor]:
    import torchvision

    more = {"init_weights": False, "aux_logits": False} if name == "googlenet" else {}
    more |= {"weights_backbone": None} if name.startswith(("deeplab", "fcn")) else {}
    module = torchvision.models.get_model(name, weights=None, **more)
    if name.startswith(("deeplab", "fcn")):
        return Out(module), torch.zeros(1, 3, 224, 224)
    return module, torch.zeros(1, 3, 8, 112, 112) if name == "r3d_18" else torch.zeros(1, 3, 224, 224)


def _timm(name: str) -> tuple[torch.nn.Module, torch.Tensor]:
    import timm

    module = timm.create_model(name, exportable=True)
    return module, torch.zeros(1, *module.pretrained_cfg["input_size"])


def _transformers(name: str) -> tuple[torch.nn.Module, torch.Tensor]:
    import transformers as t

    if name == "gpt2":
        model: Any = t.GPT2Model(t.GPT2Config(n_embd=128, n_layer=2, n_head=4, use_cache=False))
    elif name == "distilbert":
        model = t.DistilBertModel(t.DistilBertConfig(dim=128, n_layers=2, n_heads=4, hidden_dim=256))
    elif name == "t5-encoder":
        model = t.T5EncoderModel(t.T5Config(d_model=128, num_layers=2, num_heads=4, d_kv=32, d_ff=256))
    else:
        config = t.AutoConfig.for_model(name, **_SIZES)
        config.use_cache = False
        model = t.AutoModel.from_config(config)
    return Hidden(model), torch.zeros(1, _LENGTH, dtype=torch.long)
