"""Spans as a collector receives them: OTLP over HTTP, decoded from protobuf."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from pydantic import SecretStr

from paddock.config.llm import ProviderConfig, TracingConfig
from paddock.config.outgoing import OutgoingConfig
from paddock.errors import ConfigError
from paddock.llm.exchange import Exchange, ExchangeOutcome, ModelCaller
from paddock.llm.formats.neutral import TokenUsage
from paddock.llm.gateway.header_filter import read_trace_parent
from paddock.llm.metering.span_export import SpanExporter, make_span_exporter
from paddock.llm.wire.base import HttpRequest
from paddock.model.mcp_records import McpCallOutcome, McpCallRecord
from tests.integration.llm.conftest import provider
from tests.integration.llm.provider_samples import STREAM, WHOLE
from tests.support.fake_provider import FakeProvider, PlannedResponse
from tests.support.http_proxy import HttpProxy
from tests.support.server import run_in_sandbox, run_server

REQUEST = {
    "model": "fast",
    "max_tokens": 50,
    "temperature": 0.5,
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What is this?"}]},
    ],
}
ANSWER = {
    "id": "chatcmpl-1",
    "model": "gpt-4o-2024-08-06",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "A secret."}, "finish_reason": "length"}],
}


class Collector:
    """A collector of spans."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.spans: list[dict[str, Any]] = []
        self.resources: list[dict[str, Any]] = []
        self.url = ""

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        self.paths.append(path)
        self.headers.append(headers)
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resources.append(_attributes(group.resource.attributes))
            for scope in group.scope_spans:
                for span in scope.spans:
                    fields = {name: getattr(span, name) for name in ("name", "kind", "status")}
                    times = {"start": span.start_time_unix_nano / 1e9, "end": span.end_time_unix_nano / 1e9}
                    ids = {"trace": span.trace_id.hex(), "parent": span.parent_span_id.hex()}
                    self.spans.append({**fields, **times, **ids, "attributes": _attributes(span.attributes)})


def _attributes(given: Any) -> dict[str, Any]:
    return {one.key: _value(one.value) for one in given}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(item) for item in value.array_value.values] if kind == "array_value" else getattr(value, kind)


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            made.take(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        made.url = f"http://127.0.0.1:{server.server_port}"
        yield made
        server.shutdown()
        thread.join()


@contextmanager
def tracing(settings: TracingConfig, **providers: ProviderConfig) -> Iterator[SpanExporter]:
    tracer = make_span_exporter(settings, providers, delay=0.01)
    assert tracer is not None
    try:
        yield tracer
    finally:
        tracer.close()


def an_exchange(**fields: Any) -> Exchange:
    given: dict[str, Any] = {
        "model": "fast",
        "request": json.dumps(REQUEST).encode(),
        "route": "fast",
        "provider": "main",
        "provider_kind": "openai",
        "provider_model": "gpt-4o",
        "status": 200,
        "response": [(0.5, json.dumps(ANSWER).encode())],
        "usage": TokenUsage(100, 20, 60, 10, 5),
        "cost": 0.25,
        "first_byte": 0.5,
        "total": 2.0,
        "client": "tool/1.0",
        "caller": ModelCaller("t", "key-1", "sb-1", "run-1", "session-1", "someone"),
    }
    return Exchange("ex-1", 1_700_000_000.0, format="openai-chat", operation="generate", **(given | fields))


def test_span_follows_the_genai_conventions(collector: Collector) -> None:
    settings = TracingConfig(endpoint=f"{collector.url}/v1/traces", headers={"X-Key": SecretStr("k")})
    with tracing(settings, main=ProviderConfig(kind="openai", base_url="https://models.example:8443/v1")) as tracer:
        tracer.record(an_exchange())
    assert collector.paths == ["/v1/traces"]
    assert collector.headers[0]["x-key"] == "k"
    assert collector.resources[0]["service.name"] == "paddock"
    (span,) = collector.spans
    assert (span["name"], span["kind"], span["status"].code) == ("chat gpt-4o", 3, 0)
    assert (span["start"], span["end"]) == (1_700_000_000.0, 1_700_000_002.0)
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "main",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.request.max_tokens": 50,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.response.model": "gpt-4o-2024-08-06",
        "gen_ai.response.finish_reasons": ["length"],
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 60,
        "gen_ai.usage.cache_creation.input_tokens": 10,
        "gen_ai.usage.reasoning.output_tokens": 5,
        "server.address": "models.example",
        "server.port": 8443,
        "paddock.sandbox": "sb-1",
        "paddock.run": "run-1",
        "paddock.tenant": "t",
        "paddock.model": "fast",
        "paddock.cost": 0.25,
        "user.id": "someone",
        "session.id": "session-1",
    }
    assert {name: span["attributes"].get(name) for name in expected} == expected
    assert "error.type" not in span["attributes"]


