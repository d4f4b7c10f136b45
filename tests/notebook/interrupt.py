"""Interrupts cells in the middle and prints what each cell of a list gave, a JSON object a line: interrupt.py KERNEL < CELLS.

CELLS is a JSON list of {code, interrupt_when}: the cell is interrupted once when so many letters came from it, or, where that is 0, a
second after its start; without it never.
"""

import json
import queue
import sys
import time

from jupyter_client.manager import KernelManager

LATE_SECONDS = 0.3
MAX_SECONDS = 60

manager = KernelManager(kernel_name=sys.argv[1])
manager.start_kernel(cwd="examples")
client = manager.client()
try:
    client.start_channels()
    client.wait_for_ready(timeout=MAX_SECONDS)
    for cell in json.load(sys.stdin):
        request = client.execute(cell["code"])
        when = cell.get("interrupt_when")
        start = time.time()
        text, notes, error, idle, reply = "", "", None, None, None
        while reply is None or idle is None or time.time() - idle < LATE_SECONDS:
            if time.time() - start > MAX_SECONDS:
                raise TimeoutError(f"no end of: {cell['code']}")
            if when is not None and (len(text) > when > 0 or (when == 0 and time.time() - start > 1)):
                when = None
                manager.interrupt_kernel()
            try:
                message = client.get_iopub_msg(timeout=0.05)
                kind, content = message["msg_type"], message["content"]
                if message["parent_header"].get("msg_id") != request:
                    pass
                elif kind == "status" and content["execution_state"] == "idle":
                    idle = time.time()
                elif kind == "stream" and content["name"] == "stdout":
                    text += content["text"]
                elif kind == "stream":
                    notes += content["text"]
                elif kind == "error":
                    error = content["ename"]
            except queue.Empty:
                pass
            try:
                message = client.get_shell_msg(timeout=0.001)
                if message["parent_header"].get("msg_id") == request:
                    reply = message["content"]["status"]
            except queue.Empty:
                pass
        print(json.dumps({"status": reply, "error": error, "text": text, "notes": notes}), flush=True)
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
