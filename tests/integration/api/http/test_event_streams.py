"""Event streams, live and resumed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import httpx
import pytest

from tests.integration.api.conftest import create_sandbox
from tests.support.server import eventually


def parse_sse_frames(response: httpx.Response) -> Iterator[dict[str, Any]]:
    frame: dict[str, Any] = {}
    for line in response.iter_lines():
        if not line and "data" in frame:
            yield {**frame, "data": json.loads(frame["data"])}
            frame = {}
        elif line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            frame[name] = value


def event_types(frames: list[dict[str, Any]]) -> list[str]:
    return [frame["event"] for frame in frames]


def test_sandbox_event_stream_ends_with_the_sandbox(client: httpx.Client) -> None:
    sandbox = create_sandbox(client)
    with client.stream("GET", f"/v1/sandboxes/{sandbox}/events") as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        frames = parse_sse_frames(response)
        assert event_types(list(islice(frames, 2))) == ["sandbox.created", "sandbox.running"]
        client.post(f"/v1/sandboxes/{sandbox}/pause")
        client.post(f"/v1/sandboxes/{sandbox}/resume")
        client.delete(f"/v1/sandboxes/{sandbox}")
        rest = list(frames)
    assert event_types(rest) == ["sandbox.paused", "sandbox.resumed", "sandbox.stopping", "sandbox.ended"]
    assert [frame["id"] for frame in rest] == ["3", "4", "5", "6"]


def test_streams_are_resumed_without_gaps_or_repeats(client: httpx.Client) -> None:
    sandbox = create_sandbox(client)
    for _ in range(2):
        client.post(f"/v1/sandboxes/{sandbox}/pause")
        client.post(f"/v1/sandboxes/{sandbox}/resume")
    path = f"/v1/sandboxes/{sandbox}/events"
    with client.stream("GET", path) as answer:
        first = list(islice(parse_sse_frames(answer), 3))
    with client.stream("GET", path, headers={"Last-Event-ID": first[-1]["id"]}) as answer:
        second = list(islice(parse_sse_frames(answer), 3))
    assert [frame["id"] for frame in first + second] == ["1", "2", "3", "4", "5", "6"]
    with client.stream("GET", path, params={"after": 5}) as answer:
        assert next(parse_sse_frames(answer))["id"] == "6"
    client.delete(f"/v1/sandboxes/{sandbox}")


def test_tenant_event_stream(client: httpx.Client, stranger: httpx.Client) -> None:
    page = client.get("/v1/events", headers={"Accept": "application/json"}).json()
    while page["items"]:
        page = client.get(f"/v1/events?after={page['next']}", headers={"Accept": "application/json"}).json()
    hidden = create_sandbox(stranger)
    shown = create_sandbox(client)
    with client.stream("GET", f"/v1/events?after={page['next']}") as answer:
        frames = list(islice(parse_sse_frames(answer), 2))
    assert {frame["data"]["stream"] for frame in frames} == {f"sandbox/{shown}"}
    assert [int(frame["id"]) for frame in frames] == [frame["data"]["sequence"] for frame in frames]
    stranger.delete(f"/v1/sandboxes/{hidden}")
    client.delete(f"/v1/sandboxes/{shown}")


def test_event_pages_are_limited_and_resumed(client: httpx.Client) -> None:
    sandbox = create_sandbox(client)
    as_json = {"Accept": "application/json"}
    page = client.get(f"/v1/sandboxes/{sandbox}/events?limit=1", headers=as_json).json()
    assert [item["type"] for item in page["items"]] == ["sandbox.created"] and page["next"] == 1
    page = client.get(f"/v1/sandboxes/{sandbox}/events?after=1", headers=as_json).json()
    assert [item["type"] for item in page["items"]] == ["sandbox.running"]
    client.delete(f"/v1/sandboxes/{sandbox}")


@pytest.mark.parametrize("cursor", ["x", "-1", "9" * 40, "٣"])
def test_invalid_resume_positions(client: httpx.Client, cursor: str) -> None:
    assert client.get("/v1/events", params={"after": cursor}).status_code == 400
    response = client.get("/v1/events", headers=[(b"Last-Event-ID", cursor.encode())])
    assert response.status_code == 400


def test_sandbox_events_outlive_the_sandbox(client: httpx.Client, stranger: httpx.Client) -> None:
    sandbox = create_sandbox(client)
    client.delete(f"/v1/sandboxes/{sandbox}")
    path, as_json = f"/v1/sandboxes/{sandbox}/events", {"Accept": "application/json"}
    eventually(lambda: client.get(f"/v1/sandboxes/{sandbox}").status_code == 404)
    lifecycle = ["sandbox.created", "sandbox.running", "sandbox.stopping", "sandbox.ended"]
    assert [item["type"] for item in client.get(path, headers=as_json).json()["items"]] == lifecycle
    with client.stream("GET", path) as answer:
        assert event_types(list(parse_sse_frames(answer))) == lifecycle
    with client.stream("GET", path, params={"after": 4}) as answer:
        assert list(parse_sse_frames(answer)) == []
    assert stranger.get(path, headers=as_json).status_code == 404
    assert client.get("/v1/sandboxes/sb-0000000000000000/events", headers=as_json).status_code == 404
