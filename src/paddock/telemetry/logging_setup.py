"""Configures structlog and the standard logging module for the server's log on standard error."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from datetime import datetime
from typing import Any

import structlog

from paddock.config.schema import LogConfig
from paddock.telemetry.log_buffer import LogBuffer


class StartUpLogHandler(logging.StreamHandler[Any]):
    """Writes log lines to standard error; on a terminal, only after the server's banner.

    `end_hold` writes the warnings of the start. Its other lines only concern programs and the log buffer.
    """

    def __init__(self, *, held: bool) -> None:
        super().__init__(sys.stderr)
        self._held: list[tuple[int, str]] | None = [] if held else None

    def emit(self, record: logging.LogRecord) -> None:
        if self._held is None:
            super().emit(record)
        else:
            self._held.append((record.levelno, self.format(record)))

    def end_hold(self) -> None:
        """Write held warnings, and all later lines at once. Idempotent."""
        held, self._held = self._held or [], None
        self.stream.write("".join(f"{text}\n" for level, text in held if level >= logging.WARNING))
        self.flush()


def configure_logging(
    settings: LogConfig, lines: LogBuffer | None = None, *, with_banner: bool = False
) -> StartUpLogHandler:
    """Send log lines of Paddock and libraries to standard error in one format, and to the buffer `lines`.

    With a banner, a terminal shows no lines until `end_hold` of the returned handler is called, unless debugging.
    """
    pretty = settings.format == "console" or (settings.format == "auto" and sys.stderr.isatty())
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    # The default formatter shows local variables, and with them keys of requests.
    console = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    renderer: Any = console if pretty else structlog.processors.JSONRenderer()
    final: list[Any] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if not pretty:
        final.append(structlog.processors.format_exc_info)
    if lines is not None:
        final.append(lines.capture)
    if pretty:
        final.append(_shorten_time)
    handler = StartUpLogHandler(held=with_banner and pretty and level >= logging.INFO)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=[*final, renderer]))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(level, logging.INFO))
    # Libraries log every step; only their warnings matter.
    for name in ("uvicorn", "uvicorn.error", "websockets", "aiohttp", "asyncio", "alembic"):
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=_LoggerFactory(handler),
        cache_logger_on_first_use=False,
    )
    return handler


def _shorten_time(logger: object, method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replace the time stamp by the local time of day."""
    if stamp := line.get("timestamp"):
        return {**line, "timestamp": f"{datetime.fromisoformat(stamp).astimezone():%H:%M:%S}"}
    return line


class _LoggerFactory:
    """Creates the logger to which structlog passes finished lines."""

    def __init__(self, handler: logging.Handler) -> None:
        self._logger = logging.Logger("paddock", logging.DEBUG)
        self._logger.addHandler(handler)

    def __call__(self, *_: object) -> logging.Logger:
        return self._logger
