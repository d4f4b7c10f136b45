/**
 * The buffers of the keys of all layers, and of the values, whose positions are written in place.
 *
 * src/graph/kv_layout.ts has the layout of a layer's buffer. For loops the buffers of many layers are one array, a
 * {@link StackedTensors}: one allocation, one binding. A caller that needs the buffers of single layers gets views of the same memory,
 * or new memory if there is none yet.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import { BUFFER_RANK, bufferShape, POSITIONS_AXIS } from "../../graph/kv_layout.ts";
import { sameShape } from "../../graph/shape.ts";
import { enqueue } from "../../array/compile/evaluate.ts";
import { positionsOf, splitSlab, uninitialised, writePositions } from "../../array/devices/kv_memory.ts";
import { onDevice } from "../../array/devices/on_device.ts";
import type { Dtype, Tensor } from "../../array/mod.ts";
import { untrack } from "../../array/tensor/tracking.ts";
import { StackedTensors } from "../../array/devices/stack.ts";

/** The heads of keys, or of values, of one layer. */
export interface LayerHeads {
  /** How many there are. */
  readonly heads: number;
  /** Features of one. */
  readonly headDim: number;
}

/** The sizes of the buffers of a model. */
export interface LayerBufferSizes {
  /** Layers that have buffers. */
  readonly layers: number;
  /** Sequences that advance together. */
  readonly batch: number;
  /** Key/value heads. */
  readonly heads: number;
  /** Size of a head. */
  readonly headDim: number;
  /** Contiguous features, a divisor of `headDim`. */
  readonly block: number;
  /** Element type of keys and values. */
  readonly dtype: Dtype;
  /** The heads of each layer, whose features are contiguous; absent where all layers have `heads` of `headDim`. */
  readonly layerHeads?: readonly LayerHeads[];
  /** Whether positions that are not written yet are zeros. Default: they are whatever the memory holds. */
  readonly zeroed?: boolean;
  /** The device of each layer, where layers are on several. */
  readonly devices?: readonly string[];
}

/** Most bytes of an array of many layers: devices limit their allocations, and an array that grows is copied as a whole. */
const MAX_BYTES = 2 ** 30;

/** The buffers of all layers, of a number of positions. They are made when somebody asks for them. */
export class LayerBuffers {
  readonly #sizes: LayerBufferSizes;
  #positions = 0;
  #batch: number;
  /** Buffers of one layer each, or of several stacked along a first axis. */
  #arrays: Tensor[] = [];

  constructor(sizes: LayerBufferSizes) {
    this.#sizes = sizes;
    this.#batch = sizes.batch;
  }

  /** Positions of every buffer. */
  get positions(): number {
    return this.#positions;
  }

  /** The buffers of all layers in as few arrays as may be, for the state of a loop. */
  get slabs(): readonly (Tensor | StackedTensors)[] {
    return this.#made().map(asStack);
  }

