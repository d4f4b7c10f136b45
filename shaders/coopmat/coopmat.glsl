// Cooperative matrices as the coopmat shaders use them: 16x16x16 in a subgroup of 32, float16 factors, float32 sums. Include first.
//
// Which elements a lane holds is the driver's choice. Shaders that rely on it were compiled for the layout that
// src/schedule/ops/matmul/coopmat.ts checks: a lane holds 8 elements. Of B, elements 0-3 lie in one column and 4-7 in
// another, which four neighbours share. Of a sum the same holds for rows, and A is ordered like a sum.

#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#pragma use_vulkan_memory_model

#define MATRIX_A coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA>
#define MATRIX_B coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB>
#define MATRIX_SUM coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>
#define MATRIX_SUM_F16 coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>
#define NO_SUM MATRIX_SUM(0.0)
#define ROW_MAJOR gl_CooperativeMatrixLayoutRowMajor
#define COLUMN_MAJOR gl_CooperativeMatrixLayoutColumnMajor
