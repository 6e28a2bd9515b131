"""A real agent with an unreachable provider. The agent alone would retry for minutes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.server import run_server

from .agent_images import paddock_run, share_images

pytestmark = pytest.mark.timeout(600)


def test_run_shows_the_failure_and_ends_before_the_agent_gives_up(tmp_path: Path) -> None:
    share_images(tmp_path / "data", ["agent-claude-code"])
    provider = {"kind": "anthropic", "base_url": "http://models.invalid", "key": "sk-1"}
    task = tmp_path / "lost.yaml"
    document = {"name": "lost", "agent": "claude-code", "goal": "Say hello.", "llm": {"model": "lost-model"}}
    task.write_text(json.dumps({**document, "end": {"timeout": "5m"}}))
    with run_server(tmp_path, {"llm": {"providers": {"lost": provider}, "models": {"lost-model": "lost"}}}) as server:
        done = paddock_run(server, [task], parallel=1)["lost"]
    unknown = "provider lost: the upstream's host name is unknown"
    assert done.result["code"] == "PROVIDER_UNREACHED", done.result
    assert done.result["reason"].startswith("none of its ") and done.result["reason"].endswith(unknown)
    assert done.result["stages"]["watch"] < 90
    assert done.event_data("model_failed") == [{"message": unknown, "retried": True}]
    failed = next(event["at"] for event in done.events if event["type"] == "run.model_failed")
    ended = next(event["at"] for event in done.events if event["type"] == "run.ended")
    assert failed < ended
    last = done.result["evidence"].get("last_output", {}).get("stdout", "")
    assert all(line.startswith("{") for line in last.splitlines())
