"""Pooled desktops: a claimed one shows its picture at once."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx
import pytest

from tests.integration.live.screen_sandboxes import Sandbox, read_png, screens_server
from tests.support.server import Server, eventually


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    pools = [{"name": "desks", "kind": "linux", "size": 1}]
    with screens_server(tmp_path_factory.mktemp("paddock"), "linux", pools=pools) as running:
        yield running


def test_claimed_pool_desktop_has_a_drawn_screen(client: httpx.Client) -> None:
    eventually(lambda: client.get("/v1/pools/desks").json()["status"]["available"] == 1, 60)
    began = time.perf_counter()
    made = client.post("/v1/sandboxes", json={"extensions": {"paddock.kind": "linux"}}).json()
    shot = client.get(f"/v1/sandboxes/{made['id']}/screenshot", params={"format": "png", "scale": 0.25})
    took = time.perf_counter() - began
    assert shot.status_code == 200, shot.text
    assert made["allocation"]["poolRef"] == "desks"
    # All that belongs on the screen is there: the panel at its foot is darker than the wallpaper above it.
    picture = read_png(shot.content)
    assert sum(picture.at(picture.width // 2, picture.height - 3)) < 200
    assert took < 2, "200 ms on a machine that is at rest"
    sandbox = Sandbox(client, str(made["id"]))
    assert sandbox.text("run_shell_command", command="echo $PADDOCK_KIND $DISPLAY") == "linux :1"
    services = client.get(f"{sandbox.path}/proxy/44772/paddock/services").json()["services"]
    assert {service["state"] for service in services} == {"ready"}


def test_pool_documents_have_a_kind(client: httpx.Client) -> None:
    pool = client.get("/v1/pools/desks").json()
    assert (pool["kind"], pool["status"]["revision"]) == ("linux", "desktop")
