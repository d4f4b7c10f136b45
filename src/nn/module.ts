/**
 * The module: an object whose fields are parameters and modules below it.
 *
 * Own enumerable fields count, as `this.weight = …` or a class field makes them. Arrays, and lists and plain objects of arrays, are
 * parameters, except in fields whose name begins with "_". Modules, and lists and plain objects of modules, are children. Private
 * fields with `#` are neither.
 *
 * @module
 */

import * as mx from "../array/mod.ts";
import type { Dtype, Tensor } from "../array/mod.ts";
import { checkOptions } from "../graph/options.ts";
import { put, replace } from "./update.ts";
import { type Outline, summarize } from "./summary.ts";
import { checkWeights, type NamedWeights, shapesByName } from "./weights.ts";
import { describe, holds, isBranch, mapBranch, namedLeaves } from "./tree.ts";

const { ValueError } = mx;

/** Parameters, gradients or modules in the form of a module: lists and plain objects, as deep as its fields are. */
// deno-lint-ignore no-explicit-any -- of the form of the module that it comes from
export type ModuleTree = { [name: string]: any };

/** Whether a field, or a part of it ("layers.0"), is selected. */
export type ModuleFilter = (module: Module, key: string, value: unknown) => boolean;

/** Options of `freeze` and `unfreeze`. */
export interface FreezeOptions {
  /** Whether modules below are included; default true. */
  readonly recurse?: boolean;
  /** Which parameters, by the name of their field; default all. */
  readonly keys?: string | readonly string[];
  /** Whether a key that no module has is an error; default false. */
  readonly strict?: boolean;
}

const FREEZE_OPTIONS = { recurse: true, keys: true, strict: true } as const satisfies Record<keyof FreezeOptions, true>;

/**
 * Base of all layers and models. A class of your own sets fields and computes its result in `forward`.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * class Mlp extends mx.nn.Module {
 *   inner = new mx.nn.Linear(2, 16);
 *   outer = new mx.nn.Linear(16, 1);
 *
 *   override forward(x: mx.Tensor): mx.Tensor {
 *     return this.outer.forward(mx.nn.relu(this.inner.forward(x)));
 *   }
 * }
 *
 * const model = new Mlp();
 * model.forward(mx.ones([3, 2])).shape; // [3, 1]
 * model.parameters().inner.weight.shape; // [16, 2]
 * ```
 */
export class Module {
  readonly #frozen = new Set<string>();
  #training = true;

  /** The function of the module; each class defines it. */
  // deno-lint-ignore no-explicit-any -- each class has arguments and results of its own
  forward(..._args: any[]): any {
    throw new ValueError(`${this.constructor.name} has no forward(): its class does not say what it computes`);
  }

  /** Whether the module is trained, which dropout and batch normalization look at; see {@link train}. */
  get training(): boolean {
    return this.#training;
  }

  /** The fields by name: the module itself, so setting one sets it in the module. */
  get state(): Record<string, unknown> {
    return this as unknown as Record<string, unknown>;
  }

  /** Whether a value is a module. */
  static isModule(value: unknown): value is Module {
    return value instanceof Module;
  }

  /** Whether children may be found in a field. */
  static validChildFilter(_module: Module, _key: string, value: unknown): boolean {
    return value instanceof Module || (isBranch(value) && holds(value, Module.isModule));
  }

  /** Whether parameters may be found in a field. */
  static validParameterFilter(_module: Module, key: string, value: unknown): boolean {
    const found = isLeaf(value) || (isBranch(value) && holds(value, isLeaf));
    return found && !key.startsWith("_");
  }

  /** Whether parameters that are not frozen may be found in a field: floats, since integers have no gradients. */
  static trainableParameterFilter(module: Module, key: string, value: unknown): boolean {
    return Module.validParameterFilter(module, key, value) && !module.#frozen.has(key) && !isInteger(value);
  }

  /**
   * The module's fields, and those of modules below, that `filter` takes, in the module's form. Leaves, which `isLeaf` may choose, are
   * what `map` makes of them. In a list, {} stands for what the filter does not take.
   */
  filterAndMap(
    filter: ModuleFilter,
    map: (value: unknown) => unknown = (value) => value,
    isLeaf: ModuleFilter = (_module, _key, value) => !isBranch(value) && !(value instanceof Module),
  ): ModuleTree {
    const visit = (module: Module, key: string, value: unknown): unknown => {
      if (isLeaf(module, key, value)) return map(value);
      if (value instanceof Module) return ofModule(value);
      if (!isBranch(value)) {
        throw new ValueError(`filterAndMap() found ${describe(value)} at "${key}", which is no leaf`);
      }
      return mapBranch(value, (name, part) => {
        const path = `${key}.${name}`;
        return filter(module, path, part) ? visit(module, path, part) : {};
      });
    };
    const ofModule = (module: Module): ModuleTree =>
      Object.fromEntries(
        Object.entries(module).filter(([key, value]) => filter(module, key, value))
          .map(([key, value]) => [key, visit(module, key, value)]),
      );
    return ofModule(this);
  }