def test_span_belongs_to_client_trace(collector: Collector) -> None:
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    with tracing(TracingConfig(endpoint=collector.url)) as tracer:
        for _ in range(3):
            tracer.record(an_exchange(trace_parent=f"00-{trace}-{parent}-01"))
        tracer.record(an_exchange())
    assert [(span["trace"], span["parent"]) for span in collector.spans[:3]] == [(trace, parent)] * 3
    assert collector.spans[3]["trace"] != trace and not collector.spans[3]["parent"]


def test_requests_of_a_run_or_session_are_one_trace(collector: Collector) -> None:
    callers = [
        ModelCaller("t", "k", "sb-1", "run-1", "session-1"),
        ModelCaller("t", "k", "sb-2", "run-1", "session-2"),
        ModelCaller("t", "k", "sb-3", None, "session-1"),
        ModelCaller("t", "k", "sb-4", None, "session-1"),
        ModelCaller("other", "k", "sb-5", "run-1"),
        ModelCaller("t", "k"),
        ModelCaller("t", "k"),
    ]
    with tracing(TracingConfig(endpoint=collector.url)) as tracer:
        for caller in callers:
            tracer.record(an_exchange(caller=caller))
    traces = [span["trace"] for span in collector.spans]
    assert traces[0] == traces[1] and traces[2] == traces[3]
    assert len(set(traces)) == 5 and not any(span["parent"] for span in collector.spans)


ASK = """
import json, os, urllib.request as u
body = json.dumps({"model": "fast", "messages": [{"role": "user", "content": "Hi"}]}).encode()
headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
for _ in range(2): u.urlopen(u.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)).read()
"""


