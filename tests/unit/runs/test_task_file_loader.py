"""Task files: accepted forms and error messages."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.errors import InvalidInput
from paddock.model.task import Deliverable, Task, TaskInput
from paddock.runs.presets import PresetLibrary
from paddock.runs.tasks.task_file_loader import (
    MAX_TASK_FILE_BYTES,
    list_task_files,
    load_task_file,
    parse_task_document,
    read_task_name,
    task_project_root,
)
from paddock.runs.tasks.task_problems import InvalidTaskError
from paddock.runs.tasks.task_starter import render_starter_task_file

BASE = "name: demo\ngoal: Do it.\nagent: claude-code\n"
AGENTS = ["claude-code", "codex", "script"]


def write(directory: Path, text: str | bytes, name: str = "t.yaml") -> Path:
    path = directory / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def load_error(directory: Path, text: str | bytes, name: str = "t.yaml") -> str:
    path = write(directory, text, name)
    with pytest.raises(InvalidTaskError) as raised:
        load_task_file(path, presets=AGENTS)
    assert all(problem.message for problem in raised.value.problems)
    return raised.value.message.replace(f"{directory}/", "")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        # The file as a whole
        ("", "t.yaml:1: is empty; a task begins with 'name: NAME'"),
        ("# nothing\n", "t.yaml:1: is empty"),
        ("- a\n", "t.yaml:1: is no mapping"),
        ("just text\n", "t.yaml:1: is no mapping"),
        ("name: [\n", "t.yaml:2: not valid YAML"),
        ("name: a\n\tgoal: b\n", "t.yaml:2: not valid YAML"),
        ("name: a\n---\nname: b\n", "t.yaml:2: not valid YAML: but found another document"),
        (BASE + "agent: codex\n", "t.yaml:4: 'agent' is written twice; keep one"),
        (BASE + "end:\n  turns: 1\n  turns: 2\n", "t.yaml:6: 'turns' is written twice; keep one"),
        (BASE + "env: &a {A: b}\nresources: *a\n", "t.yaml:5: aliases such as *a cannot be used here"),
        (BASE + "description: !!python/object/apply:os.system ['true']\n", "t.yaml:4: not valid YAML"),
        ("[" * 100_000, "t.yaml:1: not valid YAML: it is nested too deeply"),
        ("{a: " * 60, "t.yaml:1: not valid YAML: it is nested too deeply"),
        ("? [a]\n: b\n", "not valid YAML"),
        (b"name: a\ngoal: \xff\xfe\n", "t.yaml:2: is not UTF-8 text; save it as UTF-8"),
        (b"name: \x00\n", "not valid YAML"),
        ("x" * (MAX_TASK_FILE_BYTES + 1), "t.yaml: is larger than 1 MiB"),
        # Names of fields
        (BASE + "agnet: x\n", "t.yaml:4: agnet: no such field; did you mean 'agent'?"),
        (BASE + "zzz: x\n", "t.yaml:4: zzz: no such field; known: name, description, image"),
        (BASE + "1: x\n", "t.yaml:4: 1: no such field"),
        (BASE + "end: {timout: 1m}\n", "t.yaml:4: end.timout: no such field; did you mean 'timeout'?"),
        (BASE + "inputs:\n  - {sorce: x}\n", "t.yaml:5: inputs.0.sorce: no such field; did you mean 'source'?"),
        (BASE + "llm: {modle: x}\n", "t.yaml:4: llm.modle: no such field; did you mean 'model'?"),
        # name, description, image, kind
        ("goal: x\nagent: codex\n", "t.yaml:1: name: is missing; add it"),
        ("name: Hello\n" + BASE[11:], "t.yaml:1: name: 'Hello' may have a-z, 0-9"),
        ("name: 5\n" + BASE[11:], 't.yaml:1: name: must be text, not 5; put it in quotes'),
        ("name:\n" + BASE[11:], "t.yaml:1: name: must be text, not nothing"),
        ("name: '" + "a" * 64 + "'\n" + BASE[11:], "t.yaml:1: name: 'aaa"),
        ('name: "a\\n"\n' + BASE[11:], "t.yaml:1: name: 'a\\n' may have"),
        (BASE + "description: [x]\n", "t.yaml:4: description: must be text, not ['x']"),
        (BASE + "description: " + "x" * 2001, "t.yaml:4: description: may have 2,000 characters, not 2,001"),
        (BASE + "image: a b\n", "t.yaml:4: image: 'a b' is no image's name"),
        (BASE + "image: 3.12\n", 't.yaml:4: image: must be text, not 3.12; put it in quotes'),
        (BASE + "kind: No Kind\n", "t.yaml:4: kind: 'No Kind' may have a-z, 0-9"),
        (BASE + "image: code\nkind: code\n", "t.yaml:5: kind: says the same as 'image'; keep one"),
        # goal
        ("name: a\nagent: codex\n", "t.yaml:1: goal: is missing; add it"),
        ("name: a\nagent: codex\ngoal: ''\n", "t.yaml:3: goal: must not be empty"),
        ("name: a\nagent: codex\ngoal: '  '\n", "t.yaml:3: goal: must not be empty"),
        ("name: a\nagent: codex\ngoal: 5\n", "t.yaml:3: goal: must be text, not 5"),
        ("name: a\nagent: codex\ngoal: [a]\n", "t.yaml:3: goal: must be text, not ['a']"),
        (
            'name: a\nagent: codex\ngoal: "a\\0b"\n',
            "t.yaml:3: goal: contains characters that cannot be passed to a program, such as NUL; remove them",
        ),
        ("name: a\nagent: codex\ngoal: {file: no.md}\n", "t.yaml:3: goal.file: there is no file 'no.md'"),
        ("name: a\nagent: codex\ngoal: {file: 5}\n", "t.yaml:3: goal.file: must be the path of a file"),
        ("name: a\nagent: codex\ngoal: {}\n", "t.yaml:3: goal.file: must be the path of a file"),
        ("name: a\nagent: codex\ngoal: {flie: a}\n", "t.yaml:3: goal.flie: no such field; write the goal as text"),
        ("name: a\nagent: codex\ngoal: {file: .}\n", "goal.file: '.' is a directory; name a file"),
        ("name: a\nagent: codex\ngoal: {file: ../../../etc/passwd}\n", "goal.file: '../../../etc/passwd' is outside"),
        # agent, entrypoint
        ("name: a\ngoal: b\n", "t.yaml:1: agent: is missing, and so is 'entrypoint'"),
        ("name: a\ngoal: b\nagent: claud-code\n", "t.yaml:3: agent: 'claud-code': no such preset; did you mean"),
        ("name: a\ngoal: b\nagent: zzz\n", "no such preset; known: claude-code, codex, script"),
        ("name: a\ngoal: b\nagent: 5\n", "t.yaml:3: agent: must be text, not 5"),
        (BASE + "entrypoint: 5\n", "t.yaml:4: entrypoint: must be shell text, or a list of words"),
        (BASE + "entrypoint: [a, 5]\n", "t.yaml:4: entrypoint: must be shell text, or a list of words"),
        (BASE + "entrypoint: {a: b}\n", "t.yaml:4: entrypoint: must be shell text, or a list of words"),
        (BASE + "entrypoint: []\n", "t.yaml:4: entrypoint: must not be empty"),
        (BASE + "entrypoint: ' '\n", "t.yaml:4: entrypoint: must not be empty"),
        # llm
        (BASE + "llm: 5\n", "t.yaml:4: llm: must be the model's name or a mapping, not 5"),
        (BASE + "llm: a b\n", "t.yaml:4: llm: 'a b' is no model's name"),
        (BASE + "llm: {model: 5}\n", "t.yaml:4: llm.model: must be text, not 5"),
        (BASE + "llm: {requests: 0}\n", "t.yaml:4: llm.requests: must be at least 1, not 0"),
        (BASE + "llm: {tokens: many}\n", "t.yaml:4: llm.tokens: must be a whole number, not 'many'"),
        (BASE + "llm: {tokens: 1.5}\n", "t.yaml:4: llm.tokens: must be a whole number, not 1.5"),
        (BASE + "llm: {tokens: yes}\n", "t.yaml:4: llm.tokens: must be a whole number, not true"),
        (BASE + "llm: {cost: 0}\n", "t.yaml:4: llm.cost: must be more than 0, not 0"),
        (BASE + "llm: {cost: .nan}\n", "t.yaml:4: llm.cost: must be a number, not nan"),
        (BASE + "llm: {cost: $1}\n", "t.yaml:4: llm.cost: must be a number, not '$1'"),
        (BASE + "llm: {script: no.yaml}\n", "t.yaml:4: llm.script: there is no file 'no.yaml'"),
        (BASE + "llm: {script: 5}\n", "t.yaml:4: llm.script: must be text, not 5"),
        (BASE + "llm: {script: /etc/passwd}\n", "t.yaml:4: llm.script: '/etc/passwd' is outside"),
        # mcp
        (BASE + "mcp: 5\n", "t.yaml:4: mcp: must be a list, not 5"),
        (BASE + "mcp: [5]\n", "mcp.0: must be an address, the name of a declared server or a mapping, not 5"),
        (BASE + "mcp: [ca lc]\n", "t.yaml:4: mcp.0: 'ca lc' may have a-z, 0-9"),
        (BASE + "mcp: [{url: 'http://a/'}]\n", "t.yaml:4: mcp.0.name: is missing; add it"),
        (BASE + "mcp: [{name: a, kind: remote}]\n", "t.yaml:4: mcp.0: needs either 'url' or 'command'"),
        (BASE + "mcp: [{name: a, url: 'http://a/', command: b}]\n", "mcp.0: needs either 'url' or 'command'"),
        (BASE + "mcp: [{name: a, url: 'ftp://a/'}]\n", "t.yaml:4: mcp.0.url: 'ftp://a/' is no address"),
        (BASE + "mcp: [{name: a, kind: far, url: 'http://a/'}]\n", "mcp.0.kind: must be 'remote', 'local' or"),
        (BASE + "mcp: [{name: a, kind: local, url: 'http://a/'}]\n", "mcp.0: a local server needs a 'command'"),
        (BASE + "mcp: [{name: a, kind: remote, command: b}]\n", "mcp.0: a server with a 'command' is in the sandbox"),
        (BASE + "mcp: [{name: a, command: b, headers: {A: b}}]\n", "mcp.0: 'headers' go with 'url'"),
        (BASE + "mcp: [{name: a, url: 'http://a/', env: {A: b}}]\n", "mcp.0: 'env' goes with 'command'"),
        (BASE + "mcp: [{name: a, command: [1]}]\n", "mcp.0.command.0: must be text, not 1"),
        (BASE + "mcp: ['http://a/', 'http://a/b']\n", "t.yaml:4: mcp.1: is 'a' again, as mcp.0 is; keep one"),
        # inputs
        (BASE + "inputs: 5\n", "t.yaml:4: inputs: must be a list, not 5"),
        (BASE + "inputs: [5]\n", "t.yaml:4: inputs.0: must be a path or a mapping, not 5"),
        (BASE + "inputs: no.csv\n", "t.yaml:4: inputs: there is no file 'no.csv'; paths are relative to the task file"),
        (BASE + "inputs:\n  - t.yaml\n  - no.csv\n", "t.yaml:6: inputs.1: there is no file 'no.csv'"),
        (BASE + "inputs: ['']\n", "t.yaml:4: inputs.0: must not be empty"),
        (BASE + "inputs: [{}]\n", "t.yaml:4: inputs.0: needs one of 'source', 'git' and 'content'"),
        (BASE + "inputs: [{source: t.yaml, git: .}]\n", "inputs.0: needs one of 'source', 'git' and 'content'"),
        (BASE + "inputs: [{source: t.yaml, ref: x}]\n", "inputs.0: 'ref' goes with 'git'"),
        (BASE + "inputs: [{git: ., ref: --upload-pack=x}]\n", "inputs.0: '--upload-pack=x' is no branch"),
        (BASE + "inputs: [{content: x}]\n", "inputs.0: 'content' needs a 'target'"),
        (BASE + "inputs: [{content: x, target: .}]\n", "inputs.0: 'content' needs a 'target'"),
        (BASE + "inputs: [{content: 5, target: a}]\n", "inputs.0.content: must be text, not 5"),
        (BASE + "inputs: [{source: t.yaml, target: /etc/x}]\n", "inputs.0.target: '/etc/x' is outside /workspace"),
        (BASE + "inputs: [{source: t.yaml, target: ../x}]\n", "inputs.0.target: must be a path in the sandbox without"),
        (BASE + "inputs: [{source: t.yaml, target: ''}]\n", "inputs.0.target: must be a path in the sandbox"),
        (BASE + "inputs: [{source: t.yaml, target: .}]\n", "inputs.0: 't.yaml' is a file, so 'target' must"),
        (BASE + "inputs: [/etc/passwd]\n", "inputs.0: '/etc/passwd' is outside"),
        (BASE + "inputs: [{git: /etc}]\n", "inputs.0: '/etc' is outside"),
        (BASE + "inputs: [/dev/null]\n", "inputs.0: '/dev/null' is outside"),
        (BASE + "inputs: [t.yaml, ./t.yaml]\n", "t.yaml:4: inputs.1: goes to 't.yaml', as inputs.0 does"),
        (
            BASE + "inputs:\n - {source: t.yaml, target: a}\n - {content: x, target: ./a}\n",
            "t.yaml:6: inputs.1: is '/workspace/a' again, as inputs.0 is; keep one",
        ),
        (
            BASE + "inputs:\n - {source: t.yaml, target: a}\n - {content: x, target: a/b}\n",
            "t.yaml:6: inputs.1: 'a' comes from inputs.0 too; give one of them another 'target'",
        ),
        # env, secrets
        (BASE + "env: [A]\n", "t.yaml:4: env: must be a mapping, not ['A']"),
        (BASE + "env: {A: 1}\n", 't.yaml:4: env.A: must be text, not 1; put it in quotes'),
        (BASE + "env: {A: 2024-01-01}\n", "env.A: must be text"),
        (BASE + "env: {A B: x}\n", "t.yaml:4: env.A B: 'A B' is no name of a variable"),
        (BASE + "env: {1: x}\n", "t.yaml:4: env.1: '1' is no name of a variable"),
        (BASE + 'env: {A: "a\\0"}\n', "t.yaml:4: env.A: contains characters that cannot be passed to a program"),
        (BASE + "secrets: [1A]\n", "t.yaml:4: secrets.0: '1A' is no name of a variable"),
        (BASE + "secrets: {A: b}\n", "t.yaml:4: secrets"),
        (BASE + "secrets: [A, A]\n", "t.yaml:4: secrets.1: is 'A' again, as secrets.0 is; keep one"),
        (BASE + "env: {A: x}\nsecrets: [B, A]\n", "t.yaml:5: secrets.1: 'A' is in 'env' too; keep one"),
        # resources, network
        (BASE + "resources: 2\n", "t.yaml:4: resources: must be a mapping, not 2"),
        (BASE + "resources: {cpu: 0}\n", "t.yaml:4: resources.cpu: must be more than 0, not 0"),
        (BASE + "resources: {cpu: two}\n", "t.yaml:4: resources.cpu: 'two' is not a number of CPUs"),
        (BASE + "resources: {memory: 1Mi}\n", "t.yaml:4: resources.memory: must be at least 16Mi, not '1Mi'"),
        (BASE + "resources: {memory: 2 gigs}\n", "t.yaml:4: resources.memory: '2 gigs' is not a size"),
        (BASE + "resources: {disk: 1}\n", "t.yaml:4: resources.disk: must be at least 1Mi, not 1"),
        (BASE + "resources: {processes: 3}\n", "t.yaml:4: resources.processes: must be at least 4, not 3"),
        (BASE + "network: 5\n", "t.yaml:4: network: must be none, open, web, packages, git, or a list of rules"),
        (BASE + "network: [open, none]\n", "t.yaml:4: network: 'none' stands alone"),
        (BASE + "network: allow exa*mple.com\n", "t.yaml:4: network: rule 'allow exa*mple.com': 'exa*mple.com' is not"),
        (BASE + "network: [{allow: 10.0.0.1/8}]\n", "t.yaml:4: network: rule 'allow 10.0.0.1/8'"),
        # end
        (BASE + "end: 10m\n", "t.yaml:4: end: must be a mapping, not '10m'"),
        (BASE + "end: {exit: maybe}\n", "t.yaml:4: end.exit: must be true or false, not 'maybe'"),
        (BASE + "end: {exit: 0}\n", "t.yaml:4: end.exit: must be true or false, not 0"),
        (BASE + "end: {exit: false}\n", "t.yaml:4: end.exit: is false, so something else must end it"),
        (BASE + "end: {file: ../x}\n", "t.yaml:4: end.file: must be a path in the sandbox without '..'"),
        (BASE + "end: {output: '('}\n", "t.yaml:4: end.output: is no regular expression: missing )"),
        (BASE + "end: {says: ''}\n", "t.yaml:4: end.says: must not be empty"),
        ("name: a\ngoal: b\nentrypoint: x\nend: {says: x}\n", "t.yaml:4: end.says: needs an 'agent'"),
        (BASE + "end: {verified: true}\n", "t.yaml:4: end.verified: needs 'verify'"),
        (BASE + "end: {turns: 0}\n", "t.yaml:4: end.turns: must be at least 1, not 0"),
        (BASE + "end: {timeout: soon}\n", "t.yaml:4: end.timeout: 'soon' is not a duration"),
        (BASE + "end: {timeout: 0}\n", "t.yaml:4: end.timeout: must be more than 0s, not 0s"),
        (BASE + "end: {timeout: 8d}\n", "t.yaml:4: end.timeout: must be at most 7d, not 8d"),
        (BASE + "end: {timeout: null}\n", "t.yaml:4: end.timeout: None is not a duration"),
        (BASE + "end: {silence: -1}\n", "t.yaml:4: end.silence: -1 is not a duration"),
        # deliverables, verify
        (BASE + "deliverables: 5\n", "t.yaml:4: deliverables: must be a list, not 5"),
        (BASE + "deliverables: [5]\n", "t.yaml:4: deliverables.0: must be a path or a mapping, not 5"),
        (BASE + "deliverables: [../x]\n", "t.yaml:4: deliverables.0: must be a path in the sandbox without '..'"),
        (BASE + "deliverables: ['']\n", "t.yaml:4: deliverables.0: must be a path in the sandbox"),
        (BASE + "deliverables: [{required: true}]\n", "t.yaml:4: deliverables.0.path: is missing; add it"),
        (BASE + "deliverables: [{path: a, required: x}]\n", "deliverables.0.required: must be true or false, not 'x'"),
        (BASE + "deliverables: [{path: a, max_size: big}]\n", "deliverables.0.max_size: 'big' is not a size"),
        (BASE + "deliverables: [a, /workspace/a]\n", "deliverables.1: is '/workspace/a' again, as deliverables.0 is"),
        (BASE + "verify: [5]\n", "t.yaml:4: verify.0: must be shell text or a mapping, not 5"),
        (BASE + "verify: ['']\n", "t.yaml:4: verify.0: must not be empty"),
        (BASE + "verify: [{name: x}]\n", "t.yaml:4: verify.0.run: is missing; add it"),
        (BASE + "verify: [{run: x, timeout: 2d}]\n", "t.yaml:4: verify.0.timeout: must be at most 1d, not 2d"),
        (BASE + "verify: [{run: x, weight: 0}]\n", "t.yaml:4: verify.0.weight: must be more than 0, not 0"),
        (BASE + "verify: [{run: x, weight: .inf}]\n", "t.yaml:4: verify.0.weight: must be a number, not inf"),
        # retries, concurrency, priority, matrix
        (BASE + "retries: many\n", "t.yaml:4: retries: must be a number or a mapping, not 'many'"),
        (BASE + "retries: true\n", "t.yaml:4: retries: must be a number or a mapping, not true"),
        (BASE + "retries: 21\n", "t.yaml:4: retries: must be at most 20, not 21"),
        (BASE + "retries: {backoff: 2h}\n", "t.yaml:4: retries.backoff: must be at most 1h, not 2h"),
        (BASE + "retries: {on: [fail]}\n", "t.yaml:4: retries.on.0: must be 'failed', 'timed_out', 'lost' or"),
        (BASE + "concurrency: 0\n", "t.yaml:4: concurrency: must be at least 1, not 0"),
        (BASE + "priority: 101\n", "t.yaml:4: priority: must be at most 100, not 101"),
        (BASE + "priority: high\n", "t.yaml:4: priority: must be a whole number, not 'high'"),
        (BASE + "matrix: [a]\n", "t.yaml:4: matrix: must be a mapping, not ['a']"),
        (BASE + "matrix: {}\n", "t.yaml:4: matrix: needs 'agents', 'models' or both"),
        (BASE + "matrix: {agents: [codex]}\n", "t.yaml:3: agent: is in 'matrix.agents' already; keep one"),
        (BASE + "llm: x\nmatrix: {models: [y]}\n", "t.yaml:4: llm: names a model, as 'matrix.models' does; keep one"),
        (BASE + "matrix: {models: [a, a]}\n", "t.yaml:4: matrix.models.1: is 'a' again, as models.0 is; keep one"),
        (BASE + "matrix: {models: ['a b']}\n", "t.yaml:4: matrix.models.0: 'a b' is no model's name"),
        ("name: a\ngoal: b\nmatrix:\n  agents: [codex, cod]\n", "t.yaml:4: matrix.agents.1: 'cod': no such preset"),
        (BASE + f"matrix: {{models: {[f'm{i}' for i in range(300)]}}}\n", "stands for 300 runs; 256 is the maximum"),
    ],
)  # fmt: skip
def test_invalid_task_error_names_file_line_field_and_fix(text: str | bytes, complaint: str, tmp_path: Path) -> None:
    assert complaint in load_error(tmp_path, text)


def test_all_problems_are_reported_in_file_order(tmp_path: Path) -> None:
    write(tmp_path, "turns:\n - say: a\n - sya: b\n", "s.yaml")
    problems = load_error(
        tmp_path,
        "inputs: [no.csv]\nnane: a\ngoal: {file: no.md}\nagent: codx\nllm: {script: s.yaml}\nend: {turns: 0}\n",
    )
    assert [line.split(": ")[:2] for line in problems.splitlines()] == [
        ["t.yaml:1", "name"],
        ["t.yaml:1", "inputs.0"],
        ["t.yaml:2", "nane"],
        ["t.yaml:3", "goal.file"],
        ["t.yaml:4", "agent"],
        ["t.yaml:6", "end.turns"],
        ["s.yaml:3", "turns.1.sya"],
    ]


def test_inline_content_has_a_size_limit() -> None:
    # A file this large is refused before, a document is not.
    document = {"name": "a", "goal": "b", "agent": "codex", "inputs": [{"content": "x" * (2**20 + 1), "target": "a"}]}
    with pytest.raises(InvalidInput, match=r"^inputs\.0\.content: may have 1,048,576 characters, not 1,048,577$"):
        parse_task_document(document)


def test_number_of_reported_problems_is_limited(tmp_path: Path) -> None:
    problems = load_error(tmp_path, BASE + "".join(f"x{i}: 1\n" for i in range(50))).splitlines()
    assert len(problems) == 21 and problems[-1] == "t.yaml: and 30 more"


def test_problems_have_structured_fields(tmp_path: Path) -> None:
    path = write(tmp_path, BASE + "end:\n  turns: 0\n")
    with pytest.raises(InvalidTaskError) as raised:
        load_task_file(path)
    (problem,) = raised.value.problems
    assert (problem.file, problem.line, problem.field) == (str(path), 5, "end.turns")
    assert problem.message == "must be at least 1, not 0" and raised.value.code == "INVALID_TASK"


def test_json_task_problems_name_json_lines(tmp_path: Path) -> None:
    task = {"$schema": "task.schema.json", "name": "demo", "goal": "Do it.", "agent": "codex", "deliverables": "a.md"}
    loaded = load_task_file(write(tmp_path, json.dumps(task, indent=1), "t.json"))
    assert loaded.task.deliverables == (Deliverable(path="a.md"),)
    problems = load_error(tmp_path, json.dumps({**task, "priority": "x"}, indent=1), "t.json")
    assert problems == "t.json:7: priority: must be a whole number, not 'x'"


def test_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    assert load_task_file(write(tmp_path, b"\xef\xbb\xbf" + BASE.encode())).task.name == "demo"


def test_short_forms_are_understood(tmp_path: Path) -> None:
    write(tmp_path, "a,b\n", "a.csv")
    text = BASE + (
        "llm: fast\nmcp: https://tools.example.org:8080/mcp\ninputs: a.csv\nsecrets: TOKEN\ndeliverables: out/\n"
        "verify: test -s a.csv\nretries: {times: 2, on: lost}\nend: {timeout: 1h30m, silence: null}\n"
        "resources: {cpu: 500m, memory: 2Gi}\n"
    )
    task = load_task_file(write(tmp_path, text)).task
    assert task.llm.model == "fast" and task.mcp[0].name == "tools-example-org" and task.secrets == ("TOKEN",)
    assert task.inputs == (TaskInput(source="a.csv"),) and task.deliverables[0].path == "/workspace/out"
    assert task.verify[0].run == "test -s a.csv" and (task.retries.times, task.retries.on) == (2, ("lost",))
    assert (task.end.timeout, task.end.silence) == (5400, None)
    assert (task.resources.cpu, task.resources.memory) == (0.5, 2 * 2**30)
    assert Task.model_validate(task.model_dump(mode="json")) == task


def test_goal_and_script_files_become_part_of_the_task(tmp_path: Path) -> None:
    write(tmp_path, "Write a poem.\n", "goal.md")
    write(tmp_path, "turns:\n - say: Done.\n", "a.script.yaml")
    text = "name: a\nagent: codex\ngoal: {file: goal.md}\nllm: {script: a.script.yaml}\ninputs: goal.md\n"
    loaded = load_task_file(write(tmp_path, text))
    assert loaded.task.goal == "Write a poem.\n" and loaded.task.llm.script == "turns:\n - say: Done.\n"
    assert loaded.directory == tmp_path and loaded.path == tmp_path / "t.yaml"
    assert (
        loaded.task.inputs
        and loaded.self_contained_task.inputs == ()
        and loaded.self_contained_task.goal == loaded.task.goal
    )


@pytest.mark.parametrize(
    ("goal", "complaint"),
    [
        (b"", "goal.file: 'goal.md' is empty"),
        (b"\xff", "goal.file: 'goal.md' is not UTF-8 text"),
        (b"x" * (2**20 + 1), "goal.file: 'goal.md' is larger than 1 MiB"),
    ],
)
def test_unusable_goal_file_is_reported(goal: bytes, complaint: str, tmp_path: Path) -> None:
    write(tmp_path, goal, "goal.md")
    assert complaint in load_error(tmp_path, "name: a\nagent: codex\ngoal: {file: goal.md}\n")


def test_pipe_as_goal_file_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "goal.md")
    text = "name: a\nagent: codex\ngoal: {file: goal.md}\n"
    assert "goal.file: 'goal.md' is not a regular file; name a file" in load_error(tmp_path, text)
    with pytest.raises(InvalidTaskError, match=r"goal\.md: is not a regular file"):
        load_task_file(tmp_path / "goal.md")


def test_missing_task_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InvalidTaskError, match=r"no\.yaml: there is no such file"):
        load_task_file(tmp_path / "no.yaml")
    with pytest.raises(InvalidTaskError, match="is a directory; name a file"):
        load_task_file(tmp_path)


def test_link_cycles_are_reported(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert "t.yaml:4: inputs: 'a' cannot be read" in load_error(tmp_path, BASE + "inputs: a\n")


def test_a_task_takes_files_of_its_project_only(tmp_path: Path) -> None:
    outside, project = tmp_path / "secret.txt", tmp_path / "project"
    (project / "tasks/deep").mkdir(parents=True)
    outside.write_text("s")
    (project / "data.csv").write_text("d")
    (project / "link").symlink_to(outside)
    for directory, up in ((project / "tasks", ".."), (project / "tasks/deep", "../..")):
        assert task_project_root(directory / "t.yaml") == project
        assert load_task_file(write(directory, BASE + f"inputs: {up}/data.csv\n")).root == project
        for named in (f"{up}/../secret.txt", str(outside), f"{up}/link"):
            problems = load_error(directory, BASE + f"inputs: '{named}'\n")
            assert f"inputs: '{named}' is outside {project}, the project of this task" in problems
    path = write(project, BASE + "inputs: ../secret.txt\n")
    assert load_task_file(path, root=tmp_path).root == tmp_path


def test_agents_without_a_command_need_an_entrypoint(tmp_path: Path) -> None:
    path = write(tmp_path, "name: a\ngoal: b\nagent: script\n")
    with pytest.raises(InvalidTaskError, match=r":3: agent: 'script' has no command of its own; add an 'entrypoint'"):
        load_task_file(path, presets=PresetLibrary())
    path = write(tmp_path, "name: a\ngoal: b\nagent: script\nentrypoint: x\n")
    assert load_task_file(path, presets=PresetLibrary()).task.entrypoint == "x"


def test_fields_that_an_agent_does_not_support_are_located(tmp_path: Path) -> None:
    write(tmp_path, "command: x\nmax_goal: 10\n", "short.yaml")
    write(tmp_path, "command: x\nmcp: {local: {command: '{command}'}}\n", "mine.yaml")
    text = "name: a\ngoal: more than ten\nmcp:\n- https://tools.example.org/mcp\n- {name: notes, command: [x]}\n"
    path = write(tmp_path, text + "matrix: {agents: [short, mine]}\n")
    with pytest.raises(InvalidTaskError) as caught:
        load_task_file(path, presets=PresetLibrary([tmp_path]))
    found = [(each.line, each.field, each.message.partition(";")[0]) for each in caught.value.problems]
    assert found == [
        (2, "goal", "the agent 'short' takes goals of up to 10 bytes, and this one has 13"),
        (4, "mcp.0", "the agent 'mine' has no way to use servers with an address"),
    ]


def test_program_of_a_task_with_secrets_needs_a_preset_that_starts_it(tmp_path: Path) -> None:
    write(tmp_path, "command: x\nmcp: {remote: {url: '{url}'}}\n", "mine.yaml")
    text = "name: a\ngoal: b\nagent: mine\nmcp:\n- {name: notes, command: [x]}\n"
    path = write(tmp_path, text)
    assert load_task_file(path, presets=PresetLibrary([tmp_path])).task.mcp[0].name == "notes"
    path = write(tmp_path, text + "secrets: [TOKEN]\n")
    with pytest.raises(InvalidTaskError, match="has no way to use servers that are programs in the sandbox"):
        load_task_file(path, presets=PresetLibrary([tmp_path]))


def test_invalid_preset_is_reported_at_its_use(tmp_path: Path) -> None:
    write(tmp_path, "comand: [x]\n", "mine.yaml")
    path = write(tmp_path, "name: a\ngoal: b\nagent: mine\n")
    with pytest.raises(InvalidTaskError, match=r"t\.yaml:3: agent: the preset 'mine' is not valid: .*mine\.yaml:1"):
        load_task_file(path, presets=PresetLibrary([tmp_path]))


@pytest.mark.parametrize("agent", PresetLibrary().names())
def test_starter_task_is_valid_for_every_agent(agent: str, tmp_path: Path) -> None:
    bare = PresetLibrary().get(agent).command is None
    path = write(tmp_path, render_starter_task_file("demo", agent, "tasks/demo.yaml", entrypoint=bare))
    task = load_task_file(path, presets=PresetLibrary()).task
    assert (task.name, task.agent, bool(task.entrypoint)) == ("demo", agent, bare)


def test_all_options_of_the_starter_task_are_valid(tmp_path: Path) -> None:
    text = render_starter_task_file("demo", "codex", "tasks/demo.yaml")
    uncommented = re.sub(r"^#(?=\w|  [-\w])", "", text, flags=re.MULTILINE)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/sales.csv").write_text("a\n")
    (tmp_path / "demo.script.yaml").write_text("turns:\n- say: good day\n")
    lines = [line for line in uncommented.splitlines() if "git:" not in line]
    task = load_task_file(write(tmp_path, "\n".join(lines)), presets=PresetLibrary()).task
    omitted = {name for name in Task.model_fields if name not in task.model_fields_set}
    assert omitted == {"kind", "user", "network", "concurrency", "priority", "matrix"}
    assert len(task.inputs) == 3 and len(task.verify) == 2 and task.end.verified and len(task.mcp) == 2


def test_task_files_are_found_by_their_names(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.json", "c.yml", "a.script.yaml", ".hidden.yaml", "notes.md"):
        write(tmp_path, BASE, name)
    (tmp_path / "d.yaml").mkdir()
    assert [path.name for path in list_task_files(tmp_path)] == ["a.json", "b.yaml", "c.yml"]
    assert list_task_files(tmp_path / "none") == []
    assert read_task_name(tmp_path / "b.yaml") == "demo"
    assert read_task_name(write(tmp_path, "[", "e.yaml")) is None


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ({}, "name: is missing; add it; goal: is missing; add it"),
        ([], "a task must be an object with 'name'"),
        ({"name": "a", "goal": "b"}, "agent: is missing, and so is 'entrypoint'"),
        ({"name": "a", "goal": {"file": "x"}, "agent": "codex"}, "goal: must be the text itself"),
        ({"name": "a", "goal": "b", "agent": "codx"}, "agent: 'codx': no such preset; did you mean 'codex'?"),
        ({"name": "a", "goal": "b", "agent": "codex", "inputs": "x"}, "inputs.0: names a file, which a request cannot"),
        ({"name": "a", "goal": "b", "agent": "codex", "inputs": [{"git": "x"}]}, "inputs.0: names a file, which"),
        ({"name": "a", "goal": "b", "agent": "codex", "gaol": 1}, "gaol: no such field; did you mean 'goal'?"),
        ({"name": "a", "goal": "b", "agent": "codex", "llm": {"script": "turns:\n - sya: x"}}, "llm.script: line 2"),
        ({"name": "a", "goal": "\ud800", "agent": "codex"}, "goal: contains invalid characters; remove them"),
        ({"name": "a", "goal": "b", "agent": "codex", "priority": True}, "priority: must be a whole number, not true"),
    ],
)  # fmt: skip
def test_invalid_document_error_names_the_fields(document: Any, complaint: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        parse_task_document(document, presets=AGENTS)
    assert complaint in raised.value.message and "\n" not in raised.value.message


def test_document_may_have_inline_inputs_and_a_script() -> None:
    document = {
        "name": "a",
        "goal": "b",
        "agent": "codex",
        "inputs": [{"content": "x", "target": "a.txt"}],
        "llm": {"script": "turns: [{say: Hello}]"},
    }
    task = parse_task_document(document, presets=AGENTS)
    assert task.inputs[0].content == "x" and parse_task_document(task.model_dump(mode="json")) == task


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from([*Task.model_fields, "x"]), _VALUES))
def test_arbitrary_document_is_parsed_or_refused(document: dict[str, Any]) -> None:
    try:
        task = parse_task_document(document, presets=AGENTS)
    except InvalidInput:
        return
    assert parse_task_document(task.model_dump(mode="json")) == task
