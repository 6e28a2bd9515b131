"""Configures structlog and the standard logging module for the server's log on standard error."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

from paddock.config.schema import LogConfig
from paddock.telemetry.log_buffer import LogBuffer


def configure_logging(settings: LogConfig, lines: LogBuffer | None = None) -> None:
    """Send log lines of Paddock and libraries to standard error in one format, and to the buffer `lines`."""
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
    handler = logging.StreamHandler(sys.stderr)
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


class _LoggerFactory:
    """Creates the logger to which structlog passes finished lines."""

    def __init__(self, handler: logging.Handler) -> None:
        self._logger = logging.Logger("paddock", logging.DEBUG)
        self._logger.addHandler(handler)

    def __call__(self, *_: object) -> logging.Logger:
        return self._logger