def test_requests_through_the_server_are_traced(collector: Collector, fake: FakeProvider, tmp_path: Path) -> None:
    llm = {
        "tracing": {"endpoint": f"{collector.url}/v1/traces"},
        "providers": {"chat": provider(fake.url, "openai")},
        "models": {"fast": "chat/upstream"},
    }
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    body = {"model": "fast", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    with run_server(tmp_path, {"llm": llm}) as server, server.client() as client:
        for stream in (False, True):
            pieces = STREAM["openai-chat"] if stream else [WHOLE["openai-chat"]]
            fake.always_respond(
                PlannedResponse(pieces=pieces, content_type="text/event-stream" if stream else "application/json")
            )
            sent = {**body, "stream": stream}
            answer = client.post("/v1/messages", json=sent, headers={"traceparent": f"00-{trace}-{parent}-01"})
            assert answer.status_code == 200 and "Hel" in answer.text, answer.text
        fake.always_respond(PlannedResponse(pieces=[WHOLE["openai-chat"]]))
        created = client.post("/v1/sandboxes", json={"extensions": {"paddock.llm.run": "nightly-7"}})
        output, code = run_in_sandbox(client, created.json()["id"], f"python3 - <<'EOF'{ASK}EOF")
        assert code == 0, output
    answered = json.loads(WHOLE["openai-chat"])["model"]
    assert [(span["trace"], span["parent"]) for span in collector.spans[:2]] == [(trace, parent)] * 2
    assert [span["attributes"]["gen_ai.response.model"] for span in collector.spans] == [answered] * 4
    first, second = collector.spans[2:]
    assert first["trace"] == second["trace"] != trace and not first["parent"]
    assert first["attributes"]["paddock.run"] == "nightly-7"


@pytest.mark.parametrize(
    ("header", "taken"),
    [
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", True),
        ("00-00000000000000000000000000000000-b7ad6b7169203331-01", False),
        ("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", False),
        ("01-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", False),
        ("x" * 100_000, False),
    ],
)
def test_malformed_trace_context_is_ignored(header: str, taken: bool) -> None:
    request = HttpRequest("POST", "/v1/messages", "", [(b"traceparent", header.encode())], b"")
    assert read_trace_parent(request) == (header if taken else None)


def test_span_has_all_request_parameters(collector: Collector) -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    more = {"seed": 7, "stop": "END", "frequency_penalty": 0.1, "presence_penalty": 0.2, "n": 1, "tools": [tool]}
    with tracing(TracingConfig(endpoint=collector.url, content=True)) as tracer:
        tracer.record(an_exchange(request=json.dumps(REQUEST | more).encode(), answered_model="gemini-2.5-pro"))
    attributes = collector.spans[0]["attributes"]
    assert attributes["gen_ai.request.seed"] == 7 and attributes["gen_ai.request.stop_sequences"] == ["END"]
    assert (attributes["gen_ai.request.frequency_penalty"], attributes["gen_ai.request.presence_penalty"]) == (0.1, 0.2)
    assert attributes["gen_ai.response.model"] == "gemini-2.5-pro"
    assert json.loads(attributes["gen_ai.tool.definitions"])[0]["name"] == "look"
    assert "gen_ai.request.choice.count" not in attributes


def test_content_is_exported_only_if_configured(collector: Collector) -> None:
    for content in (False, True):
        with tracing(TracingConfig(endpoint=collector.url, content=content)) as tracer:
            tracer.record(an_exchange())
    without_content, with_content = (span["attributes"] for span in collector.spans)
    assert "secret" not in str(without_content) and "What is this" not in str(without_content)
    assert json.loads(with_content["gen_ai.system_instructions"]) == [{"type": "text", "content": "Be brief."}]
    assert json.loads(with_content["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": "What is this?"}]}
    ]
    expected_message = {
        "role": "assistant",
        "parts": [{"type": "text", "content": "A secret."}],
        "finish_reason": "length",
    }
    assert json.loads(with_content["gen_ai.output.messages"]) == [expected_message]


def test_long_conversation_is_cut_to_its_end_without_images(collector: Collector) -> None:
    data = base64.b64encode(bytes(100_000)).decode()
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    old = [{"role": "user", "content": "x" * 60_000} for _ in range(20)]
    messages = [*old, {"role": "user", "content": [picture, {"type": "text", "text": "the last"}]}]
    with tracing(TracingConfig(endpoint=collector.url, content=True)) as tracer:
        tracer.record(an_exchange(request=json.dumps({"model": "fast", "messages": messages}).encode()))
    input_messages = collector.spans[0]["attributes"]["gen_ai.input.messages"]
    assert 200_000 < len(input_messages) < 262_144
    assert json.loads(input_messages)[-1]["parts"] == [
        {"type": "blob", "modality": "image", "mime_type": "image/png"},
        {"type": "text", "content": "the last"},
    ]


