/**
 * The file in which the native library keeps compiled pipelines, on every Vulkan device.
 */

import { assert, assertEquals } from "@std/assert";
import { VulkanDevice, vulkanDeviceInfo } from "../../ffi/vulkan.ts";
import { arange, copy, INDICES, pattern, plan } from "../support/devices/vulkan_device.ts";

for (const index of INDICES) {
  Deno.test(`a program that ends without closing vulkan:${index} leaves its pipelines in a file`, async () => {
    const folder = Deno.makeTempDirSync();
    const script = `${folder}/program.ts`;
    const mod = new URL("../../mod.ts", import.meta.url).href;
    Deno.writeTextFileSync(script, `import * as mx from "${mod}"; mx.exp(mx.ones([4])).tolist(); Deno.exit(7);`);
    const config = new URL("../../deno.json", import.meta.url).pathname;
    const env = { VKMX_CACHE: folder, VKMX_DEVICE: `vulkan:${index}` };
    const args = ["run", "-A", "--no-check", "--no-lock", "--config", config, script];
    const file = async (): Promise<Deno.FileInfo> => {
      const { code, stderr } = await new Deno.Command(Deno.execPath(), { args, env }).output();
      assertEquals(code, 7, new TextDecoder().decode(stderr));
      const { name } = Array.from(Deno.readDirSync(folder)).find((entry) => entry.name.startsWith("pipelines-"))!;
      return Deno.statSync(`${folder}/${name}`);
    };
    const first = await file();
    assert(first.size > 16);
    assertEquals((await file()).mtime, first.mtime); // nothing new: not written again
    Deno.removeSync(folder, { recursive: true });
  });

  Deno.test(`saving waits for pipelines that are being made on vulkan:${index}, on whatever thread`, async () => {
    const folder = Deno.makeTempDirSync();
    const size = (): number => {
      const [entry] = Deno.readDirSync(folder);
      return Deno.statSync(`${folder}/${entry.name}`).size;
    };
    {
      using device = new VulkanDevice(index, folder);
      const made = device.planPrepare(plan(1, arange(0, 1, 0, 1)));
      await device.savePipelinesAsync();
      await made;
      const first = size();
      assert(first > 16);
      const saved = [
        device.planPrepare(plan(2, copy(0, 1, 10))),
        device.savePipelinesAsync(),
        device.savePipelinesAsync(),
      ];
      device.savePipelines();
      await Promise.all(saved);
      device.savePipelines();
      const empty = vulkanDeviceInfo(index).type === "cpu"; // software drivers keep nothing in their caches
      assert(empty ? size() === first : size() > first, `${size()} bytes after ${first}`);
    }
    Deno.removeSync(folder, { recursive: true });
  });

  Deno.test(`close() on vulkan:${index} keeps pipelines in a file, and a damaged one does no harm`, () => {
    const folder = Deno.makeTempDirSync();
    const cache = `${folder}/not/yet`;
    const files = (): string[] => Array.from(Deno.readDirSync(cache), (entry) => entry.name);
    const use = (): void => {
      using device = new VulkanDevice(index, cache);
      device.planNew(plan(1, arange(0, 1, 0, 1)));
    };
    try {
      use();
      assertEquals(files().length, 1);
      const path = `${cache}/${files()[0]}`;
      const whole = Deno.readFileSync(path);
      use();
      for (const damaged of [whole.slice(0, whole.length / 2), pattern(whole.length), new Uint8Array(0)]) {
        Deno.writeFileSync(path, damaged);
        use();
        assertEquals(files().length, 1);
        assert(Deno.readFileSync(path).length > 16);
      }
      Deno.removeSync(cache, { recursive: true });
      Deno.writeTextFileSync(cache, ""); // a file where the folder should be
      use();
    } finally {
      Deno.removeSync(folder, { recursive: true });
    }
  });
}
