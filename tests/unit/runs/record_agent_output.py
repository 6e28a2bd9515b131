"""Record the output of the agents again after an update.

`python -m tests.unit.runs.record_agent_output [AGENT…] [CASE…]`

Each agent runs in a real sandbox of its own image, on a scripted model, as its preset defines.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from paddock.model.task import WORKSPACE, Task
from paddock.runs.presets import LaunchPlan, PresetLibrary, render_launch_plan
from tests.support.server import DAEMON_PORT, Server, delete_all_sandboxes, eventually, run_in_sandbox

RECORDINGS = Path(__file__).parent / "recordings"
AGENTS = ("claude-code", "codex", "opencode", "gemini-cli", "qwen-code", "qwen-agent")
HELLO = Path(__file__).parents[3] / "examples" / "scripts" / "hello.yaml"
REFUSAL = "turns:\n  - fail: {status: 401, message: the key is not known, times: always}\n"
STUMBLE = """
turns:
  - shell: echo no such luck; exit 3
  - say: That did not work.
"""
GOAL = 'Write hello.txt, please: it\'s "{model}" that counts,\nnot $HOME.\n'
CASES = {
    "works": "hello-model",
    "stumbles": "stumbling-model",
    "refused": "refused-model",
    "unknown": "nobody-knows-it",
}
MAX_RUN_SECONDS = 120


@contextmanager
def server() -> Iterator[Server]:
    """A server on a data directory that has the agents' images already, or builds them now."""
    data = Path(os.environ.get("PADDOCK_DATA", Path.home() / ".paddock"))
    for name, scenario in (("refusal", REFUSAL), ("stumble", STUMBLE)):
        (data / f"{name}.yaml").write_text(scenario)
    files = {"hello": HELLO, "refusal": data / "refusal.yaml", "stumble": data / "stumble.yaml"}
    providers = {name: {"kind": "script", "file": str(path)} for name, path in files.items()}
    models = {"hello-model": "hello", "refused-model": "refusal", "stumbling-model": "stumble"}
    serving = Server(data, {"llm": {"providers": providers, "models": models}})
    serving.start()
    try:
        yield serving
    finally:
        delete_all_sandboxes(serving)
        serving.stop()


def put(client: httpx.Client, sandbox: str, path: str, content: bytes) -> None:
    parts: dict[str, tuple[str, str | bytes, str]] = {
        "metadata": ("metadata", json.dumps({"path": path, "mode": 644}), "application/json"),
        "file": ("file", content, "application/octet-stream"),
    }
    answer = client.post(f"/v1/sandboxes/{sandbox}/proxy/{DAEMON_PORT}/files/upload", files=parts)
    assert answer.status_code == 200, answer.text


def get(client: httpx.Client, sandbox: str, path: str) -> bytes:
    answer = client.get(f"/v1/sandboxes/{sandbox}/proxy/{DAEMON_PORT}/files/download", params={"path": path})
    return answer.content if answer.status_code == 200 else b""


def start(client: httpx.Client, sandbox: str, rendered: LaunchPlan) -> int:
    """Run the command of a preset, write its output to files of the sandbox, and return its exit code."""
    for path, content in rendered.files.items():
        put(client, sandbox, path, content)
    assert isinstance(rendered.command, str)
    command = f"( {rendered.command} ) >/tmp/output 2>/tmp/errors"
    _, code = run_in_sandbox(client, sandbox, command, cwd=WORKSPACE, envs=rendered.env, timeout=MAX_RUN_SECONDS * 1000)
    return code


def record(client: httpx.Client, agent: str, case: str, model: str) -> dict[str, Any]:
    preset = PresetLibrary().get(agent)
    task = Task(name="hello", goal=GOAL, agent=agent)
    created = client.post("/v1/sandboxes", json={"image": {"uri": preset.image}, "timeout": 600}, timeout=600)
    assert created.status_code == 202, created.text
    sandbox = created.json()["id"]
    eventually(lambda: client.get(f"/v1/sandboxes/{sandbox}").json()["status"]["state"] == "Running", 60)
    began = time.time()
    code = start(client, sandbox, render_launch_plan(preset, task, model=model))
    took = time.time() - began
    output, errors = get(client, sandbox, "/tmp/output"), get(client, sandbox, "/tmp/errors")
    exchanges = client.get("/v1/exchanges", params={"sandbox": sandbox}).json()["items"]
    first = min((datetime.fromisoformat(each["at"]).timestamp() for each in exchanges), default=0.0)
    written = get(client, sandbox, f"{WORKSPACE}/hello.txt")
    client.delete(f"/v1/sandboxes/{sandbox}")
    for ending, content in (("out", output), ("err", errors)):
        path = RECORDINGS / f"{agent}-{case}.{ending}"
        path.unlink(missing_ok=True)
        if content:
            path.write_bytes(shorten(content))
    return {
        "exit_code": code,
        "seconds": round(took, 2),
        "first_request": round(first - began, 2),
        "requests": len(exchanges),
        "written": written.decode(),
        "bytes": [len(output), len(errors)],
    }


def shorten(output: bytes) -> bytes:
    """Shorten long lists, such as lists of tools."""
    lines = []
    for line in output.decode(errors="replace").splitlines():
        try:
            document = json.loads(line)
        except ValueError:
            lines.append(re.sub(r"(?<= )at .*$", "at …", line)[:500])
            continue
        for name, value in list(document.items()) if isinstance(document, dict) else []:
            if isinstance(value, list) and len(json.dumps(value)) > 400:
                document[name] = value[:1]
        lines.append(json.dumps(document, ensure_ascii=False))
    return "".join(f"{line}\n" for line in lines[:200]).encode()


def main() -> None:
    RECORDINGS.mkdir(exist_ok=True)
    chosen = [word for word in sys.argv[1:] if word in AGENTS] or AGENTS
    cases = [word for word in sys.argv[1:] if word in CASES] or CASES
    with server() as serving, serving.client() as client:
        for agent in chosen:
            for case in cases:
                model = CASES[case]
                sys.stdout.write(f"{agent} {case}: {json.dumps(record(client, agent, case, model))}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
