"""No single request blocks the event loop for long, regardless of its content and route.

The server measures the CPU time of each step. The limit grows with the variance of this machine.
"""

from __future__ import annotations

import fcntl
import http.server
import json
import socket
import struct
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.integration.api.conftest import create_sandbox
from tests.support.server import Server, eventually, run_in_sandbox, run_server
from tests.support.server_load import assert_event_loop_responsive, resident_memory

JSON = {"Content-Type": "application/json"}
CHAT_RESPONSE = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hello."}}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
).encode()
FORMATS = {
    "chat": ("/v1/chat/completions", "messages", {"role": "user", "content": "a"}),
    "responses": ("/v1/responses", "input", {"role": "user", "content": "a"}),
    "anthropic": ("/v1/messages", "messages", {"role": "user", "content": "a"}),
    "gemini": ("/v1beta/models/{model}:generateContent", "contents", {"role": "user", "parts": [{"text": "a"}]}),
}


DIMENSIONS = 1024
VECTOR = b'{"object":"embedding","index":0,"embedding":[%s]}' % b",".join([b"0.0123456"] * DIMENSIONS)
USAGE = b'"usage":{"prompt_tokens":2048,"total_tokens":2048}'
EMBEDDINGS = b'{"object":"list","data":[%s],"model":"m",%s}' % (b",".join([VECTOR] * 2048), USAGE)


class ProviderHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        left = int(self.headers["content-length"])
        while left > 0:
            left -= len(self.rfile.read(min(left, 2**20)))
        answer = EMBEDDINGS if self.path.endswith("/embeddings") else CHAT_RESPONSE
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def run_provider() -> Iterator[int]:
    peer = http.server.ThreadingHTTPServer(("127.0.0.1", 0), ProviderHandler)
    threading.Thread(target=peer.serve_forever, daemon=True).start()
    try:
        yield peer.server_port
    finally:
        peer.shutdown()
        peer.server_close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("holds")
    (directory / "s.yaml").write_text(json.dumps({"turns": [{"say": "Hello."}], "otherwise": {"say": "Again."}}))
    with run_provider() as port:
        llm = {
            "listen": f"127.0.0.1:{free_port()}",
            "providers": {
                "s": {"kind": "script", "file": str(directory / "s.yaml")},
                "h": {"kind": "openai", "base_url": f"http://127.0.0.1:{port}/v1", "key": "x", "retries": 0},
            },
            "models": {"scripted": "s", "real": {"provider": "h", "model": "m"}},
        }
        with run_server(directory, {"llm": llm}) as running:
            yield running


def chat_request(format: str, model: str, count: int) -> tuple[str, bytes]:
    path, field, message = FORMATS[format]
    head = {} if format == "gemini" else {"model": model}
    if format == "anthropic":
        head["max_tokens"] = "7"
    start = json.dumps(head)[:-1].replace('"7"', "7") + (", " if head else "")
    messages = ",".join([json.dumps(message)] * count)
    return path.format(model=model), f'{start}"{field}": [{messages}]}}'.encode()


