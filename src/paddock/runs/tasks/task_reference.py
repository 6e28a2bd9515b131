"""Generate the reference page of task files.

`python -m paddock.runs.tasks.task_reference > docs/reference/task-file.md`
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from paddock.runs.tasks.task_schema import task_json_schema

_INTRODUCTION = """\
<!-- Written by `python -m paddock.runs.tasks.task_reference`; edit src/paddock/model/task.py instead. -->
# Task files

A task file describes the goal of an agent, its sandbox, the end of its work and the expected deliverables. It is
YAML or JSON, and is best kept in `tasks/`, where `paddock task list` finds it. `paddock task new NAME` writes one to
start from, `paddock task validate` checks it, `paddock run FILE` runs it.

```yaml
# yaml-language-server: $schema=task.schema.json
name: sales-report
description: Writes a report about a table of sales.
agent: claude-code
goal: Read sales.csv and write report.md, with the best and the worst month.
inputs: [data/sales.csv]
end: {timeout: 10m}
deliverables: [report.md]
verify: [grep -q -i best report.md]
```

- The first line lets editors complete and check the rest: `paddock task schema > task.schema.json` writes the schema,
  which is [here](task.schema.json) too. In JSON it is `"$schema": "task.schema.json"`.
- Paths on this machine are relative to the task file, and stay in its project: the directory that `tasks/` is in, or
  the task file's own if it is not in a `tasks/`. Paths in the sandbox are relative to `/workspace`.
- Sizes: `512Mi`, `2Gi`, `10G` or bytes. Durations: `30s`, `10m`, `1h`, `1d` or seconds. CPUs: `0.5` or `500m`.
- Call a scripted-model file for `llm.script` `NAME.script.yaml`: lists of tasks leave such files out.
- Where a list has one entry, the entry alone will do: `deliverables: report.md`.
- A task needs `name`, `goal`, and an `agent` or an `entrypoint`. What is left out is as the tables say.
"""
_WORDS = {"string": "text", "integer": "number", "boolean": "true or false", "array": "list", "object": "mapping"}
_AFTER: Mapping[str, str] = {
    "inputs": """\
Inputs are packed when the task is submitted. Files and directories keep their modes and times, not their owner. A link
in a directory is kept if it stays in there, and refused by name otherwise; so are pipes, sockets and devices. Of a git
repository comes what is committed, as a clone at `ref` without its remote; no hooks are run, and git's settings on this
machine play no part. No two inputs put something in the same place.
""",
    "matrix": """\
Runs are called `TASK/AGENT/MODEL`, with what the matrix varies. Agents stand in the place of `agent`, models in that of
`llm.model`.
""",
}


def render_task_reference() -> str:
    """Return the page as Markdown."""
    made = task_json_schema()
    parts = [_INTRODUCTION, _table(made)]
    for name, field in made["properties"].items():
        part = next(_parts(field), None)
        if part is not None and "properties" in made["$defs"][part]:
            about = made["$defs"][part]
            parts += [f"## {name}\n\n{about['description']}\n", _table(about)]
            parts += [_AFTER[name]] if name in _AFTER else []
            for key, inner in about["properties"].items():
                below = made["$defs"].get(next(_parts(inner), ""), {})
                if "properties" in below:
                    parts += [f"### {name}.{key}\n\n{below['description']}\n", _table(below)]
    return "\n".join(parts)


def _table(part: Mapping[str, Any]) -> str:
    rows = ["| key | value | default | what it does | example |", "|---|---|---|---|---|"]
    for name, field in part["properties"].items():
        if not name.startswith("$"):
            default = "required" if name in part.get("required", ()) else _default(field)
            example = _cell(_written({name: field["examples"][0]}))
            about = " ".join(field["description"].split()).replace("|", "\\|")
            rows.append(f"| `{name}` | {_type(field)} | {default} | {about} | `{example}` |")
    return "\n".join(rows) + "\n"


def _default(field: Mapping[str, Any]) -> str:
    value = field.get("default")
    return "" if value in (None, "", []) or isinstance(value, Mapping) else f"`{_cell(_written(value))}`"


def _type(field: Mapping[str, Any]) -> str:
    if field.get("title"):
        return str(field["title"])
    return " or ".join(dict.fromkeys(_types(field)))


def _types(field: Mapping[str, Any]) -> Iterator[str]:
    for each in field.get("anyOf", [field]):
        if "anyOf" in each:
            yield from _types(each)
        elif "$ref" in each:
            name = each["$ref"].rpartition("/")[2]
            yield _choices(_enum(name)) if _enum(name) else "mapping"
        elif "const" in each or "enum" in each:
            yield _choices(each.get("enum", [each.get("const")]))
        elif each.get("type") != "null":
            words = {
                "string": "text",
                "integer": "number",
                "boolean": "true or false",
                "array": "list",
                "object": "mapping",
            }
            yield words.get(each["type"], each["type"])


def _enum(name: str) -> list[str]:
    return list(task_json_schema()["$defs"][name].get("enum", []))


def _choices(choices: list[str]) -> str:
    return ", ".join(f"`{choice}`" for choice in choices)


def _parts(field: Any) -> Iterator[str]:
    """Return the model of a field that is a mapping or a list of mappings."""
    if isinstance(field, Mapping):
        if "$ref" in field:
            yield field["$ref"].rpartition("/")[2]
        for key in ("anyOf", "items"):
            yield from _parts(field.get(key))
    elif isinstance(field, list):
        for each in field:
            yield from _parts(each)


def _written(value: Any) -> str:
    """Return a value as one line of YAML."""
    if isinstance(value, dict) and len(value) == 1:
        (name, inner), *_ = value.items()
        return f"{name}: {_written_alone(inner)}"
    return _written_alone(value)


def _written_alone(value: Any) -> str:
    if isinstance(value, str) and "\n" in value:
        return json.dumps(value)
    return yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False).removesuffix("...\n").strip()


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(render_task_reference())
