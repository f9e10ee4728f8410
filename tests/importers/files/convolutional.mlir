module @jit_apply attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<16xf32>, %arg1: tensor<16xf32>, %arg2: tensor<16xf32>, %arg3: tensor<16xf32>, %arg4: tensor<3x3x3x16xf32>, %arg5: tensor<16xf32>, %arg6: tensor<3x3x1x16xf32>, %arg7: tensor<8xf32>, %arg8: tensor<16x8xf32>, %arg9: tensor<8xf32>, %arg10: tensor<8xf32>, %arg11: tensor<2x32x32x3xf32>) -> (tensor<2x8xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.convolution(%arg11, %arg4) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [2, 2], pad = [[0, 1], [0, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x32x32x3xf32>, tensor<3x3x3x16xf32>) -> tensor<2x16x16x16xf32>
    %1 = stablehlo.broadcast_in_dim %arg0, dims = [3] : (tensor<16xf32>) -> tensor<1x1x1x16xf32>
    %2 = stablehlo.broadcast_in_dim %arg1, dims = [3] : (tensor<16xf32>) -> tensor<1x1x1x16xf32>
    %3 = stablehlo.broadcast_in_dim %1, dims = [0, 1, 2, 3] : (tensor<1x1x1x16xf32>) -> tensor<2x16x16x16xf32>
    %4 = stablehlo.subtract %0, %3 : tensor<2x16x16x16xf32>
    %cst = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %5 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<1x1x1x16xf32>
    %6 = stablehlo.add %2, %5 : tensor<1x1x1x16xf32>
    %7 = stablehlo.rsqrt %6 : tensor<1x1x1x16xf32>
    %8 = stablehlo.reshape %arg3 : (tensor<16xf32>) -> tensor<1x1x1x16xf32>
    %9 = stablehlo.multiply %7, %8 : tensor<1x1x1x16xf32>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0, 1, 2, 3] : (tensor<1x1x1x16xf32>) -> tensor<2x16x16x16xf32>
    %11 = stablehlo.multiply %4, %10 : tensor<2x16x16x16xf32>
    %12 = stablehlo.reshape %arg2 : (tensor<16xf32>) -> tensor<1x1x1x16xf32>
    %13 = stablehlo.broadcast_in_dim %12, dims = [0, 1, 2, 3] : (tensor<1x1x1x16xf32>) -> tensor<2x16x16x16xf32>
    %14 = stablehlo.add %11, %13 : tensor<2x16x16x16xf32>
    %15 = call @relu(%14) : (tensor<2x16x16x16xf32>) -> tensor<2x16x16x16xf32>
    %16 = stablehlo.convolution(%15, %arg6) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 16 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x16x16x16xf32>, tensor<3x3x1x16xf32>) -> tensor<2x16x16x16xf32>
    %17 = stablehlo.reshape %arg5 : (tensor<16xf32>) -> tensor<1x1x1x16xf32>
    %18 = stablehlo.broadcast_in_dim %17, dims = [0, 1, 2, 3] : (tensor<1x1x1x16xf32>) -> tensor<2x16x16x16xf32>
    %19 = stablehlo.add %16, %18 : tensor<2x16x16x16xf32>
    %cst_0 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %20 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<f32>
    %21 = "stablehlo.reduce_window"(%19, %20) <{base_dilations = array<i64: 1, 1, 1, 1>, padding = dense<0> : tensor<4x2xi64>, window_dilations = array<i64: 1, 1, 1, 1>, window_dimensions = array<i64: 1, 2, 2, 1>, window_strides = array<i64: 1, 2, 2, 1>}> ({
    ^bb0(%arg12: tensor<f32>, %arg13: tensor<f32>):
      %83 = stablehlo.maximum %arg12, %arg13 : tensor<f32>
      stablehlo.return %83 : tensor<f32>
    }) : (tensor<2x16x16x16xf32>, tensor<f32>) -> tensor<2x8x8x16xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %22 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<f32>
    %23 = "stablehlo.reduce_window"(%21, %22) <{base_dilations = array<i64: 1, 1, 1, 1>, padding = dense<0> : tensor<4x2xi64>, window_dilations = array<i64: 1, 1, 1, 1>, window_dimensions = array<i64: 1, 2, 2, 1>, window_strides = array<i64: 1, 2, 2, 1>}> ({
    ^bb0(%arg12: tensor<f32>, %arg13: tensor<f32>):
      %83 = stablehlo.add %arg12, %arg13 : tensor<f32>
      stablehlo.return %83 : tensor<f32>
    }) : (tensor<2x8x8x16xf32>, tensor<f32>) -> tensor<2x4x4x16xf32>
    %cst_2 = stablehlo.constant dense<4.000000e+00> : tensor<f32>
    %24 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<2x4x4x16xf32>
    %25 = stablehlo.divide %23, %24 : tensor<2x4x4x16xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %26 = stablehlo.reduce(%25 init: %cst_3) applies stablehlo.add across dimensions = [1, 2] : (tensor<2x4x4x16xf32>, tensor<f32>) -> tensor<2x16xf32>
    %cst_4 = stablehlo.constant dense<1.600000e+01> : tensor<f32>
    %27 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<2x16xf32>
    %28 = stablehlo.divide %26, %27 : tensor<2x16xf32>
    %29 = stablehlo.dot_general %28, %arg8, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x16xf32>, tensor<16x8xf32>) -> tensor<2x8xf32>
    %30 = stablehlo.reshape %arg7 : (tensor<8xf32>) -> tensor<1x8xf32>
    %31 = stablehlo.broadcast_in_dim %30, dims = [0, 1] : (tensor<1x8xf32>) -> tensor<2x8xf32>
    %32 = stablehlo.add %29, %31 : tensor<2x8xf32>
    %33 = chlo.square %32 : tensor<2x8xf32> -> tensor<2x8xf32>
    %cst_5 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %34 = stablehlo.reduce(%32 init: %cst_5) applies stablehlo.add across dimensions = [1] : (tensor<2x8xf32>, tensor<f32>) -> tensor<2xf32>
    %cst_6 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %35 = stablehlo.broadcast_in_dim %cst_6, dims = [] : (tensor<f32>) -> tensor<2xf32>
    %36 = stablehlo.divide %34, %35 : tensor<2xf32>
    %cst_7 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %37 = stablehlo.reduce(%33 init: %cst_7) applies stablehlo.add across dimensions = [1] : (tensor<2x8xf32>, tensor<f32>) -> tensor<2xf32>
    %cst_8 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %38 = stablehlo.broadcast_in_dim %cst_8, dims = [] : (tensor<f32>) -> tensor<2xf32>
    %39 = stablehlo.divide %37, %38 : tensor<2xf32>
    %40 = chlo.square %36 : tensor<2xf32> -> tensor<2xf32>
    %41 = stablehlo.subtract %39, %40 : tensor<2xf32>
    %cst_9 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %42 = stablehlo.broadcast_in_dim %cst_9, dims = [] : (tensor<f32>) -> tensor<2xf32>
    %43 = stablehlo.maximum %42, %41 : tensor<2xf32>
    %44 = stablehlo.broadcast_in_dim %36, dims = [0] : (tensor<2xf32>) -> tensor<2x1xf32>
    %45 = stablehlo.broadcast_in_dim %43, dims = [0] : (tensor<2xf32>) -> tensor<2x1xf32>
    %46 = stablehlo.broadcast_in_dim %44, dims = [0, 1] : (tensor<2x1xf32>) -> tensor<2x8xf32>
    %47 = stablehlo.subtract %32, %46 : tensor<2x8xf32>
    %cst_10 = stablehlo.constant dense<9.99999997E-7> : tensor<f32>
    %48 = stablehlo.broadcast_in_dim %cst_10, dims = [] : (tensor<f32>) -> tensor<2x1xf32>
    %49 = stablehlo.add %45, %48 : tensor<2x1xf32>
    %50 = stablehlo.rsqrt %49 : tensor<2x1xf32>
    %51 = stablehlo.reshape %arg10 : (tensor<8xf32>) -> tensor<1x8xf32>
    %52 = stablehlo.broadcast_in_dim %50, dims = [0, 1] : (tensor<2x1xf32>) -> tensor<2x8xf32>
    %53 = stablehlo.broadcast_in_dim %51, dims = [0, 1] : (tensor<1x8xf32>) -> tensor<2x8xf32>
    %54 = stablehlo.multiply %52, %53 : tensor<2x8xf32>
    %55 = stablehlo.multiply %47, %54 : tensor<2x8xf32>
    %56 = stablehlo.reshape %arg9 : (tensor<8xf32>) -> tensor<1x8xf32>
    %57 = stablehlo.broadcast_in_dim %56, dims = [0, 1] : (tensor<1x8xf32>) -> tensor<2x8xf32>
    %58 = stablehlo.add %55, %57 : tensor<2x8xf32>
    %59 = stablehlo.multiply %58, %58 : tensor<2x8xf32>
    %60 = stablehlo.multiply %59, %58 : tensor<2x8xf32>
    %cst_11 = stablehlo.constant dense<4.471500e-02> : tensor<f32>
    %61 = stablehlo.broadcast_in_dim %cst_11, dims = [] : (tensor<f32>) -> tensor<2x8xf32>
    %62 = stablehlo.multiply %61, %60 : tensor<2x8xf32>
    %63 = stablehlo.add %58, %62 : tensor<2x8xf32>
    %cst_12 = stablehlo.constant dense<0.797884583> : tensor<f32>
    %64 = stablehlo.broadcast_in_dim %cst_12, dims = [] : (tensor<f32>) -> tensor<2x8xf32>
    %65 = stablehlo.multiply %64, %63 : tensor<2x8xf32>
    %66 = stablehlo.tanh %65 : tensor<2x8xf32>
    %cst_13 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %67 = stablehlo.broadcast_in_dim %cst_13, dims = [] : (tensor<f32>) -> tensor<2x8xf32>
    %68 = stablehlo.add %67, %66 : tensor<2x8xf32>
    %cst_14 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %69 = stablehlo.broadcast_in_dim %cst_14, dims = [] : (tensor<f32>) -> tensor<2x8xf32>
    %70 = stablehlo.multiply %69, %68 : tensor<2x8xf32>
    %71 = stablehlo.multiply %58, %70 : tensor<2x8xf32>
    %cst_15 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %72 = stablehlo.reduce(%71 init: %cst_15) applies stablehlo.maximum across dimensions = [1] : (tensor<2x8xf32>, tensor<f32>) -> tensor<2xf32>
    %cst_16 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %73 = stablehlo.broadcast_in_dim %cst_16, dims = [] : (tensor<f32>) -> tensor<2xf32>
    %74 = stablehlo.maximum %73, %72 : tensor<2xf32>
    %75 = stablehlo.broadcast_in_dim %74, dims = [0] : (tensor<2xf32>) -> tensor<2x1xf32>
    %76 = stablehlo.broadcast_in_dim %75, dims = [0, 1] : (tensor<2x1xf32>) -> tensor<2x8xf32>
    %77 = stablehlo.subtract %71, %76 : tensor<2x8xf32>
    %78 = stablehlo.exponential %77 : tensor<2x8xf32>
    %cst_17 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %79 = stablehlo.reduce(%78 init: %cst_17) applies stablehlo.add across dimensions = [1] : (tensor<2x8xf32>, tensor<f32>) -> tensor<2xf32>
    %80 = stablehlo.broadcast_in_dim %79, dims = [0] : (tensor<2xf32>) -> tensor<2x1xf32>
    %81 = stablehlo.broadcast_in_dim %80, dims = [0, 1] : (tensor<2x1xf32>) -> tensor<2x8xf32>
    %82 = stablehlo.divide %78, %81 : tensor<2x8xf32>
    return %82 : tensor<2x8xf32>
  }
  func.func private @relu(%arg0: tensor<2x16x16x16xf32>) -> tensor<2x16x16x16xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x16x16x16xf32>
    %1 = stablehlo.maximum %arg0, %0 : tensor<2x16x16x16xf32>
    return %1 : tensor<2x16x16x16xf32>
  }
}
