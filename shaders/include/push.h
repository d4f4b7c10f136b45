// Parameter blocks of every kernel: the one definition that GLSL, C and TypeScript share.
//
// GLSL and C include this file; `zig build gen` reads it to write src/backend/kernels.ts. To keep those three readings
// equal, a block holds 4-byte scalars and one-dimensional arrays of them, nothing else. On Vulkan the push constants
// are the kernel's buffer addresses (8 bytes each, in the order of kernels.zon) followed by this block. Both together
// stay within the 128 bytes that every device grants. A block describes the whole problem: no kernel takes a size from
// its grid.
//
// Strides count elements and may be negative or 0 (broadcast). Unused trailing dimensions have size 1 and stride 0.
// Shapes run from the slowest to the fastest dimension.

#ifndef VKMX_PUSH_H
#define VKMX_PUSH_H
#ifndef GL_core_profile
#include <stdint.h>
typedef uint32_t uint;
#endif

// out[i] = last step of the chain; inputs are read through strides, the output is contiguous.
struct ElementwisePush {
    uint count;
    uint shape[4];
    int a_strides[4];
    int b_strides[4];
    int c_strides[4];
    uint imm0; // bits of an immediate operand
    uint imm1;
};

// The same of 8-byte dtypes, one row at a time.
struct ElementwiseWidePush {
    uint count;
    uint shape[4];
    int a_strides[4];
    int b_strides[4];
    int c_strides[4];
};

// Strided copy. start (optional, int32) shifts the output (DYNAMIC 1) or the input (DYNAMIC 2) by sum(start[i] *
// start_strides[i]). Each start[i] is clamped to 0..start_limits[i], so that nothing outside the buffer is touched.
// Each of start_rows equal parts of the elements, as they are counted, has starts of its own.
struct CopyPush {
    uint count;
    uint shape[5];
    int in_strides[5];
    int out_strides[5];
    int start_strides[3];
    uint start_limits[3];
    uint starts;
    uint start_rows;
};

// out[i] = start + i * step, in the domain of the output dtype; step 0 fills.
struct ArangePush {
    uint count;
    uint start; // bits: float, int or uint by dtype
    uint step;
    uint start_high; // the other halves, of wide dtypes
    uint step_high;
};

// out[row] = reduction over cols = inner_shape[0] * inner_shape[1] elements.
struct ReducePush {
    uint rows;
    uint cols;
    uint outer_shape[3];
    int outer_strides[3];
    uint inner_shape[2];
    int inner_strides[2];
    uint part; // elements after a pair, of PAIRS_READ
};

// out[part, batch, column] = reduction over the part's share of the rows of a batch; columns are neighbours. LANES
// adjacent threads have four columns each: parts * batches * ceil(columns / (4 * LANES)) workgroups.
struct ReduceColumnsPush {
    uint batches;
    uint rows;
    uint columns;
    uint parts;
    int batch_stride;
    int row_stride;
};

// Factorizations of `batch` matrices (rows, cols), in float64; flag and upper as each kernel says.
struct FactorPush {
    uint rows;
    uint cols;
    uint batch;
    uint flag;
    uint upper;
    uint work;    // doubles of workspace a matrix
    uint results; // elements that a matrix gives
};

// Row-wise kernels over contiguous (rows, cols): softmax, radix_sort.
struct RowsPush {
    uint rows;
    uint cols;
};

// Scan of contiguous (rows, cols). With TILED, on Vulkan only: `tiles`, workgroups of a row, each with 4 * SCAN_QUADS * THREADS elements.
struct ScanPush {
    uint rows;
    uint cols;
    uint tiles;
};

// Of rms_norm, layer_norm and norm_vjp.
struct RmsNormPush {
    uint rows;
    uint cols;
    float eps;
};

// The gradient of the weight of a norm, in parts of ceil(rows / parts) rows.
struct NormWeightPush {
    uint rows;
    uint cols;
    uint parts;
    float eps;
};

// Contiguous input (outer, axis, inner), n indices, output (outer, n, inner). Along: the indices have the shape of the output.
// Negative indices count from the end; anything still outside 0..axis-1 is clamped.
struct GatherPush {
    uint outer;
    uint axis;
    uint inner;
    uint n;
};

