"""Invalid requests and faulty providers, and the errors that result."""

from __future__ import annotations

import socket
import threading
import time

import httpx
import pytest

from tests.integration.llm.conftest import PROVIDER_KEY
from tests.integration.llm.provider_samples import MODELS, PATHS, STREAM, WHOLE, request
from tests.support.fake_provider import FakeProvider, PlannedResponse, json_response, sse_response
from tests.support.server import Server, eventually

FORMATS = sorted(WHOLE)
GOOD = PlannedResponse(pieces=[WHOLE["openai-chat"]])


@pytest.mark.parametrize(
    ("format", "body"),
    [
        (format, body)
        for format in FORMATS
        for body in (b"", b"{", b"[]", b'"x"', b"\xff\xfe", b'{"model":1}', b'{"messages":{}}', b"null")
        # Gemini has the model in the address; whether the rest is right its server decides.
        if format != "gemini" or not body.startswith(b'{"m')
    ],
)
def test_invalid_body_gets_400_in_client_format(client: httpx.Client, format: str, body: bytes) -> None:
    path, _ = request(format, MODELS[format])
    answer = client.post(path, content=body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["message"]
    assert answer.headers["x-should-retry"] == "false"


def test_body_size_is_limited(client: httpx.Client, fake: FakeProvider) -> None:
    fake.always_respond(GOOD)
    path, body = request("openai-chat", "chat-model", text="x" * 50_000_000)
    assert client.post(path, json=body).status_code == 200
    assert len(fake.received[0].body) > 50_000_000
    path, body = request("anthropic", "anthropic-model", text="x" * 65 * 2**20)
    answer = client.post(path, json=body)
    assert answer.status_code == 413 and answer.json()["error"]["type"] == "request_too_large"


def test_request_without_key_is_refused(server: Server) -> None:
    for format in FORMATS:
        path, body = request(format, MODELS[format])
        with server.client("") as stranger:
            answer = stranger.post(path, json=body)
            assert answer.status_code == 401 and "key" in answer.json()["error"]["message"].lower()
            assert stranger.post(path, json=body, headers={"x-api-key": "sk-nonsense"}).status_code == 401


def test_error_for_unknown_model_lists_known_models(client: httpx.Client) -> None:
    for format in FORMATS:
        path, body = request(format, "no-such-model")
        answer = client.post(path, json=body)
        assert answer.status_code == 404
        message = answer.json()["error"]["message"]
        assert "no-such-model" in message and "chat-model" in message and "wild-*" in message


def test_websocket_gets_hint_to_use_http(client: httpx.Client) -> None:
    upgrade = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
    answer = client.get("/v1/responses", headers={**upgrade, "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ=="})
    assert answer.status_code == 426


def test_connectivity_check_of_claude_is_answered(server: Server) -> None:
    with server.client("") as stranger:
        assert stranger.head("/").status_code == 200


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_permanent_errors_carry_should_retry_false(client: httpx.Client, fake: FakeProvider, status: int) -> None:
    fake.always_respond(json_response({"error": {"message": f"refused {PROVIDER_KEY}", "type": "x"}}, status))
    path, body = request("openai-chat", "patient-model")
    answer = client.post(path, json=body)
    assert answer.status_code == status and answer.headers["x-should-retry"] == "false"
    assert len(fake.received) == 1
    if status in (401, 403):
        assert PROVIDER_KEY not in answer.text and "patient" in answer.text


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 529])
def test_transient_errors_are_retried_before_the_first_byte(
    client: httpx.Client, fake: FakeProvider, status: int
) -> None:
    fake.respond_in_sequence(json_response({"error": "x"}, status), GOOD)
    path, body = request("openai-chat", "patient-model")
    assert client.post(path, json=body).content == WHOLE["openai-chat"]
    assert len(fake.received) == 2


