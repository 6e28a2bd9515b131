"""Image builds run by the server."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.server import eventually


@pytest.fixture(scope="module")
def silence() -> Iterator[int]:
    """Port of a mirror that accepts every request and responds to none."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory, silence: int) -> dict[str, Any]:
    recipes: Path = tmp_path_factory.mktemp("recipes")
    (recipes / "orphan.yaml").write_text("description: Stands on nothing.\nbase: no-such-image\n")
    return {"images": {"recipes": [str(recipes)], "mirror": f"http://127.0.0.1:{silence}/debian"}}


def start_build(client: httpx.Client, name: str) -> dict[str, Any]:
    response = client.post(f"/v1/images/{name}/build")
    assert response.status_code == 202, response.text
    build: dict[str, Any] = response.json()
    return build


def test_build_events_are_followed_until_the_end(client: httpx.Client) -> None:
    build = start_build(client, "host")
    frames = []
    path = f"/v1/images/builds/{build['id']}"
    with client.stream("GET", path, headers={"Accept": "text/event-stream"}) as response:
        frames = [json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: ")]
    assert frames[-1]["state"] == "done" and frames[-1]["fraction"] == 1 and frames[-1]["endedAt"]
    assert client.get(path).json() == frames[-1]
    assert client.get("/v1/images/builds").json()["items"][0]["id"] == build["id"]


def test_failed_build_has_a_reason(client: httpx.Client) -> None:
    path = f"/v1/images/builds/{start_build(client, 'orphan')['id']}"
    eventually(lambda: client.get(path).json()["endedAt"])
    ended = client.get(path).json()
    assert ended["state"] == "failed" and "no-such-image" in ended["error"]


def test_builds_run_one_at_a_time_and_can_be_cancelled(client: httpx.Client) -> None:
    build = start_build(client, "code")
    assert build["state"] == "running" and start_build(client, "code")["id"] == build["id"]
    other = client.post("/v1/images/agent-base/build")
    assert other.status_code == 409 and "code is being built" in other.json()["message"]
    stopped = client.delete(f"/v1/images/builds/{build['id']}").json()
    assert stopped["state"] == "cancelled" and stopped["endedAt"]
    assert client.delete(f"/v1/images/builds/{build['id']}").json() == stopped
    lines = client.get("/v1/logs", params={"q": "image build"}).json()["items"]
    ends = [line["event"] for line in lines if line["fields"].get("image") == "code"]
    assert ends == ["image build started", "image build cancelled"]


def test_only_administrators_build(client: httpx.Client, stranger: httpx.Client) -> None:
    assert stranger.post("/v1/images/host/build").status_code == 403
    assert stranger.get("/v1/images/builds").status_code == 403
    for name in ("nothing", "docker.io%2Flibrary%2Fdebian", "..", "%2e%2e%2fetc"):
        assert client.post(f"/v1/images/{name}/build").status_code in (404, 405), name
    assert client.get("/v1/images/builds/build-0").status_code == 404
