// Element types as kernels see them (specialisation constants DTYPE_*). TypeScript's rows are generated from this list.
//
// Registers of a kernel are 32 bits wide; DTYPE_IS_FLOAT types compute in float, signed types in int, the others in uint. Wide types,
// of 8 bytes, have kernels of their own; others only move them.

#ifndef VKMX_DTYPE_H
#define VKMX_DTYPE_H

#define DTYPE_BOOL 0
#define DTYPE_U8 1
#define DTYPE_U16 2
#define DTYPE_U32 3
#define DTYPE_I8 4
#define DTYPE_I16 5
#define DTYPE_I32 6
#define DTYPE_F16 7
#define DTYPE_BF16 8
#define DTYPE_F32 9
#define DTYPE_I64 10
#define DTYPE_U64 11
#define DTYPE_F64 12
#define DTYPE_C64 13 // two floats: real and imaginary part

// DOMAIN of kernels of wide types.
#define DOMAIN_I64 0
#define DOMAIN_U64 1
#define DOMAIN_C64 2
#define DOMAIN_F64 3

#define DTYPE_IS_WIDE(d) ((d) >= DTYPE_I64)
#define DTYPE_IS_FLOAT(d) ((d) >= DTYPE_F16 && (d) <= DTYPE_F32)
#define DTYPE_IS_SIGNED(d) ((d) >= DTYPE_I8 && (d) <= DTYPE_I32)
#define DTYPE_BYTES(d) \
    (DTYPE_IS_WIDE(d) ? 8u : (d) == DTYPE_F32 || (d) == DTYPE_I32 || (d) == DTYPE_U32 ? 4u : (d) <= DTYPE_U8 || (d) == DTYPE_I8 ? 1u : 2u)

// Reduction and scan operators (OP of reduce, scan, scatter).
#define OP_SUM 0
#define OP_PROD 1
#define OP_MIN 2
#define OP_MAX 3
#define OP_ALL 4
#define OP_ANY 5
#define OP_ARGMIN 6
#define OP_ARGMAX 7
#define OP_LOGSUMEXP 8
#define OP_ASSIGN 9

// Quads of neighbours that a thread of scan has in its tile.
#define SCAN_QUADS 8

// Columns of a thread of norm_weight_vjp.
#define NORM_WEIGHT_COLUMNS 16

// Elements of a thread in a tile of radix_count and radix_scatter.
#define RADIX_ITEMS 16

// PAIRS of reduce: what the halves of a long argmin or argmax exchange.
#define PAIRS_NONE 0
#define PAIRS_WRITTEN 1
#define PAIRS_READ 2

// MASK_MODE of attention.
#define MASK_NONE 0
#define MASK_CAUSAL 1 // lower right: query i sees keys j <= i + length - q_len
#define MASK_BOOL 2   // true keeps
#define MASK_ADD 3

// OFFSET_MODE of rope.
#define OFFSET_PUSH 0
#define OFFSET_SCALAR 1 // one int32 in a buffer
#define OFFSET_BATCH 2  // one int32 a batch row

// SLOTS of recurrent kernels: where the states of sequences are.
#define SLOTS_NONE 0     // one for each sequence; the last ones follow the outputs
#define SLOTS_READ 1     // among others, in slots; the last ones follow the outputs
#define SLOTS_REPLACED 2 // in slots, where the last ones take their place

// HAS_COUNTED of causal_conv: whether numbers say how many tokens count.
#define COUNTED_ALL 0
#define COUNTED_ONCE 1 // one number for all sequences
#define COUNTED_EACH 2

// MODE of quantized matrices: codes of whole numbers with scales of floats, or of small floats with scales of one byte.
#define MODE_AFFINE 0    // scale * code + bias
#define MODE_MXFP4 1     // e2m1 codes, e8m0 scales
#define MODE_MXFP8 2     // e4m3 codes, e8m0 scales
#define MODE_NVFP4 3     // e2m1 codes, e4m3 scales
#define MODE_SYMMETRIC 4 // scale * (code - 2^(bits - 1))
#define MODE_HAS_SMALL_FLOATS(mode) ((mode) != MODE_AFFINE && (mode) != MODE_SYMMETRIC)
#define MODE_DENSE 5 // no codes: numbers, of experts only

// AMONG of expert_choice: the weights of experts.
#define EXPERTS_ALL 0    // a softmax of all scores
#define EXPERTS_CHOSEN 1 // one of the chosen ones
#define EXPERTS_SIGMOID 2

// Most scores of a row of expert_choice, and most groups of them.
#define MAX_EXPERTS 1024
#define MAX_EXPERT_GROUPS 64

// UNIT of expert_units.
#define EXPERT_UNIT_SILU 0
#define EXPERT_UNIT_GELU_TANH 1
#define EXPERT_UNIT_CLIPPED 2

// MODE of fft_map: the steps before and after the passes of a transform.
#define FFT_WIDEN 0     // real to complex
#define FFT_HERMITIAN 1 // half of a spectrum to the whole
#define FFT_HEAD 2      // the first columns
#define FFT_REAL_PART 3 // complex to real
#define FFT_SPLIT 4     // spectrum of pairs (x[2k], x[2k+1]) as complex numbers to that of x
#define FFT_MERGE 5     // the inverse of FFT_SPLIT
#define FFT_CHIRP_IN 6  // Bluestein: times the chirp, padded
#define FFT_FILTER 7    // Bluestein: the chirp's conjugate, wrapped
#define FFT_PRODUCT 8   // Bluestein: times the filter's spectrum
#define FFT_CHIRP_OUT 9 // Bluestein: times the chirp, cut

#endif
