"""Serves a server over HTTP until a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack

import structlog
import uvicorn
import uvloop

from paddock.api.http.allowed_hosts import AllowedHosts
from paddock.api.http.model_fast_path import ModelFastPathHandler
from paddock.api.http.uvicorn_protocols import LimitedHttpProtocol, LimitedWebSocketProtocol, list_idle_connections
from paddock.app.components import measure_event_loop_time
from paddock.app.listeners import (
    check_port_is_free,
    listener_url,
    open_listener,
    raise_open_file_limit,
    write_server_file,
)
from paddock.app.server import SERVER_FILE, PaddockServer, build_server
from paddock.auth.network_exposure import check_network_exposure
from paddock.config.schema import Config
from paddock.errors import PaddockError
from paddock.fleet.fleet import Fleet
from paddock.mcp.serving.rpc_listener import serve_grpc
from paddock.model.sandbox import SandboxState
from paddock.telemetry.log_buffer import LogBuffer
from paddock.telemetry.logging_setup import configure_logging

MAX_WEBSOCKET_MESSAGE = 16 * 2**20
IDLE_CHECK_SECONDS = 10.0
IDLE_COLLECTIONS = 20
"""Collections of young objects after which all garbage is collected, once the server is idle."""
KEEP_ALIVE_SECONDS = 75
"""Seconds; longer than clients keep idle connections, so that they do not send into a connection being closed."""
log = structlog.get_logger()


def serve(
    config: Config,
    on_ready: Callable[[str], None] = lambda url: None,
    on_start: Callable[[Callable[[], tuple[bool, int]]], None] = lambda report_activity: None,
) -> None:
    """Serve until SIGTERM or SIGINT. `on_ready` receives the address once the server answers.

    `on_start` receives a function for any thread, which returns whether requests or runs are active, and the number of
    requests.
    """
    lines = LogBuffer()
    handler = configure_logging(config.log, lines, with_banner=True)

    def ready(url: str) -> None:
        on_ready(url)
        handler.end_hold()

    os.umask(os.umask(0o022) | 0o022)  # Never create files that others can write, regardless of the inherited umask.
    raise_open_file_limit()
    try:
        uvloop.run(_serve(config, ready, on_start, lines))
    finally:
        handler.end_hold()


async def _serve(
    config: Config,
    on_ready: Callable[[str], None],
    on_start: Callable[[Callable[[], tuple[bool, int]]], None],
    lines: LogBuffer,
) -> None:
    check_port_is_free(config)
    async with build_server(config, lines) as paddock, AsyncExitStack() as serving:
        addresses = [config.llm.listen, config.mcp.grpc.listen]
        for host in (config.server.host, *(each.rpartition(":")[0] for each in addresses if each is not None)):
            check_network_exposure(host, await paddock.keys.any_usable())
        await paddock.keys.ensure_local_key(paddock.local_key_path)
        listener = open_listener(config.server.host, config.server.port)
        url = listener_url(listener, config.server.host)
        paddock.refuse_own_port(listener.getsockname()[1])
        if config.llm.listen is not None:
            host, _, port = config.llm.listen.rpartition(":")
            models = open_listener(host, int(port), "llm.listen")
            await paddock.model_server.listen(models)
            log.info("serving models", url=listener_url(models, host))
        grpc = await serving.enter_async_context(
            serve_grpc(
                config.mcp.grpc,
                paddock.mcp.gateway.resolve,
                paddock.keys,
                paddock.services.logins,
                config.server.shutdown_grace,
            )
        )
        if grpc is not None:
            paddock.refuse_own_port(grpc)
            log.info("serving MCP over gRPC", address=config.mcp.grpc.listen)
        record = config.data / SERVER_FILE

        def ready() -> None:
            write_server_file(record, url)
            freeze_startup_objects()
            log.info("serving", url=url, data=str(config.data))
            on_ready(url)

        server = _UvicornServer(paddock, ready)

        def report_activity() -> tuple[bool, int]:
            state = server.server_state
            return bool(state.tasks) or paddock.runs.has_active_runs, state.total_requests

        on_start(report_activity)
        collecting = asyncio.create_task(collect_garbage_when_idle(lambda: report_activity()[0]))
        try:
            await server.serve([listener])
        finally:
            collecting.cancel()
            listener.close()
            record.unlink(missing_ok=True)
        await log_running_sandboxes(paddock.fleet)


async def log_running_sandboxes(fleet: Fleet) -> None:
    """Log that running sandboxes keep running after the server has stopped."""
    with contextlib.suppress(PaddockError):
        _, running = await fleet.sandboxes.list(states=[SandboxState.RUNNING], page_size=1)
        if running:
            some = "1 sandbox goes" if running == 1 else f"{running} sandboxes go"
            log.info(f"{some} on running; `paddock serve` finds {'it' if running == 1 else 'them'} again")


class _UvicornServer(uvicorn.Server):
    """uvicorn, except that signals do not end the process, and open streams do not delay shutdown."""

    def __init__(self, paddock: PaddockServer, ready: Callable[[], None]) -> None:
        quick = ModelFastPathHandler(
            measure_event_loop_time(paddock.gateway, paddock.loop),
            AllowedHosts(paddock.config.server),
            paddock.services.traffic,
        )
        settings = uvicorn.Config(
            paddock.app,
            http=LimitedHttpProtocol.with_model_server(
                paddock.model_server.add_external_listener(quick), paddock.descriptors
            ),
            ws=LimitedWebSocketProtocol.measured_by(paddock.loop.call),
            ws_max_size=MAX_WEBSOCKET_MESSAGE,
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=max(1, round(paddock.config.server.shutdown_grace)),
        )
        super().__init__(settings)
        paddock.descriptors.add_source(lambda: list_idle_connections(self.server_state.connections))
        self._paddock = paddock
        self._ready = ready

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn's version raises the signal again, which would end the process before cleanup.
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        log.info("stopping", grace=self._paddock.config.server.shutdown_grace)
        self._paddock.events.close()  # Ends open event streams.
        self._paddock.gateway.archive.stop_following()
        self._paddock.live.stop()
        self._paddock.services.mcp_edge.end_subscriptions()
        self._paddock.log.close()
        await super().shutdown(sockets)


def freeze_startup_objects() -> None:
    """Exclude the objects of startup from garbage collection, which would take a tenth of the time of
    small requests."""
    gc.collect()
    gc.freeze()
    # A full collection can take longer than any step may hold the event loop; see `collect_garbage_when_idle`.
    gc.set_threshold(10_000, 20, 1000)


async def collect_garbage_when_idle(is_active: Callable[[], bool]) -> None:
    """Collect all garbage from time to time while no request is answered."""
    while True:
        await asyncio.sleep(IDLE_CHECK_SECONDS)
        if gc.get_count()[2] >= IDLE_COLLECTIONS and not is_active():
            gc.collect()
