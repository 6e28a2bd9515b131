"""Event streams, live and resumed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import httpx
import pytest

from tests.integration.api.conftest import create
from tests.support.server import eventually


def frames(response: httpx.Response) -> Iterator[dict[str, Any]]:
    frame: dict[str, Any] = {}
    for line in response.iter_lines():
        if not line and "data" in frame:
            yield {**frame, "data": json.loads(frame["data"])}
            frame = {}
        elif line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            frame[name] = value


def types(found: list[dict[str, Any]]) -> list[str]:
    return [frame["event"] for frame in found]


def test_sandbox_event_stream_ends_with_the_sandbox(client: httpx.Client) -> None:
    sandbox = create(client)
    with client.stream("GET", f"/v1/sandboxes/{sandbox}/events") as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        told = frames(response)
        assert types(list(islice(told, 2))) == ["sandbox.created", "sandbox.running"]
        client.post(f"/v1/sandboxes/{sandbox}/pause")
        client.post(f"/v1/sandboxes/{sandbox}/resume")
        client.delete(f"/v1/sandboxes/{sandbox}")
        rest = list(told)
    assert types(rest) == ["sandbox.paused", "sandbox.resumed", "sandbox.stopping", "sandbox.ended"]
    assert [frame["id"] for frame in rest] == ["3", "4", "5", "6"]


def test_streams_are_resumed_without_gaps_or_repeats(client: httpx.Client) -> None:
    sandbox = create(client)
    for _ in range(2):
        client.post(f"/v1/sandboxes/{sandbox}/pause")
        client.post(f"/v1/sandboxes/{sandbox}/resume")
    path = f"/v1/sandboxes/{sandbox}/events"
    with client.stream("GET", path) as answer:
        first = list(islice(frames(answer), 3))
    with client.stream("GET", path, headers={"Last-Event-ID": first[-1]["id"]}) as answer:
        second = list(islice(frames(answer), 3))
    assert [frame["id"] for frame in first + second] == ["1", "2", "3", "4", "5", "6"]
    with client.stream("GET", path, params={"after": 5}) as answer:
        assert next(frames(answer))["id"] == "6"
    client.delete(f"/v1/sandboxes/{sandbox}")


def test_tenant_event_stream(client: httpx.Client, stranger: httpx.Client) -> None:
    page = client.get("/v1/events", headers={"Accept": "application/json"}).json()
    while page["items"]:
        page = client.get(f"/v1/events?after={page['next']}", headers={"Accept": "application/json"}).json()
    hidden = create(stranger)
    shown = create(client)
    with client.stream("GET", f"/v1/events?after={page['next']}") as answer:
        told = list(islice(frames(answer), 2))
    assert {frame["data"]["stream"] for frame in told} == {f"sandbox/{shown}"}
    assert [int(frame["id"]) for frame in told] == [frame["data"]["sequence"] for frame in told]
    stranger.delete(f"/v1/sandboxes/{hidden}")
    client.delete(f"/v1/sandboxes/{shown}")


def test_pages(client: httpx.Client) -> None:
    sandbox = create(client)
    as_json = {"Accept": "application/json"}
    page = client.get(f"/v1/sandboxes/{sandbox}/events?limit=1", headers=as_json).json()
    assert [item["type"] for item in page["items"]] == ["sandbox.created"] and page["next"] == 1
    page = client.get(f"/v1/sandboxes/{sandbox}/events?after=1", headers=as_json).json()
    assert [item["type"] for item in page["items"]] == ["sandbox.running"]
    client.delete(f"/v1/sandboxes/{sandbox}")


@pytest.mark.parametrize("place", ["x", "-1", "9" * 40, "٣"])
def test_invalid_resume_positions(client: httpx.Client, place: str) -> None:
    assert client.get("/v1/events", params={"after": place}).status_code == 400
    response = client.get("/v1/events", headers=[(b"Last-Event-ID", place.encode())])
    assert response.status_code == 400


def test_the_history_of_a_sandbox_outlives_it(client: httpx.Client, stranger: httpx.Client) -> None:
    sandbox = create(client)
    client.delete(f"/v1/sandboxes/{sandbox}")
    path, as_json = f"/v1/sandboxes/{sandbox}/events", {"Accept": "application/json"}
    eventually(lambda: client.get(f"/v1/sandboxes/{sandbox}").status_code == 404)
    whole = ["sandbox.created", "sandbox.running", "sandbox.stopping", "sandbox.ended"]
    assert [item["type"] for item in client.get(path, headers=as_json).json()["items"]] == whole
    with client.stream("GET", path) as answer:
        assert types(list(frames(answer))) == whole
    with client.stream("GET", path, params={"after": 4}) as answer:
        assert list(frames(answer)) == []
    assert stranger.get(path, headers=as_json).status_code == 404
    assert client.get("/v1/sandboxes/sb-0000000000000000/events", headers=as_json).status_code == 404
