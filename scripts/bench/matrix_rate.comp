#version 460
// The rate of matrix units: 8 independent sums of 16x16x16 float16 products a subgroup, whose operands stay in registers.
//
// matrix_rate.ts holds the module that `glslc --target-env=vulkan1.3 -O` makes of this.

#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types : require

layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Halves {
    float16_t v[];
};
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Floats {
    float v[];
};
layout(push_constant) uniform Push {
    Halves x;
    Floats sums;
    uint threads, rounds, one;
}
pc;

void main() {
    coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> a[4];
    coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> b[2];
    coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> sums[8];
    [[unroll]] for (uint i = 0; i < 4; i++) coopMatLoad(a[i], pc.x.v, i * 256, 16, gl_CooperativeMatrixLayoutRowMajor);
    [[unroll]] for (uint i = 0; i < 2; i++) coopMatLoad(b[i], pc.x.v, i * 256 + 1024, 16, gl_CooperativeMatrixLayoutRowMajor);
    [[unroll]] for (uint i = 0; i < 8; i++) sums[i] = coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(0.0);
    for (uint k = 0; k < pc.rounds; k++)
        [[unroll]] for (uint i = 0; i < 8; i++) sums[i] = coopMatMulAdd(a[i / 2], b[i % 2], sums[i]);
    [[unroll]] for (uint i = 1; i < 8; i++) sums[0] += sums[i];
    uint at = (gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID) * 256;
    coopMatStore(sums[0], pc.sums.v, at, 16, gl_CooperativeMatrixLayoutRowMajor);
}
