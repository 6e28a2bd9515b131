"""Servers that are programs in a sandbox, of both eras, well-behaved and not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from paddock.errors import McpTimeout, TooLarge, Unavailable
from paddock.mcp.upstreams.programs import program_sessions
from paddock.mcp.upstreams.sessions import session_pool
from tests.integration.mcp.upstreams.sandbox_programs import (
    INSIDE,
    LEGACY,
    PRELUDE,
    STATELESS,
    ProgramSandbox,
    program_sandbox,
)
from tests.integration.mcp.upstreams.scripted_server import ADA, ask, call_tool, messages_of, result_of

pytestmark = pytest.mark.anyio
FORM: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def sandbox(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ProgramSandbox]:
    async with program_sandbox(tmp_path_factory.mktemp("programs")) as running:
        yield running


async def _text(upstream: Any, tool: str, arguments: Any = None, **more: Any) -> str:
    result = await result_of(upstream, call_tool(tool, arguments, **more), INSIDE)
    return str(result["content"][0]["text"])


async def test_a_program_is_started_once_and_ends_with_the_connection(sandbox: ProgramSandbox) -> None:
    async with sandbox.python(LEGACY) as upstream:
        assert await sandbox.programs() == []
        pids = await asyncio.gather(*(_text(upstream, "pid", message_id=number) for number in range(10)))
        assert len(set(pids)) == 1
        assert len(await sandbox.programs()) == 1
        assert [each.status for each in upstream.health_history] == ["idle", "starting", "ready"]
        assert upstream.sandbox_state("programs").status == "ready"
        await upstream.end_sandbox("programs")
        assert await sandbox.programs() == []
    with pytest.raises(Unavailable):
        await _text(upstream, "pid")


async def test_progress_and_results_have_the_ids_of_the_client(sandbox: ProgramSandbox) -> None:
    for source in (LEGACY, STATELESS):
        async with sandbox.python(source) as upstream:
            request = call_tool("count", message_id="my-id", _meta={"progressToken": "t"})
            *progress, response = await messages_of(upstream, request, INSIDE)
            assert {each.params_object()["progressToken"] for each in progress} == {"t"}
            assert response.id == "my-id"
            assert response.result_object()["resultType"] == "complete"


async def test_stateless_programs_get_requests_unchanged(sandbox: ProgramSandbox) -> None:
    async with sandbox.python(STATELESS) as upstream:
        names = json.loads(await _text(upstream, "any"))
        assert "io.modelcontextprotocol/clientCapabilities" in names
        asked = await result_of(upstream, call_tool("ask"), INSIDE)
        assert asked["requestState"] == "own"
        assert await _text(upstream, "ask", requestState="own", inputResponses={"a": {}}) == 'own{"a": {}}'


async def test_stateless_subscriptions_have_the_id_of_the_client(sandbox: ProgramSandbox) -> None:
    async with sandbox.python(STATELESS) as upstream:
        request = ask("subscriptions/listen", "sub", notifications={"toolsListChanged": True})
        own = {"io.modelcontextprotocol/subscriptionId": "sub"}
        async with asyncio.timeout(20), aclosing(upstream.exchange(request, INSIDE)) as messages:
            assert (await anext(messages)).params_object()["_meta"] == own
            await _text(upstream, "change")
            changed = await anext(messages)
            assert (changed.method, changed.params_object()["_meta"]) == ("notifications/tools/list_changed", own)
            await _text(upstream, "end")
            ended = await anext(messages)
            assert (ended.id, ended.result_object()["_meta"]) == ("sub", own)


async def test_requests_of_a_program_suspend_the_call(sandbox: ProgramSandbox) -> None:
    async with sandbox.python(LEGACY) as upstream:
        asked = await result_of(upstream, call_tool("ask", _meta=FORM), INSIDE)
        answers = {key: {"content": {"name": "Ada"}} for key in asked["inputRequests"]}
        more = {"requestState": asked["requestState"], "inputResponses": answers}
        assert await _text(upstream, "ask", message_id=8, _meta=FORM, **more) == "Ada"
        assert await _text(upstream, "ask") == "-32601"  # This client has no such capability.


async def test_a_program_is_restarted_once_for_new_capabilities(sandbox: ProgramSandbox) -> None:
    async with sandbox.python(LEGACY) as upstream:
        before = await _text(upstream, "pid")
        assert await _text(upstream, "declared", _meta=FORM) == '{"elicitation": {"form": {}}}'
        after = await _text(upstream, "pid")
        assert before != after
        assert await _text(upstream, "pid", _meta=FORM) == after


async def test_a_program_that_dies_is_restarted_and_its_calls_end_with_the_reason(sandbox: ProgramSandbox) -> None:
    async with sandbox.python(LEGACY) as upstream:
        before = await _text(upstream, "pid")
        # Input that the program does not read any more must not hide why it died.
        requests = [call_tool("die")] + [call_tool("never", {"x": "y" * 300_000}, number) for number in range(8)]
        calls = [messages_of(upstream, each, INSIDE) for each in requests]
        for error in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(error, Unavailable)
            assert "exit code 3: out of luck" in error.message
        assert upstream.state.status == "failed"
        with pytest.raises(Unavailable, match="out of luck"):  # Too early for another start.
            await _text(upstream, "pid")
        async with asyncio.timeout(20):
            while True:
                try:
                    assert await _text(upstream, "pid") != before
                    break
                except Unavailable:
                    await asyncio.sleep(0.05)
        assert upstream.state.status == "ready"


async def test_a_program_that_cannot_start_says_why(sandbox: ProgramSandbox) -> None:
    async with sandbox.server("/no/such/program") as upstream:
        with pytest.raises(Unavailable, match="no/such/program"):
            await _text(upstream, "pid")
        assert "no/such/program" in upstream.state.reason
    async with sandbox.python("import sys; sys.exit('no licence\\x1b[31m')") as upstream:
        with pytest.raises(Unavailable, match="exit code 1: no licence"):
            await _text(upstream, "pid")


async def test_a_program_that_starts_slowly_is_said_to_be_starting(sandbox: ProgramSandbox) -> None:
    async with sandbox.python("import sys, time; print('installing', file=sys.stderr, flush=True); time.sleep(60)",
                              timeouts={"start": 3}) as upstream:  # fmt: skip
        loop = asyncio.get_running_loop()
        hurried = type(INSIDE)(tenant="default", caller="ada", sandbox="programs", deadline=loop.time() + 0.2)
        with pytest.raises(McpTimeout, match="still starting"):
            await messages_of(upstream, ask("tools/list"), hurried)
        assert upstream.state.status == "starting"
        with pytest.raises(McpTimeout, match="did not start within 3 s: installing"):
            await messages_of(upstream, ask("tools/list"), INSIDE)
        assert upstream.state.status == "failed"


async def test_an_old_program_that_ignores_the_probe_is_used(
    sandbox: ProgramSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_sessions, "PROBE_TIME", 0.2)
    silent = LEGACY.replace('elif "id" in message', 'elif method != "server/discover" and "id" in message')
    async with sandbox.python(silent) as upstream:
        assert await _text(upstream, "hello") == "hello"


async def test_a_new_program_that_answers_the_probe_late_is_started_again(
    sandbox: ProgramSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_sessions, "PROBE_TIME", 0.2)
    slow = "import time; time.sleep(1)\n" + STATELESS.replace(
        'elif method == "initialize":\n        refuse(message)', ""
    )
    async with sandbox.python(slow) as upstream:
        names = json.loads(await _text(upstream, "any"))
        assert "io.modelcontextprotocol/clientCapabilities" in names


async def test_a_program_that_changed_its_revision_is_probed_again(sandbox: ProgramSandbox) -> None:
    path = "/tmp/changing.py"
    await sandbox.client.write_file(path, LEGACY.encode())
    async with sandbox.server("python3", path) as upstream:
        for source in (STATELESS, LEGACY):
            assert await _text(upstream, "any")
            await sandbox.client.write_file(path, source.encode())
            [program] = await sandbox.programs()
            await sandbox.client.close_terminal(program)
            async with asyncio.timeout(20):
                while not await _is_answered(upstream):
                    await asyncio.sleep(0.05)


async def _is_answered(upstream: Any) -> bool:
    try:
        return bool(await _text(upstream, "any"))
    except Unavailable:
        return False


async def test_garbage_between_messages_is_ignored(sandbox: ProgramSandbox) -> None:
    async with sandbox.python(LEGACY) as upstream:
        assert (await result_of(upstream, call_tool("garbage"), INSIDE))["n"] == 1
        assert await _text(upstream, "hello") == "hello"
    async with sandbox.python("while True: print('spam')") as upstream:
        with pytest.raises(Unavailable, match="not MCP messages"):
            await _text(upstream, "hello")


async def test_floods_are_ignored_or_cut_off(sandbox: ProgramSandbox) -> None:
    async with sandbox.python(LEGACY, limits={"response_size": "1Mi"}) as upstream:
        request = ask("subscriptions/listen", "sub", notifications={"toolsListChanged": True})
        async with asyncio.timeout(60), aclosing(upstream.exchange(request, INSIDE)) as messages:
            await anext(messages)
            assert await _text(upstream, "flood") == "flooded"
            assert (await anext(messages)).method == "notifications/tools/list_changed"
            more = asyncio.ensure_future(anext(messages))  # All changes were told as one.
            assert await _text(upstream, "hello") == "hello"
            assert not more.done()
            more.cancel()
            await asyncio.wait([more])
        with pytest.raises(TooLarge):
            await _text(upstream, "flood", _meta={"io.modelcontextprotocol/logLevel": "debug"})


async def test_huge_messages_end_the_program(sandbox: ProgramSandbox) -> None:
    async with sandbox.python(LEGACY, limits={"response_size": "1Mi"}) as upstream:
        assert len(await _text(upstream, "big", {"size": 900_000})) == 900_000
        with pytest.raises(TooLarge, match=r"limits\.response_size"):
            await _text(upstream, "big", {"size": 100_000_000})
        assert len(await sandbox.programs()) <= 1


async def test_large_requests_arrive_whole(sandbox: ProgramSandbox) -> None:
    async with sandbox.python(LEGACY, limits={"request_size": "4Mi"}) as upstream:
        texts = await asyncio.gather(
            *(_text(upstream, f"t{number}", {"text": "ü\n" * 300_000}, message_id=number) for number in range(4))
        )
        assert texts == ["t0", "t1", "t2", "t3"]
        with pytest.raises(TooLarge, match=r"limits\.request_size"):
            await _text(upstream, "hello", {"text": "x" * 2**22})


async def test_a_program_that_does_not_read_is_given_up(sandbox: ProgramSandbox) -> None:
    deaf = PRELUDE + "discover(next(received())); time.sleep(60)"
    async with sandbox.python(deaf, limits={"request_size": "1Mi"}, timeouts={"call": 2}) as upstream:
        calls = [messages_of(upstream, call_tool("a", {"x": "y" * 900_000}, each), INSIDE) for each in range(8)]
        errors = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(each) for each in errors} <= {McpTimeout, Unavailable}
        assert any("does not read" in str(each) for each in errors)


async def test_cancelled_calls_are_cancelled_in_the_program(sandbox: ProgramSandbox) -> None:
    async with sandbox.python(LEGACY, timeouts={"call": 1.5}) as upstream:
        with pytest.raises(McpTimeout):
            await _text(upstream, "never", message_id="client")
        async with asyncio.timeout(10):
            while await _text(upstream, "cancelled") != "cancelled True":
                await asyncio.sleep(0.02)


async def test_a_change_of_tools_makes_kept_lists_stale(sandbox: ProgramSandbox) -> None:
    async with sandbox.python(LEGACY) as upstream:
        request = ask("subscriptions/listen", "sub", notifications={"toolsListChanged": True})
        async with asyncio.timeout(20), aclosing(upstream.exchange(request, INSIDE)) as messages:
            await anext(messages)
            await result_of(upstream, ask("tools/list"), INSIDE)
            await _text(upstream, "change")
            assert (await anext(messages)).method == "notifications/tools/list_changed"


async def test_variables_reach_the_program(sandbox: ProgramSandbox) -> None:
    async with sandbox.python(LEGACY, env={"LEVEL": "a 'b' $HOME"}) as upstream:
        assert await _text(upstream, "env") == "a 'b' $HOME"


async def test_idle_programs_are_ended(sandbox: ProgramSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_pool.SessionPool.__init__, "__defaults__", (lambda message: None, 0.1))
    async with sandbox.python(LEGACY) as upstream:
        before = await _text(upstream, "pid")
        async with asyncio.timeout(20):
            while upstream.state.status != "idle" or await sandbox.programs():
                await asyncio.sleep(0.02)
        assert await _text(upstream, "pid") != before


async def test_a_program_of_an_earlier_server_process_is_ended(sandbox: ProgramSandbox) -> None:
    async with sandbox.python(LEGACY, name="same") as first, sandbox.python(LEGACY, name="same") as second:
        await _text(first, "pid")
        [before] = await sandbox.programs()
        await _text(second, "pid")
        [after] = await sandbox.programs()
        assert before != after


async def test_callers_without_a_sandbox_are_told(sandbox: ProgramSandbox) -> None:
    async with sandbox.python(LEGACY) as upstream:
        with pytest.raises(Unavailable, match="program in sandboxes"):
            await messages_of(upstream, ask("tools/list"), ADA)
