"""A server with providers behind a company proxy."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.llm.provider_samples import STREAM, WHOLE
from tests.integration.llm.test_provider_key_secrecy import ASK, found_in
from tests.support.fake_provider import FakeProvider, json_response, sse_response
from tests.support.http_proxy import HttpProxy
from tests.support.server import free_port, run_in_sandbox, run_server

pytestmark = pytest.mark.anyio
PASSWORD = "s3cr3t-p4ss"
QUESTION = {"messages": [{"role": "user", "content": "Hi"}]}


async def test_requests_and_streams_pass_the_proxy_and_errors_name_it(tmp_path: Path, fake: FakeProvider) -> None:
    closed_port = free_port()
    async with HttpProxy(credentials=f"alice:{PASSWORD}").serving() as proxy:
        proxy.routes["models.test:80"] = int(fake.url.rpartition(":")[2])
        providers: dict[str, Any] = {
            "good": {},
            "wrong": {"proxy": f"http://bob:{PASSWORD}@127.0.0.1:{proxy.port}"},
            "away": {"proxy": f"http://alice:{PASSWORD}@127.0.0.1:{closed_port}"},
            "direct": {"base_url": f"{fake.url}/v1", "proxy": "none"},
        }
        settings = {
            "outgoing": {"proxy": proxy.url_with_credentials},
            "llm": {
                "providers": {
                    name: {"kind": "openai", "base_url": "http://models.test/v1", "retries": 0, **more}
                    for name, more in providers.items()
                },
                "models": {"chat-model": "away/m"} | {name: f"{name}/m" for name in providers},
                "list_models_every": None,
            },
        }
        with run_server(tmp_path, settings) as server, server.client() as client:

            async def ask(model: str, **more: Any) -> str:
                body = {"model": model, **QUESTION, **more}
                return (await asyncio.to_thread(client.post, "/v1/chat/completions", json=body)).text

            fake.always_respond(json_response(json.loads(WHOLE["openai-chat"])))
            texts = [await ask("good")]
            assert "Hello" in texts[0] and len(proxy.requests) == 1
            fake.always_respond(sse_response(STREAM["openai-chat"]))
            texts.append(await ask("good", stream=True))
            assert "data: [DONE]" in texts[1] and len(proxy.requests) == 2
            fake.always_respond(json_response(json.loads(WHOLE["openai-chat"])))
            assert "Hello" in await ask("direct")
            assert proxy.requests == ["POST http://models.test/v1/chat/completions HTTP/1.1"] * 2
            texts += [await ask("wrong"), await ask("away")]
            assert "provider wrong: the proxy of llm.providers.wrong.proxy refused the user name" in texts[2]
            assert f"its address is {proxy.url}" in texts[2]
            assert "provider away: the proxy of llm.providers.away.proxy cannot be reached: Conn" in texts[3]
            sandbox = (await asyncio.to_thread(client.post, "/v1/sandboxes", json={})).json()["id"]
            script = ASK.replace("print(", "import urllib.error\ntry: print(") + (
                "except urllib.error.HTTPError as error: print(error.read().decode())\n"
            )
            command = f"python3 - <<'END'\n{script}\nEND"
            output, _ = await asyncio.to_thread(run_in_sandbox, client, sandbox, command)
            assert "the proxy of llm.providers.away.proxy cannot be reached" in output
            assert str(closed_port) not in output  # Sandboxes must not learn addresses of the server's network.
            texts += [output, *[client.get(path).text for path in ("/v1/llm", "/v1/exchanges", "/v1/server")]]
            assert PASSWORD not in "\n".join(texts) and PASSWORD not in server.log()
            assert found_in(server.data, PASSWORD.encode()) == []
