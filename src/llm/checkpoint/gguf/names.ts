/**
 * Names of tensors in GGUF files, and those of mlx-lm.
 *
 * @module
 */

/** Names of modules by those of a file. */
export type ModuleNames = Readonly<Record<string, string>>;

/** Modules outside of the layers. */
const TOP: ModuleNames = { token_embd: "model.embed_tokens", output_norm: "model.norm", output: "lm_head" };

/** Modules of a layer, as most families have them. */
const LAYER: ModuleNames = {
  attn_norm: "input_layernorm",
  attn_q: "self_attn.q_proj",
  attn_k: "self_attn.k_proj",
  attn_v: "self_attn.v_proj",
  attn_qkv: "self_attn.qkv_proj",
  attn_output: "self_attn.o_proj",
  attn_q_norm: "self_attn.q_norm",
  attn_k_norm: "self_attn.k_norm",
  attn_sinks: "self_attn.sinks",
  ffn_norm: "post_attention_layernorm",
  post_attention_norm: "post_attention_layernorm",
  post_ffw_norm: "post_feedforward_layernorm",
  ffn_gate: "mlp.gate_proj",
  ffn_up: "mlp.up_proj",
  ffn_down: "mlp.down_proj",
  ffn_gate_inp: "mlp.gate",
  ffn_gate_exps: "mlp.switch_mlp.gate_proj",
  ffn_gate_up_exps: "mlp.switch_mlp.gate_up_proj",
  ffn_up_exps: "mlp.switch_mlp.up_proj",
  ffn_down_exps: "mlp.switch_mlp.down_proj",
  ffn_gate_inp_shexp: "mlp.shared_expert_gate",
  ffn_gate_shexp: "mlp.shared_expert.gate_proj",
  ffn_up_shexp: "mlp.shared_expert.up_proj",
  ffn_down_shexp: "mlp.shared_expert.down_proj",
};

/** Modules that are one array, whose names end with them, and the part that a file has of each; "" for a name without one. */
const ARRAYS: Readonly<Record<string, string>> = {
  attn_sinks: "weight",
  exp_probs_b: "bias",
  "ffn_down_exps.scale": "",
  "ffn_gate_inp.scale": "",
  layer_output_scale: "weight",
  ssm_a: "",
  ssm_dt: "bias",
};

/** Tensors that the config is made of: factors of rotary positions. */
const FACTORS = /^rope_(freqs|factors_long|factors_short)\.weight$/;

/** The modules of a layer, or those outside; a family has names of its own among both. */
function modulesOf(layer: string | undefined, own: ModuleNames): ModuleNames {
  return layer === undefined ? { ...TOP, ...own } : { ...LAYER, ...own };
}

/** The layer of a tensor by its name in a file; undefined for one outside of layers. */
export function layerOf(name: string): number | undefined {
  const [, layer] = /^blk\.(\d+)\./.exec(name) ?? [];
  return layer === undefined ? undefined : Number(layer);
}

/** A tensor's name in mlx-lm; undefined for one that the config is made of. A name that is not known stays, for the loader to report. */
export function nameOf(name: string, own: ModuleNames): string | undefined {
  if (FACTORS.test(name)) return undefined;
  const [, layer, whole = ""] = /^(?:blk\.(\d+)\.)?([\w.]+)$/.exec(name) ?? [];
  const names = modulesOf(layer, own);
  const [, module = whole, part = ""] = /^(.+)\.(weight|bias)$/.exec(whole) ?? [];
  const isArray = Object.hasOwn(ARRAYS, module);
  if (!Object.hasOwn(names, module) || (isArray ? ARRAYS[module] !== part : part === "")) return name;
  const path = layer === undefined ? names[module] : `model.layers.${layer}.${names[module]}`;
  return isArray ? path : `${path}.${part}`;
}

/** The name that a file has for a tensor of mlx-lm's name; undefined if it has none. */
export function storedName(name: string, own: ModuleNames): string | undefined {
  const [, layer, rest] = /^(?:model\.layers\.(\d+)\.)?(.+)$/.exec(name)!;
  const names = modulesOf(layer, own);
  const [, path, end] = /^(.+)\.(weight|bias)$/.exec(rest) ?? [];
  const found = Object.entries(names).find(([module, ours]) => ours === (Object.hasOwn(ARRAYS, module) ? rest : path));
  if (found === undefined) return undefined;
  const [module] = found;
  const part = Object.hasOwn(ARRAYS, module) ? ARRAYS[module] : end;
  return `${layer === undefined ? "" : `blk.${layer}.`}${module}${part && `.${part}`}`;
}
