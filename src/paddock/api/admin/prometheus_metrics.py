"""Metrics of the whole server, for Prometheus."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse

import paddock
from paddock.api.http.authorization import MetricsReader
from paddock.api.http.error_responses import openapi_errors
from paddock.api.services import ApiServices
from paddock.model.network import ConnectionRefusal
from paddock.model.runs import RunState
from paddock.model.sandbox import SandboxState
from paddock.model.sessions import ApprovalState, SessionState
from paddock.telemetry.process_metrics import add_server_process_metrics
from paddock.telemetry.prometheus import CONTENT_TYPE, MetricsExposition

_STATES: Mapping[str, type[StrEnum]] = {
    "sandboxes": SandboxState,
    "runs": RunState,
    "sessions": SessionState,
    "approvals": ApprovalState,
}
_TEXT: dict[int | str, dict[str, Any]] = {
    200: {"description": "Prometheus text format.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["Diagnostics"])

    @router.get("/metrics", responses={**openapi_errors(), **_TEXT}, response_class=PlainTextResponse)
    async def get_metrics(principal: MetricsReader) -> PlainTextResponse:
        """Return the server's metrics for Prometheus. Model metrics are summed since the first request ever."""
        return PlainTextResponse(await _collect_metrics(services), media_type=CONTENT_TYPE)

    return router


async def _collect_metrics(services: ApiServices) -> str:
    counts = await services.counts.by_state()
    usage = await services.ledger.query(None, ("model", "provider"))
    disk = await asyncio.to_thread(shutil.disk_usage, services.config.data)
    exposition = MetricsExposition()
    exposition.gauge("paddock_info", "Version of Paddock.", [({"version": paddock.__version__}, 1)])
    for name, states in counts.items():
        # States without members are exported as 0: a missing series looks unmeasured.
        known = sorted({*states, *map(str, _STATES.get(name, ()))})
        values = [({"state": state}, float(states.get(state, 0))) for state in known]
        exposition.gauge(f"paddock_{name}", f"Number of {name} by state.", values)
    requests = sorted(services.traffic.requests.items())
    answered = [({"method": method, "status": str(status)}, float(count)) for (method, status), count in requests]
    exposition.counter(
        "paddock_http_requests_total", "Requests answered on the main port since the server started.", answered
    )
    for name, meaning in (
        ("requests", "Requests to models."),
        ("errors", "Requests to models without a complete response."),
        ("refused", "Requests to models refused by this server."),
        ("input", "Tokens of prompts."),
        ("output", "Tokens of responses."),
        ("cost", "Cost of models in US dollars, as far as known."),
    ):
        values = [
            ({"model": row.model or "", "provider": row.provider or ""}, float(getattr(row.tally, name)))
            for row in usage
        ]
        suffix = {"input": "input_tokens", "output": "output_tokens", "cost": "cost_dollars"}.get(name, name)
        exposition.counter(f"paddock_llm_{suffix}_total", meaning, values)
    latencies = [
        ({"model": model, "provider": provider}, each)
        for (model, provider), each in sorted(services.gateway.latencies.by_model.items())
    ]
    exposition.histograms(
        "paddock_llm_request_seconds",
        "Seconds from a model request to the end of its complete answer; model is a name in llm.models.",
        [(labels, each.total) for labels, each in latencies],
    )
    exposition.histograms(
        "paddock_llm_first_byte_seconds",
        "Seconds from a model request to the first byte of its complete answer; model is a name in llm.models.",
        [(labels, each.first_byte) for labels, each in latencies],
    )
    exposition.gauge(
        "paddock_llm_open_circuits",
        "Models that get no requests at present because their provider keeps failing.",
        [({"provider": name}, count) for name, count in sorted(services.gateway.routes.open_circuits().items())],
    )
    outcomes = services.networks.outcomes
    exposition.counter(
        "paddock_network_connections_total",
        "Ended connections of sandboxes to the network since the server started, by outcome.",
        [({"outcome": name}, float(outcomes.get(name, 0))) for name in ("allowed", *ConnectionRefusal)],
    )
    recorder = services.mcp_services.gateway.recorder
    exposition.counter(
        "paddock_mcp_calls_total",
        "Calls of MCP servers since the server started, by outcome.",
        [
            ({"server": server, "outcome": outcome}, float(count))
            for (server, outcome), count in sorted(recorder.outcomes.items())
        ],
    )
    exposition.counter(
        "paddock_mcp_call_seconds_total",
        "Seconds of calls of MCP servers since the server started.",
        [({"server": server}, seconds) for server, seconds in sorted(recorder.seconds.items())],
    )
    exposition.gauge(
        "paddock_mcp_held_tools",
        "Tools of MCP servers of the configuration that are withheld until a person approves them.",
        [
            ({"server": declared.name}, float(len(services.mcp_services.gateway.versions.held(declared))))
            for declared in services.mcp_services.gateway.directory.file_servers()
        ],
    )
    exposition.gauge(
        "paddock_archive_waiting_bytes", "Bytes of exchanges not yet written.", [({}, services.archive.waiting_bytes)]
    )
    exposition.counter(
        "paddock_archive_lost_total", "Exchanges that could not be stored.", [({}, services.archive.lost_count)]
    )
    exposition.histogram(
        "paddock_http_request_seconds", "Seconds from a request to the end of its response.", services.traffic.seconds
    )
    exposition.histogram("paddock_event_loop_lag_seconds", "How late timers of the server fire.", services.loop.lag)
    loop = services.loop
    exposition.histogram("paddock_event_loop_hold_seconds", "Steps and callbacks that took more than 5 ms.", loop.hold)
    exposition.histogram(
        "paddock_event_loop_work_seconds", "CPU time of these; only measured with log.level debug.", loop.work
    )
    for name, longest, meaning in (
        ("hold", loop.longest_hold, "Longest step or callback of the last minute."),
        ("work", loop.longest_work, "Largest CPU time of one in the last minute; only measured with log.level debug."),
        ("lag", loop.longest_lag, "Largest delay of a timer in the last minute."),
    ):
        exposition.gauge(f"paddock_event_loop_longest_{name}_seconds", meaning, [({}, longest.value)])
    add_server_process_metrics(exposition)
    exposition.gauge("paddock_disk_free_bytes", "Free bytes on the disk of the data directory.", [({}, disk.free)])
    return exposition.render()
