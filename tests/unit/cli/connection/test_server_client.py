"""Server client: discovery, keys, error responses, pages, and interrupted streams."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from paddock.cli.connection.server_address import DEFAULT_URL, ServerTarget, wait_for_server_url
from paddock.cli.connection.server_client import ServerClient
from paddock.cli.framework.context import CliContext
from paddock.cli.output.errors import CliError, NoServerError, RequestRefused
from paddock.cli.sandbox.remote_command import CommandOutputLost, CommandOutputWriter, RemoteCommand, RemoteCommandEnd
from paddock.errors import ConfigError

pytestmark = pytest.mark.anyio
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
SANDBOX = "sb-0123456789abcdef"
LOGS = f"/v1/sandboxes/{SANDBOX}/proxy/44772/command/c1/logs"


@asynccontextmanager
async def serving(routes: dict[str, Handler], key: str | None = None) -> AsyncIterator[ServerClient]:
    app = web.Application()
    for path, handler in routes.items():
        app.router.add_route("*", path, handler)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        async with ServerClient(f"http://127.0.0.1:{port}", key) as client:
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
        assert CliContext(data=str(data)).server_target() == ServerTarget("http://127.0.0.1:9999", "local-secret")


def test_files_of_a_dead_server_are_ignored(data: Path) -> None:
    """Another program may listen on the port by now and would receive the administrator's key."""
    with served(data, "http://127.0.0.1:9999"):
        pass
    with pytest.raises(NoServerError):
        CliContext(data=str(data)).server_target()


def test_a_starting_server_is_waited_for(data: Path) -> None:
    with served(data, "http://127.0.0.1:9999"):
        os.rename(data / "server.json", data / "later")
        started = threading.Timer(0.2, os.rename, [data / "later", data / "server.json"])
        started.start()
        assert CliContext(data=str(data)).server_target().url == "http://127.0.0.1:9999"
        started.join()


def test_server_that_fails_to_start_is_not_waited_for(data: Path) -> None:
    with served(data, "http://127.0.0.1:9999"):
        (data / "server.json").unlink()
        assert wait_for_server_url(data, 0.1) is None
    with pytest.raises(NoServerError):
        CliContext(data=str(data)).server_target()


