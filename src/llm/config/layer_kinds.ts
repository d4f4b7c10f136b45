/**
 * Layers that mix tokens in other ways than attention, and the recurrent state that they keep instead of keys and values.
 *
 * @module
 */

/** What mixes the tokens of a layer: attention, a short convolution or a gated delta net. */
export type LayerKind = "attention" | "conv" | "deltaNet";

/** Short convolutions: each feature over the last tokens, between two gates. */
export interface ShortConvConfig {
  /** Tokens that a convolution sees, its own the last of them. */
  readonly window: number;
  /** Whether the convolution and the products have biases. */
  readonly bias: boolean;
}

/** Gated delta nets: a matrix of state for each head of values. */
export interface DeltaNetConfig {
  /** Heads of queries and keys. */
  readonly keyHeads: number;
  /** Heads of values, a multiple of `keyHeads`. */
  readonly valueHeads: number;
  /** Features of a query and of a key. */
  readonly keyDim: number;
  /** Features of a value. */
  readonly valueDim: number;
  /** Tokens that the convolution before the net sees, its own the last of them. */
  readonly window: number;
  /** Whether one matrix projects to queries, keys, values and gates. */
  readonly joined: boolean;
}

/** How layers mix tokens where not all have attention. */
export interface MixerConfig {
  /** The kind of each layer; absent where all have attention. */
  readonly layerKinds?: readonly LayerKind[];
  /** The short convolutions of layers of that kind. */
  readonly shortConv?: ShortConvConfig;
  /** The gated delta nets of layers of that kind. */
  readonly deltaNet?: DeltaNetConfig;
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
  readonly layer: number;
  readonly shape: readonly number[];
  /** Whether it is float32 whatever activations are. */
  readonly isFloat32: boolean;
}

/** Features that the convolution of a gated delta net has: queries, keys and values. */
export function convolvedFeatures({ keyHeads, valueHeads, keyDim, valueDim }: DeltaNetConfig): number {
  return 2 * keyHeads * keyDim + valueHeads * valueDim;
}

/** The state arrays of a layer of each kind. */
const STATES = {
  attention: () => [],
  conv: ({ hiddenSize, shortConv }) => [{ shape: [shortConv!.window - 1, hiddenSize], isFloat32: false }],
  deltaNet({ deltaNet }) {
    const { valueHeads, valueDim, keyDim, window } = deltaNet!;
    return [
      { shape: [window - 1, convolvedFeatures(deltaNet!)], isFloat32: false },
      { shape: [valueHeads, valueDim, keyDim], isFloat32: true },
    ];
  },
} as const satisfies Record<LayerKind, (config: MixedLayers) => Omit<LayerState, "layer">[]>;

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
  return Array.from({ length: count }, (_, layer) => {
    const states: readonly Omit<LayerState, "layer">[] = STATES[kindOf(config, layer)](config);
    return states.map((state) => ({ layer, ...state }));
  }).flat();
}