// Dense matrix product c[batch][m][n] = sum over k of a[batch][m][k] * b[batch][k][n]; a and b strided, c contiguous.
// Where matrices are gathered batch_shape holds the batch, the matrices of a and those of b; batch strides lie in the first place.
struct MatmulPush {
    uint batch;
    uint m;
    uint n;
    uint k;
    uint batch_shape[3];
    int a_batch_strides[3];
    int b_batch_strides[3];
    int a_strides[2]; // of m, of k
    int b_strides[2]; // of k, of n
};

// Convolution, channels last, all contiguous: in (images, in[0..2], groups * channels), weight (groups * filters,
// kernel[0..2], channels), out (images, out[0..2], groups * filters). With FLIP 1 weights are back to front along the
// kernel's axes. Along an axis tap t of position o reads o * stride - padding + t * kernel_dilation, an element where
// that is a multiple of input_dilation.
struct ConvPush {
    uint images;
    uint in_shape[3];
    uint out_shape[3];
    uint kernel[3];
    uint stride[3];
    int padding[3];
    uint kernel_dilation[3];
    uint input_dilation[3];
    uint groups;
    uint channels; // of a group, of the input
    uint filters;  // of a group
};

// Quantized product; x (batch, m, k) and out (batch, m, n) contiguous. w has w_batch matrices (1 or batch), each (n, k) packed
// along k when TRANSPOSE is 1, (k, n) packed along n when 0. Also the shape block of quantize and dequantize (batch, m, n = 1).
struct QuantizedMatmulPush {
    uint batch;
    uint m;
    uint n;
    uint k;
    uint w_batch;
    uint x_batch; // of products of matrices that indices choose
};

// rows x cols elements in groups along cols.
struct QuantizePush {
    uint rows;
    uint cols;
};

// The same, of a table of `table` rows if there are indices.
struct DequantizePush {
    uint rows;
    uint cols;
    uint table;
};

// x (batch, heads, seq, dims) read through strides with a last stride of 1; out contiguous. Rotates the first rope_dims features.
// Position of row t = (t + offset) * scale, offset from the push block or a buffer (OFFSET_MODE). log2_base >= 0.
// batch * heads * seq * (dims - rope_dims / 2) threads.
struct RopePush {
    uint batch;
    uint heads;
    uint seq;
    uint dims;
    uint rope_dims;
    int x_strides[3];
    int offset;
    float scale;
    float log2_base;
};

// Scaled dot-product attention with grouped heads; q, k, v read through strides (batch, head, position; last stride 1),
// out contiguous (batch, heads, q_len, V_DIM). kv_len counts rows of k and v; `lengths`, when bound, replaces it by a smaller one.
struct AttentionPush {
    uint batch;
    uint heads;
    uint q_len;
    uint kv_len;
    float scale;
    int q_strides[3];
    int k_strides[3];
    int v_strides[3];
    int mask_strides[4];
};

// Positions of sequences into a pool of pages, or out of one; see append_pages.comp. Sizes and strides count units of the elements that
// move at once. Of codes the units are words, and the strides are those of elements outside of the pool.
struct AppendPagesPush {
    uint batch;
    uint heads;
    uint count; // positions of each sequence
    uint units; // of a head
    uint block; // units that are together
    uint pages;
    uint columns; // of the table
    int strides[3];
};

// Experts of each row of scores (rows, EXPERTS), of which `closed` of the groups give none. At most MAX_EXPERTS in
// MAX_EXPERT_GROUPS groups, of at least two where some are closed.
struct ExpertChoicePush {
    uint rows;
    uint chosen;
    uint groups;
    uint closed;
    uint normalized;
    float sum_eps;
    float factor;
};

// Tokens of sequences through the gated delta rule: strides are those of sequences and tokens, whose heads are contiguous.
struct GatedDeltaPush {
    uint batch;
    uint tokens;
    uint slots; // of states, where those of sequences are among others
    float eps;
    int qk_strides[2];
    int v_strides[2];
};

// Tokens of sequences through a convolution that sees `window` of them.
struct CausalConvPush {
    uint batch;
    uint tokens;
    uint features;
    uint window;
    uint slots; // of last inputs, where those of sequences are among others
};