def test_retry_after_of_a_provider_is_respected(client: httpx.Client, fake: FakeProvider) -> None:
    fake.respond_in_sequence(json_response({"error": "x"}, 429, headers=[("Retry-After", "1")]), GOOD)
    path, body = request("openai-chat", "patient-model")
    began = time.monotonic()
    assert client.post(path, json=body).status_code == 200
    assert time.monotonic() - began >= 0.95
    fake.always_respond(json_response({"error": {"message": "slow down"}}, 429, headers=[("Retry-After", "77")]))
    answer = client.post(path, json=body)
    assert answer.status_code == 429 and answer.headers["retry-after"] == "77"
    assert "x-should-retry" not in answer.headers


TROUBLES = {
    "refused": PlannedResponse(raw=b""),
    "reset": PlannedResponse(pieces=[b"{"], chunked=True, cut=True),
    "garbage": PlannedResponse(raw=b"\x00\x01\x02 this is not HTTP\r\n\r\n"),
    "html": PlannedResponse(pieces=[b"<html><body>Welcome</body></html>"], content_type="text/html"),
    "truncated": PlannedResponse(
        raw=b'HTTP/1.1 200 OK\r\ncontent-length: 500\r\ncontent-type: application/json\r\n\r\n{"id"'
    ),
    "silence": PlannedResponse(before=1.5),
    "server error": json_response({"error": "x"}, 500),
}


@pytest.mark.parametrize("trouble", sorted(TROUBLES))
def test_fallback_answers_if_first_provider_fails(
    client: httpx.Client, fake: FakeProvider, other: FakeProvider, trouble: str
) -> None:
    fake.always_respond(TROUBLES[trouble])
    other.always_respond(GOOD)
    path, body = request("openai-chat", "falling")
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    assert other.received[0].document["model"] == "second"


def test_fallback_answers_for_unreachable_provider(client: httpx.Client, other: FakeProvider) -> None:
    other.always_respond(GOOD)
    path, body = request("openai-chat", "gone")
    assert client.post(path, json=body).status_code == 200


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("translated", [False, True])
@pytest.mark.parametrize("way", ["clean end", "cut", "stall"])
def test_truncated_stream_never_ends_cleanly(
    client: httpx.Client, fake: FakeProvider, format: str, translated: bool, way: str
) -> None:
    provider = ("anthropic" if format != "anthropic" else "openai-chat") if translated else format
    some = STREAM[provider][: -4 if provider != "gemini" else -1]
    fake.always_respond(sse_response(some, cut=way == "cut", hold=1.0 if way == "stall" else 0.0))
    path, body = request(format, MODELS[provider], stream=True)
    with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
        client.post(path, json=body)


def test_disconnect_cancels_the_upstream_request(server: Server, fake: FakeProvider) -> None:
    fake.always_respond(sse_response(STREAM["openai-chat"][:3] * 200, pause=0.05))
    path, body = request("openai-chat", "chat-model", stream=True)
    with server.client() as leaving, leaving.stream("POST", path, json=body) as answer:
        next(answer.iter_raw())
    eventually(lambda: fake.disconnects == 1)


def test_disconnect_before_the_first_byte_cancels_the_upstream_request(server: Server, fake: FakeProvider) -> None:
    fake.always_respond(PlannedResponse(before=0.9))
    path, body = request("openai-chat", "chat-model")
    with server.client() as leaving, pytest.raises(httpx.ReadTimeout):
        leaving.post(path, json=body, timeout=0.3)
    # The connections of tests before may be hung up on only now.
    eventually(lambda: fake.disconnects >= 1 and not fake.open)


def test_rate_limit_errors_have_retry_after(client: httpx.Client, fake: FakeProvider) -> None:
    fake.always_respond(GOOD)
    path, body = request("openai-chat", "seldom")
    statuses = [client.post(path, json=body).status_code for _ in range(3)]
    assert statuses == [200, 200, 429]
    answer = client.post(path, json=body)
    path, body = request("gemini", "seldom")
    details = client.post(path, json=body).json()["error"]["details"]
    assert details[0]["retryDelay"].endswith("s") and details[0]["@type"].endswith("RetryInfo")
    assert 1 <= int(answer.headers["retry-after"]) <= 61 and "x-should-retry" not in answer.headers


