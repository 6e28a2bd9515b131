"""The client against a small server: finding it, keys, refusals, pages, streams that break off."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from paddock.cli.client import Client
from paddock.cli.context import DEFAULT_URL, Cli, Target
from paddock.cli.execution import Ending, Execution, OutputLost, Sink
from paddock.cli.failure import CliError, NoServer, Refused
from paddock.errors import ConfigError

pytestmark = pytest.mark.anyio
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
BOX = "sb-0123456789abcdef"
LOGS = f"/v1/sandboxes/{BOX}/proxy/44772/command/c1/logs"


@asynccontextmanager
async def serving(routes: dict[str, Handler], key: str | None = None) -> AsyncIterator[Client]:
    app = web.Application()
    for path, handler in routes.items():
        app.router.add_route("*", path, handler)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        async with Client(f"http://127.0.0.1:{port}", key) as client:
            yield client
    finally:
        await runner.cleanup()


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("PADDOCK_URL", "PADDOCK_API_KEY", "PADDOCK_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "local.key").write_text("local-secret\n")
    return tmp_path


@contextmanager
def served(data: Path, url: str) -> Iterator[None]:
    """As if a server used the directory."""
    (data / "server.json").write_text(json.dumps({"pid": 1, "url": url}))
    descriptor = os.open(data / "server.lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


def test_the_server_of_the_data_directory_is_found(data: Path) -> None:
    with served(data, "http://127.0.0.1:9999"):
        assert Cli(data=str(data)).target() == Target("http://127.0.0.1:9999", "local-secret")


def test_what_a_dead_server_left_is_not_believed(data: Path) -> None:
    """Anybody may listen on its port by now, and would be shown the administrator's key."""
    with served(data, "http://127.0.0.1:9999"):
        pass
    with pytest.raises(NoServer):
        Cli(data=str(data)).target()


def test_a_named_server_counts_more(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(data, "http://127.0.0.1:9999"):
        monkeypatch.setenv("PADDOCK_URL", "http://localhost:1/")
        assert Cli(data=str(data)).target() == Target("http://localhost:1", "local-secret")
        assert Cli(data=str(data), server="127.0.0.1:2").target().url == "http://127.0.0.1:2"


def test_the_local_key_is_not_shown_to_other_machines(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Cli(data=str(data), server="https://paddock.example").target().key is None
    monkeypatch.setenv("PADDOCK_API_KEY", "mine")
    assert Cli(data=str(data), server="https://paddock.example").target().key == "mine"
    assert Cli(data=str(data)).target() == Target(DEFAULT_URL, "mine")


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ("{port: 9107}", "http://127.0.0.1:9107"),
        ("{host: 0.0.0.0, port: 9107}", "http://127.0.0.1:9107"),
        ("{host: '::1'}", "http://[::1]:8420"),
        ("{port: 0}", DEFAULT_URL),
        ("{port: none}", DEFAULT_URL),
    ],
)
def test_where_a_server_would_be_is_told_as_configured(data: Path, settings: str, url: str) -> None:
    (data / "paddock.yaml").write_text(f"server: {settings}")
    with pytest.raises(NoServer) as caught:
        Cli(data=str(data)).target()
    assert f"no Paddock server at {url};" in caught.value.message


def test_a_client_does_not_need_the_secrets_of_the_server(data: Path) -> None:
    (data / "paddock.yaml").write_text('llm: {providers: {far: {kind: openai, key: "${NOT_SET_ANYWHERE}"}}}\ndata: .')
    with served(data, "http://127.0.0.1:9999"):
        cli = Cli()
        assert cli.target() == Target("http://127.0.0.1:9999", "local-secret")
        with pytest.raises(ConfigError, match="NOT_SET_ANYWHERE"):
            _ = cli.loaded


@pytest.mark.parametrize("text", ["ftp://x", "http://", "http://x:port", "://"])
def test_an_address_that_is_none_is_told(data: Path, text: str) -> None:
    with pytest.raises(CliError, match="is not the address of a server"):
        Cli(data=str(data), server=text).target()


async def test_nobody_listens() -> None:
    async with Client("http://127.0.0.1:9", None) as client:
        with pytest.raises(NoServer, match="start one with: paddock serve"):
            await client.get("/v1/sandboxes")


async def test_refusals_keep_their_code_and_the_key_is_sent() -> None:
    async def refuse(request: web.Request) -> web.StreamResponse:
        assert request.headers["Authorization"] == "Bearer secret"
        return web.json_response({"code": "CONFLICT", "message": "no"}, status=409)

    async with serving({"/v1/x": refuse}, "secret") as client:
        with pytest.raises(Refused) as caught:
            await client.get("/v1/x")
        assert (caught.value.status, caught.value.server_code, caught.value.message) == (409, "CONFLICT", "no")


