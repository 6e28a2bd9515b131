"""Export exchanges as OpenTelemetry spans.

The gateway only puts a finished exchange into a queue. A thread turns queued exchanges into spans, and the SDK's thread
sends them in batches; spans that no collector accepts are dropped without further effect.
"""

from __future__ import annotations

import base64
import logging
import queue
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import structlog

import paddock
from paddock.config.llm import API_ADDRESSES, ProviderConfig, TracingConfig
from paddock.config.outgoing_proxy import OutgoingProxies, ProxyAddress
from paddock.errors import ConfigError
from paddock.llm.exchange import Exchange, ExchangeOutcome
from paddock.llm.metering.exchange_spans import Attributes, ExchangeSpan, make_exchange_span
from paddock.llm.metering.mcp_call_spans import make_mcp_call_span
from paddock.llm.wire.upstream_address import make_tls_context
from paddock.model.mcp_records import McpCallRecord

LANGFUSE_PATH = "/api/public/otel/v1/traces"
_MAX_QUEUED = 1000
_MAX_QUEUED_BYTES = 64 * 2**20
_SEND_SECONDS = 5.0
_CLOSE_SECONDS = 2.0
_DELAY_SECONDS = 1.0
NO_PROXIES = OutgoingProxies()
_MISSING = "llm.tracing needs OpenTelemetry, which is not installed; run: pip install 'paddock[tracing]'"
_NOISY = ("opentelemetry.exporter", "opentelemetry.sdk")
log = structlog.get_logger()


def make_span_exporter(
    settings: TracingConfig,
    providers: Mapping[str, ProviderConfig] | None = None,
    *,
    proxies: OutgoingProxies = NO_PROXIES,
    delay: float = _DELAY_SECONDS,
) -> SpanExporter | None:
    """Return a span exporter, if one is configured. Raises `ConfigError` when it cannot be created."""
    targets = _export_targets(settings)
    return SpanExporter(targets, settings, providers or {}, delay, proxies) if targets else None


class SpanExporter:
    """Sends spans of finished exchanges. Create it with `make_span_exporter`, and `close` it."""

    def __init__(
        self,
        targets: Mapping[str, Mapping[str, str]],
        settings: TracingConfig,
        providers: Mapping[str, ProviderConfig],
        delay: float,
        proxies: OutgoingProxies = NO_PROXIES,
    ) -> None:
        self._content = settings.content
        self._langfuse = settings.langfuse_url is not None
        self._servers = {name: server for name, config in providers.items() if (server := _server_attributes(config))}
        self._provider, self._start = _make_sdk(targets, delay, 256 if settings.content else 2048, proxies)
        self._waiting: queue.Queue[Exchange | McpCallRecord | None] = queue.Queue()
        self._queued_bytes = 0
        self._sent_bytes = 0
        """Queued and processed bytes; each counter is changed by one thread only."""
        self.dropped = 0
        """Exchanges without a span, because the queue was full."""
        self._thread = threading.Thread(target=self._run, name="tracing", daemon=True)
        self._thread.start()

    def record_mcp_call(self, call: McpCallRecord) -> None:
        """Queue a finished MCP call. Never blocks; drops the call if the queue is full."""
        self.record(call)

    def record(self, exchange: Exchange | McpCallRecord) -> None:
        """Queue a finished exchange. Never blocks; drops the exchange if the queue is full."""
        size = _exchange_size(exchange)
        if self._waiting.qsize() >= _MAX_QUEUED or self._queued_bytes - self._sent_bytes + size > _MAX_QUEUED_BYTES:
            self.dropped += 1
            if self.dropped == 1:
                log.warning("span queue full; dropping spans")
            return
        self._queued_bytes += size
        self._waiting.put(exchange)

    def close(self) -> None:
        """Send queued spans, for two seconds at most."""
        self._waiting.put(None)
        # Shut down in a thread: the SDK would wait for a collector that does not answer.
        closer = threading.Thread(target=self._shut_down, name="tracing close", daemon=True)
        closer.start()
        closer.join(_CLOSE_SECONDS)

    def _shut_down(self) -> None:
        self._thread.join(_CLOSE_SECONDS)
        self._provider.shutdown()

    def _run(self) -> None:
        while (exchange := self._waiting.get()) is not None:
            try:
                if isinstance(exchange, McpCallRecord):
                    self._send(make_mcp_call_span(exchange, content=self._content))
                else:
                    self._send(make_exchange_span(exchange, content=self._content, langfuse=self._langfuse))
            except Exception as error:  # an unusual exchange must not stop the export of the next ones
                log.debug("could not create span", exchange=exchange.id, error=str(error))
            self._sent_bytes += _exchange_size(exchange)

    def _send(self, span: ExchangeSpan) -> None:
        attributes: Attributes = span.attributes | self._servers.get(span.provider, {})
        self._start(span, attributes)


def _exchange_size(exchange: Exchange | McpCallRecord) -> int:
    if isinstance(exchange, McpCallRecord):
        return len(exchange.arguments) + len(exchange.result)
    return len(exchange.request) + sum([len(piece) for _, piece in exchange.response])


