/** Plots: what they draw at which place, whatever the data is, in SVG, Vega-Lite and text. */

import { assert, assertEquals, assertMatch, assertThrows } from "@std/assert";
import { inflateSync } from "node:zlib";
import * as mx from "../../mod.ts";
import { colorOf } from "../../src/display/color.ts";
import { encodePng } from "../../src/display/png.ts";
import { enlarge, shrink } from "../../src/display/raster.ts";
import { lineIndices } from "../../src/plot/downsample.ts";
import { ticks } from "../../src/plot/ticks.ts";

mx.setDefaultDevice("wasm");

/** Throws unless each tag of an SVG is closed and no attribute or text holds what is no number. */
function checkSvg(svg: string): void {
  const open: string[] = [];
  for (const [, close, name, empty] of svg.matchAll(/<(\/?)([a-z]+)(?:\s[^<>]*?)?(\/?)>/g)) {
    if (close) assertEquals(open.pop(), name);
    else if (!empty) open.push(name);
  }
  assertEquals(open, []);
  assert(!/NaN|Infinity|undefined/.test(svg), svg.slice(0, 300));
  assertMatch(svg, /^<svg [^>]*role="img" aria-label="[^"]+"[^>]*><title>[^<]+<\/title><desc>[^<]+<\/desc>/);
}

const KINDS = {
  line: (data: Float64Array) => mx.plot.line(data),
  scatter: (data: Float64Array) => mx.plot.scatter(data),
  logarithmic: (data: Float64Array) => mx.plot.line(data, { ylog: true }),
  hist: (data: Float64Array) => mx.plot.hist(data),
  heatmap: (data: Float64Array) => mx.plot.heatmap(mx.array(data, mx.float32).reshape(1, -1)),
  attention: (data: Float64Array) => mx.plot.attention(mx.array(data, mx.float32).reshape(1, 1, -1)),
} as const;
const DATA: Readonly<Record<string, readonly number[]>> = {
  nothing: [],
  "one value": [5],
  "a constant": [3, 3, 3],
  zeros: [0, 0],
  "what is not finite": [NaN, Infinity, -Infinity],
  "a gap": [1, NaN, 2, Infinity, 3],
  extremes: [1e38, -1e38],
  "tiny differences": [1, 1 + 1e-12],
};

for (const [kind, make] of Object.entries(KINDS)) {
  for (const [name, data] of Object.entries(DATA)) {
    Deno.test(`${kind} of ${name}`, () => {
      if (data.length === 0 && ["heatmap", "attention"].includes(kind)) {
        return checkSvg(mx.plot.heatmap(mx.zeros([0, 3])).svg);
      }
      const plot = make(Float64Array.from(data));
      checkSvg(plot.svg);
      const spec = JSON.stringify(plot.vegaLite);
      assert(!/NaN|Infinity|undefined/.test(spec));
      assertEquals((plot.vegaLite as { $schema: string }).$schema, "https://vega.github.io/schema/vega-lite/v5.json");
      assert(!`${plot}`.includes("NaN"));
    });
  }
}

Deno.test("a line runs through its points", () => {
  const { svg } = mx.plot.line([0, 1, 2], [0, 10, 0]);
  const [, path] = svg.match(/<path d="M([^"]+)"/)!;
  const points = path.split("L").map((pair) => pair.split(" ").map(Number));
  const [[x0, y0], [x1, y1], [x2, y2]] = points;
  assertEquals(points.length, 3);
  assert(Math.abs(x1 - (x0 + x2) / 2) < 0.02); // evenly spaced from left to right
  assert(x0 < x1 && y0 === y2 && y1 < y0); // up is smaller
});

Deno.test("rows of an array are series, with names in a legend and colours of their own", () => {
  const { svg } = mx.plot.line(mx.array([[1, 2], [2, 1]]), { labels: ["a", "b"] });
  assertEquals(Array.from(svg.matchAll(/<path [^>]*stroke="(#\w+)"/g), ([, color]) => color), ["#0072b2", "#e69f00"]);
  for (const [name, color] of [["a", "#0072b2"], ["b", "#e69f00"]]) {
    assertMatch(svg, new RegExp(`fill="${color}"/><text[^>]*>${name}</text>`));
  }
});

Deno.test("a gap breaks a line, and no point of it is drawn", () => {
  const { svg } = mx.plot.line([1, 2, NaN, 3, 4]);
  const [, path] = svg.match(/<path d="([^"]+)"/)!;
  assertEquals(path.match(/M/g)?.length, 2);
  assertEquals(mx.plot.scatter([1, NaN, 3]).svg.match(/<circle/g)?.length, 2);
});

Deno.test("a histogram counts", () => {
  const { vegaLite } = mx.plot.hist([0, 0.1, 0.9, 1, 2, NaN], { bins: 2, range: [0, 1] });
  const { data } = vegaLite as { data: { values: unknown } };
  assertEquals(data.values, [{ from: 0, to: 0.5, count: 2 }, { from: 0.5, to: 1, count: 2 }]);
});

Deno.test("what is drawn does not grow with the data", () => {
  const many = new Float64Array(1_000_000);
  many[123_456] = 7; // a single peak stays
  const plot = mx.plot.line(many);
  assert(plot.svg.length < 60_000 && JSON.stringify(plot.vegaLite).length < 300_000);
  assert(lineIndices(many).includes(123_456));
  assert(mx.plot.scatter(many).svg.length < 300_000);
  const matrix = mx.plot.heatmap(mx.random.normal([1500, 1200]));
  assert(matrix.svg.length < 1_500_000);
  assert(JSON.stringify(matrix.vegaLite).length < 400_000);
});

