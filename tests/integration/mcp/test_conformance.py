"""The official conformance suite, run through the gateway: it must find what it finds at the server directly.

The reference server speaks both eras. Views of it that speak only one make the gateway translate between eras.
"""

from __future__ import annotations

import asyncio
import platform
import re
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pytest
import uvicorn
from mcp import Client
from mcp.types import (
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    TextContent,
)

from paddock.api.application import create_api_app
from paddock.app.server import build_server
from paddock.config.schema import Config
from paddock.mcp.serving.http_edge import McpHttpEdge
from paddock.mcp.serving.session_streams import StreamTimes
from paddock.model.keys import ApiKeyTerms, Scope

from .reference_server import MAKE_DIRECTORY, in_thread, reference_server, view_of_one_era

MODULES = MAKE_DIRECTORY / "clis/node_modules"
NODE = MODULES / f"node-linux-{'arm64' if platform.machine() == 'aarch64' else 'x64'}/bin/node"
SUITE = MODULES / "@modelcontextprotocol/conformance/dist/index.js"
SCORE = re.compile(r"^[✓✗] (\S+): (\d+) passed, (\d+) failed", re.MULTILINE)
# Connections of calls are closed at once, as the reference server does: the suite tests that clients can resume them.
TIMES = StreamTimes(first_message_resumable=0.0, poll_after=0.05)
DirectScores: TypeAlias = Callable[[str], dict[str, tuple[int, int]]]
pytestmark = pytest.mark.timeout(180)


@dataclass(frozen=True)
class Addresses:
    direct: str
    """The reference server, which speaks both eras."""
    gateway: str
    """`/both`, `/sessions` and `/stateless` are the server and its views."""


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    if not (NODE.exists() and SUITE.exists()):
        pytest.fail("the conformance suite is not installed; run `make setup-test`")
    with ExitStack() as held:
        direct = held.enter_context(reference_server())
        urls = {"both": direct} | {
            era: held.enter_context(view_of_one_era(direct, era)) for era in ("sessions", "stateless")
        }
        yield Addresses(direct, held.enter_context(gateway(tmp_path_factory.mktemp("gateway"), urls)))


@pytest.fixture(scope="module")
def direct(addresses: Addresses, tmp_path_factory: pytest.TempPathFactory) -> DirectScores:
    """The numbers of the reference server without the gateway."""
    found: dict[str, dict[str, tuple[int, int]]] = {}

    def find(revision: str) -> dict[str, tuple[int, int]]:
        if revision not in found:
            found[revision] = score(addresses.direct, revision, tmp_path_factory.mktemp("direct"))
        return found[revision]

    return find


@contextmanager
def gateway(directory: Path, urls: dict[str, str]) -> Iterator[str]:
    """Serve the API with these MCP servers, and add a key to all requests: the suite has none."""

    async def serve(port: int, stop: asyncio.Event) -> None:
        servers = [{"name": name, "url": url} for name, url in urls.items()]
        settings = {
            "data": directory / "data",
            "sandboxes": {"default_image": "host", "min_free_disk": 0},
            "mcp": {"allow": ["127.0.0.1"], "servers": servers},
        }
        async with build_server(Config.model_validate(settings)) as paddock:
            _, key = await paddock.keys.create("suite", "default", [Scope.MCP_USE], terms=ApiKeyTerms())
            edge = McpHttpEdge(paddock.services.mcp_edge.resolve, allows_origin=lambda headers: True, times=TIMES)
            app = create_api_app(replace(paddock.services, mcp_edge=edge))

            async def with_key(scope: Any, receive: Any, send: Any) -> None:
                header = (b"authorization", f"Bearer {key}".encode())
                await app({**scope, "headers": [*scope.get("headers", ()), header]}, receive, send)

            options = uvicorn.Config(
                with_key, port=port, log_config=None, ws="none", lifespan="off", timeout_graceful_shutdown=1
            )
            server = uvicorn.Server(options)
            task = asyncio.create_task(server.serve())
            await stop.wait()
            server.should_exit = True
            await task
            await edge.close()

    with in_thread(serve) as port:
        yield f"http://127.0.0.1:{port}/mcp"


def score(url: str, revision: str, directory: Path) -> dict[str, tuple[int, int]]:
    """Run the suite's requirements of a revision; return the numbers of passed and failed checks by scenario."""
    command = [str(NODE), str(SUITE), "server", "--url", url, "--requirements", revision, "-o", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, stdin=subprocess.DEVNULL)
    found = {name: (int(passed), int(failed)) for name, passed, failed in SCORE.findall(done.stdout)}
    assert found, done.stdout[-2000:] + done.stderr[-2000:]
    return found