def test_span_has_langfuse_attributes(collector: Collector) -> None:
    settings = TracingConfig(
        langfuse_url=f"{collector.url}/", langfuse_public_key="pk", langfuse_secret_key=SecretStr("sk"), content=True
    )
    stream = b"".join(
        b"data: " + json.dumps(chunk).encode() + b"\n\n"
        for chunk in (
            {"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": None}]},
            {"id": "c", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        )
    )
    with tracing(settings) as tracer:
        tracer.record(an_exchange(stream=True, response=[(0.5, stream[:30]), (0.6, stream[30:])]))
    assert collector.paths == ["/api/public/otel/v1/traces"]
    assert collector.headers[0]["authorization"] == "Basic " + base64.b64encode(b"pk:sk").decode()
    attributes = collector.spans[0]["attributes"]
    assert attributes["langfuse.observation.type"] == "generation"
    assert attributes["langfuse.observation.model.name"] == "gpt-4o"
    assert attributes["langfuse.session.id"] == "session-1" and attributes["langfuse.user.id"] == "someone"
    assert attributes["langfuse.observation.completion_start_time"] == "2023-11-14T22:13:20.500000+00:00"
    assert json.loads(attributes["langfuse.observation.cost_details"]) == {"total": 0.25}
    tokens = json.loads(attributes["langfuse.observation.usage_details"])
    assert tokens == {
        "input": 30,
        "cache_read_input_tokens": 60,
        "cache_creation_input_tokens": 10,
        "output": 20,
        "total": 120,
    }
    assert json.loads(attributes["langfuse.observation.output"])[0]["parts"] == [{"type": "text", "content": "Hi"}]
    assert attributes["gen_ai.response.finish_reasons"] == ["stop"]


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"outcome": ExchangeOutcome.FAILED, "status": 529}, "529"),
        ({"outcome": ExchangeOutcome.CUT, "response": [(0.1, b"data: {")], "stream": True}, "cut"),
        ({"outcome": ExchangeOutcome.CLIENT_GONE, "response": []}, "client_gone"),
    ],
)
def test_failed_exchange_has_an_error_status(collector: Collector, fields: dict[str, Any], kind: str) -> None:
    with tracing(TracingConfig(endpoint=collector.url)) as tracer:
        tracer.record(an_exchange(error="too busy", usage=None, cost=None, **fields))
    (span,) = collector.spans
    assert span["attributes"]["error.type"] == kind
    assert (span["status"].code, span["status"].message) == (2, "too busy")


def test_unusual_exchanges_do_not_break_the_batch(collector: Collector) -> None:
    strange: list[dict[str, Any]] = [
        {"model": "\ud800", "provider_model": "\ud800", "error": "\udfff", "outcome": ExchangeOutcome.FAILED},
        {"usage": TokenUsage(2**70, 2**70), "request": b'{"max_tokens": 18446744073709551615}'},
        {"request": b"\xff", "response": [(0.0, b"<html>")]},
        {"request": b"[" * 10_000, "format": "openai-chat"},
        {"model": "m" * 1_000_000},
    ]
    with tracing(TracingConfig(endpoint=collector.url, content=True)) as tracer:
        for fields in strange:
            exchange = an_exchange()
            for name, value in fields.items():
                setattr(exchange, name, value)
            tracer.record(exchange)
        tracer.record(an_exchange())
    assert len(collector.spans) == len(strange) + 1
    assert max(len(span["attributes"]["paddock.model"]) for span in collector.spans) == 2000


