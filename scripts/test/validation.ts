/**
 * The Khronos validation layers, for tests that run under them.
 *
 * @module
 */

import { exists } from "../tools.ts";

const LAYER = "VkLayer_khronos_validation.json";
const LAYER_FOLDERS = ["/usr/share", "/usr/local/share", "/etc", "/opt/homebrew/share"];

/** Environment that switches on the core and synchronization checks; empty if the layers are not installed. */
export async function validation(): Promise<Record<string, string>> {
  const paths = LAYER_FOLDERS.map((folder) => `${folder}/vulkan/explicit_layer.d/${LAYER}`);
  const found = await Promise.all(paths.map(exists));
  if (!found.includes(true)) {
    console.error("test: the Vulkan validation layers are not installed; Vulkan runs without them");
    return {};
  }
  return {
    VK_INSTANCE_LAYERS: "VK_LAYER_KHRONOS_validation",
    VK_LAYER_ENABLES: "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT",
  };
}
