/**
 * MLX's own Python tests that do not pass when every call goes to vkmx, each with the reason: a part of docs/parity.md.
 *
 * `deno task test:mlx` runs them (tests/reference/mlx_bridge). MLX is that of version 0.32.
 *
 * @module
 */

/** Tests that run, those that need no Metal, CUDA or PyTorch, and how many of them pass, by device. */
export const TESTS_RUN = {
  wasm: { run: 777, passed: 762 },
  /** Of the files that were run to their end: all but {@link NOT_RUN_ON_VULKAN}. */
  vulkan: { run: 743, passed: 706 },
} as const;

/** Reasons, and the tests that each is of. */
export type Left = readonly (readonly [reason: string, tests: readonly string[]])[];

/** Tests that are skipped on every device. */
export const TESTS_LEFT: Left = [
  ["they look at memory that MLX shares with Python, its strides or its address; here Python gets a copy", [
    ...["test_buffer_protocol", "test_memoryless_copy", "test_from_dlpack_cpu_strided"],
    ...["test_compile_donates_input_buffer"],
  ]],
  ["an array of more than 2^31 - 1 elements; MLX makes one, and refuses an axis of so many", [
    ...["test_large_binary", "test_array_np_shape_dim_check"],
  ]],
  ["kernels in Metal", [
    ...["test_export_custom_metal_kernel_with_math_mode", "test_export_custom_metal_kernel_without_evaluation"],
  ]],
  ["the very words of an error; it is thrown, and says what is wrong", ["test_construction_from_lists_of_mlx_arrays"]],
  ["the inverse of a singular matrix is NaN and no error", ["test_async_eval_error_in_synchronize"]],
  ["the name of a kernel of MLX in a drawing of a graph", ["test_shared_broadcast"]],
  ["`vmap` over the sequence of `searchsorted` and over the values of `pad` works here and is refused there", [
    ...["test_searchsorted", "test_vmap_pad"],
  ]],
  [
    "a shapeless function whose broadcasts change is traced once more: a gradient in it sums the axes that were repeated",
    ["test_broadcast_axes_vmap"],
  ],
  ["streams belong to a thread there; here a worker has a module of its own", ["test_threadlocal_stream"]],
];

/** Files of tests that take longer on a software GPU than they were given. */
export const NOT_RUN_ON_VULKAN = ["test_fast_sdpa", "test_quantized"] as const;

/** Tests that are skipped on Vulkan besides. */
export const TESTS_LEFT_ON_VULKAN: Left = [
  ["float64 on a GPU is an error when it is evaluated, and in MLX when it is called", [
    ...["test_binary_ops", "test_gemm", "test_get_and_set_item", "test_reductions", "test_unary_ops", "test_where"],
  ]],
  ["kernels in Metal or CUDA, which MLX has on a GPU", [
    ...["test_custom_kernel_args", "test_custom_kernel_attributes", "test_custom_kernel_basic"],
    ...["test_custom_kernel_helper", "test_custom_kernel_strides", "test_export_import_custom_kernel"],
  ]],
  ["more than 100 s on a software GPU that shared two cores", [
    ...["test_deep_graphs", "test_fft_big_powers_of_two", "test_fft_shared_mem", "test_axis_permutation_sums"],
    ...["test_gather_mm_blocks", "test_matmul_shapes", "test_segmented_mm"],
    ...["test_hadamard_grad_vmap", "test_scalar_inputs", "test_scans"],
  ]],
];
