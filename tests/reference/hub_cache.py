"""Downloads a model with huggingface_hub and prints, as JSON, what its cache consists of then.

    python tests/reference/hub_cache.py ENDPOINT CACHE NAME PATTERN ...     ENDPOINT "none" connects to nothing

tests/reference/hub_cache.ts runs it.
"""

import json
import os
import sys
from pathlib import Path

endpoint, cache, name, *patterns = sys.argv[1:]
os.environ |= {"HF_HUB_CACHE": cache, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
if endpoint != "none":
    os.environ["HF_ENDPOINT"] = endpoint

from huggingface_hub import scan_cache_dir, snapshot_download  # noqa: E402

path = snapshot_download(name, allow_patterns=patterns, local_files_only=endpoint == "none")
info = scan_cache_dir(cache)


def content(entry: Path) -> str:
    if entry.is_symlink():
        return f"link to {os.readlink(entry)}"
    if entry.is_dir():
        return "folder"
    return entry.read_text() if entry.stat().st_size < 1000 else f"{entry.stat().st_size} bytes"


json.dump(
    {
        "snapshot": os.path.relpath(path, cache),
        "warnings": [str(warning) for warning in info.warnings],
        "repos": [
            [repo.repo_id, sorted([revision.commit_hash, *revision.refs] for revision in repo.revisions)] for repo in info.repos
        ],
        "entries": {str(entry.relative_to(cache)): content(entry) for entry in sorted(Path(cache).rglob("*"))},
    },
    sys.stdout,
    indent=1,
)
