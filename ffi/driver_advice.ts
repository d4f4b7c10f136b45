/**
 * Advice on packages to install if a Vulkan driver is there but cannot be loaded. This happens on servers: drivers are built for desktops and want
 * libraries of the window system.
 *
 * @module
 */

import type { DriverFailure } from "./vulkan.ts";

/** Packages of Debian and Ubuntu with the libraries that Vulkan drivers ask for. */
const PACKAGES: Readonly<Record<string, string>> = {
  "libEGL.so.1": "libegl1",
  "libGL.so.1": "libgl1",
  "libGLX.so.0": "libglx0",
  "libGLdispatch.so.0": "libglvnd0",
  "libX11.so.6": "libx11-6",
  "libX11-xcb.so.1": "libx11-xcb1",
  "libXext.so.6": "libxext6",
  "libxcb.so.1": "libxcb1",
  "libxcb-dri3.so.0": "libxcb-dri3-0",
  "libxcb-present.so.0": "libxcb-present0",
  "libxcb-randr.so.0": "libxcb-randr0",
  "libxcb-shm.so.0": "libxcb-shm0",
  "libxcb-sync.so.1": "libxcb-sync1",
  "libxcb-xfixes.so.0": "libxcb-xfixes0",
  "libxshmfence.so.1": "libxshmfence1",
  "libwayland-client.so.0": "libwayland-client0",
  "libdrm.so.2": "libdrm2",
  "libdrm_amdgpu.so.1": "libdrm-amdgpu1",
  "libelf.so.1": "libelf1",
  "libexpat.so.1": "libexpat1",
  "libstdc++.so.6": "libstdc++6",
  "libz.so.1": "zlib1g",
  "libzstd.so.1": "libzstd1",
};

/** The advice with which a driver can be loaded. */
export function driverAdvice({ library, reason }: DriverFailure): string {
  const [, missing] = /^([\w.+/-]+): cannot open shared object file: No such file/.exec(reason) ?? [];
  if (missing === undefined || missing === library) return "install the driver of the GPU again";
  const name = PACKAGES[missing] ?? debianName(missing);
  return `install ${missing}${name ? ` (Debian, Ubuntu: apt-get install ${name})` : ""}`;
}

/** "libLLVM-15.so.1" is in libllvm15, whatever its version. */
function debianName(library: string): string | undefined {
  const [, version] = /^libLLVM-?(?:\.so\.)?(\d+)/.exec(library) ?? [];
  return version && `libllvm${version}`;
}
