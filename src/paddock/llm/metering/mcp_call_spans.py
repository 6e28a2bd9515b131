"""Build span attributes of MCP calls: OpenTelemetry's conventions for MCP, and Paddock's own."""

from __future__ import annotations

from typing import Any

from paddock.llm.exchange import ExchangeOutcome
from paddock.llm.metering.exchange_spans import ExchangeSpan, caller_trace_id
from paddock.model.mcp_records import McpCallOutcome, McpCallRecord

_GOOD = (McpCallOutcome.OK, McpCallOutcome.INPUT_REQUIRED)
_TARGETS = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name", "resources/read": "mcp.resource.uri"}


def make_mcp_call_span(record: McpCallRecord, *, content: bool) -> ExchangeSpan:
    """Return the span of a call; it contains arguments and result only with `content`."""
    start = record.started_at.timestamp()
    attributes: dict[str, Any] = {
        "mcp.method.name": record.method,
        _TARGETS.get(record.method, "mcp.target"): record.target,
        "gen_ai.operation.name": "execute_tool" if record.method == "tools/call" else None,
        "gen_ai.conversation.id": record.session,
        "gen_ai.tool.call.arguments": record.arguments or None if content else None,
        "gen_ai.tool.call.result": record.result or None if content else None,
        "error.type": None if record.outcome in _GOOD else str(record.outcome),
        "paddock.mcp.server": record.server,
        "paddock.mcp.call": record.id,
        "paddock.outcome": str(record.outcome),
        "paddock.tenant": record.tenant,
        "paddock.agent": record.agent,
        "paddock.sandbox": record.sandbox,
        "paddock.run": record.run,
        "paddock.session": record.session,
    }
    return ExchangeSpan(
        name=f"{record.method} {record.target}"[:500].strip(),
        provider=record.server,
        start=start,
        end=start + record.duration,
        outcome=ExchangeOutcome.OK if record.outcome in _GOOD else ExchangeOutcome.FAILED,
        error=record.error,
        attributes={name: value for name, value in attributes.items() if value is not None},
        trace=caller_trace_id(record.tenant, record.run, record.session),
    )
