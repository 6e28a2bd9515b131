"""Spans of exchanges, in OpenTelemetry's words for generative models, for whatever tool collects them.

The gateway only puts a finished exchange into a queue. A thread makes spans of what is there, and the SDK's own sends
them in batches; when nobody takes them, they are dropped and nothing else happens.
"""

from __future__ import annotations

import base64
import logging
import queue
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import structlog

import paddock
from paddock.config.llm import API_ADDRESSES, ProviderConfig, TracingConfig
from paddock.errors import ConfigError
from paddock.llm.exchange import Exchange, Outcome
from paddock.llm.spans import Attributes, Span, span_of

LANGFUSE_PATH = "/api/public/otel/v1/traces"
_MOST_WAITING = 1000
_MOST_BYTES = 64 * 2**20
_SEND_SECONDS = 5.0
_CLOSE_SECONDS = 2.0
_DELAY_SECONDS = 1.0
_MISSING = "llm.tracing needs OpenTelemetry, which is not installed; run: pip install 'paddock[tracing]'"
_NOISY = ("opentelemetry.exporter", "opentelemetry.sdk")
log = structlog.get_logger()


def make_tracer(
    settings: TracingConfig, providers: Mapping[str, ProviderConfig] | None = None, *, delay: float = _DELAY_SECONDS
) -> Tracer | None:
    """A tracer, if the settings want one. Raises `ConfigError` when they do and it cannot be had."""
    targets = _targets(settings)
    return Tracer(targets, settings, providers or {}, delay) if targets else None


class Tracer:
    """Sends spans of finished exchanges. Make it with `make_tracer`, and `close` it."""

    def __init__(
        self,
        targets: Mapping[str, Mapping[str, str]],
        settings: TracingConfig,
        providers: Mapping[str, ProviderConfig],
        delay: float,
    ) -> None:
        self._content = settings.content
        self._langfuse = settings.langfuse_url is not None
        self._servers = {name: server for name, config in providers.items() if (server := _server(config))}
        self._provider, self._start = _sdk(targets, delay, 256 if settings.content else 2048)
        self._waiting: queue.Queue[Exchange | None] = queue.Queue()
        self._taken = 0
        self._done = 0
        """Bytes; each of the two is changed by one thread alone."""
        self.dropped = 0
        """Exchanges of which no span was made, because too many were waiting."""
        self._thread = threading.Thread(target=self._work, name="tracing", daemon=True)
        self._thread.start()

    def record(self, exchange: Exchange) -> None:
        """Take an exchange that is over. Returns at once, whatever becomes of it."""
        size = _size(exchange)
        if self._waiting.qsize() >= _MOST_WAITING or self._taken - self._done + size > _MOST_BYTES:
            self.dropped += 1
            if self.dropped == 1:
                log.warning("spans are dropped, because exchanges end faster than spans can be made of them")
            return
        self._taken += size
        self._waiting.put(exchange)

    def close(self) -> None:
        """Send what is waiting, for two seconds at most."""
        self._waiting.put(None)
        # The SDK would wait for a collector that does not answer.
        closer = threading.Thread(target=self._shut_down, name="tracing close", daemon=True)
        closer.start()
        closer.join(_CLOSE_SECONDS)

    def _shut_down(self) -> None:
        self._thread.join(_CLOSE_SECONDS)
        self._provider.shutdown()

    def _work(self) -> None:
        while (exchange := self._waiting.get()) is not None:
            try:
                self._send(span_of(exchange, content=self._content, langfuse=self._langfuse))
            except Exception as error:  # whatever strange thing was said, the next exchange has its span
                log.debug("no span could be made", exchange=exchange.id, error=str(error))
            self._done += _size(exchange)

    def _send(self, span: Span) -> None:
        attributes: Attributes = span.attributes | self._servers.get(span.provider, {})
        self._start(span, attributes)


def _size(exchange: Exchange) -> int:
    return len(exchange.request) + sum([len(piece) for _, piece in exchange.response])


def _targets(settings: TracingConfig) -> dict[str, dict[str, str]]:
    """Addresses that spans go to, each with its headers."""
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
                f"llm.tracing: {address!r} is not an address; write it like http://127.0.0.1:4318/v1/traces"
            )
    return targets


def _server(config: ProviderConfig) -> Attributes:
    address = config.base_url or API_ADDRESSES.get(config.kind)
    if address is None:
        return {}
    parts = urlsplit(address)
    return {
        "server.address": parts.hostname or "",
        "server.port": parts.port or (443 if parts.scheme == "https" else 80),
    }


def _sdk(targets: Mapping[str, Mapping[str, str]], delay: float, waiting: int) -> tuple[Any, Any]:
    """The SDK's provider of tracers, and a function that hands it a span. It is loaded only when it is wanted."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace import SpanKind, Status, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    except ImportError as error:
        raise ConfigError(_MISSING) from error
    for name in _NOISY:
        # A collector that is away would be complained about every few seconds for as long as it is.
        logging.getLogger(name).setLevel(logging.CRITICAL)
    resource = Resource.create({"service.name": "paddock", "service.version": paddock.__version__})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    for address, headers in targets.items():
        exporter = _complaining_once(OTLPSpanExporter, address, headers)
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

    def start(span: Span, attributes: Attributes) -> None:
        parent = propagator.extract({"traceparent": span.parent}) if span.parent else None
        made = tracer.start_span(
            span.name, kind=SpanKind.CLIENT, attributes=attributes, start_time=int(span.start * 1e9), context=parent
        )
        if span.outcome is not Outcome.OK:
            made.set_status(Status(StatusCode.ERROR, span.error))
        made.end(int(span.end * 1e9))

    return provider, start


def _complaining_once(kind: type[Any], address: str, headers: Mapping[str, str]) -> Any:
    """The SDK's exporter, which tells of trouble when it begins and when it is over."""
    from opentelemetry.sdk.trace.export import SpanExportResult

    class Exporter(kind):  # type: ignore[misc]
        failing = False

        def export(self, spans: Any) -> Any:
            result = super().export(spans)
            failed = result is not SpanExportResult.SUCCESS
            if failed and not self.failing:
                log.warning("spans cannot be sent and are dropped", address=address)
            elif self.failing and not failed:
                log.info("spans are sent again", address=address)
            self.failing = failed
            return result

    return Exporter(endpoint=address, headers=dict(headers), timeout=_SEND_SECONDS)
