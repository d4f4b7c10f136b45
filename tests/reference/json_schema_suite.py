"""Writes tests/golden/json_schema_suite.json: the JSON-Schema-Test-Suite of draft 2020-12, as the sources of jsonschema 4.26.0 carry it.

    pip download jsonschema==4.26.0 --no-deps --no-binary jsonschema && tar xzf jsonschema-4.26.0.tar.gz
    python3 tests/reference/json_schema_suite.py jsonschema-4.26.0/json/tests/draft2020-12

Descriptions of single tests are left out. Schemas that name other documents are too: nothing else here reads them.
"""

import json
import pathlib
import sys

FILES = ["*.json", "optional/format/*.json", "optional/ecmascript-regex.json", "optional/float-overflow.json"]


def main() -> None:
    source = pathlib.Path(sys.argv[1])
    groups = []
    for pattern in FILES:
        for path in sorted(source.glob(pattern)):
            for group in json.loads(path.read_text()):
                schema = group["schema"]
                if "localhost:1234" in json.dumps(schema):
                    continue
                if isinstance(schema, dict):
                    schema.pop("$schema", None)
                tests = [[test["data"], test["valid"]] for test in group["tests"]]
                name = f"{path.stem}: {group['description']}"
                groups.append({"name": name, "schema": schema, "tests": tests})
    lines = ",\n".join(json.dumps(group, ensure_ascii=True, separators=(",", ":")) for group in groups)
    target = pathlib.Path(__file__).parent.parent / "golden" / "json_schema_suite.json"
    target.write_text(f"[\n{lines}\n]\n")


main()
