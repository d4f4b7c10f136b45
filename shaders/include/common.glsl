// The base of every compute shader: buffer references, typed loads and stores, workgroup reductions, flat indices.
//
// A shader defines BUFFERS (how many addresses its row of kernels.zon lists) and PUSH (its struct of push.h). It
// includes this file, and reads `pc.address[i]` and `pc.p`. Buffers are reached by address (no descriptors). Spec
// constant 0 is the workgroup size. Nothing here assumes a subgroup size.

#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require

#include "dtype.h"
#include "push.h"

layout(local_size_x_id = 0) in;
#ifdef PREFETCH_THREADS_ID
layout(constant_id = 0) const uint ALL_THREADS = 64;
layout(constant_id = PREFETCH_THREADS_ID) const uint PREFETCH_THREADS = 32; // of them, which do something else
const uint THREADS = ALL_THREADS - PREFETCH_THREADS;
#else
layout(constant_id = 0) const uint THREADS = 64;
#endif

layout(push_constant, std430) uniform Push {
    uint64_t address[BUFFERS];
    PUSH p;
}
pc;

layout(buffer_reference, std430, buffer_reference_align = 1) buffer U8s { uint8_t v[]; };
layout(buffer_reference, std430, buffer_reference_align = 2) buffer U16s { uint16_t v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer U32s { uint v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer I32s { int v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer F32s { float v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer U32x2s { uvec2 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer U32x4s { uvec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer F32x4s { vec4 v[]; };

// ---- dtypes -------------------------------------------------------------------------------------------------------

float bf16_value(uint bits) { return uintBitsToFloat(bits << 16); }

uint bf16_bits(float x) { // nearest even; NaN stays NaN
    uint u = floatBitsToUint(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fc0u;
    return (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
}

float f16_value(uint bits) { return unpackHalf2x16(bits).x; }

// packHalf2x16 may round either way; this rounds to nearest even on every device.
uint f16_bits(float x) {
    uint u = floatBitsToUint(x);
    uint sign = (u >> 16) & 0x8000u;
    u &= 0x7fffffffu;
    if (u > 0x7f800000u) return sign | 0x7e00u;
    if (u >= 0x477ff000u) return sign | 0x7c00u; // rounds to infinity
    if (u < 0x38800000u) {                       // subnormal: let a float addition round
        uint magic = floatBitsToUint(uintBitsToFloat(u) + 0.5);
        return sign | (magic - 0x3f000000u);
    }
    return sign | ((u + 0x0fffu + ((u >> 13) & 1u) - 0x38000000u) >> 13);
}

// Element i as the 32 bits of a register: float bits for float types, sign-extended or zero-extended integers otherwise.
uint load_bits(uint64_t address, uint i, uint dtype) {
    switch (dtype) {
        case DTYPE_F32:
        case DTYPE_U32:
        case DTYPE_I32: return U32s(address).v[i];
        case DTYPE_F16: return floatBitsToUint(f16_value(uint(U16s(address).v[i])));
        case DTYPE_BF16: return uint(U16s(address).v[i]) << 16;
        case DTYPE_U16: return uint(U16s(address).v[i]);
        case DTYPE_I16: return uint(int(int16_t(U16s(address).v[i])));
        case DTYPE_I8: return uint(int(int8_t(U8s(address).v[i])));
        default: return uint(U8s(address).v[i]); // bool, u8
    }
}

// Stores a register; floats round to nearest even, integers keep their low bits.
void store_bits(uint64_t address, uint i, uint dtype, uint bits) {
    switch (dtype) {
        case DTYPE_F32:
        case DTYPE_U32:
        case DTYPE_I32: U32s(address).v[i] = bits; break;
        case DTYPE_F16: U16s(address).v[i] = uint16_t(f16_bits(uintBitsToFloat(bits))); break;
        case DTYPE_BF16: U16s(address).v[i] = uint16_t(bf16_bits(uintBitsToFloat(bits))); break;
        case DTYPE_U16:
        case DTYPE_I16: U16s(address).v[i] = uint16_t(bits); break;
        default: U8s(address).v[i] = uint8_t(bits); break;
    }
}

// The same for float types.
float load_float(uint64_t address, uint i, uint dtype) {
    if (dtype == DTYPE_F32) return F32s(address).v[i];
    if (dtype == DTYPE_F16) return f16_value(uint(U16s(address).v[i]));
    return bf16_value(uint(U16s(address).v[i]));
}

void store_float(uint64_t address, uint i, uint dtype, float x) { store_bits(address, i, dtype, floatBitsToUint(x)); }

// Address of element i, which is negative in views that run backwards. (Indexing v[] with a negative i is not portable.)
uint64_t element_address(uint64_t address, int i, uint bytes) { return address + uint64_t(int64_t(i) * int64_t(bytes)); }

// ---- work mapping -------------------------------------------------------------------------------------------------

// A grid may be folded into (x, y) when it passes the device's limit along x; these undo it.
uint flat_workgroup() { return gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
uint flat_thread() { return flat_workgroup() * THREADS + gl_LocalInvocationID.x; }

// x within float16's range; NaN if x is NaN or infinite, which clamp() may turn into numbers. x * 0 is NaN for these,
// and 0 for all others. The 0 is one that compilers do not know, since they may assume that neither occurs. One
// instruction more than clamp() takes, and none of those that compare.
float within_half(float x) {
    float zero = uintBitsToFloat(uint(pc.address[0] >> 63));
    return fma(x, zero, clamp(x, -65504.0, 65504.0));
}
vec2 within_half(vec2 x) { return vec2(within_half(x.x), within_half(x.y)); }
vec4 within_half(vec4 x) { return vec4(within_half(x.xy), within_half(x.zw)); }

// ---- workgroup reductions (all threads must call them; the result is everyone's) ---------------------------------------

shared float reduce_scratch[128]; // one entry a subgroup: 1024 threads in subgroups of 8

float workgroup_sum(float x) {
    x = subgroupAdd(x);
    if (gl_NumSubgroups == 1) return x;
    barrier();
    if (subgroupElect()) reduce_scratch[gl_SubgroupID] = x;
    barrier();
    float total = 0.0;
    for (uint i = 0; i < gl_NumSubgroups; i++) total += reduce_scratch[i];
    return total;
}

float workgroup_max(float x) {
    x = subgroupMax(x);
    if (gl_NumSubgroups == 1) return x;
    barrier();
    if (subgroupElect()) reduce_scratch[gl_SubgroupID] = x;
    barrier();
    float most = reduce_scratch[0];
    for (uint i = 1; i < gl_NumSubgroups; i++) most = max(most, reduce_scratch[i]);
    return most;
}