Deno.test("text of titles, labels and tokens is text", () => {
  const bad = `<script>alert("x")</script>&'\u0007`;
  const plots = [
    mx.plot.line([1, 2], { title: bad, xlabel: bad, ylabel: bad, labels: [bad] }),
    mx.plot.attention(mx.ones([1, 2, 2]), { tokens: [bad, `\x1b[2J</text>`], title: bad }),
  ];
  for (const plot of plots) {
    checkSvg(plot.svg);
    assert(!plot.svg.includes("<script") && plot.svg.includes("&lt;script"));
    // deno-lint-ignore no-control-regex
    assert(!/[\x00-\x08\x1b]/.test(plot.svg + plot));
  }
});

Deno.test("axes have round numbers", () => {
  const texts = (low: number, high: number, log = false): string[] => ticks({ low, high, log }).map(({ text }) => text);
  assertEquals(texts(0, 1), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"].map((text) => text === "0.0" ? "0" : text));
  assertEquals(texts(-3, 7), ["-2", "0", "2", "4", "6"]);
  assertEquals(texts(1, 1000, true), ["1", "10", "100", "1000"]);
  assertEquals(texts(1e9, 3e9), ["1e9", "1.5e9", "2e9", "2.5e9", "3e9"].map((text) => text));
});

Deno.test("attention draws a panel for each head with the tokens", () => {
  const weights = mx.softmax(mx.random.normal([3, 2, 4]), -1);
  const { svg } = mx.plot.attention(weights, { tokens: ["a", "b", " c", "d"] });
  checkSvg(svg);
  assertEquals(Array.from(svg.matchAll(/head (\d)/g), ([, head]) => head), ["0", "1", "2"]);
  assertEquals(svg.match(/<image /g)?.length, 3);
  assertEquals(svg.match(/>a<\/text>/g)?.length, 3); // of keys only: the queries are the last two
  assertEquals(svg.match(/>␣c<\/text>/g)?.length, 6);
});

Deno.test("a picture keeps its pixels, and PNG is what other programs read", () => {
  const rgba = Uint8Array.of(255, 0, 0, 255, 0, 128, 0, 255);
  const png = encodePng(rgba, 2, 1);
  const at = new TextDecoder("latin1").decode(png).indexOf("IDAT");
  const length = new DataView(png.buffer, png.byteOffset).getUint32(at - 4);
  assertEquals([...inflateSync(png.subarray(at + 4, at + 4 + length))], [0, ...rgba]);
  const [, base64] = mx.plot.image(mx.array([[[1, 0, 0], [0, 128 / 255, 0]]])).svg.match(/base64,([^"]+)/)!;
  assertEquals(Uint8Array.fromBase64(base64), Uint8Array.from(png));
});

Deno.test("small matrices become blocks of pixels", () => {
  const pixel = (value: number): number[] => [value, value, value, 255];
  const [a, b] = [pixel(1), pixel(2)];
  assertEquals([...enlarge(Uint8Array.from([...a, ...b]), 2, 1, 2)], [...a, ...a, ...b, ...b, ...a, ...a, ...b, ...b]);
});

Deno.test("large matrices become means, and colours are viridis's", () => {
  const { values } = shrink({ rows: 2, columns: 4, values: [1, 3, NaN, 4, 5, 7, 6, 6] }, 2);
  assertEquals(Array.from(values), [2, 4, 6, 6]);
  assertEquals([colorOf("viridis", 0), colorOf("viridis", 1)], [[0x44, 0x01, 0x54], [0xfd, 0xe7, 0x25]]);
});

Deno.test("text plots show extremes at their places", () => {
  const lines = `${mx.plot.line([0, 1, 2, 3])}`.split("\n");
  assertMatch(lines[0], /\S$/); // up on the right
  assert(lines[0].trimEnd().length > lines[8].trimEnd().length);
  assertEquals(Deno.inspect(mx.plot.line([1, 2])), `${mx.plot.line([1, 2])}`);
});

Deno.test("save() writes the SVG, and refuses other names", async () => {
  const folder = await Deno.makeTempDir();
  const plot = mx.plot.line([1, 2]);
  plot.save(`${folder}/plot.svg`);
  assertEquals(await Deno.readTextFile(`${folder}/plot.svg`), plot.svg);
  assertThrows(() => plot.save(`${folder}/plot.png`), mx.ValueError, ".svg");
  await Deno.remove(folder, { recursive: true });
});

Deno.test("a notebook gets Vega-Lite, SVG and text", () => {
  const plot = mx.plot.line([1, 2]) as unknown as Record<symbol, () => Record<string, unknown>>;
  const bundle = plot[Symbol.for("Jupyter.display")]();
  assertEquals(Object.keys(bundle).sort(), ["application/vnd.vegalite.v5+json", "image/svg+xml", "text/plain"]);
});

Deno.test("wrong arguments are refused with what is expected", () => {
  const wrong = <T>(value: unknown): T => value as T;
  assertThrows(() => mx.plot.line([1], wrong({ titel: "x" })), mx.ValueError, 'did you mean "title"?');
  assertThrows(() => mx.plot.line([1, 2], [1, 2, 3]), mx.ShapeError, "as many values of x");
  assertThrows(() => mx.plot.heatmap([1, 2]), mx.ShapeError, "two axes");
  assertThrows(() => mx.plot.heatmap([[1]], { colorMap: wrong("jet") }), mx.ValueError, "viridis");
  assertThrows(() => mx.plot.image(mx.zeros([2, 2, 2])), mx.ShapeError, "channels");
  assertThrows(() => mx.plot.attention(mx.zeros([1, 2, 2]), { tokens: ["a"] }), mx.ShapeError, "2 tokens");
  assertThrows(() => mx.plot.line(wrong(undefined)), mx.ValueError);
});
