/** Attention with several heads and a causal mask, by hand and by the fused function. */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";

function splitHeads(x: mx.Tensor, heads: number): mx.Tensor {
  const [batch, tokens, dims] = x.shape;
  return x.reshape(batch, tokens, heads, dims / heads).transpose(0, 2, 1, 3);
}

function attention(q: mx.Tensor, k: mx.Tensor, v: mx.Tensor): mx.Tensor {
  const [tokens, dims] = q.shape.slice(-2);
  let scores = q.matmul(k.swapaxes(-1, -2)).multiply(1 / Math.sqrt(dims));
  const mask = mx.tril(mx.ones([tokens, tokens]));
  scores = mx.where(mx.equal(mask, 0), -Infinity, scores);
  return mx.softmax(scores, -1).matmul(v);
}

mx.random.seed(0);
const x = mx.random.normal([2, 5, 16]);
const wqkv = mx.random.normal([16, 48]).multiply(0.2);
const [q, k, v] = mx.split(x.matmul(wqkv), 3, -1).map((part) => splitHeads(part, 4));
const byHand = attention(q, k, v);
const fused = mx.fast.scaledDotProductAttention(q, k, v, { scale: 1 / Math.sqrt(4), mask: "causal" });

assertEquals(byHand.shape, [2, 4, 5, 4]);
assert(mx.allclose(byHand, fused, 1e-4, 1e-5).item());
const joined = byHand.transpose(0, 2, 1, 3).reshape(2, 5, -1);
assertEquals(joined.shape, x.shape);
assert(mx.allclose(joined.index(0, 0), x.matmul(wqkv).index(0, 0, mx.Slice(32)), 1e-4, 1e-5).item());