@pytest.mark.parametrize("way", ["refuses", "is silent"])
def test_unreachable_collector_does_not_slow_requests(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.llm.metering.span_export._CLOSE_SECONDS", 0.1)
    monkeypatch.setattr("paddock.llm.metering.span_export._SEND_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        if way == "refuses":
            deaf.close()
        tracer = make_span_exporter(TracingConfig(endpoint=address), delay=0.01)
        assert tracer is not None
        started = time.perf_counter()
        for _ in range(3000):
            tracer.record(an_exchange())
        # Had it waited for the collector even once in ten times, it would have taken a minute.
        assert time.perf_counter() - started < 20.0
        started = time.perf_counter()
        tracer.close()
        assert time.perf_counter() - started < 10.0


def test_span_queue_is_bounded(monkeypatch: pytest.MonkeyPatch, collector: Collector) -> None:
    monkeypatch.setattr("paddock.llm.metering.span_export._MAX_QUEUED_BYTES", 1000)
    with tracing(TracingConfig(endpoint=collector.url)) as tracer:
        tracer.record(an_exchange(request=b"x" * 2000))
        assert tracer.dropped == 1
        tracer.record(an_exchange())
    assert len(collector.spans) == 1


def test_opentelemetry_is_not_imported_unless_configured() -> None:
    assert make_span_exporter(TracingConfig()) is None
    check = (
        "import sys, paddock.llm.metering.span_export; "
        "print(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    made = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert made.stdout == "False\n"


def test_missing_library_and_settings_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="langfuse_public_key and langfuse_secret_key"):
        make_span_exporter(TracingConfig(langfuse_url="http://127.0.0.1"))
    with pytest.raises(ConfigError, match="is not a valid URL"):
        make_span_exporter(TracingConfig(endpoint="127.0.0.1:4318"))
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ConfigError, match=r"pip install 'paddock\[tracing\]'"):
        make_span_exporter(TracingConfig(endpoint="http://127.0.0.1:4318"))


@pytest.mark.anyio
async def test_spans_are_sent_through_the_proxy(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # The library must not choose for itself.
    monkeypatch.delenv("NO_PROXY", raising=False)
    settings = TracingConfig(endpoint="http://collector.test/v1/traces")
    async with HttpProxy(credentials="alice:s3cr3t").serving() as proxy:
        proxy.routes["collector.test:80"] = int(collector.url.rpartition(":")[2])
        proxies = OutgoingConfig(proxy=SecretStr(proxy.url_with_credentials)).proxies({})
        tracer = make_span_exporter(settings, proxies=proxies, delay=0.01)
        assert tracer is not None
        tracer.record(an_exchange())
        await asyncio.to_thread(tracer.close)
        assert proxy.requests == ["POST http://collector.test/v1/traces HTTP/1.1"]
    assert len(collector.spans) == 1 and "proxy-authorization" not in collector.headers[0]


@pytest.mark.anyio
async def test_collector_is_trusted_by_the_extra_certificates_only(collector: Collector, tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("collector.test").configure_cert(context)
    received: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    async with server, HttpProxy().serving() as proxy:
        proxy.routes["collector.test:443"] = server.sockets[0].getsockname()[1]
        for bundle, count in ((None, 0), (tmp_path / "ca.pem", 1)):
            proxies = OutgoingConfig(ca_bundle=bundle).proxies({"HTTPS_PROXY": proxy.url})
            settings = TracingConfig(endpoint="https://collector.test/v1/traces")
            tracer = make_span_exporter(settings, proxies=proxies, delay=0.01)
            assert tracer is not None
            tracer.record(an_exchange())
            await asyncio.to_thread(tracer.close)
            assert len(received) == count
        assert proxy.requests[0].startswith("CONNECT collector.test:443 ")


@pytest.mark.anyio
async def test_local_collectors_need_no_proxy(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    tracer = make_span_exporter(
        TracingConfig(endpoint=f"{collector.url}/v1/traces"), proxies=OutgoingConfig().proxies(os.environ), delay=0.01
    )
    assert tracer is not None
    tracer.record(an_exchange())
    await asyncio.to_thread(tracer.close)
    assert len(collector.spans) == 1


def test_mcp_calls_are_spans_of_their_run(collector: Collector) -> None:
    call = McpCallRecord(
        id="mcp_1",
        tenant="t",
        caller="key-1",
        origin="sandbox",
        server="tracker",
        method="tools/call",
        target="search",
        run="run-1",
        started_at=datetime.fromtimestamp(1_700_000_000, UTC),
        duration=0.5,
        outcome=McpCallOutcome.TOOL_ERROR,
        arguments='{"q": "x"}',
        result="{}",
        request_size=10,
        response_size=2,
        tokens=1,
    )
    for content in (False, True):
        with tracing(TracingConfig(endpoint=collector.url + "/v1/traces", content=content)) as tracer:
            tracer.record(an_exchange())
            tracer.record_mcp_call(call)
    plain, full = [span for span in collector.spans if span["name"] == "tools/call search"]
    assert plain["trace"] == next(span["trace"] for span in collector.spans if span["name"] != plain["name"])
    assert plain["end"] - plain["start"] == pytest.approx(0.5)
    attributes = plain["attributes"]
    assert attributes["mcp.method.name"] == "tools/call" and attributes["gen_ai.tool.name"] == "search"
    assert attributes["error.type"] == "tool_error" and attributes["paddock.mcp.server"] == "tracker"
    assert "gen_ai.tool.call.arguments" not in attributes
    assert full["attributes"]["gen_ai.tool.call.arguments"] == '{"q": "x"}'
