/**
 * A shared library for this Linux machine that needs another one. It is written by hand, so that tests of drivers which
 * cannot be loaded need no compiler.
 *
 * @module
 */

/** e_machine of ELF. */
const MACHINES: Readonly<Record<string, number>> = { x86_64: 62, aarch64: 183 };

/** An ELF file without code whose dynamic section asks for `needed`. */
export function libraryThatNeeds(needed: string): Uint8Array<ArrayBuffer> {
  const strings = new TextEncoder().encode(`\0${needed}\0`);
  const dynamic = 64 + 2 * 56, symbols = dynamic + 16 * 6, names = symbols + 24, size = names + strings.length;
  const bytes = new Uint8Array(size);
  const view = new DataView(bytes.buffer);
  const put = (at: number, ...fields: readonly (readonly [number, number])[]): void => {
    for (const [width, value] of fields) {
      if (width === 8) view.setBigUint64(at, BigInt(value), true);
      else if (width === 4) view.setUint32(at, value, true);
      else view.setUint16(at, value, true);
      at += width;
    }
  };
  bytes.set([0x7f, 0x45, 0x4c, 0x46, 2, 1, 1]); // 64 bits, little-endian
  put(16, [2, 3], [2, MACHINES[Deno.build.arch]], [4, 1], [8, 0], [8, 64], [8, 0], [4, 0], [2, 64], [2, 56], [2, 2]);
  const segment = (type: number, at: number, length: number): readonly (readonly [number, number])[] => [
    [4, type],
    [4, 6], // read and write: the loader relocates the table
    [8, at],
    [8, at],
    [8, at],
    [8, length],
    [8, length],
    [8, type === 1 ? 65536 : 8],
  ];
  put(64, ...segment(1, 0, size), ...segment(2, dynamic, 16 * 6));
  const DT = { needed: 1, strings: 5, symbols: 6, stringsSize: 10, symbolSize: 11 };
  const entries = [
    [DT.needed, 1],
    [DT.strings, names],
    [DT.symbols, symbols],
    [DT.stringsSize, strings.length],
    [DT.symbolSize, 24],
    [0, 0],
  ];
  put(dynamic, ...entries.flat().map((value) => [8, value] as const));
  bytes.set(strings, names);
  return bytes;
}
