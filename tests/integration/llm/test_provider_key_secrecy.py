"""A provider's key is seen by the server and the provider only."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx
import pytest

from tests.integration.llm.conftest import PROVIDER_KEY, RUN_SECRET
from tests.integration.llm.provider_samples import MODELS, STREAM, WHOLE, request
from tests.support.fake_provider import FakeProvider, PlannedResponse, json_response, sse_response
from tests.support.server import Server, run_in_sandbox

ASK = """
import json, os, urllib.request
body = json.dumps({"model": "chat-model", "messages": [{"role": "user", "content": "Hi from the sandbox"}]}).encode()
asked = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body)
asked.add_header("Authorization", "Bearer " + os.environ["OPENAI_API_KEY"])
print(urllib.request.urlopen(asked).read().decode())
"""


@pytest.fixture(scope="module")
def sandbox(client: httpx.Client) -> str:
    answer = client.post("/v1/sandboxes", json={})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def found_in(directory: Path, secret: bytes) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file() and secret in path.read_bytes()]


def test_provider_keys_stay_on_the_server(
    server: Server, client: httpx.Client, fake: FakeProvider, sandbox: str
) -> None:
    visible_texts: list[str] = []
    leaks = f"key {PROVIDER_KEY} is bad"
    for format in sorted(MODELS):
        path, body = request(format, MODELS[format])
        for status in (400, 401, 403, 404, 500):
            fake.always_respond(
                json_response({"error": {"message": leaks, "type": "x"}}, status, headers=[("x-echo", PROVIDER_KEY)])
            )
            answer = client.post(path, json=body)
            visible_texts += [answer.text, str(answer.headers)]
        fake.always_respond(PlannedResponse(raw=f"{PROVIDER_KEY} nonsense\r\n\r\n".encode()))
        visible_texts.append(client.post(path, json=body).text)
    fake.always_respond(PlannedResponse(pieces=[WHOLE["openai-chat"]]))
    output, code = run_in_sandbox(client, sandbox, f"python3 - <<'END'\n{ASK}\nEND")
    assert code == 0 and "Hello" in output, output
    visible_texts += [
        output,
        run_in_sandbox(client, sandbox, "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'")[0],
    ]
    visible_texts += [
        client.get(path).text for path in ("/v1/llm", "/v1/exchanges", "/v1/models", "/v1/keys", "/v1/sandboxes")
    ]
    assert PROVIDER_KEY not in "\n".join(visible_texts)
    assert PROVIDER_KEY not in server.log()
    assert found_in(server.data, PROVIDER_KEY.encode()) == []


def test_secrets_of_runs_are_not_archived(server: Server, client: httpx.Client, fake: FakeProvider) -> None:
    fake.always_respond(json_response(json.loads(WHOLE["openai-chat"])))
    path, body = request("openai-chat", MODELS["openai-chat"])
    body["messages"] = [{"role": "user", "content": f"The token is {RUN_SECRET}."}]
    exchange = client.post(path, json=body).headers["x-paddock-exchange"]
    archived = client.get(f"/v1/exchanges/{exchange}", params={"raw": "request"}).text
    exported = client.get("/v1/exchanges/export").text
    for text in (archived, exported):
        assert "The token is [redacted]" in text and RUN_SECRET not in text
    assert found_in(server.data, RUN_SECRET.encode()) == []


@pytest.mark.parametrize("streamed", [False, True])
def test_key_quoted_by_a_provider_is_redacted(
    server: Server, client: httpx.Client, fake: FakeProvider, streamed: bool
) -> None:
    if streamed:
        half = len(PROVIDER_KEY) // 2
        pieces = [PROVIDER_KEY[:half], PROVIDER_KEY[half:]]
        secret_events = [STREAM["openai-chat"][2].replace(b"Hel", piece.encode()) for piece in pieces]
        fake.always_respond(sse_response([*STREAM["openai-chat"][:2], *secret_events, *STREAM["openai-chat"][3:]]))
    else:
        fake.always_respond(PlannedResponse(pieces=[WHOLE["openai-chat"].replace(b"Hello", PROVIDER_KEY.encode())]))
    path, body = request("openai-chat", "chat-model", stream=streamed)
    exchange = client.post(path, json=body).headers["x-paddock-exchange"]
    archived_response = client.get(f"/v1/exchanges/{exchange}")
    assert archived_response.status_code == 200, archived_response.text
    raw = client.get(f"/v1/exchanges/{exchange}", params={"raw": "response"}).text
    text = "".join(re.findall(r'"content": ?"([^"]*)"', raw))
    assert text
    assert PROVIDER_KEY not in raw and PROVIDER_KEY not in text and PROVIDER_KEY not in archived_response.text


def test_exchanges_of_a_sandbox_are_found_by_its_id(client: httpx.Client, sandbox: str) -> None:
    threads = client.get(f"/v1/sandboxes/{sandbox}/conversations").json()
    assert "Hi from the sandbox" in json.dumps(threads)
    listed = client.get("/v1/exchanges", params={"sandbox": sandbox}).json()["items"]
    assert listed and {item["sandbox"] for item in listed} == {sandbox}


def test_sandbox_key_is_revoked_at_its_end(server: Server, client: httpx.Client, sandbox: str) -> None:
    secret, _ = run_in_sandbox(client, sandbox, "echo $PADDOCK_LLM_KEY")
    with server.client(secret.strip()) as thief:
        # Not on the shared port, even while the sandbox lives.
        assert thief.get("/v1/models").status_code == 401
    client.delete(f"/v1/sandboxes/{sandbox}")
    with server.client(secret.strip()) as thief:
        assert thief.get("/v1/models").status_code == 401