  /** The buffer of each layer. */
  get perLayer(): readonly Tensor[] {
    const { layers } = this.#sizes;
    if (this.#arrays.length === 0 && this.#positions > 0) {
      this.#arrays = Array.from(
        { length: layers },
        (_, layer) => this.#on(layer, () => detach(this.#new(this.#shapeOf(layer)))),
      );
    }
    if (this.#arrays.some(isStacked)) {
      this.#arrays = this.#withLayers(this.#arrays).flatMap(({ array, layer }) => {
        const parts = this.#on(layer, () => splitSlab(array).map(detach));
        array[Symbol.dispose]();
        return parts;
      });
    }
    return this.#arrays;
  }

  /** Puts another array in the place of a layer's buffer, which goes. */
  replace(layer: number, buffer: Tensor): void {
    this.perLayer[layer][Symbol.dispose]();
    this.#arrays[layer] = detach(buffer);
  }

  /** The first `count` positions (B, H, count, D) of a layer, not evaluated. Whatever lies together stays so. */
  read(layer: number, count: number): Tensor {
    const { array, at } = this.#place(layer);
    return mx.tidy(() => {
      const buffer = isStacked(array) ? array.index(at) : array;
      return positionsOf(buffer.index("...", mx.Slice(0, count), mx.Slice(null)));
    });
  }

  /** Writes the first positions (B, H, count, D) of a layer, in place, and submits that. */
  write(layer: number, positions: Tensor): void {
    const { array, index, at } = this.#place(layer);
    const next = mx.tidy(() => writePositions(array, positions, isStacked(array) ? at : undefined));
    this.#arrays[index] = detach(next);
    enqueue(next);
    array[Symbol.dispose]();
  }

  /** Which array holds a layer, and where in it. */
  #place(layer: number): { readonly array: Tensor; readonly index: number; readonly at: number } {
    let first = 0;
    for (const [index, array] of this.#made().entries()) {
      const count = isStacked(array) ? array.shape[0] : 1;
      if (layer < first + count) return { array, index, at: layer - first };
      first += count;
    }
    throw new RangeError(`there is no layer ${layer}`);
  }

  /** Gives every buffer more positions, or sequences: those of a pool of pages are its pages. */
  grow(positions: number, batch: number = this.#batch): void {
    const next = this.#withLayers(this.#pieces(positions, batch)).map(({ array: piece, layer }) =>
      this.#on(layer, () => {
        const [axis, count] = this.#growth(piece, positions, batch);
        const room = this.#new(piece.shape.with(axis, count - piece.shape[axis]));
        const whole = detach(mx.concatenate([piece, room], axis));
        mx.dispose(piece, room);
        return whole;
      })
    );
    mx.dispose(this.#arrays);
    this.#arrays = next;
    this.#positions = positions;
    this.#batch = batch;
  }

  /** Arrays of the shapes that {@link LayerBuffers.slabs} has after {@link LayerBuffers.grow}, not evaluated. */
  grown(positions: number, batch: number = this.#batch): readonly (Tensor | StackedTensors)[] {
    return mx.tidy(() =>
      this.#withLayers(this.#pieces(positions, batch)).map(({ array: piece, layer }) => {
        const [axis, count] = this.#growth(piece, positions, batch);
        const shape = piece.shape.with(axis, count);
        return this.#on(layer, () => asStack(detach(uninitialised(shape, piece.dtype))));
      })
    );
  }

  /** The axis along which an array grows, and its size then. */
  #growth(array: Tensor, positions: number, batch: number): readonly [axis: number, count: number] {
    return batch === this.#batch ? [positionsAxis(array), positions] : [stackAxes(array), batch];
  }

  /** Frees the buffers; there are no positions any more. */
  dispose(): void {
    mx.dispose(this.#arrays);
    this.#arrays = [];
    this.#positions = 0;
  }

  /** Arrays with the first layer of each. */
  #withLayers(arrays: readonly Tensor[]): { readonly array: Tensor; readonly layer: number }[] {
    let next = 0;
    return arrays.map((array) => {
      const layer = next;
      next += isStacked(array) ? array.shape[0] : 1;
      return { array, layer };
    });
  }

  /** Runs work on the device of a layer. */
  #on<T>(layer: number, work: () => T): T {
    return onDevice(this.#sizes.devices?.[layer], work);
  }

  #made(): readonly Tensor[] {
    if (this.#arrays.length === 0 && this.#positions > 0) {
      let layer = 0;
      for (const shape of this.#shapes) {
        this.#arrays.push(this.#on(layer, () => detach(this.#new(shape))));
        layer += shape[0];
      }
    }
    return this.#arrays;
  }

  /** Shape of a layer's buffer. */
  #shapeOf(layer: number): number[] {
    const own = this.#sizes.layerHeads?.[layer];
    return bufferShape({
      ...this.#sizes,
      ...own,
      ...(own && { block: own.headDim }),
      batch: this.#batch,
      positions: this.#positions,
    });
  }

  /** Memory of a shape. */
  #new(shape: readonly number[]): Tensor {
    const { dtype, zeroed } = this.#sizes;
    return zeroed ? mx.zeros([...shape], dtype) : uninitialised(shape, dtype);
  }

  /** Shapes of the arrays that hold all layers. Layers of one array follow each other and have buffers of one shape. */
  get #shapes(): number[][] {
    const shapes = Array.from({ length: this.#sizes.layers }, (_, layer) => this.#shapeOf(layer));
    return runs(shapes, this.#sizes.devices).flatMap(({ shape, count }) =>
      cuts(count, this.#layersPerSlab(shape)).map(([from, to]) => [to - from, ...shape])
    );
  }

  /** Layers that may be one array if each has a buffer of a shape. */
  #layersPerSlab(buffer: readonly number[]): number {
    const bytes = buffer.reduce((product, size) => product * size, this.#sizes.dtype.bytes);
    return Math.max(1, Math.floor(MAX_BYTES / bytes));
  }

  /** The arrays, cut into as many layers as may be one array of `positions` positions of `batch` sequences. */
  #pieces(positions: number, batch: number): Tensor[] {
    return this.#withLayers(this.#arrays).flatMap(({ array, layer }) => {
      if (!isStacked(array)) return array;
      const [count, ...buffer] = array.shape;
      const perSlab = this.#layersPerSlab(buffer.with(POSITIONS_AXIS, positions).with(0, batch));
      if (count <= perSlab) return array;
      return this.#on(layer, () => cuts(count, perSlab).map(([from, to]) => array.index(mx.Slice(from, to))));
    });
  }
}

/** Equal shapes that follow each other on one device, and how many of each. */
function runs(
  shapes: readonly (readonly number[])[],
  devices: readonly string[] = [],
): { readonly shape: readonly number[]; count: number }[] {
  const found: { readonly shape: readonly number[]; count: number }[] = [];
  for (const [i, shape] of shapes.entries()) {
    const last = found.at(-1);
    if (last && sameShape(last.shape, shape) && devices[i] === devices[i - 1]) last.count++;
    else found.push({ shape, count: 1 });
  }
  return found;
}

/** Ranges of at most `most` that make up `count`. */
function cuts(count: number, most: number): (readonly [number, number])[] {
  return Array.from(
    { length: Math.ceil(count / most) },
    (_, i) => [i * most, Math.min(count, (i + 1) * most)] as const,
  );
}

/** Whether an array holds the buffers of layers along its first axis; otherwise it is the buffer of one. */
function isStacked(array: Tensor): boolean {
  return stackAxes(array) > 0;
}

/** Axes before those of a buffer: one for a stack, none for a single buffer. */
function stackAxes(array: Tensor): number {
  return array.ndim - BUFFER_RANK;
}

/** The axis of an array along which positions follow each other. */
function positionsAxis(array: Tensor): number {
  return stackAxes(array) + POSITIONS_AXIS;
}

/** An array as a part of a loop's state. */
function asStack(array: Tensor): Tensor | StackedTensors {
  return isStacked(array) ? new StackedTensors(array) : array;
}

/** Takes an array out of the scopes of tidy(): it lives until the buffers let it go. */
function detach(array: Tensor): Tensor {
  untrack(array);
  return array;
}
