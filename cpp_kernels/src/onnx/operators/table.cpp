// The table of ONNX operators: which canonical operator each is, how its attributes read and how its shapes follow.
#include <algorithm>
#include <array>
#include <cstring>

#include "onnx/operators/operators.hpp"
#include "perfpass/error.hpp"

namespace perfpass::onnx {
namespace {

// Operators without an inference function keep what the file says of their outputs: their shapes depend on data, on
// subgraphs (which the reader walks) or on text.
constexpr Operator kOperators[] = {
    {"Abs", Domain::standard, OpKind::abs, infer_unary},
    {"Acos", Domain::standard, OpKind::trigonometric, infer_same},
    {"Acosh", Domain::standard, OpKind::trigonometric, infer_same},
    {"Add", Domain::standard, OpKind::add, infer_binary},
    {"Affine", Domain::standard, OpKind::mul, infer_same},
    {"AffineGrid", Domain::standard, OpKind::affine_grid, infer_affine_grid},
    {"And", Domain::standard, OpKind::logical, infer_compare, nullptr, Variant::logical_and},
    {"ArgMax", Domain::standard, OpKind::arg_reduce, infer_arg_reduce, lower_axis, Variant::arg_max},
    {"ArgMin", Domain::standard, OpKind::arg_reduce, infer_arg_reduce, lower_axis, Variant::arg_min},
    {"Asin", Domain::standard, OpKind::trigonometric, infer_same},
    {"Asinh", Domain::standard, OpKind::trigonometric, infer_same},
    {"Atan", Domain::standard, OpKind::trigonometric, infer_same},
    {"Atanh", Domain::standard, OpKind::trigonometric, infer_same},
    {"Attention", Domain::standard, OpKind::attention, infer_attention, lower_attention},
    {"AveragePool", Domain::standard, OpKind::avg_pool, infer_pool, lower_pool},
    {"BatchNormalization", Domain::standard, OpKind::batch_norm, infer_batch_norm},
    {"Bernoulli", Domain::standard, OpKind::random, infer_like},
    {"BitCast", Domain::standard, OpKind::cast, infer_cast, nullptr, Variant::inverse},
    {"BitShift", Domain::standard, OpKind::bitwise, infer_binary},
    {"BitwiseAnd", Domain::standard, OpKind::bitwise, infer_binary},
    {"BitwiseNot", Domain::standard, OpKind::bitwise, infer_same},
    {"BitwiseOr", Domain::standard, OpKind::bitwise, infer_binary},
    {"BitwiseXor", Domain::standard, OpKind::bitwise, infer_binary},
    {"BlackmanWindow", Domain::standard, OpKind::window, infer_window},
    {"Cast", Domain::standard, OpKind::cast, infer_cast},
    {"CastLike", Domain::standard, OpKind::cast, infer_cast},
    {"CausalConvWithState", Domain::standard, OpKind::conv, infer_causal_conv, lower_causal_conv},
    {"Ceil", Domain::standard, OpKind::round, infer_unary, nullptr, Variant::ceil},
    {"Celu", Domain::standard, OpKind::celu, infer_same},
    {"CenterCropPad", Domain::standard, OpKind::pad, infer_center_crop_pad},
    {"Clip", Domain::standard, OpKind::clip, infer_clip},
    {"Col2Im", Domain::standard, OpKind::fold, infer_col2im, lower_col2im},
    {"Compress", Domain::standard, OpKind::compress, infer_compress, lower_axis},
    {"Concat", Domain::standard, OpKind::concat, infer_concat, lower_axis},
    {"ConcatFromSequence", Domain::standard, OpKind::sequence, infer_sequence_joined},
    {"Constant", Domain::standard, OpKind::constant, infer_constant},
    {"ConstantOfShape", Domain::standard, OpKind::fill, infer_constant_of_shape},
    {"Conv", Domain::standard, OpKind::conv, infer_conv, lower_conv},
    {"ConvInteger", Domain::standard, OpKind::quantized_conv, infer_conv, lower_conv, Variant::integer},
    {"ConvTranspose", Domain::standard, OpKind::conv_transpose, infer_conv_transpose, lower_conv_transpose},
    {"Cos", Domain::standard, OpKind::trigonometric, infer_same},
    {"Cosh", Domain::standard, OpKind::trigonometric, infer_same},
    {"CumProd", Domain::standard, OpKind::cumulative, infer_cumulative, lower_axis, Variant::product},
    {"CumSum", Domain::standard, OpKind::cumulative, infer_cumulative, lower_axis},
    {"DFT", Domain::standard, OpKind::dft, infer_dft, lower_axis},
    {"DeformConv", Domain::standard, OpKind::deform_conv, infer_conv, lower_conv},
    {"DepthToSpace", Domain::standard, OpKind::depth_to_space, infer_depth_to_space},
    {"DequantizeLinear", Domain::standard, OpKind::dequantize, infer_dequantize},
    {"Det", Domain::standard, OpKind::determinant, infer_determinant},
    {"Div", Domain::standard, OpKind::div, infer_binary},
    {"Dropout", Domain::standard, OpKind::dropout, infer_dropout, lower_dropout},
    {"DynamicQuantizeLinear", Domain::standard, OpKind::dynamic_quantize, infer_dynamic_quantize},
    {"Einsum", Domain::standard, OpKind::einsum, infer_einsum, lower_einsum},
    {"Elu", Domain::standard, OpKind::elu, infer_same},
    {"Equal", Domain::standard, OpKind::compare, infer_compare, nullptr, Variant::equal},
    {"Erf", Domain::standard, OpKind::erf, infer_same},
    {"Erfc", Domain::standard, OpKind::erf, infer_same},  // of TensorFlow: tf2onnx leaves it in Keras's GELU
    {"Exp", Domain::standard, OpKind::exp, infer_unary},
    {"Expand", Domain::standard, OpKind::expand, infer_expand},
    {"EyeLike", Domain::standard, OpKind::eye, infer_eye_like},
    {"Flatten", Domain::standard, OpKind::reshape, infer_flatten, lower_flatten},
    {"Floor", Domain::standard, OpKind::round, infer_unary, nullptr, Variant::floor},
    {"GRU", Domain::standard, OpKind::gru, infer_recurrent, lower_recurrent},
    {"Gather", Domain::standard, OpKind::gather, infer_gather, lower_axis},
    {"GatherElements", Domain::standard, OpKind::gather, infer_gather_elements, lower_axis},
    {"GatherND", Domain::standard, OpKind::gather, infer_gather_nd},
    {"Gelu", Domain::standard, OpKind::gelu, infer_same},
    {"Gemm", Domain::standard, OpKind::dense, infer_gemm, lower_matmul},
    {"GlobalAveragePool", Domain::standard, OpKind::global_avg_pool, infer_global_pool, lower_global_pool},
    {"GlobalLpPool", Domain::standard, OpKind::lp_pool, infer_global_pool, lower_global_pool},
    {"GlobalMaxPool", Domain::standard, OpKind::global_max_pool, infer_global_pool, lower_global_pool},
    {"Greater", Domain::standard, OpKind::compare, infer_compare, nullptr, Variant::greater},
    {"GreaterOrEqual", Domain::standard, OpKind::compare, infer_compare, nullptr, Variant::greater_or_equal},
    {"GridSample", Domain::standard, OpKind::grid_sample, infer_grid_sample},
    {"GroupNormalization", Domain::standard, OpKind::group_norm, infer_same, lower_group_norm},
    {"HammingWindow", Domain::standard, OpKind::window, infer_window},
    {"HannWindow", Domain::standard, OpKind::window, infer_window},
    {"HardSigmoid", Domain::standard, OpKind::hard_sigmoid, infer_same},
    {"HardSwish", Domain::standard, OpKind::hard_swish, infer_same},
    {"Hardmax", Domain::standard, OpKind::arg_reduce, infer_same, lower_softmax},
    {"Identity", Domain::standard, OpKind::identity, infer_identity, lower_view},
    {"If", Domain::standard, OpKind::conditional},
    {"ImageDecoder", Domain::standard, OpKind::unknown},
    {"ImageScaler", Domain::standard, OpKind::mul, infer_same},
    {"InstanceNormalization", Domain::standard, OpKind::instance_norm, infer_same},
    {"IsInf", Domain::standard, OpKind::is_special, infer_predicate},
    {"IsNaN", Domain::standard, OpKind::is_special, infer_predicate},
    {"LRN", Domain::standard, OpKind::lrn, infer_same},
    {"LSTM", Domain::standard, OpKind::lstm, infer_recurrent, lower_recurrent},
    {"LayerNormalization", Domain::standard, OpKind::layer_norm, infer_layer_norm, lower_layer_norm},
    {"LeakyRelu", Domain::standard, OpKind::leaky_relu, infer_same},
    {"Less", Domain::standard, OpKind::compare, infer_compare, nullptr, Variant::less},
    {"LessOrEqual", Domain::standard, OpKind::compare, infer_compare, nullptr, Variant::less_or_equal},
    {"LinearAttention", Domain::standard, OpKind::state_space_scan, infer_linear_attention, lower_attention},
    {"Log", Domain::standard, OpKind::log, infer_unary},
    {"LogSoftmax", Domain::standard, OpKind::log_softmax, infer_same, lower_softmax},
    {"Loop", Domain::standard, OpKind::loop},
    {"LpNormalization", Domain::standard, OpKind::l2_norm, infer_same, lower_axis},
    {"LpPool", Domain::standard, OpKind::lp_pool, infer_pool, lower_pool},
    {"MatMul", Domain::standard, OpKind::matmul, infer_matmul},
    {"MatMulInteger", Domain::standard, OpKind::quantized_matmul, infer_matmul, nullptr, Variant::integer},
    {"Max", Domain::standard, OpKind::maximum, infer_binary},
    {"MaxPool", Domain::standard, OpKind::max_pool, infer_pool, lower_pool},
    {"MaxRoiPool", Domain::standard, OpKind::roi_pool, infer_roi_pool, lower_roi_pool},
    {"MaxUnpool", Domain::standard, OpKind::max_unpool, infer_max_unpool, lower_pool},
    {"Mean", Domain::standard, OpKind::add, infer_binary, nullptr, Variant::product},
    {"MeanVarianceNormalization", Domain::standard, OpKind::instance_norm, infer_same},
    {"MelWeightMatrix", Domain::standard, OpKind::window, infer_mel_weights},
    {"Min", Domain::standard, OpKind::minimum, infer_binary},
    {"Mish", Domain::standard, OpKind::mish, infer_same},
    {"Mod", Domain::standard, OpKind::mod, infer_binary},
    {"Mul", Domain::standard, OpKind::mul, infer_binary},
    {"Multinomial", Domain::standard, OpKind::random, infer_multinomial},
    {"Neg", Domain::standard, OpKind::neg, infer_unary},
    {"NegativeLogLikelihoodLoss", Domain::standard, OpKind::loss, infer_loss},
    {"NonMaxSuppression", Domain::standard, OpKind::non_max_suppression, infer_non_max_suppression},
    {"NonZero", Domain::standard, OpKind::non_zero, infer_non_zero},
    {"Not", Domain::standard, OpKind::logical, infer_predicate, nullptr, Variant::logical_not},
    {"OneHot", Domain::standard, OpKind::one_hot, infer_one_hot, lower_axis},
    {"Optional", Domain::standard, OpKind::sequence, infer_sequence_element},
    {"OptionalGetElement", Domain::standard, OpKind::sequence, infer_sequence_element},
    {"OptionalHasElement", Domain::standard, OpKind::sequence, infer_has_element},
    {"Or", Domain::standard, OpKind::logical, infer_compare, nullptr, Variant::logical_or},
    {"PRelu", Domain::standard, OpKind::prelu, infer_same},
    {"Pad", Domain::standard, OpKind::pad, infer_pad},
    {"ParametricSoftplus", Domain::standard, OpKind::softplus, infer_same},
    {"Pow", Domain::standard, OpKind::pow, infer_binary},
    {"QLinearConv", Domain::standard, OpKind::quantized_conv, infer_conv, lower_conv, Variant::quantized},
    {"QLinearMatMul", Domain::standard, OpKind::quantized_matmul, infer_matmul, nullptr, Variant::quantized},
    {"QuantizeLinear", Domain::standard, OpKind::quantize, infer_quantize},
    {"RMSNormalization", Domain::standard, OpKind::rms_norm, infer_same, lower_layer_norm},
    {"RNN", Domain::standard, OpKind::rnn, infer_recurrent, lower_recurrent},
    {"RandomNormal", Domain::standard, OpKind::random, infer_random},
    {"RandomNormalLike", Domain::standard, OpKind::random, infer_like},
    {"RandomUniform", Domain::standard, OpKind::random, infer_random},
    {"RandomUniformLike", Domain::standard, OpKind::random, infer_like},
    {"Range", Domain::standard, OpKind::range, infer_range},
    {"Reciprocal", Domain::standard, OpKind::reciprocal, infer_unary},
    {"ReduceL1", Domain::standard, OpKind::reduce_norm, infer_reduce, lower_reduce},
    {"ReduceL2", Domain::standard, OpKind::reduce_norm, infer_reduce, lower_reduce},
    {"ReduceLogSum", Domain::standard, OpKind::reduce_log_sum_exp, infer_reduce, lower_reduce},
    {"ReduceLogSumExp", Domain::standard, OpKind::reduce_log_sum_exp, infer_reduce, lower_reduce},
    {"ReduceMax", Domain::standard, OpKind::reduce_max, infer_reduce, lower_reduce},
    {"ReduceMean", Domain::standard, OpKind::reduce_mean, infer_reduce, lower_reduce},
    {"ReduceMin", Domain::standard, OpKind::reduce_min, infer_reduce, lower_reduce},
    {"ReduceProd", Domain::standard, OpKind::reduce_prod, infer_reduce, lower_reduce},
    {"ReduceSum", Domain::standard, OpKind::reduce_sum, infer_reduce, lower_reduce},
    {"ReduceSumSquare", Domain::standard, OpKind::reduce_norm, infer_reduce, lower_reduce},
    {"RegexFullMatch", Domain::standard, OpKind::text, infer_predicate},
    {"Relu", Domain::standard, OpKind::relu, infer_unary},
    {"Reshape", Domain::standard, OpKind::reshape, infer_reshape, lower_view},
    {"Resize", Domain::standard, OpKind::resize, infer_resize},
    {"ReverseSequence", Domain::standard, OpKind::reverse, infer_same},
    {"RoiAlign", Domain::standard, OpKind::roi_pool, infer_roi_pool, lower_roi_pool},
    {"RotaryEmbedding", Domain::standard, OpKind::rotary_embedding, infer_same, lower_rotary},
    {"Round", Domain::standard, OpKind::round, infer_unary, nullptr, Variant::round},
    {"STFT", Domain::standard, OpKind::stft, infer_stft},
    {"Scale", Domain::standard, OpKind::mul, infer_same},
    {"ScaledTanh", Domain::standard, OpKind::tanh, infer_same},
    {"Scan", Domain::standard, OpKind::scan},
    {"Scatter", Domain::standard, OpKind::scatter, infer_scatter, lower_axis},
    {"ScatterElements", Domain::standard, OpKind::scatter, infer_scatter, lower_axis},
    {"ScatterND", Domain::standard, OpKind::scatter, infer_scatter_nd},
    {"Selu", Domain::standard, OpKind::selu, infer_same},
    {"SequenceAt", Domain::standard, OpKind::sequence, infer_sequence_at},
    {"SequenceConstruct", Domain::standard, OpKind::sequence, infer_sequence_construct},
    {"SequenceEmpty", Domain::standard, OpKind::sequence, infer_sequence_empty},
    {"SequenceErase", Domain::standard, OpKind::sequence, infer_sequence_erase},
    {"SequenceInsert", Domain::standard, OpKind::sequence, infer_sequence_insert},
    {"SequenceLength", Domain::standard, OpKind::sequence, infer_sequence_length},
    {"SequenceMap", Domain::standard, OpKind::sequence},
    {"Shape", Domain::standard, OpKind::shape_of, infer_shape},
    {"Shrink", Domain::standard, OpKind::clip, infer_same},
    {"Sigmoid", Domain::standard, OpKind::sigmoid, infer_same},
    {"Sign", Domain::standard, OpKind::sign, infer_unary},
    {"SimplifiedLayerNormalization", Domain::standard, OpKind::rms_norm, infer_layer_norm, lower_layer_norm},
    {"Sin", Domain::standard, OpKind::trigonometric, infer_same},
    {"Sinh", Domain::standard, OpKind::trigonometric, infer_same},
    {"Size", Domain::standard, OpKind::shape_of, infer_size},
    {"Slice", Domain::standard, OpKind::slice, infer_slice},
    {"Softmax", Domain::standard, OpKind::softmax, infer_same, lower_softmax},
    {"SoftmaxCrossEntropyLoss", Domain::standard, OpKind::loss, infer_loss},
    {"Softplus", Domain::standard, OpKind::softplus, infer_same},
    {"Softsign", Domain::standard, OpKind::softsign, infer_same},
    {"SpaceToDepth", Domain::standard, OpKind::space_to_depth, infer_space_to_depth},
    {"Split", Domain::standard, OpKind::split, infer_split, lower_axis},
    {"SplitToSequence", Domain::standard, OpKind::sequence, infer_split_to_sequence, lower_axis},
    {"Sqrt", Domain::standard, OpKind::sqrt, infer_unary},
    {"Squeeze", Domain::standard, OpKind::reshape, infer_squeeze, lower_view},
    {"StringConcat", Domain::standard, OpKind::text, infer_binary},
    {"StringNormalizer", Domain::standard, OpKind::text},
    {"StringSplit", Domain::standard, OpKind::text},
    {"Sub", Domain::standard, OpKind::sub, infer_binary},
    {"Sum", Domain::standard, OpKind::add, infer_binary},
    {"SwiGLU", Domain::standard, OpKind::glu, infer_same},
    {"Swish", Domain::standard, OpKind::silu, infer_same},
    {"Tan", Domain::standard, OpKind::trigonometric, infer_same},
    {"Tanh", Domain::standard, OpKind::tanh, infer_same},
    {"TensorScatter", Domain::standard, OpKind::scatter, infer_same, lower_axis},
    {"TfIdfVectorizer", Domain::standard, OpKind::text, infer_tf_idf},
    {"ThresholdedRelu", Domain::standard, OpKind::relu, infer_same},
    {"Tile", Domain::standard, OpKind::tile, infer_tile},
    {"TopK", Domain::standard, OpKind::top_k, infer_top_k, lower_axis},
    {"Transpose", Domain::standard, OpKind::transpose, infer_transpose},
    {"Trilu", Domain::standard, OpKind::triangular, infer_same},
    {"Unique", Domain::standard, OpKind::unique, infer_unique},
    {"Unsqueeze", Domain::standard, OpKind::reshape, infer_unsqueeze, lower_view},
    {"Upsample", Domain::standard, OpKind::resize, infer_resize, nullptr, Variant::inverse},
    {"Where", Domain::standard, OpKind::where, infer_where},
    {"Xor", Domain::standard, OpKind::logical, infer_compare, nullptr, Variant::logical_xor},
    // com.microsoft
    {"Attention", Domain::microsoft, OpKind::attention, infer_packed_projection, lower_attention},
    {"AttnLSTM", Domain::microsoft, OpKind::lstm, infer_recurrent, lower_recurrent},
    {"BeamSearch", Domain::microsoft, OpKind::loop},
    {"BiasAdd", Domain::microsoft, OpKind::add, infer_same},
    {"BiasDropout", Domain::microsoft, OpKind::dropout, infer_dropout},
    {"BiasGelu", Domain::microsoft, OpKind::gelu, infer_binary},
    {"BiasSoftmax", Domain::microsoft, OpKind::softmax, infer_same, lower_softmax},
    {"BiasSplitGelu", Domain::microsoft, OpKind::glu, infer_bias_split_gelu},
    {"BitmaskBiasDropout", Domain::microsoft, OpKind::dropout},
    {"BitmaskDropout", Domain::microsoft, OpKind::dropout},
    {"BranchwiseRMSNorm", Domain::microsoft, OpKind::rms_norm, infer_same},
    {"CDist", Domain::microsoft, OpKind::matmul, infer_cdist},
    {"CausalConvWithState", Domain::microsoft, OpKind::conv, infer_causal_conv, lower_causal_conv},
    {"ComplexMul", Domain::microsoft, OpKind::mul, infer_binary},
    {"ComplexMulConj", Domain::microsoft, OpKind::mul, infer_binary},
    {"ConvTransposeWithDynamicPads", Domain::microsoft, OpKind::conv_transpose, nullptr, lower_conv_transpose},
    {"CropAndResize", Domain::microsoft, OpKind::roi_pool, infer_crop_and_resize},
    {"DecoderAttention", Domain::microsoft, OpKind::attention, nullptr, lower_attention},
    {"DecoderMaskedMultiHeadAttention", Domain::microsoft, OpKind::attention, infer_multi_head_attention,
     lower_attention},
    {"DecoderMaskedSelfAttention", Domain::microsoft, OpKind::attention, infer_packed_projection, lower_attention},
    {"DequantizeLinear", Domain::microsoft, OpKind::dequantize, infer_dequantize},
    {"DequantizeWithOrder", Domain::microsoft, OpKind::dequantize, infer_same},
    {"DynamicQuantizeLSTM", Domain::microsoft, OpKind::lstm, infer_recurrent, lower_recurrent, Variant::transposed},
    {"DynamicQuantizeMatMul", Domain::microsoft, OpKind::quantized_matmul, infer_matmul},
    {"DynamicSparseAttention", Domain::microsoft, OpKind::attention, infer_multi_head_attention, lower_attention,
     Variant::grouped},
    {"EmbedLayerNormalization", Domain::microsoft, OpKind::embedding, infer_embed_layer_norm},
    {"ExpandDims", Domain::microsoft, OpKind::reshape, infer_unsqueeze, lower_view},
    {"FastGelu", Domain::microsoft, OpKind::gelu, infer_same},
    {"FusedConv", Domain::microsoft, OpKind::conv, infer_conv, lower_conv},
    {"FusedGemm", Domain::microsoft, OpKind::dense, infer_gemm, lower_matmul},
    {"FusedMatMul", Domain::microsoft, OpKind::matmul, infer_matmul, lower_matmul},
    {"FusedMatMulActivation", Domain::microsoft, OpKind::matmul, infer_matmul, lower_matmul},
    {"GatedAdd", Domain::microsoft, OpKind::add, infer_same},
    {"GatedRMSNorm", Domain::microsoft, OpKind::rms_norm, infer_same, lower_layer_norm, Variant::last_axis},
    {"GatedRelativePositionBias", Domain::microsoft, OpKind::mul},
    {"GatherBlockQuantized", Domain::microsoft, OpKind::gather, infer_gather_block_quantized,
     lower_gather_block_quantized},
    {"GatherND", Domain::microsoft, OpKind::gather, infer_gather_nd},
    {"Gelu", Domain::microsoft, OpKind::gelu, infer_same},
    {"GemmFastGelu", Domain::microsoft, OpKind::matmul, infer_matmul},
    {"GemmFloat8", Domain::microsoft, OpKind::dense, infer_gemm, lower_matmul},
    {"GemmaRotaryEmbedding", Domain::microsoft, OpKind::rotary_embedding, infer_gemma_rotary},
    {"GreedySearch", Domain::microsoft, OpKind::loop},
    {"GridSample", Domain::microsoft, OpKind::grid_sample, infer_grid_sample},
    {"GroupNorm", Domain::microsoft, OpKind::group_norm, infer_same, lower_group_norm},
    {"GroupQueryAttention", Domain::microsoft, OpKind::attention, infer_multi_head_attention, lower_attention,
     Variant::grouped},
    {"Inverse", Domain::microsoft, OpKind::determinant, infer_same},
    {"Irfft", Domain::microsoft, OpKind::dft, infer_rfft, nullptr, Variant::inverse},
    {"IsAllFinite", Domain::microsoft, OpKind::is_special},
    {"LayerNormalization", Domain::microsoft, OpKind::layer_norm, infer_layer_norm, lower_layer_norm},
    {"LinearAttention", Domain::microsoft, OpKind::state_space_scan, infer_linear_attention, lower_attention},
    {"LongformerAttention", Domain::microsoft, OpKind::attention, infer_same, lower_attention},
    {"MRotaryEmbedding", Domain::microsoft, OpKind::rotary_embedding, infer_same, lower_rotary},
    {"MatMulBnb4", Domain::microsoft, OpKind::matmul_nbits, infer_matmul_nbits, lower_matmul_nbits},
    {"MatMulFpQ4", Domain::microsoft, OpKind::matmul_nbits, nullptr, lower_matmul_nbits},
    {"MatMulInteger16", Domain::microsoft, OpKind::quantized_matmul, infer_matmul, nullptr, Variant::integer},
    {"MatMulIntegerToFloat", Domain::microsoft, OpKind::quantized_matmul, infer_matmul, nullptr, Variant::to_float},
    {"MatMulNBits", Domain::microsoft, OpKind::matmul_nbits, infer_matmul_nbits, lower_matmul_nbits},
    {"MaxpoolWithMask", Domain::microsoft, OpKind::max_pool, infer_pool, lower_pool},
    {"MoE", Domain::microsoft, OpKind::moe, infer_same, lower_moe},
    {"MulInteger", Domain::microsoft, OpKind::quantized_elementwise},
    {"MultiHeadAttention", Domain::microsoft, OpKind::attention, infer_multi_head_attention, lower_attention},
    {"MurmurHash3", Domain::microsoft, OpKind::bitwise},
    {"NGramRepeatBlock", Domain::microsoft, OpKind::scatter, infer_ngram},
    {"NhwcConv", Domain::microsoft, OpKind::conv, infer_conv, lower_conv, Variant::nhwc},
    {"NhwcFusedConv", Domain::microsoft, OpKind::conv, infer_conv, lower_conv, Variant::nhwc},
    {"NhwcMaxPool", Domain::microsoft, OpKind::max_pool, infer_pool, lower_pool, Variant::nhwc},
    {"PackedAttention", Domain::microsoft, OpKind::attention, infer_packed_projection, lower_attention,
     Variant::packed},
    {"PackedMultiHeadAttention", Domain::microsoft, OpKind::attention, infer_multi_head_attention, lower_attention,
     Variant::packed},
    {"Pad", Domain::microsoft, OpKind::pad, infer_pad},
    {"PagedAttention", Domain::microsoft, OpKind::attention, infer_multi_head_attention, lower_attention,
     Variant::packed},
    {"QAttention", Domain::microsoft, OpKind::attention, infer_packed_projection, lower_attention, Variant::quantized},
    {"QEmbedLayerNormalization", Domain::microsoft, OpKind::embedding, infer_embed_layer_norm, nullptr,
     Variant::quantized},
    {"QGemm", Domain::microsoft, OpKind::quantized_matmul, infer_gemm, lower_matmul, Variant::quantized},
    {"QLinearAdd", Domain::microsoft, OpKind::quantized_elementwise, infer_quantized_binary},
    {"QLinearAveragePool", Domain::microsoft, OpKind::avg_pool, infer_pool, lower_pool, Variant::quantized},
    {"QLinearConcat", Domain::microsoft, OpKind::concat, infer_quantized_concat, lower_axis, Variant::quantized},
    {"QLinearConv", Domain::microsoft, OpKind::quantized_conv, infer_conv, lower_conv, Variant::quantized},
    {"QLinearGlobalAveragePool", Domain::microsoft, OpKind::global_avg_pool, infer_global_pool, lower_global_pool,
     Variant::quantized},
    {"QLinearLeakyRelu", Domain::microsoft, OpKind::quantized_elementwise, infer_same},
    {"QLinearMul", Domain::microsoft, OpKind::quantized_elementwise, infer_quantized_binary},
    {"QLinearReduceMean", Domain::microsoft, OpKind::reduce_mean, infer_reduce, lower_reduce, Variant::quantized},
    {"QLinearSigmoid", Domain::microsoft, OpKind::quantized_elementwise, infer_same},
    {"QLinearSoftmax", Domain::microsoft, OpKind::softmax, infer_same, lower_softmax},
    {"QLinearWhere", Domain::microsoft, OpKind::where, infer_quantized_where},
    {"QMoE", Domain::microsoft, OpKind::moe, infer_same, lower_moe},
    {"QOrderedAttention", Domain::microsoft, OpKind::attention, infer_same, lower_attention},
    {"QOrderedGelu", Domain::microsoft, OpKind::gelu, infer_same},
    {"QOrderedLayerNormalization", Domain::microsoft, OpKind::layer_norm, infer_same, lower_layer_norm},
    {"QOrderedMatMul", Domain::microsoft, OpKind::quantized_matmul},
    {"QuantizeLinear", Domain::microsoft, OpKind::quantize, infer_quantize},
    {"QuantizeWithOrder", Domain::microsoft, OpKind::quantize},
    {"QuickGelu", Domain::microsoft, OpKind::silu, infer_same},
    {"Range", Domain::microsoft, OpKind::range, infer_range},
    {"ReduceSumInteger", Domain::microsoft, OpKind::reduce_sum, infer_reduce, lower_reduce, Variant::integer},
    {"RelativePositionBias", Domain::microsoft, OpKind::gather},
    {"RemovePadding", Domain::microsoft, OpKind::compress, infer_remove_padding},
    {"RestorePadding", Domain::microsoft, OpKind::scatter, infer_restore_padding},
    {"Rfft", Domain::microsoft, OpKind::dft, infer_rfft},
    {"RotaryEmbedding", Domain::microsoft, OpKind::rotary_embedding, infer_same, lower_rotary},
    {"Sampling", Domain::microsoft, OpKind::loop},
    {"ScaledSiLU", Domain::microsoft, OpKind::silu, infer_same},
    {"SimplifiedLayerNormalization", Domain::microsoft, OpKind::rms_norm, infer_layer_norm, lower_layer_norm},
    {"SkipGroupNorm", Domain::microsoft, OpKind::group_norm, infer_skip_group_norm, lower_group_norm},
    {"SkipLayerNormalization", Domain::microsoft, OpKind::layer_norm, infer_skip_layer_norm, lower_layer_norm,
     Variant::normalized},
    {"SkipSimplifiedLayerNormalization", Domain::microsoft, OpKind::rms_norm, infer_skip_layer_norm, lower_layer_norm,
     Variant::normalized},
    {"SparseAttention", Domain::microsoft, OpKind::attention, infer_multi_head_attention, lower_attention,
     Variant::grouped},
    {"SparseToDenseMatMul", Domain::microsoft, OpKind::matmul, infer_matmul, lower_matmul},
    {"Tokenizer", Domain::microsoft, OpKind::text},
    {"TransposeMatMul", Domain::microsoft, OpKind::matmul, infer_matmul, lower_matmul},
    {"Trilu", Domain::microsoft, OpKind::triangular, infer_same},
    {"UnfoldTensor", Domain::microsoft, OpKind::unfold, infer_unfold_tensor},
    {"Unique", Domain::microsoft, OpKind::unique, infer_unique},
    {"WhisperBeamSearch", Domain::microsoft, OpKind::loop},
    {"WordConvEmbedding", Domain::microsoft, OpKind::embedding},
    // com.microsoft.nchwc
    {"AveragePool", Domain::nchwc, OpKind::avg_pool, infer_pool, lower_pool},
    {"Conv", Domain::nchwc, OpKind::conv, infer_conv, lower_conv},
    {"GlobalAveragePool", Domain::nchwc, OpKind::global_avg_pool, infer_global_pool, lower_global_pool},
    {"GlobalMaxPool", Domain::nchwc, OpKind::global_max_pool, infer_global_pool, lower_global_pool},
    {"MaxPool", Domain::nchwc, OpKind::max_pool, infer_pool, lower_pool},
    {"ReorderInput", Domain::nchwc, OpKind::copy, infer_reorder},
    {"ReorderOutput", Domain::nchwc, OpKind::copy, infer_reorder, nullptr, Variant::inverse},
    {"Upsample", Domain::nchwc, OpKind::resize, infer_resize, nullptr, Variant::inverse},
    // ai.onnx.ml: only what is made of tensors like the rest
    {"ArrayFeatureExtractor", Domain::ml, OpKind::gather, infer_array_features},
    {"Binarizer", Domain::ml, OpKind::compare, infer_same},
    {"Imputer", Domain::ml, OpKind::where, infer_same},
    {"LabelEncoder", Domain::ml, OpKind::where, infer_label_encoder},
    {"LinearClassifier", Domain::ml, OpKind::dense, infer_linear_classifier},
    {"LinearRegressor", Domain::ml, OpKind::dense, infer_linear_regressor},
    {"Normalizer", Domain::ml, OpKind::l2_norm, infer_same},
    {"OneHotEncoder", Domain::ml, OpKind::one_hot, infer_one_hot_encoder},
    {"SVMClassifier", Domain::ml, OpKind::unknown, infer_linear_classifier},
    {"SVMRegressor", Domain::ml, OpKind::unknown, infer_linear_regressor},
    {"Scaler", Domain::ml, OpKind::mul, infer_same},
    {"TreeEnsemble", Domain::ml, OpKind::unknown, infer_tree_ensemble},
    {"TreeEnsembleClassifier", Domain::ml, OpKind::unknown, infer_linear_classifier},
    {"TreeEnsembleRegressor", Domain::ml, OpKind::unknown, infer_linear_regressor},
    // ai.onnx.preview
    {"FlexAttention", Domain::preview, OpKind::attention, infer_flex_attention, lower_attention},
};

Domain domain_of(Text domain) noexcept {
  if (domain.empty() || domain == "ai.onnx") return Domain::standard;
  if (domain == "com.microsoft") return Domain::microsoft;
  if (domain == "com.microsoft.nchwc") return Domain::nchwc;
  if (domain == "ai.onnx.ml") return Domain::ml;
  if (domain == "ai.onnx.preview") return Domain::preview;
  return Domain::other;
}

/// Open addressing over the table above, at most two fifths full: a look-up is one hash and, nearly always, one
/// comparison.
class Index {
 public:
  Index() noexcept {
    for (std::size_t i = 0; i < std::size(kOperators); ++i) {
      std::size_t at = hash(kOperators[i].domain, kOperators[i].name);
      while (slots_[at] != 0) at = (at + 1) % kSlots;
      slots_[at] = static_cast<std::uint16_t>(i + 1);
    }
  }

