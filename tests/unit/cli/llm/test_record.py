"""Recordings contain the archived exchanges and are written atomically."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from paddock.cli.framework.context import CliContext
from paddock.cli.llm.record import record_exchanges
from paddock.cli.output.errors import CliError, RequestRefused
from paddock.llm.replay.recording_files import read_recording
from tests.unit.cli.connection.test_server_client import Handler, serving

pytestmark = pytest.mark.anyio
REQUEST, RESPONSE = b'{"messages": []}', b"data: 1\n\ndata: \xff\n\n"


@pytest.fixture(autouse=True)
def a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_API_KEY", "pdk_x")


def exchange_id(number: int) -> str:
    return f"ex-{number:026x}"


def shown(number: int, **more: Any) -> dict[str, Any]:
    known = {"id": exchange_id(number), "number": number, "at": "2026-01-31T12:00:00Z", "format": "openai-chat"}
    call = {"operation": "generate", "model": "fast", "stream": True, "status": 200, "outcome": "ok"}
    return {**known, **call, "providerKind": "openai", "pieces": [[0.1, 9], [0.25, 9]], **more}


def archive(*exchanges: dict[str, Any]) -> dict[str, Handler]:
    """A server that has these exchanges, newest first."""
    by_id = {each["id"]: each for each in exchanges}

    async def list_(_: web.Request) -> web.StreamResponse:
        return web.json_response({"items": list(exchanges)})

    async def get(request: web.Request) -> web.StreamResponse:
        found = by_id[request.match_info["id"]]
        if found["number"] < 0:
            return web.json_response({"code": "UNAVAILABLE", "message": "The disk is full."}, status=503)
        raw = request.query.get("raw")
        return web.Response(body=REQUEST if raw == "request" else RESPONSE) if raw else web.json_response(found)

    return {"/v1/exchanges": list_, "/v1/exchanges/{id}": get}


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.zst"])
async def test_recording_has_archived_bytes_and_times_in_order(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    async with serving(archive(*(shown(number) for number in range(20, 0, -1)))) as client:
        await record_exchanges(CliContext(server=client.url), file)
    found = read_recording(file)
    assert [each.id for each in found] == [exchange_id(number) for number in range(1, 21)]
    assert found[0].request == REQUEST
    assert found[0].response == ((0.1, b"data: 1\n\n"), (0.25, b"data: \xff\n\n"))
    assert (found[0].stream, found[0].model, found[0].complete) == (True, "fast", True)


async def test_refused_and_replayed_exchanges_are_not_recorded(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    others = [shown(3, outcome="refused"), shown(2, providerKind="replay"), shown(1, outcome="client_gone")]
    async with serving(archive(shown(4), *others)) as client:
        await record_exchanges(CliContext(server=client.url), file)
        assert [each.id for each in read_recording(file)] == [exchange_id(4)]
        with pytest.raises(CliError, match="none of these exchanges can be replayed"):
            await record_exchanges(CliContext(server=client.url), tmp_path / "none.jsonl", ids=[exchange_id(3)])
    assert list(tmp_path.iterdir()) == [file]


async def test_a_server_failure_during_recording_leaves_no_file(tmp_path: Path) -> None:
    bad = shown(-1, id=exchange_id(0))
    async with serving(archive(*(shown(number) for number in range(9, 0, -1)), bad)) as client:
        with pytest.raises(RequestRefused, match="The disk is full"):
            await record_exchanges(CliContext(server=client.url), tmp_path / "run.jsonl")
    assert list(tmp_path.iterdir()) == []
