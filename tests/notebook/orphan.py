"""Starts a kernel, prints the process ids of its launcher and of itself, has it compute without an end and waits: orphan.py KERNEL."""

import re
import sys
import time

from jupyter_client.manager import KernelManager

manager = KernelManager(kernel_name=sys.argv[1])
manager.start_kernel(cwd="examples")
client = manager.client()
client.start_channels()
client.wait_for_ready(timeout=60)
client.execute("console.log(`pid ${Deno.pid} of ${Deno.ppid}`); while (true) {}")
while True:
    message = client.get_iopub_msg(timeout=60)
    found = re.search(r"pid (\d+) of (\d+)", message["content"].get("text", ""))
    if found:
        print(*found.groups(), flush=True)
        time.sleep(600)