  /** All arrays of the module and of modules below, in its form. */
  parameters(): ModuleTree {
    return this.filterAndMap(Module.validParameterFilter);
  }

  /** The arrays that are not frozen, in the module's form. Arrays of integers, such as packed weights, are not among them. */
  trainableParameters(): ModuleTree {
    return this.filterAndMap(Module.trainableParameterFilter);
  }

  /** The modules directly below, in the module's form. */
  children(): ModuleTree {
    return this.filterAndMap(Module.validChildFilter, undefined, (_module, _key, value) => value instanceof Module);
  }

  /** The modules at any depth that have none below them, in the module's form. */
  leafModules(): ModuleTree {
    return this.filterAndMap(
      Module.validChildFilter,
      undefined,
      (_module, _key, value) => value instanceof Module && value.#below().length === 0,
    );
  }

  /** The module and all below it. */
  modules(): Module[] {
    return this.namedModules().map(([, module]) => module);
  }

  /** The module, named "", and all below it with names such as "layers.0.linear". */
  namedModules(): [name: string, module: Module][] {
    const found: [string, Module][] = [];
    this.applyToModules((name, module) => found.push([name, module]));
    return found;
  }

  /**
   * Puts arrays in the places of parameters. `parameters` may be a part of the module's form. With `strict` a place that the module
   * does not have is an error, otherwise it is passed over.
   */
  update(parameters: ModuleTree, strict: boolean = true): this {
    replace("update", this, parameters, strict, "", (old, value, path) => {
      if (!(old instanceof mx.Tensor)) return false;
      if (strict && !(value instanceof mx.Tensor)) {
        throw new ValueError(`update() expected an array for parameter "${path}": found ${describe(value)}`);
      }
      return true;
    });
    return this;
  }

  /** Puts modules in the places of modules below, as {@link update} does with arrays. */
  updateModules(modules: ModuleTree, strict: boolean = true): this {
    replace(
      "updateModules",
      this,
      modules,
      strict,
      "",
      (old, value) => old instanceof Module && value instanceof Module,
    );
    return this;
  }

  /** Replaces parameters, those that `filter` takes, by what `map` makes of them. */
  apply(map: (array: Tensor) => Tensor, filter: ModuleFilter = Module.validParameterFilter): this {
    return this.update(this.filterAndMap(filter, (value) => map(value as Tensor)));
  }