  const Operator* find(Domain domain, Text name) const noexcept {
    for (std::size_t at = hash(domain, name); slots_[at] != 0; at = (at + 1) % kSlots) {
      const Operator& candidate = kOperators[slots_[at] - 1];
      if (candidate.domain == domain && candidate.name == name) return &candidate;
    }
    return nullptr;
  }

 private:
  static constexpr std::size_t kSlots = 1024;
  static_assert(std::size(kOperators) * 5 / 2 <= kSlots);

  static std::size_t hash(Domain domain, Text name) noexcept {
    std::uint64_t head = 0, tail = 0;
    const std::size_t n = std::min<std::size_t>(8, name.size());
    std::memcpy(&head, name.data(), n);
    std::memcpy(&tail, name.data() + name.size() - n, n);
    std::uint64_t h = head * 0x9e3779b97f4a7c15ULL ^ tail * 0xc2b2ae3d27d4eb4fULL ^ (name.size() << 3) ^
                      static_cast<std::uint64_t>(domain);
    h *= 0xd6e8feb86659fd93ULL;
    return static_cast<std::size_t>(h >> 54);
  }

  std::array<std::uint16_t, kSlots> slots_{};
};

/// Inputs may come from a hostile file: every dimension is 0 or more and every tensor within the bounds of the graph.
void check_inputs(const InferContext& c) {
  for (const Value* v : c.inputs) {
    if (v != nullptr && v->has_shape) checked_elements(v->shape);
  }
}

}  // namespace

const Operator* find_operator(Text domain, Text op_type) noexcept {
  static const Index index;
  return op_type.empty() ? nullptr : index.find(domain_of(domain), op_type);
}

std::span<const Operator> operator_table() noexcept { return kOperators; }

OpKind canonical_operator(const Operator* entry) noexcept { return entry != nullptr ? entry->kind : OpKind::unknown; }

bool is_certain(const Operator* entry) noexcept {
  if (entry == nullptr || entry->infer == nullptr || entry->infer == infer_non_max_suppression) return false;
  if (entry->kind == OpKind::sequence || entry->kind == OpKind::text) return false;
  if (entry->domain == Domain::standard || entry->domain == Domain::ml) return true;
  if (entry->domain != Domain::microsoft) return false;
  switch (op_class(entry->kind)) {
    case OpClass::convolution:
    case OpClass::matmul:
    case OpClass::normalization:
    case OpClass::softmax:
    case OpClass::activation:
    case OpClass::elementwise:
    case OpClass::pooling:
      return !entry->name.starts_with("QOrdered") && !entry->name.starts_with("CausalConv");
    default:
      return false;
  }
}

std::int64_t rounding_slack(const InferContext& context) noexcept {
  const OpKind kind = canonical_operator(context.entry);
  if (kind == OpKind::resize) return 1;
  return op_class(kind) == OpClass::pooling && context.integer("ceil_mode", 0) != 0 ? 1 : 0;
}

void lower_attributes(InferContext& context) {
  const Operator* op = context.entry;
  if (op == nullptr || op->lower == nullptr) return;
  check_inputs(context);
  op->lower(context, *op);
}

bool infer(InferContext& context) {
  const Operator* op = context.entry;
  if (op == nullptr) return false;
  check_inputs(context);
  if (op->lower != nullptr) op->lower(context, *op);
  const auto forget = [&] {
    for (Value& out : context.outputs) out.has_shape = out.has_values = false;
    return false;
  };
  if (op->infer == nullptr || !op->infer(context, *op)) return forget();
  bool constant = !context.inputs.empty() && op->kind != OpKind::random;
  for (const Value* v : context.inputs) constant = constant && (v == nullptr || v->is_constant);
  for (Value& out : context.outputs) out.is_constant = out.is_constant || constant;
  return true;
}

}  // namespace perfpass::onnx