def worse(found: dict[str, tuple[int, int]], expected: dict[str, tuple[int, int]]) -> dict[str, Any]:
    """Return scenarios with other numbers than directly."""
    return {name: (found.get(name), numbers) for name, numbers in expected.items() if found.get(name) != numbers}


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_the_suite_finds_no_difference_to_the_server(
    addresses: Addresses, direct: DirectScores, revision: str, tmp_path: Path
) -> None:
    assert not worse(score(f"{addresses.gateway}/both", revision, tmp_path), direct(revision))
    assert sum(passed for passed, _ in direct(revision).values()) >= 84


def test_clients_with_sessions_use_a_server_of_sessions(
    addresses: Addresses, direct: DirectScores, tmp_path: Path
) -> None:
    """Both edges translate, to the stateless form and back: nothing may be lost."""
    assert not worse(score(f"{addresses.gateway}/sessions", "2025-11-25", tmp_path), direct("2025-11-25"))


def test_clients_with_sessions_use_a_stateless_server(
    addresses: Addresses, direct: DirectScores, tmp_path: Path
) -> None:
    expected = direct("2025-11-25")
    found = score(f"{addresses.gateway}/stateless", "2025-11-25", tmp_path)
    # These tools of the reference server send requests to the client, which it refuses without a session.
    needs_session = {"tools-call-sampling", "tools-call-elicitation"} | {
        name for name in expected if name.startswith("elicitation-sep")
    }
    assert set(worse(found, expected)) <= needs_session


def test_stateless_clients_use_a_server_of_sessions(addresses: Addresses, direct: DirectScores, tmp_path: Path) -> None:
    expected = direct("2026-07-28")
    found = score(f"{addresses.gateway}/sessions", "2026-07-28", tmp_path)
    # These tools of the reference server answer `input_required` themselves, which the server refuses in sessions.
    needs_stateless = {name for name in expected if name.startswith(("input-required-result", "tasks-"))}
    # In sessions it does not declare that its lists change, so that two checks are left out.
    assert set(worse(found, expected)) <= {*needs_stateless, "server-stateless"}
    assert found["server-stateless"] == (28, 0)


@pytest.mark.anyio
async def test_a_client_with_a_session_gives_a_stateless_server_its_input(addresses: Addresses) -> None:
    """Each `input_required` becomes a request to the client, in several rounds, with the server's own state."""
    async with asking_client(f"{addresses.gateway}/stateless", "legacy") as (client, asked):
        result = await client.call_tool("test_input_required_result_elicitation", {})
        assert text_of(result) == "Hello, Ada!" and asked == ["elicitation"]
        asked.clear()
        assert "Paris" in text_of(await client.call_tool("test_input_required_result_sampling", {}))
        assert not (await client.call_tool("test_input_required_result_multi_round", {})).is_error
        assert asked == ["sampling", "elicitation", "elicitation"]


@pytest.mark.anyio
async def test_a_stateless_client_gives_a_server_of_sessions_its_input(addresses: Addresses) -> None:
    """Each request of the server becomes an `input_required`, and the repeated call continues the suspended one."""
    async with asking_client(f"{addresses.gateway}/sessions", "auto") as (client, asked):
        result = await client.call_tool("test_elicitation", {"message": "Who are you?"})
        assert "action=accept" in text_of(result) and "Ada" in text_of(result)
        assert "Paris" in text_of(await client.call_tool("test_sampling", {"prompt": "The capital of France?"}))
        assert asked == ["elicitation", "sampling"]


@asynccontextmanager
async def asking_client(url: str, mode: Literal["auto", "legacy"]) -> AsyncIterator[tuple[Client, list[str]]]:
    """Connect the SDK's client, which answers the server's questions; yield it, and what it was asked."""
    asked: list[str] = []

    async def on_elicitation(context: object, params: ElicitRequestParams) -> ElicitResult:
        asked.append("elicitation")
        schema = params.requested_schema if isinstance(params, ElicitRequestFormParams) else {}
        names = schema.get("properties", {})
        return ElicitResult(action="accept", content=dict.fromkeys(names, "Ada"))

    async def on_sampling(context: object, params: CreateMessageRequestParams) -> CreateMessageResult:
        asked.append("sampling")
        return CreateMessageResult(role="assistant", content=TextContent(type="text", text="Paris"), model="tests")

    async with Client(
        url, mode=mode, elicitation_callback=on_elicitation, sampling_callback=on_sampling, read_timeout_seconds=30
    ) as client:
        yield client, asked


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text
