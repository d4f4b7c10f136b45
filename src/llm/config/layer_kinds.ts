/**
 * Layers that mix tokens in other ways than attention, and the recurrent state that they keep instead of keys and values.
 *
 * @module
 */

/** What mixes the tokens of a layer: attention or a short convolution. */
export type LayerKind = "attention" | "conv";

/** Short convolutions: each feature over the last tokens, between two gates. */
export interface ShortConvConfig {
  /** Tokens that a convolution sees, its own the last of them. */
  readonly window: number;
  /** Whether the convolution and the products have biases. */
  readonly bias: boolean;
}

/** How layers mix tokens where not all have attention. */
export interface MixerConfig {
  /** The kind of each layer; absent where all have attention. */
  readonly layerKinds?: readonly LayerKind[];
  /** The short convolutions of layers of that kind. */
  readonly shortConv?: ShortConvConfig;
}

/** What the places of layers in a cache follow from. */
export interface MixedLayers extends MixerConfig {
  /** How many layers there are. */
  readonly layers: number;
  /** Features of a token between them. */
  readonly hiddenSize: number;
}

/** A state array of a layer, for one sequence. */
export interface LayerState {
  readonly shape: readonly number[];
  /** Whether it is float32 whatever activations are. */
  readonly isFloat32: boolean;
}

/** The state arrays of a layer of each kind. */
const STATES = {
  attention: () => [],
  conv: ({ hiddenSize, shortConv }) => [{ shape: [shortConv!.window - 1, hiddenSize], isFloat32: false }],
} as const satisfies Record<LayerKind, (config: MixedLayers) => LayerState[]>;

/** The kind of a layer. */
export function kindOf({ layerKinds }: MixerConfig, layer: number): LayerKind {
  return layerKinds?.[layer] ?? "attention";
}

/** Layers of attention among the first `count`, default all: the place of the next one in a cache. */
export function countAttention(config: MixedLayers, count: number = config.layers): number {
  return Array.from({ length: count }, (_, layer) => kindOf(config, layer)).filter((kind) => kind === "attention")
    .length;
}

/** The state arrays of the first `count` layers, default all, in their order: as many as come before the next layer's in a cache. */
export function layerStates(config: MixedLayers, count: number = config.layers): LayerState[] {
  return Array.from({ length: count }, (_, layer) => STATES[kindOf(config, layer)](config)).flat();
}