async def test_another_program_is_not_taken_for_a_server() -> None:
    async def page(_: web.Request) -> web.StreamResponse:
        return web.Response(text="<html>", content_type="text/html")

    async with serving({"/v1/x": page}) as client:
        with pytest.raises(CliError, match="does not answer like a Paddock server"):
            await client.get("/v1/x")
        with pytest.raises(Refused, match="HTTP status 404"):
            await client.get("/v1/y")


async def test_all_pages_are_read() -> None:
    async def page(request: web.Request) -> web.StreamResponse:
        number = int(request.query["page"])
        return web.json_response({"items": [{"id": number}], "pagination": {"hasNextPage": number < 3}})

    async with serving({"/v1/x": page}) as client:
        assert await client.items("/v1/x") == [{"id": 1}, {"id": 2}, {"id": 3}]


def output(text: str, cursor: int) -> bytes:
    return json.dumps({"type": "stdout", "text": text, "eol": False, "cursor": cursor}).encode() + b"\n"


END = (
    json.dumps({"type": "error", "error": {"evalue": "4", "traceback": ["exit status 4"]}, "cursor": 6}).encode()
    + b"\n"
)


async def test_following_goes_on_where_the_connection_broke(capfd: pytest.CaptureFixture[str]) -> None:
    asked: list[str] = []

    async def logs(request: web.Request) -> web.StreamResponse:
        asked.append(request.query["cursor"])
        answer = web.StreamResponse()
        await answer.prepare(request)
        if len(asked) == 1:
            await answer.write(output("one", 3) + output("lost", 9)[:10])
            assert request.transport is not None
            request.transport.abort()
            return answer
        await answer.write(output("two", 6) + END)
        return answer

    async with serving({LOGS: logs}) as client:
        execution = Execution(client, BOX, Sink(False))
        execution.id = "c1"
        assert await execution.follow() == Ending(4)
    captured = capfd.readouterr()
    assert captured.out == "onetwo"
    assert "waiting for the server" in captured.err
    assert asked == ["0", "3"]


async def test_lost_output_is_an_error_and_never_a_silent_gap(capfd: pytest.CaptureFixture[str]) -> None:
    async def logs(_: web.Request) -> web.StreamResponse:
        return web.Response(body=output("one", 3) + output("late", 107))

    async with serving({LOGS: logs}) as client:
        execution = Execution(client, BOX, Sink(False))
        execution.id = "c1"
        with pytest.raises(OutputLost, match="100 bytes are lost"):
            await execution.follow()


async def test_a_sandbox_that_is_gone_ends_the_following() -> None:
    async def logs(_: web.Request) -> web.StreamResponse:
        return web.json_response({"code": "SANDBOX_GONE", "message": "the box has ended"}, status=502)

    async with serving({LOGS: logs}) as client:
        execution = Execution(client, BOX, Sink(False))
        execution.id = "c1"
        with pytest.raises(Refused, match="the box has ended"):
            await execution.follow()


async def test_binary_output_is_exact(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    lines: list[dict[str, Any]] = [
        {"type": "stdout", "text": "\ufffd", "data": "/w==", "eol": True, "cursor": 2},
        {"type": "stderr", "text": "e", "eol": False, "cursor": 3},
        {"type": "execution_complete", "cursor": 3},
    ]

    async def logs(_: web.Request) -> web.StreamResponse:
        return web.Response(body="".join(json.dumps(line) + "\n" for line in lines).encode())

    async with serving({LOGS: logs}) as client:
        execution = Execution(client, BOX, Sink(False))
        execution.id = "c1"
        assert await execution.follow() == Ending(0)
    captured = capfdbinary.readouterr()
    assert (captured.out, captured.err) == (b"\xff\n", b"e")


async def test_refusals_of_the_model_apis_are_told_in_the_providers_words() -> None:
    async def refuse(_: web.Request) -> web.StreamResponse:
        document = {"error": {"message": "The model is busy.", "type": "overloaded", "code": None}}
        return web.json_response(document, status=529, headers={"x-paddock-exchange": "ex-1"})

    async with serving({"/v1/chat/completions": refuse}) as client:
        with pytest.raises(Refused, match=r"^The model is busy\.$") as refused:
            await client.post("/v1/chat/completions", {})
    assert (refused.value.status, refused.value.server_code) == (529, "HTTP_529")
    assert refused.value.hint == "see all of it: paddock llm show ex-1"