def test_a_named_server_takes_precedence(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(data, "http://127.0.0.1:9999"):
        monkeypatch.setenv("PADDOCK_URL", "http://localhost:1/")
        assert CliContext(data=str(data)).server_target() == ServerTarget("http://localhost:1", "local-secret")
        assert CliContext(data=str(data), server="127.0.0.1:2").server_target().url == "http://127.0.0.1:2"


def test_the_local_key_is_not_shown_to_other_machines(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert CliContext(data=str(data), server="https://paddock.example").server_target().key is None
    monkeypatch.setenv("PADDOCK_API_KEY", "mine")
    assert CliContext(data=str(data), server="https://paddock.example").server_target().key == "mine"
    assert CliContext(data=str(data)).server_target() == ServerTarget(DEFAULT_URL, "mine")


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
def test_the_error_names_the_configured_address(data: Path, settings: str, url: str) -> None:
    (data / "paddock.yaml").write_text(f"server: {settings}")
    with pytest.raises(NoServerError) as caught:
        CliContext(data=str(data)).server_target()
    assert f"no Paddock server at {url};" in caught.value.message


def test_a_client_does_not_need_the_secrets_of_the_server(data: Path) -> None:
    (data / "paddock.yaml").write_text('llm: {providers: {far: {kind: openai, key: "${NOT_SET_ANYWHERE}"}}}\ndata: .')
    with served(data, "http://127.0.0.1:9999"):
        cli = CliContext()
        assert cli.server_target() == ServerTarget("http://127.0.0.1:9999", "local-secret")
        with pytest.raises(ConfigError, match="NOT_SET_ANYWHERE"):
            _ = cli.strict_config


@pytest.mark.parametrize("text", ["ftp://x", "http://", "http://x:port", "://"])
def test_an_invalid_url_is_an_error(data: Path, text: str) -> None:
    with pytest.raises(CliError, match="is not a server URL"):
        CliContext(data=str(data), server=text).server_target()


async def test_connecting_to_a_closed_port_is_an_error() -> None:
    async with ServerClient("http://127.0.0.1:9", None) as client:
        with pytest.raises(NoServerError, match="start one with: paddock serve"):
            await client.get("/v1/sandboxes")


async def test_refusals_keep_their_code_and_the_key_is_sent() -> None:
    async def refuse(request: web.Request) -> web.StreamResponse:
        assert request.headers["Authorization"] == "Bearer secret"
        return web.json_response({"code": "CONFLICT", "message": "no"}, status=409)

    async with serving({"/v1/x": refuse}, "secret") as client:
        with pytest.raises(RequestRefused) as caught:
            await client.get("/v1/x")
        assert (caught.value.status, caught.value.server_code, caught.value.message) == (409, "CONFLICT", "no")


async def test_another_program_is_not_taken_for_a_server() -> None:
    async def page(_: web.Request) -> web.StreamResponse:
        return web.Response(text="<html>", content_type="text/html")

    async with serving({"/v1/x": page}) as client:
        with pytest.raises(CliError, match="does not respond like a Paddock server"):
            await client.get("/v1/x")
        with pytest.raises(RequestRefused, match="HTTP status 404"):
            await client.get("/v1/y")


async def test_all_pages_are_read() -> None:
    async def page(request: web.Request) -> web.StreamResponse:
        number = int(request.query["page"])
        return web.json_response({"items": [{"id": number}], "pagination": {"hasNextPage": number < 3}})

    async with serving({"/v1/x": page}) as client:
        assert await client.list_all("/v1/x") == [{"id": 1}, {"id": 2}, {"id": 3}]


def output(text: str, cursor: int) -> bytes:
    return json.dumps({"type": "stdout", "text": text, "eol": False, "cursor": cursor}).encode() + b"\n"


END = (
    json.dumps({"type": "error", "error": {"evalue": "4", "traceback": ["exit status 4"]}, "cursor": 6}).encode()
    + b"\n"
)


async def test_following_output_continues_after_a_lost_connection(capfd: pytest.CaptureFixture[str]) -> None:
    cursors: list[str] = []

    async def logs(request: web.Request) -> web.StreamResponse:
        cursors.append(request.query["cursor"])
        answer = web.StreamResponse()
        await answer.prepare(request)
        if len(cursors) == 1:
            await answer.write(output("one", 3) + output("lost", 9)[:10])
            assert request.transport is not None
            request.transport.abort()
            return answer
        await answer.write(output("two", 6) + END)
        return answer

    async with serving({LOGS: logs}) as client:
        execution = RemoteCommand(client, SANDBOX, CommandOutputWriter(False))
        execution.id = "c1"
        assert await execution.follow_output() == RemoteCommandEnd(4)
    captured = capfd.readouterr()
    assert captured.out == "onetwo"
    assert "waiting for the server" in captured.err
    assert cursors == ["0", "3"]


async def test_lost_output_is_an_error_and_never_a_silent_gap(capfd: pytest.CaptureFixture[str]) -> None:
    async def logs(_: web.Request) -> web.StreamResponse:
        return web.Response(body=output("one", 3) + output("late", 107))

    async with serving({LOGS: logs}) as client:
        execution = RemoteCommand(client, SANDBOX, CommandOutputWriter(False))
        execution.id = "c1"
        with pytest.raises(CommandOutputLost, match="100 bytes are lost"):
            await execution.follow_output()


async def test_following_output_ends_if_the_sandbox_is_gone() -> None:
    async def logs(_: web.Request) -> web.StreamResponse:
        return web.json_response({"code": "SANDBOX_GONE", "message": "the sandbox has ended"}, status=502)

    async with serving({LOGS: logs}) as client:
        execution = RemoteCommand(client, SANDBOX, CommandOutputWriter(False))
        execution.id = "c1"
        with pytest.raises(RequestRefused, match="the sandbox has ended"):
            await execution.follow_output()


async def test_binary_output_is_exact(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    lines: list[dict[str, Any]] = [
        {"type": "stdout", "text": "\ufffd", "data": "/w==", "eol": True, "cursor": 2},
        {"type": "stderr", "text": "e", "eol": False, "cursor": 3},
        {"type": "execution_complete", "cursor": 3},
    ]

    async def logs(_: web.Request) -> web.StreamResponse:
        return web.Response(body="".join(json.dumps(line) + "\n" for line in lines).encode())

    async with serving({LOGS: logs}) as client:
        execution = RemoteCommand(client, SANDBOX, CommandOutputWriter(False))
        execution.id = "c1"
        assert await execution.follow_output() == RemoteCommandEnd(0)
    captured = capfdbinary.readouterr()
    assert (captured.out, captured.err) == (b"\xff\n", b"e")


async def test_errors_of_model_apis_keep_the_provider_message() -> None:
    async def refuse(_: web.Request) -> web.StreamResponse:
        document = {"error": {"message": "The model is busy.", "type": "overloaded", "code": None}}
        return web.json_response(document, status=529, headers={"x-paddock-exchange": "ex-1"})

    async with serving({"/v1/chat/completions": refuse}) as client:
        with pytest.raises(RequestRefused, match=r"^The model is busy\.$") as refused:
            await client.post("/v1/chat/completions", {})
    assert (refused.value.status, refused.value.server_code) == (529, "HTTP_529")
    assert refused.value.hint == "details: paddock llm show ex-1"