def _export_targets(settings: TracingConfig) -> dict[str, dict[str, str]]:
    """Return the collector addresses, each with its headers."""
    targets: dict[str, dict[str, str]] = {}
    if settings.endpoint is not None:
        targets[settings.endpoint] = {name: value.get_secret_value() for name, value in settings.headers.items()}
    if settings.langfuse_url is not None:
        if settings.langfuse_public_key is None or settings.langfuse_secret_key is None:
            raise ConfigError("llm.tracing: langfuse_url needs langfuse_public_key and langfuse_secret_key beside it")
        pair = f"{settings.langfuse_public_key}:{settings.langfuse_secret_key.get_secret_value()}"
        targets[settings.langfuse_url.rstrip("/") + LANGFUSE_PATH] = {
            "Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}",
            "x-langfuse-ingestion-version": "4",
        }
    for address in targets:
        if urlsplit(address).scheme not in ("http", "https"):
            raise ConfigError(
                f"llm.tracing: {address!r} is not a valid URL; use one such as http://127.0.0.1:4318/v1/traces"
            )
    return targets


def _server_attributes(config: ProviderConfig) -> Attributes:
    address = config.base_url or API_ADDRESSES.get(config.kind)
    if address is None:
        return {}
    parts = urlsplit(address)
    return {
        "server.address": parts.hostname or "",
        "server.port": parts.port or (443 if parts.scheme == "https" else 80),
    }


def _make_sdk(
    targets: Mapping[str, Mapping[str, str]], delay: float, waiting: int, proxies: OutgoingProxies
) -> tuple[Any, Any]:
    """Return the SDK's tracer provider, and a function that passes it a span. Imports the SDK only when needed."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
        from opentelemetry.trace import SpanKind, Status, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    except ImportError as error:
        raise ConfigError(_MISSING) from error
    for name in _NOISY:
        # The SDK would log an unreachable collector every few seconds.
        logging.getLogger(name).setLevel(logging.CRITICAL)
    resource = Resource.create({"service.name": "paddock", "service.version": paddock.__version__})

    class TraceIds(RandomIdGenerator):
        """Gives a span without a parent the trace id that it asks for. Only one thread starts spans."""

        wanted: int | None = None

        def generate_trace_id(self) -> int:
            return self.wanted or super().generate_trace_id()

    trace_ids = TraceIds()
    provider = TracerProvider(resource=resource, shutdown_on_exit=False, id_generator=trace_ids)
    for address, headers in targets.items():
        exporter = _make_exporter(OTLPSpanExporter, address, headers, proxies)
        provider.add_span_processor(
            BatchSpanProcessor(
                exporter,
                max_queue_size=waiting,
                max_export_batch_size=min(waiting, 128),
                schedule_delay_millis=delay * 1000,
            )
        )
    tracer = provider.get_tracer("paddock.llm", paddock.__version__)

    propagator = TraceContextTextMapPropagator()

    def start(span: ExchangeSpan, attributes: Attributes) -> None:
        trace_ids.wanted = span.trace
        parent = propagator.extract({"traceparent": span.parent}) if span.parent else None
        sdk_span = tracer.start_span(
            span.name, kind=SpanKind.CLIENT, attributes=attributes, start_time=int(span.start * 1e9), context=parent
        )
        if span.outcome is not ExchangeOutcome.OK:
            sdk_span.set_status(Status(StatusCode.ERROR, span.error))
        sdk_span.end(int(span.end * 1e9))

    return provider, start


def _make_exporter(kind: type[Any], address: str, headers: Mapping[str, str], proxies: OutgoingProxies) -> Any:
    """Return the SDK's exporter with logging reduced to the start and the end of a failure."""
    from opentelemetry.sdk.trace.export import SpanExportResult

    parts = urlsplit(address)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    proxy = proxies.choose("https" if parts.scheme == "https" else "http", parts.hostname or "", port)
    fields = {"address": address} if proxy is None else {"address": address, "proxy": str(proxy)}

    class Exporter(kind):  # type: ignore[misc]
        failing = False

        def export(self, spans: Any) -> Any:
            result = super().export(spans)
            failed = result is not SpanExportResult.SUCCESS
            if failed and not self.failing:
                log.warning("could not send spans; dropping them", **fields)
            elif self.failing and not failed:
                log.info("span export recovered", **fields)
            self.failing = failed
            return result

    session = _open_export_session(proxy, proxies.ca_bundle)
    return Exporter(endpoint=address, headers=dict(headers), timeout=_SEND_SECONDS, session=session)


def _open_export_session(proxy: ProxyAddress | None, ca_bundle: Path | None) -> Any:
    """Return a session for one collector, with the given proxy instead of the library's choice."""
    import requests
    from requests.adapters import HTTPAdapter

    context = None if ca_bundle is None else make_tls_context(ca_bundle)
    url = {} if proxy is None else {"http": proxy.url, "https": proxy.url}
    authorization = None if proxy is None else proxy.authorization

    class Session(requests.Session):
        def merge_environment_settings(self, *arguments: Any, **settings: Any) -> Any:
            return {**super().merge_environment_settings(*arguments, **settings), "proxies": url}

    class Adapter(HTTPAdapter):
        def init_poolmanager(self, *arguments: Any, **settings: Any) -> None:
            super().init_poolmanager(*arguments, **settings, ssl_context=context)

        def proxy_manager_for(self, proxy: str, **proxy_kwargs: Any) -> Any:
            return super().proxy_manager_for(proxy, **proxy_kwargs, ssl_context=context)

        def proxy_headers(self, proxy: str) -> dict[str, str]:
            return {} if authorization is None else {"Proxy-Authorization": authorization}

    session = Session()
    session.mount("https://", Adapter())
    session.mount("http://", Adapter())
    return session
