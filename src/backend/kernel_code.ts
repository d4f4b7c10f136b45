/**
 * The machine code of a kernel, as its driver tells it.
 *
 * Drivers name their statistics as they like; {@link NAMES} says which of them mean what.
 *
 * @module
 */

/** The compiled form of a kernel; a figure that the driver does not report is undefined. */
export interface KernelCode {
  /** Bytes of machine code. */
  readonly bytes: number | undefined;
  /** Registers of a thread. */
  readonly registers: number | undefined;
  /** Bytes of a thread's registers that lie in memory because there are not enough. */
  readonly spilledBytes: number | undefined;
}

/** Names of statistics in lower case: of NVIDIA, then of Mesa's drivers for AMD, Qualcomm and Intel. */
const NAMES: Readonly<Record<keyof KernelCode, readonly string[]>> = {
  bytes: ["binary size", "code size"],
  registers: ["register count", "vgprs", "registers used"],
  spilledBytes: ["local memory size", "scratch size", "scratch memory size"],
};

/** NVIDIA adds 2^36 to the bytes of local memory. */
const FLAGS_ABOVE = 2 ** 32;

/**
 * The code of a pipeline by statistics as lines of "name<TAB>value". Where it has several executables, as for different sizes of subgroups,
 * the largest figure counts.
 */
export function readKernelCode(lines: string): KernelCode {
  const values = lines.split("\n").filter((line) => line !== "").map((line) => {
    const [name, value] = line.split("\t");
    return [name.toLowerCase(), Number(value) % FLAGS_ABOVE] as const;
  });
  const largest = (names: readonly string[]): number | undefined => {
    const found = values.filter(([name]) => names.includes(name)).map(([, value]) => value);
    return found.length > 0 ? Math.max(...found) : undefined;
  };
  return {
    bytes: largest(NAMES.bytes),
    registers: largest(NAMES.registers),
    spilledBytes: largest(NAMES.spilledBytes),
  };
}