// Rows that are sorted by expert, in at most so many tiles.
struct ExpertTilesPush {
    uint rows;
    uint experts;
    uint tiles;
};

// Products of such rows with the matrices (n, k) of experts.
struct ExpertRowsPush {
    uint n;
    uint k;
    uint x_rows; // of x, of which an index names one for each row
};

// The choices of rows, by expert: a workgroup for each.
struct ExpertOrderPush {
    uint rows;
};

// Products of choices in that order with the matrices (n, K) of experts. Choice i reads row i / divisor of x.
struct SortedExpertsPush {
    uint n;
    uint x_rows;
    uint divisor;
};

// Weighted sums of the choices of each row.
struct ExpertMixPush {
    uint rows;
    uint chosen;
    uint cols;
};

// Products of the matrices (n, k) of experts, of which each row has `chosen`.
struct ExpertsPush {
    uint rows;
    uint chosen;
    uint experts;
    uint m; // rows of a product: 1
    uint n;
    uint k;
};

// Gradients of attention; q, its result and the cotangent contiguous, k and v as above.
struct AttentionVjpPush {
    uint batch;
    uint heads;
    uint kv_heads;
    uint q_len;
    uint kv_len;
    float scale;
    int k_strides[3];
    int v_strides[3];
    int mask_strides[4];
};

// Threefry 2x32 bits: keys (keys, 2), out (keys, words_per_key); keys * ceil(words_per_key / 2) threads.
struct RandomBitsPush {
    uint keys;
    uint words_per_key;
};

// Roots of unity e^(-2 pi i e / order) as the product of two entries: coarse[e >> shift] and fine[e & (2^shift - 1)].
// The fine table follows the coarse one.
struct FftTablePush {
    uint order;
    uint shift;
};

// One pass of a Stockham transform of `size` elements a row. Passes before it did the factor `done`; its own factor is
// the product of FACTORS. order is a multiple of size.
struct FftPassPush {
    uint rows;
    uint size;
    uint done;
    uint order;
    uint shift;
    float scale;
};

// out (rows, out_cols) of in (rows, in_cols), before or after a transform of n elements.
struct FftMapPush {
    uint rows;
    uint in_cols;
    uint out_cols;
    uint n;
    uint order;
    uint shift;
    float scale;
};

// Bitonic sort of (key, index) pairs over rows padded to a power of two; pass_k and pass_j are its two loop variables. With
// span = min(2 * THREADS, padded), THREADS a power of two, sort_pass runs
//   pass_j >= span   the one pass (pass_k, pass_j)
//   pass_j < span    all passes of pass_k from j = min(pass_k, span) / 2 down to 1; pass_k == span does all smaller k first
// so that a sort is sort_init, then (none if padded is 1)
//   (span, span / 2); for k = 2 * span, 4 * span … padded: (k, j) for j = k / 2, k / 4 … span, then (k, span / 2)
// each over rows * padded / span workgroups, then sort_finish.
struct SortPush {
    uint rows;
    uint cols;
    uint padded;
    uint pass_k;
    uint pass_j;
};

// One digit, from bit `shift` on, of a radix sort of rows, in tiles of RADIX_ITEMS * THREADS elements: rows * tiles workgroups.
struct RadixPush {
    uint rows;
    uint cols;
    uint tiles;
    uint shift;
};

// Token choice from logits (rows, cols), cols <= 524,288; see sample.glsl. `settings_stride` is from the settings of a
// row to those of the next one. Only GPUs use the others: `bests` is how many entries `best` has a row, `top` how many
// of the most probable tokens logprobs gives. `log_size` and `recent_size` are the sizes of two rings a row.
struct SamplePush {
    uint rows;
    uint cols;
    uint settings_stride;
    uint bests;
    uint top;
    uint log_size;
    uint recent_size;
};

// Asks how the driver lays out cooperative matrices; `capacity` words may be written.
struct CoopmatMapPush {
    uint capacity;
};

// Quantized w (n, k) to fragment order. Block i < blocks of 16 columns becomes block first + i * step, so several
// matrices are contiguous or interleaved. Blocks past n are padding.
struct CoopmatRepackPush {
    uint n;
    uint k;
    uint blocks;
    uint first;
    uint step;
};