def request_with_many_numbers(format: str, model: str, size: int) -> tuple[str, bytes]:
    path, body = chat_request(format, model, 1)
    return path, body[:-1] + b',"z":[' + b"1," * (size // 2) + b"1]}"


@pytest.mark.parametrize("model", ["scripted", "real"])
@pytest.mark.parametrize("format", FORMATS)
def test_model_requests_keep_event_loop_responsive(
    server: Server, client: httpx.Client, format: str, model: str
) -> None:
    with assert_event_loop_responsive(server, client):
        for path, body in (
            chat_request(format, model, 3_000),
            chat_request(format, model, 30_000),
            chat_request(format, model, 300_000),
            request_with_many_numbers(format, model, 200 * 2**10),
            request_with_many_numbers(format, model, 24 * 2**20),
        ):
            response = client.post(path, content=body, headers=JSON)
            assert response.status_code in (200, 400, 413), response.text[:300]


@pytest.mark.parametrize("model", ["scripted", "real"])
def test_item_references_keep_event_loop_responsive(server: Server, client: httpx.Client, model: str) -> None:
    start = json.dumps({"model": model, "input": [{"type": "item_reference", "id": "x"}], "store": False})[:-1].encode()
    with assert_event_loop_responsive(server, client):
        for count in (2_000, 100_000, 8 * 2**20):
            body = start + b',"z":[' + b"{}," * count + b"{}]}"
            response = client.post("/v1/responses", content=body, headers=JSON)
            assert response.status_code in (200, 400, 413), response.text[:300]


def test_scripted_embeddings_keep_event_loop_responsive(server: Server, client: httpx.Client) -> None:
    text = {"content": {"parts": [{"text": "a"}]}}
    with assert_event_loop_responsive(server, client):
        for texts, dimensions, status in ((2048, 4096, 400), (2048, 512, 200), (256, 4096, 200)):
            body = {"model": "scripted", "input": ["a"] * texts, "dimensions": dimensions}
            response = client.post("/v1/embeddings", json=body)
            assert response.status_code == status, response.text[:300]
            requests = [text | {"outputDimensionality": dimensions}] * texts
            response = client.post("/v1beta/models/scripted:batchEmbedContents", json={"requests": requests})
            assert response.status_code == status, response.text[:300]


def test_translated_embeddings_keep_event_loop_responsive(server: Server, client: httpx.Client) -> None:
    requests = [{"content": {"parts": [{"text": "a"}]}}] * 2048
    with assert_event_loop_responsive(server, client):
        response = client.post("/v1beta/models/real:batchEmbedContents", json={"requests": requests})
        relayed = client.post("/v1/embeddings", json={"model": "real", "input": ["a"] * 2048})
    document = response.json()
    assert [len(each["values"]) for each in document["embeddings"]] == [DIMENSIONS] * 2048
    assert document["usageMetadata"]["promptTokenCount"] == 2048
    assert relayed.content == EMBEDDINGS
    counted = [client.get(f"/v1/exchanges/{each.headers['x-paddock-exchange']}").json() for each in (response, relayed)]
    assert [each["usage"]["input"] for each in counted] == [2048, 2048], counted


def test_model_requests_on_other_ports_keep_event_loop_responsive(server: Server, client: httpx.Client) -> None:
    listen = server.settings["llm"]["listen"]
    path, body = chat_request("anthropic", "real", 300_000)
    sandbox = create_sandbox(client)
    ask = (
        "import os,urllib.request as u,urllib.error as e\n"
        'b=b\'{"model":"scripted","messages":[\'+b\',\'.join([b\'{"role":"user","content":"a"}\']*400000)+b\']}\'\n'
        "r=u.Request(os.environ['OPENAI_BASE_URL']+'/chat/completions',b,"
        "{'Authorization':'Bearer '+os.environ['OPENAI_API_KEY'],'Content-Type':'application/json'})\n"
        "try: print(u.urlopen(r).status)\nexcept e.HTTPError as x: print(x.code)\n"
    )
    with assert_event_loop_responsive(server, client):
        with server.client() as direct:
            response = direct.post(f"http://{listen}{path}", content=body, headers=JSON)
            assert response.status_code == 413 and "values" in response.json()["error"]["message"], response.text[:300]
        output, _ = run_in_sandbox(client, sandbox, f"python3 - <<'EOF'\n{ask}EOF")
        assert output.strip() == "413", output


EMOJI = "\N{SLICE OF PIZZA}".encode()
LONG_TEXTS = {"letters": b"word " * (12 * 2**20), "emoji": EMOJI * (15 * 2**20), "escapes": b"\\n" * (30 * 2**20)}
"""Texts of 60 MiB, the largest that fit into a request."""


@pytest.mark.parametrize(("model", "text"), [("scripted", "letters"), ("real", "emoji"), ("real", "escapes")])
def test_longest_model_requests_keep_event_loop_responsive(
    server: Server, client: httpx.Client, model: str, text: str
) -> None:
    body = b'{"model":"%b","max_tokens":7,"messages":[{"role":"user","content":"%b"}]}' % (
        model.encode(),
        LONG_TEXTS[text],
    )
    listen = server.settings["llm"]["listen"]
    with assert_event_loop_responsive(server, client):
        for url in ("/v1/chat/completions", "/v1/messages", f"http://{listen}/v1/chat/completions"):
            response = client.post(url, content=body, headers=JSON)
            assert response.status_code == 200, response.text[:300]


def test_longest_requests_keep_event_loop_responsive(server: Server, client: httpx.Client) -> None:
    session = client.post("/v1/sessions", json={"model": "scripted"}).json()["id"]
    sandbox = create_sandbox(client)
    script = json.dumps("turns:\n" + "- do: [{say: a}]\n" * 50_000).encode()
    file = b'{"type":"file","name":"a","mime":"text/plain","data":"' + b"YWJj" * (10 * 2**20) + b'"}'
    with assert_event_loop_responsive(server, client):
        for path, body in (
            ("/v1/tasks/validate", b'{"task":{"goal":"%b"}}' % LONG_TEXTS["letters"]),
            ("/v1/tasks/validate", b'{"task":{"goal":"%b"}}' % LONG_TEXTS["emoji"]),
            (
                "/v1/tasks/validate",
                b'{"task":{"name":"x","image":"host","entrypoint":"a","llm":{"script":%b}}}' % script,
            ),
            (f"/v1/sessions/{session}/messages", b'{"text":"%b"}' % LONG_TEXTS["emoji"]),
            (f"/v1/sessions/{session}/messages", b'{"content":[%b]}' % file),
            (f"/v1/sandboxes/{sandbox}/tools/write_file", b'{"path":"a","content":"%b"}' % LONG_TEXTS["emoji"]),
            (f"/v1/sandboxes/{sandbox}/tools/write_file", b'{"path":"a","content":"%b"}' % (EMOJI * (3 * 2**20))),
            (f"/v1/sandboxes/{sandbox}/mcp", b'{"jsonrpc":"2.0","id":1,"method":"%b"}' % LONG_TEXTS["emoji"]),
        ):
            response = client.post(path, content=body, headers=JSON)
            assert response.status_code in (200, 202, 400, 413), (path, response.text[:300])


def test_long_exchanges_are_shown_and_exported(server: Server, client: httpx.Client) -> None:
    body = b'{"model":"scripted","messages":[{"role":"user","content":"%b"}]}' % LONG_TEXTS["letters"]
    exchange = client.post("/v1/chat/completions", content=body, headers=JSON).headers["x-paddock-exchange"]
    eventually(lambda: client.get(f"/v1/exchanges/{exchange}").status_code == 200)
    number = client.get("/v1/exchanges", params={"limit": 1}).json()["items"][0]["number"]
    with assert_event_loop_responsive(server, client):
        for path in ("", "?raw=request", "/conversation"):
            response = client.get(f"/v1/exchanges/{exchange}{path}")
            assert response.status_code == 200 and len(response.content) > 60 * 2**20
        response = client.get("/v1/exchanges/export", params={"number": number})
        assert response.status_code == 200 and len(response.content) > 60 * 2**20


def test_memory_of_requests_is_released(server: Server, client: httpx.Client) -> None:
    path, body = request_with_many_numbers("chat", "real", 24 * 2**20)
    for _ in range(3):
        client.post(path, content=body, headers=JSON)
    before = resident_memory(server)
    for _ in range(6):
        client.post(path, content=body, headers=JSON)
    assert resident_memory(server) - before < 100 * 2**20


LONG_TEXT = b"a" * (24 * 2**20)
REFUSED_BODIES = {
    "invalid JSON": b'{"model":"real","task":{"goal":"' + LONG_TEXT,
    "wrong type": b'{"model":"real","task":"x","messages":"' + LONG_TEXT + b'"}',
}


def send_part_of_body(client: httpx.Client, url: str, body: bytes) -> None:
    """Send a head and most of its body, and disconnect once the server has read them."""
    target = httpx.URL(url)
    head = (
        f"POST {target.path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {client.headers['authorization']}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body) + 1}\r\n\r\n"
    )
    with socket.create_connection((target.host, target.port or 0)) as raw:
        raw.sendall(head.encode() + body)
        eventually(lambda: unsent_bytes(raw) == 0)


def unsent_bytes(raw: socket.socket) -> int:
    return int(struct.unpack("i", fcntl.ioctl(raw, termios.TIOCOUTQ, bytes(4)))[0])


@pytest.mark.parametrize(
    ("path", "port"), [("/v1/tasks/validate", "main"), ("/v1/messages", "main"), ("/v1/messages", "models")]
)
def test_memory_of_refused_and_aborted_requests_is_released(
    server: Server, client: httpx.Client, path: str, port: str
) -> None:
    url = (f"http://{server.settings['llm']['listen']}" if port == "models" else server.url) + path

    def send(kind: str) -> None:
        if kind == "hang-up":
            send_part_of_body(client, url, LONG_TEXT)
        else:
            response = client.post(url, content=REFUSED_BODIES[kind], headers=JSON)
            assert response.status_code == 400, response.text[:300]

    for kind in (*REFUSED_BODIES, "hang-up"):
        send(kind)
        before = resident_memory(server)
        for _ in range(5):
            send(kind)
        assert resident_memory(server) - before < 72 * 2**20, kind
