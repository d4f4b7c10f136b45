/**
 * Where a decoder finds the positions of its caches: in a row for each sequence, or in the pages that a table names. Kernels that read and
 * write caches are specialised by the size of a page, see shaders/include/kv_address.glsl.
 *
 * @module
 */

import type { Node } from "../../graph/node.ts";

/** Positions that follow each other for each sequence. */
interface ContiguousPlace {
  readonly kind: "contiguous";
  /** Positions of a sequence. */
  readonly capacity: number;
}

/** Positions in pages of a pool. */
interface PagedPlace {
  readonly kind: "paged";
  /** int32 (sequences, pages of one). */
  readonly table: Node;
  /** Positions of a page. */
  readonly page: number;
  /** Pages of the pool. */
  readonly pages: number;
}

/** Where the positions of caches lie. */
export type KvPlace = ContiguousPlace | PagedPlace;

/** Positions that a sequence has room for. */
export function capacityOf(place: KvPlace): number {
  return place.kind === "paged" ? place.table.shape[1] * place.page : place.capacity;
}

/**
 * Positions that kernels count with. After the pages of a table comes one that does not exist. It stands for all positions outside of the
 * table, and nothing is written there.
 */
export function reachOf(place: KvPlace): number {
  return place.kind === "paged" ? capacityOf(place) + place.page : place.capacity;
}

/** The specialization constant of kernels that read or write caches. */
export function pageConstant(place: KvPlace): { readonly PAGE: number } {
  return { PAGE: place.kind === "paged" ? place.page : 0 };
}

/** Their push constants. */
export function placePush(place: KvPlace): { readonly capacity: number; readonly pages: number } {
  return { capacity: reachOf(place), pages: place.kind === "paged" ? place.pages : 0 };
}

/** What is the same of places that kernels can serve as one. */
export function placeKey(place: KvPlace): string {
  const paged = place.kind === "paged" ? ` ${place.table.id} ${place.page} ${place.pages}` : "";
  return `${capacityOf(place)}${paged}`;
}