  /** Calls a function for the module, named "", and for all below it. */
  applyToModules(fn: (name: string, module: Module) => unknown): this {
    const left: [string, Module][] = [["", this]];
    for (let next = left.pop(); next; next = left.pop()) {
      const [name, module] = next;
      fn(name, module);
      left.push(...module.#below(name));
    }
    return this;
  }

  /**
   * Freezes parameters: {@link trainableParameters} leaves them out, so no gradients are taken of them.
   *
   * @example
   * ```ts
   * import * as mx from "@vkmx/vkmx";
   *
   * const model = new mx.nn.Sequential(new mx.nn.Linear(2, 3), new mx.nn.Linear(3, 1));
   * model.freeze().unfreeze({ keys: "bias" }); // only biases are trained
   * Object.keys(model.trainableParameters().layers[0]); // ["bias"]
   * ```
   */
  freeze(options: FreezeOptions = {}): this {
    return this.#forKeys("freeze", options, (module, keys) => {
      const own = keys ?? module.#ownParameters();
      for (const key of own) module.#frozen.add(key);
    });
  }

  /** Takes back {@link freeze}. */
  unfreeze(options: FreezeOptions = {}): this {
    return this.#forKeys("unfreeze", options, (module, keys) => {
      if (keys === undefined) module.#frozen.clear();
      else for (const key of keys) module.#frozen.delete(key);
      module.keepFrozen(keys);
    });
  }

  /**
   * Freezes again what stays frozen after an {@link unfreeze} of `keys`, or of all parameters if undefined; classes with such parameters
   * say which.
   */
  protected keepFrozen(_keys: readonly string[] | undefined): void {}

  /** Says that the module and those below are trained, or with `false` that they are not. */
  train(mode: boolean = true): this {
    return this.applyToModules((_, module) => {
      module.#training = mode;
      module.trainingChanged();
    });
  }

  /** Follows {@link training}, which was just set; classes that hold their weights in another form then say how. */
  protected trainingChanged(): void {}

  /** Says that the module and those below are not trained. */
  eval(): this {
    return this.train(false);
  }

  /** Casts parameters whose dtype `predicate` accepts; default floating-point ones, all with null. */
  setDtype(
    dtype: Dtype,
    predicate: ((dtype: Dtype) => boolean) | null = (found) => mx.issubdtype(found, mx.floating),
  ): this {
    return this.apply((x) => predicate === null || predicate(x.dtype) ? x.astype(dtype) : x);
  }

  /**
   * Takes weights from a .safetensors or .npz file, or from pairs of names and arrays. Names are those of the fields, joined by dots.
   * Names with underscores, as in files of Python, are found too. With `strict` the names and shapes must be exactly those of the
   * module. Otherwise names that do not match are skipped and shapes are not checked.
   *
   * @example
   * ```ts
   * import * as mx from "@vkmx/vkmx";
   *
   * const path = await Deno.makeTempFile({ suffix: ".safetensors" });
   * new mx.nn.Linear(2, 3).saveWeights(path);
   * const model = new mx.nn.Linear(2, 3).loadWeights(path);
   * ```
   */
  loadWeights(fileOrWeights: string | NamedWeights, strict: boolean = true): this {
    const current = shapesByName(namedLeaves(this.parameters()));
    for (const [name, array] of checkWeights(fileOrWeights, current, strict)) {
      put(this, name, array);
    }
    return this;
  }

  /** Saves all parameters by name to a .safetensors or .npz file, which appears whole or not at all. */
  saveWeights(file: string): void {
    if (!/\.(safetensors|npz)$/.test(file)) {
      throw new ValueError(`saveWeights() writes .safetensors and .npz files: found ${JSON.stringify(file)}`);
    }
    mx.save(file, Object.fromEntries(namedLeaves(this.parameters())) as Record<string, Tensor>);
  }

  /** The settings that {@link toString} shows in the parentheses. */
  protected extraRepr(): string {
    return "";
  }

  /** The module and those below as MLX prints them, names in camelCase. */
  toString(): string {
    const below = this.#below().map(([name, module]) => `\n(${name}): ${module}`.replaceAll("\n", "\n  "));
    return `${this.constructor.name}(${this.extraRepr()}${below.join("")}${below.length > 0 ? "\n" : ""})`;
  }

  /** For console.log(): {@link toString} on one screen, equal layers folded, and the number of parameters. */
  [Symbol.for("Deno.customInspect")](): string {
    return summarize(this.#outline());
  }

  /** The same for console.log() in Node. */
  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return summarize(this.#outline());
  }

  #outline(): Outline {
    const children = this.#below().map(([name, module]) => [name, module.#outline()] as const);
    const below = (count: "parameters" | "trained"): number =>
      children.reduce((sum, [, module]) => sum + module[count], 0);
    return {
      kind: this.constructor.name,
      settings: this.extraRepr(),
      parameters: this.#count(Module.validParameterFilter) + below("parameters"),
      trained: this.#count(Module.trainableParameterFilter) + below("trained"),
      children,
    };
  }

  /** Numbers in the module's own arrays that `filter` takes; of packed codes those that they stand for, without scales. */
  #count(filter: ModuleFilter): number {
    const own: ModuleFilter = (module, key, value) => !(value instanceof Module) && filter(module, key, value);
    const { bits } = this as { readonly bits?: unknown };
    const leaves = namedLeaves(this.filterAndMap(own)).filter(([, leaf]) => leaf instanceof mx.Tensor);
    return (leaves as [string, Tensor][]).reduce((sum, [name, { size, dtype }]) => {
      if (typeof bits !== "number") return sum + size;
      if (name === "scales" || name === "biases") return sum;
      return sum + (name === "weight" && dtype === mx.uint32 ? Math.floor(size * 32 / bits) : size);
    }, 0);
  }

  /** The modules directly below, with `prefix` before their names. */
  #below(prefix = ""): [string, Module][] {
    return namedLeaves(this.children(), prefix) as [string, Module][];
  }

  /** Names of the parameters that are in no module below: fields, and places in lists and objects. */
  #ownParameters(): string[] {
    const own: ModuleFilter = (module, key, value) =>
      !(value instanceof Module) && Module.validParameterFilter(module, key, value);
    return namedLeaves(this.filterAndMap(own)).map(([name]) => name);
  }

  #forKeys(
    op: string,
    options: FreezeOptions,
    fn: (module: Module, keys: readonly string[] | undefined) => void,
  ): this {
    checkOptions(op, options, FREEZE_OPTIONS);
    const { recurse = true, keys, strict = false } = options;
    const list = typeof keys === "string" ? [keys] : keys;
    const modules = recurse ? this.modules() : [this];
    for (const key of strict && list || []) {
      if (modules.some((module) => Object.hasOwn(module, key))) continue;
      throw new ValueError(`${op}() found no ${JSON.stringify(key)} in ${this.constructor.name}`);
    }
    for (const module of modules) fn(module, list);
    return this;
  }
}

/** Whether a value is an array of integers or bools. */
function isInteger(value: unknown): boolean {
  return value instanceof mx.Tensor && !mx.issubdtype(value.dtype, mx.inexact);
}

/** Whether a value is an array or a module. */
function isLeaf(value: unknown): boolean {
  return value instanceof mx.Tensor || value instanceof Module;
}
