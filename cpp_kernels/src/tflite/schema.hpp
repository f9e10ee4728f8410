// Field numbers of the tables in TensorFlow Lite's schema:
// https://github.com/tensorflow/tensorflow/blob/master/tensorflow/compiler/mlir/lite/schema/schema.fbs
#pragma once

namespace perfpass::tflite {

namespace model {
constexpr unsigned kOperatorCodes = 1, kSubgraphs = 2, kBuffers = 4, kSignatures = 7;
}
namespace operator_code {
constexpr unsigned kOldBuiltin = 0, kCustom = 1, kBuiltin = 3;
}
namespace subgraph {
constexpr unsigned kTensors = 0, kInputs = 1, kOutputs = 2, kOperators = 3;
}
namespace tensor {
constexpr unsigned kShape = 0, kType = 1, kBuffer = 2, kName = 3, kQuantization = 4, kSignature = 7, kHasRank = 8,
                   kExternalBuffer = 10;
}
namespace quantization {
constexpr unsigned kScale = 2;
}
namespace buffer {
constexpr unsigned kData = 0, kOffset = 1, kSize = 2;
}
namespace node {
constexpr unsigned kCode = 0, kInputs = 1, kOutputs = 2, kOptions = 4, kOptions2 = 12;
}
namespace signature {
constexpr unsigned kInputs = 0, kOutputs = 1, kKey = 2, kSubgraph = 4;
constexpr unsigned kName = 0, kTensor = 1;  // of an entry of its lists
}  // namespace signature

// Options of operators. Strides and dilations come width first.
namespace conv {
constexpr unsigned kPadding = 0, kStrideW = 1, kStrideH = 2, kDilationW = 4, kDilationH = 5;
}
namespace depthwise {
constexpr unsigned kMultiplier = 3, kDilationW = 5, kDilationH = 6;
}
namespace conv_3d {
constexpr unsigned kStrideD = 1, kStrideW = 2, kStrideH = 3, kDilationD = 5, kDilationW = 6, kDilationH = 7;
}
namespace pool {
constexpr unsigned kWidth = 3, kHeight = 4;
}
namespace dense {
constexpr unsigned kKeepDims = 2;
}
namespace slicing {
constexpr unsigned kBegin = 0, kEnd = 1, kEllipsis = 2, kNewAxis = 3, kShrink = 4, kOffset = 5;
}
namespace lstm_both {
constexpr unsigned kMerge = 3;
}
namespace rnn_both {
constexpr unsigned kMerge = 2;
}
namespace composite {
constexpr unsigned kName = 0, kSubgraph = 1;
}
namespace dot_general {
constexpr unsigned kLeftBatch = 0, kRightBatch = 1, kLeft = 2, kRight = 3;
}
namespace convolution {
constexpr unsigned kStrides = 0, kPadding = 1, kDilation = 3, kKernelInput = 8, kKernelOutput = 9, kKernelSpatial = 10,
                   kOutputFeature = 12, kGroups = 14;
}

}  // namespace perfpass::tflite
