"""The code interpreter: contexts that remember, results that are more than text."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator

import httpx
import pytest
from code_interpreter import CodeInterpreter, SupportedLanguage
from opensandbox import Sandbox
from opensandbox.config import ConnectionConfig
from opensandbox.models.execd import ExecutionHandlers, ExecutionInit, OutputMessage

from tests.contract.opensandbox.conftest import IMAGE

pytestmark = pytest.mark.anyio

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n not really").decode()


@pytest.fixture
async def interpreter(connection: ConnectionConfig) -> AsyncIterator[CodeInterpreter]:
    sandbox = await Sandbox.create(IMAGE, connection_config=connection)
    try:
        async with await CodeInterpreter.create(sandbox=sandbox) as interpreter:
            yield interpreter
    finally:
        await sandbox.destroy()


async def test_python_context_keeps_variables(interpreter: CodeInterpreter) -> None:
    context = await interpreter.codes.create_context(SupportedLanguage.PYTHON)
    await interpreter.codes.run("import math\nx = 41", context=context)
    done = await interpreter.codes.run("print('hi')\nx + 1", context=context)
    assert [message.text for message in done.logs.stdout] == ["hi"]
    assert [result.text for result in done.result] == ["42"]
    other = await interpreter.codes.create_context(SupportedLanguage.PYTHON)
    failed = await interpreter.codes.run("x", context=other)
    assert failed.error is not None and failed.error.name == "NameError"
    listed = await interpreter.codes.list_contexts(SupportedLanguage.PYTHON)
    assert {context.id, other.id} <= {item.id for item in listed}
    await interpreter.codes.delete_context(str(other.id))
    await interpreter.codes.delete_contexts(SupportedLanguage.PYTHON)
    assert await interpreter.codes.list_contexts(SupportedLanguage.PYTHON) == []


async def test_image_results_are_returned(interpreter: CodeInterpreter, connection: ConnectionConfig) -> None:
    """The SDK keeps a result's text only, so its picture is looked for on the wire."""
    code = f"""
import base64
class Picture:
    def _repr_png_(self): return base64.b64decode({PNG!r})
    def __repr__(self): return "a picture"
Picture()
"""
    done = await interpreter.codes.run(code, language=SupportedLanguage.PYTHON)
    assert done.result[0].text == "a picture"
    endpoint = await interpreter.sandbox.get_endpoint(44772)
    headers = endpoint.build_request_headers(connection)
    async with httpx.AsyncClient(trust_env=False) as client:
        body = {"code": code, "context": {"language": "python"}}
        answer = await client.post(f"http://{endpoint.endpoint}/code", json=body, headers=headers)
    events = [json.loads(line) for line in answer.text.splitlines() if line]
    results = next(event["results"] for event in events if event["type"] == "result")
    assert results["image/png"] == PNG


async def test_bash_context_keeps_variables(interpreter: CodeInterpreter) -> None:
    context = await interpreter.codes.create_context(SupportedLanguage.BASH)
    await interpreter.codes.run("N=6; cd /usr", context=context)
    done = await interpreter.codes.run("echo $((N * 7)) $PWD", context=context)
    assert [message.text for message in done.logs.stdout] == ["42 /usr"]


async def test_code_is_interrupted(interpreter: CodeInterpreter) -> None:
    execution_id: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    busy = asyncio.Event()

    async def on_started(event: ExecutionInit) -> None:
        execution_id.set_result(event.id)

    async def on_output(_: OutputMessage) -> None:
        busy.set()

    running = asyncio.create_task(
        interpreter.codes.run(
            "import time\nprint('busy')\ntime.sleep(600)",
            language=SupportedLanguage.PYTHON,
            handlers=ExecutionHandlers(on_init=on_started, on_stdout=on_output),
        )
    )
    await asyncio.wait_for(busy.wait(), 20)
    await interpreter.codes.interrupt(await execution_id)
    done = await asyncio.wait_for(running, 20)
    assert done.error is not None and done.error.name == "KeyboardInterrupt"
