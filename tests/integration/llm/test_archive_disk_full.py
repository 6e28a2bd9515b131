"""With a full archive disk the proxy still answers, or refuses under strict durability."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.llm.provider_samples import WHOLE, request
from tests.support.fake_provider import FakeProvider, PlannedResponse
from tests.support.server import Server, eventually

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk takes root")]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 24 MB."""
    mount_point = tmp_path / "disk"
    mount_point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m,mode=755", "none", mount_point], check=True)
    yield mount_point / "data"
    subprocess.run(["umount", "--lazy", mount_point], check=True)


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return filler


def start(disk: Path, settings: dict[str, Any], durability: str) -> Server:
    archive = {"durability": durability, "max_waiting": "1Mi"}
    return Server(disk, {**settings, "llm": {**settings["llm"], "archive": archive}}).start()


def lost_count(server: Server) -> int:
    with server.client() as client:
        return int(client.get("/v1/llm").json()["archive"]["lost"])


def test_relaxed_durability_answers_and_counts_losses(disk: Path, settings: dict[str, Any], fake: FakeProvider) -> None:
    fake.always_respond(PlannedResponse(pieces=[WHOLE["openai-chat"]]))
    server = start(disk, settings, "behind")
    try:
        filler = fill(disk)
        with server.client() as client:
            path, body = request("openai-chat", "chat-model", text=os.urandom(100_000).hex())
            assert {client.post(path, json=body).status_code for _ in range(20)} == {200}
            eventually(lambda: lost_count(server))
            assert "exchanges were lost" in server.log()
            answer = client.get("/readyz")
            assert answer.status_code == 503 and "full" in answer.json()["message"], answer.text
            assert client.get("/health").status_code == 200
            filler.unlink()
            eventually(lambda: client.get("/readyz").status_code == 200)
            # Queued exchanges are written now, and new ones are archived again.
            path, body = request("openai-chat", "chat-model", text="after the flood")
            exchange_id = client.post(path, json=body).headers["x-paddock-exchange"]
            eventually(lambda: client.get(f"/v1/exchanges/{exchange_id}").status_code == 200)
    finally:
        server.stop()


def test_strict_durability_refuses_requests(disk: Path, settings: dict[str, Any], fake: FakeProvider) -> None:
    fake.always_respond(PlannedResponse(pieces=[WHOLE["openai-chat"]]))
    server = start(disk, settings, "strict")
    try:
        with server.client() as client:
            path, body = request("openai-chat", "chat-model", text=os.urandom(50_000).hex())
            exchange_id = client.post(path, json=body).headers["x-paddock-exchange"]
            server.stop(9)
            server.start()
        with server.client() as client:
            assert client.get(f"/v1/exchanges/{exchange_id}").status_code == 200
            filler = fill(disk)
            refused = [client.post(path, json=body) for _ in range(3)]
            assert {answer.status_code for answer in refused} == {503}
            assert "x-should-retry" not in refused[0].headers
            filler.unlink()
            eventually(lambda: client.post(path, json=body).status_code == 200)
        assert lost_count(server) == 0
    finally:
        server.stop()
