"""An interrupted export leaves no file."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web

from paddock.cli.framework.context import CliContext
from paddock.cli.llm.export import export_conversations
from paddock.cli.output.errors import ConnectionLost
from tests.unit.cli.connection.test_server_client import serving

pytestmark = pytest.mark.anyio


async def test_an_interrupted_export_leaves_no_partial_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PADDOCK_API_KEY", "pdk_x")
    file = tmp_path / "out.jsonl"
    file.write_text("from before\n")

    async def half(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b'{"id": "ex-1"}\n')
        assert request.transport is not None
        request.transport.abort()
        return answer

    async with serving({"/v1/exchanges/export": half}) as client:
        with pytest.raises(ConnectionLost):
            await export_conversations(CliContext(server=client.url), output=file)
    assert file.read_text() == "from before\n"
    assert list(tmp_path.iterdir()) == [file]
    assert capsys.readouterr().err == ""


async def test_show_requests_the_selected_exchange(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PADDOCK_API_KEY", "pdk_x")
    query_parameters: dict[str, str] = {}

    async def all_of_it(request: web.Request) -> web.StreamResponse:
        query_parameters.update(request.query)
        return web.Response(body=b'{"id": "ex-1"}\n{"id": "ex-2"}\n')

    file = tmp_path / "out.jsonl"
    async with serving({"/v1/exchanges/export": all_of_it}) as client:
        await export_conversations(
            CliContext(server=client.url), model="fast", search="a b", form="anthropic", output=file
        )
    assert query_parameters == {"model": "fast", "text": "a b", "form": "anthropic"}
    assert capsys.readouterr().err == f"2 conversations in {file}\n"