// Rows of x and out; the sizes of w are specialisation constants. scale: of the result if that is silu(gate) * up.
struct CoopmatMatmulPush {
    uint m;
    float scale;
};

// Rows of x, batch * seq of them; rows that a cache of keys and values has room for, or pages of a pool.
struct CoopmatQkvPush {
    uint m;
    uint seq;
    uint capacity;
    float eps;
    uint pages;
};

// Eights of codes.
struct WidenCodesPush {
    uint count;
};

// Elements of the result, whose number of parts is a specialisation constant, and of each of its rows.
struct SumSplitsPush {
    uint count;
    uint columns;
};

// Attention of many queries; strides of q, k, v and out are those of batch, head and position. Features of q and out
// are contiguous, those of keys and values in blocks with a stride from block to block.
struct CoopmatAttentionPush {
    uint q_len;
    uint kv_len;
    float scale;
    int q_strides[3];
    int k_strides[3];
    int v_strides[3];
    int out_strides[3];
    int k_block_stride;
    int v_block_stride;
    uint pages; // of a pool
};

// One query of each sequence over pages; see include/kv_address.glsl for capacity.
struct PagedAttentionPush {
    uint capacity;
    uint pages;
    uint part; // positions of a part, a multiple of those of a page
    float scale;
    int q_strides[2]; // elements of sequences and heads
};

// Rows of the result; how many parts each has and their width are specialisation constants.
struct AttentionMergePush {
    uint rows;
};

// Rows of a residual, their addend and their norm; the width is a specialisation constant.
struct AddNormPush {
    uint rows;
    uint splits; // parts that are added
    float scale; // of the parts that are added
    float eps;
    uint beside; // other parts
    float beside_scale;
};

// Turns of rotary embedding; see RopePush.
struct RopeTablePush {
    uint rows;
    uint seq;
    uint pairs; // of a head
    uint rope_dims;
    int offset;
    float scale;
    float factor;
    float log2_base;
};

// The start of a token; for the layers' ropes, the factors of positions and the logarithms of bases.
struct DecodeBeginPush {
    uint capacity; // positions that the cache has room for
    uint vocabulary;
    uint layer;
    float rope_scales[2];
    float log2_bases[2];
};

// One dispatch of a token's way through a decoder; see decode.glsl. `layer` is its number or parity.
struct DecodePush {
    uint capacity;
    uint vocabulary;
    uint layer;
    float eps;      // of the norms over HIDDEN
    float head_eps; // of the norms of q and k
    float score_scale;
    uint ropes[2]; // bit n: which rope layer + n has
};

// The same for dispatches that read or write a cache.
struct DecodeCachePush {
    uint capacity;
    uint vocabulary;
    uint layer;
    float eps;
    float head_eps;
    float score_scale;
    uint ropes[2];
    uint pages; // of a pool
};

// The same for what a recurrent layer has in the place of attention.
struct DecodeRecurrentPush {
    uint capacity;
    uint layer;
    float eps;
    float net_eps; // of the norm of outputs
};

// The token at the end of a decoder, drawn as SamplePush says.
struct DecodeDrawPush {
    uint capacity;
    uint vocabulary;
    uint layer;
    uint settings_stride;
    uint bests;
};

// Many layers of a token at once: the fields of DecodeCachePush, and which phases of how many layers from `layer` on.
struct DecodeLayersPush {
    uint capacity;
    uint vocabulary;
    uint layer;
    float eps;
    float head_eps;
    float score_scale;
    uint ropes[2];
    uint pages;
    uint layers;
    uint phases;     // a bit for each
    uint spin_limit; // polls of an accumulator that is not complete before the dispatch is given up
};

// The same where some layers are recurrent.
struct DecodeHybridPush {
    uint capacity;
    uint vocabulary;
    uint layer;
    float eps;
    float head_eps;
    float score_scale;
    uint ropes[2];
    uint pages;
    uint layers;
    uint phases;
    uint spin_limit;
    uint nets[2];  // bit n: whether layer n is recurrent
    float net_eps; // of the norm of outputs of recurrent layers
};

// A matrix (rows, columns) in the packed layout of runtime-c/wasm/quantized/packed.h, and `count` rows that it is asked for or multiplied with.
struct PackedPush {
    uint rows;
    uint columns;
    uint count;
};

#endif
