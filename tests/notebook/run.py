"""Runs a notebook by nbclient and writes it with its outputs: run.py KERNEL NOTEBOOK OUTPUT."""

import asyncio
import sys

import nbclient
import nbformat

# Deno's kernel may send a cell's result after it said that the cell was done.
LATE_SECONDS = 0.3


class Client(nbclient.NotebookClient):
    """nbclient that waits for late results."""

    async def _async_poll_output_msg(self, parent_msg_id, cell, cell_index):
        await super()._async_poll_output_msg(parent_msg_id, cell, cell_index)
        loop = asyncio.get_event_loop()
        end = loop.time() + LATE_SECONDS
        while (left := end - loop.time()) > 0:
            try:
                message = await asyncio.wait_for(self.kc.iopub_channel.get_msg(timeout=None), left)
            except asyncio.TimeoutError:
                return
            if message["parent_header"].get("msg_id") == parent_msg_id:
                self.process_message(message, cell, cell_index)


kernel, source, target = sys.argv[1:]
notebook = nbformat.read(source, as_version=4)
Client(notebook, kernel_name=kernel, timeout=120, record_timing=False).execute(cwd="examples")
for cell in notebook.cells:
    joined = []
    for output in cell.get("outputs", []):
        output.get("metadata", {}).clear()
        if joined and output.output_type == "stream" == joined[-1].output_type and output.name == joined[-1].name:
            joined[-1].text += output.text
        else:
            joined.append(output)
    if cell.cell_type == "code":
        cell.outputs = joined
notebook.metadata = {
    "kernelspec": {"display_name": "Deno (vkmx)", "language": "typescript", "name": "vkmx"},
    "language_info": {"file_extension": ".ts", "mimetype": "text/x.typescript", "name": "typescript"},
}
nbformat.write(notebook, target)