def test_concurrency_limit_of_one(server: Server, client: httpx.Client, fake: FakeProvider) -> None:
    fake.always_respond(PlannedResponse(pieces=[WHOLE["openai-chat"]], before=0.5))
    path, body = request("openai-chat", "one-at-a-time")
    first: list[int] = []

    def slow() -> None:
        with server.client() as own:
            first.append(own.post(path, json=body).status_code)

    thread = threading.Thread(target=slow)
    thread.start()
    eventually(lambda: fake.received)
    assert client.post(path, json=body).status_code == 429
    thread.join()
    assert first == [200] and client.post(path, json=body).status_code == 200


def test_invalid_usage_releases_the_permit(client: httpx.Client, fake: FakeProvider) -> None:
    odd = [piece.replace(b'"input_tokens": 5', b'"input_tokens": null') for piece in STREAM["anthropic"]]
    odd = [piece.replace(b'"output_tokens": 2', b'"input_tokens": {"a": 1}, "output_tokens": 2') for piece in odd]
    fake.always_respond(sse_response(odd))
    path, body = request("anthropic", "anthropic-alone", stream=True)
    assert [client.post(path, json=body).status_code for _ in range(3)] == [200] * 3


def test_recordings_with_cyclic_fallbacks_terminate(client: httpx.Client) -> None:
    path, body = request("openai-chat", "one-way", text="something that nobody has ever asked")
    answer = client.post(path, json=body)
    assert answer.status_code == 404 and answer.headers["x-should-retry"] == "false"


def test_oversized_event_breaks_the_stream(client: httpx.Client, fake: FakeProvider) -> None:
    fake.always_respond(sse_response([b"data: " + b"x" * 2**20] * 20))
    path, body = request("anthropic", "chat-model", stream=True)
    answer = client.post(path, json=body)
    assert answer.status_code == 502 and "large" in answer.text


def test_malformed_events_are_an_error(client: httpx.Client, fake: FakeProvider) -> None:
    fake.always_respond(sse_response([b"data: {not json}\n\n"]))
    path, body = request("anthropic", "chat-model", stream=True)
    assert client.post(path, json=body).status_code == 502


def test_duplicate_finish_ends_stream_once(client: httpx.Client, fake: FakeProvider) -> None:
    pieces = STREAM["openai-chat"]
    fake.always_respond(sse_response([*pieces[:-1], pieces[-3], *pieces[-2:]]))
    path, body = request("anthropic", "chat-model", stream=True)
    answer = client.post(path, json=body)
    assert answer.text.count("event: message_stop") == 1


def test_slow_client_is_disconnected(server: Server) -> None:
    host, port = server.domain.split(":")
    with socket.create_connection((host, int(port))) as slow:
        slow.sendall(
            f"POST {PATHS['anthropic']} HTTP/1.1\r\nhost: {server.domain}\r\ncontent-length: 10\r\n\r\n{{".encode()
        )
        with server.client() as other_client:
            assert other_client.get("/v1/models").status_code == 200


@pytest.mark.parametrize(("wrong", "right"), [("/v1/v1/messages", "/v1/messages"), ("/v1/v1/models", "/v1/models")])
def test_error_for_a_wrong_base_url_suggests_the_right_one(client: httpx.Client, wrong: str, right: str) -> None:
    answer = client.post(wrong, json={"model": "chat-model"})
    assert answer.status_code == 404 and right in answer.json()["error"]["message"]


def test_headers_of_an_upstream_paddock_are_not_forwarded(client: httpx.Client, fake: FakeProvider) -> None:
    theirs = [("x-paddock-exchange", "ex-theirs"), ("x-request-id", "theirs"), ("x-paddock-script", "hello")]
    fake.always_respond(PlannedResponse(pieces=[WHOLE["openai-chat"]], headers=theirs))
    path, body = request("openai-chat", "chat-model")
    headers = client.post(path, json=body).headers
    assert headers.get_list("x-request-id") == ["theirs"] and headers["x-paddock-script"] == "hello"
    assert len(headers.get_list("x-paddock-exchange")) == 1 and headers["x-paddock-exchange"] != "ex-theirs"
