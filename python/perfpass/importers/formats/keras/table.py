"""Keras's layers by class: the allow-list of what a model may be made of, and what each computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perfpass.importers.formats.keras import attention, images, signals
from perfpass.importers.formats.keras import layers as one
from perfpass.importers.formats.keras import recurrent as time
from perfpass.importers.formats.keras.nested import model

_IDENTITIES = """Dropout SpatialDropout1D SpatialDropout2D SpatialDropout3D GaussianDropout AlphaDropout GaussianNoise
ActivityRegularization Identity Masking StochasticDepth InputLayer RandomFlip RandomRotation RandomTranslation
RandomZoom RandomContrast RandomBrightness RandomHeight RandomWidth RandomShear RandomHue RandomSaturation
RandomSharpness
RandomGaussianBlur RandomGrayscale RandomInvert RandomPosterization RandomColorDegeneration RandomColorJitter
RandomErasing RandomPerspective RandomElasticTransform RandAugment AugMix AutoContrast Equalization Solarization MixUp
CutMix MaxNumBoundingBoxes ContrastLimitedAdaptiveHistogramEqualization"""
_DIMENSIONS = ("1D", "2D", "3D")


def _of_each_rank(name: str, compute: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    return {name.replace("#", rank): compute for rank in _DIMENSIONS}


LAYERS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(_IDENTITIES.split(), one.identity),
    **_of_each_rank("Conv#", images.convolution_layer()),
    **_of_each_rank("Convolution#", images.convolution_layer()),
    **_of_each_rank("DepthwiseConv#", images.convolution_layer(depthwise=True)),
    **_of_each_rank("SeparableConv#", images.convolution_layer(separable=True)),
    **_of_each_rank("Conv#Transpose", images.transposed_convolution),
    **_of_each_rank("MaxPooling#", images.pooled("max_pool")),
    **_of_each_rank("AveragePooling#", images.pooled("avg_pool")),
    **_of_each_rank("AdaptiveMaxPooling#", images.adaptive("max_pool")),
    **_of_each_rank("AdaptiveAveragePooling#", images.adaptive("avg_pool")),
    **_of_each_rank("GlobalMaxPooling#", images.globally_pooled("global_max_pool")),
    **_of_each_rank("GlobalAveragePooling#", images.globally_pooled("global_avg_pool")),
    **_of_each_rank("ZeroPadding#", images.zero_padding),
    **_of_each_rank("Cropping#", images.cropping),
    **_of_each_rank("UpSampling#", images.up_sampling),
    **_of_each_rank("ConvLSTM#", time.convolutional_lstm),
    "Activation": one.activation_layer,
    "ReLU": one.relu,
    "LeakyReLU": one.activated("leaky_relu"),
    "ELU": one.activated("elu"),
    "PReLU": one.prelu,
    "Softmax": one.softmax,
    "Dense": one.dense,
    "EinsumDense": one.einsum_dense,
    "Embedding": one.embedding,
    "ReversibleEmbedding": one.embedding,
    "BatchNormalization": one.batch_norm,
    "BatchNormalizationV1": one.batch_norm,
    "LayerNormalization": one.layer_norm,
    "RMSNormalization": one.layer_norm,
    "GroupNormalization": one.group_norm,
    "UnitNormalization": one.unit_norm,
    "SpectralNormalization": one.spectral_norm,
    "Normalization": one.normalization,
    "Rescaling": one.rescaling,
    "Resizing": images.resizing,
    "CenterCrop": images.resizing,
    "RandomCrop": images.resizing,
    "CategoryEncoding": one.category_encoding,
    "Discretization": one.discretization,
    **dict.fromkeys(["Hashing", "HashedCrossing", "IntegerLookup", "StringLookup"], signals.lookup),
    "TextVectorization": signals.text_vectorization,
    "STFTSpectrogram": signals.spectrogram,
    "MelSpectrogram": signals.mel_spectrogram,
    "LayerScale": one.layer_scale,
    "CustomScaleLayer": one.custom_scale,
    "Flatten": one.flatten,
    "Reshape": one.reshape,
    "Permute": one.permute,
    "RepeatVector": one.repeat_vector,
    "Concatenate": one.concatenate,
    "Add": one.merged("add"),
    "Average": one.merged("add"),
    "Subtract": one.merged("sub"),
    "Multiply": one.merged("mul"),
    "Minimum": one.merged("minimum"),
    "Maximum": one.merged("maximum"),
    "Dot": attention.dot,
    "Attention": attention.attention,
    "AdditiveAttention": attention.attention,
    "MultiHeadAttention": attention.multi_head_attention,
    "GroupQueryAttention": attention.multi_head_attention,
    "GroupedQueryAttention": attention.multi_head_attention,
    **dict.fromkeys(["LSTM", "GRU", "SimpleRNN", "RNN", "CuDNNLSTM", "CuDNNGRU"], time.recurrent),
    **dict.fromkeys(["LSTMCell", "GRUCell", "SimpleRNNCell"], time.cell_step),
    "Bidirectional": time.bidirectional,
    "TimeDistributed": time.time_distributed,
    "Functional": model,
    "Model": model,
    "Sequential": model,
    "Pipeline": model,
}
