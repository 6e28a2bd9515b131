"""A provider's key is known to the server and the provider. Nobody else ever sees it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx
import pytest

from tests.integration.llm.conftest import PROVIDER_KEY
from tests.integration.llm.recorded import MODELS, STREAM, WHOLE, request
from tests.serving import Server, run
from tests.upstream import Answer, Upstream, events, whole

ASK = """
import json, os, urllib.request
body = json.dumps({"model": "chat-model", "messages": [{"role": "user", "content": "Hi from the box"}]}).encode()
asked = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body)
asked.add_header("Authorization", "Bearer " + os.environ["OPENAI_API_KEY"])
print(urllib.request.urlopen(asked).read().decode())
"""


@pytest.fixture(scope="module")
def box(client: httpx.Client) -> str:
    answer = client.post("/v1/sandboxes", json={})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def found_in(directory: Path, secret: bytes) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file() and secret in path.read_bytes()]


def test_no_key_of_a_provider_leaves_the_server(server: Server, client: httpx.Client, fake: Upstream, box: str) -> None:
    told: list[str] = []
    leaks = f"key {PROVIDER_KEY} is bad"
    for format in sorted(MODELS):
        path, body = request(format, MODELS[format])
        for status in (400, 401, 403, 404, 500):
            fake.always(whole({"error": {"message": leaks, "type": "x"}}, status, headers=[("x-echo", PROVIDER_KEY)]))
            answer = client.post(path, json=body)
            told += [answer.text, str(answer.headers)]
        fake.always(Answer(raw=f"{PROVIDER_KEY} nonsense\r\n\r\n".encode()))
        told.append(client.post(path, json=body).text)
    fake.always(Answer(pieces=[WHOLE["openai-chat"]]))
    output, code = run(client, box, f"python3 - <<'END'\n{ASK}\nEND")
    assert code == 0 and "Hello" in output, output
    told += [output, run(client, box, "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'")[0]]
    told += [client.get(path).text for path in ("/v1/llm", "/v1/exchanges", "/v1/models", "/v1/keys", "/v1/sandboxes")]
    assert PROVIDER_KEY not in "\n".join(told)
    assert PROVIDER_KEY not in server.log()
    assert found_in(server.data, PROVIDER_KEY.encode()) == []


@pytest.mark.parametrize("streamed", [False, True])
def test_a_key_that_a_provider_says_aloud_is_not_kept(
    server: Server, client: httpx.Client, fake: Upstream, streamed: bool
) -> None:
    if streamed:
        half = len(PROVIDER_KEY) // 2
        pieces = [PROVIDER_KEY[:half], PROVIDER_KEY[half:]]
        said = [STREAM["openai-chat"][2].replace(b"Hel", piece.encode()) for piece in pieces]
        fake.always(events([*STREAM["openai-chat"][:2], *said, *STREAM["openai-chat"][3:]]))
    else:
        fake.always(Answer(pieces=[WHOLE["openai-chat"].replace(b"Hello", PROVIDER_KEY.encode())]))
    path, body = request("openai-chat", "chat-model", stream=streamed)
    exchange = client.post(path, json=body).headers["x-paddock-exchange"]
    kept = client.get(f"/v1/exchanges/{exchange}")
    assert kept.status_code == 200, kept.text
    raw = client.get(f"/v1/exchanges/{exchange}", params={"raw": "response"}).text
    text = "".join(re.findall(r'"content": ?"([^"]*)"', raw))
    assert text
    assert PROVIDER_KEY not in raw and PROVIDER_KEY not in text and PROVIDER_KEY not in kept.text


def test_what_a_sandbox_said_is_found_under_its_id(client: httpx.Client, box: str) -> None:
    threads = client.get(f"/v1/sandboxes/{box}/conversations").json()
    assert "Hi from the box" in json.dumps(threads)
    listed = client.get("/v1/exchanges", params={"sandbox": box}).json()["items"]
    assert listed and {item["sandbox"] for item in listed} == {box}


def test_its_key_dies_with_it(server: Server, client: httpx.Client, box: str) -> None:
    secret, _ = run(client, box, "echo $PADDOCK_LLM_KEY")
    with server.client(secret.strip()) as thief:
        # Not on the port for everybody even while the sandbox lives.
        assert thief.get("/v1/models").status_code == 401
    client.delete(f"/v1/sandboxes/{box}")
    with server.client(secret.strip()) as thief:
        assert thief.get("/v1/models").status_code == 401
