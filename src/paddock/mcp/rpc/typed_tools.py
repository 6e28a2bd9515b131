"""Typed calls of tools, for programs that are not MCP clients. Arguments and results stay JSON in bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from msgspec import UNSET, Raw

from paddock.errors import InvalidInput
from paddock.mcp.protocol import revisions
from paddock.mcp.protocol.endpoint import CallContext, EndpointResolver
from paddock.mcp.protocol.messages import (
    INVALID_PARAMS,
    JsonRpcMessage,
    decode_value,
    encode_value,
    make_request,
)
from paddock.mcp.rpc.v1 import mcp_pb2

CLIENT_INFO = {"name": "paddock-grpc", "version": "1"}
REQUEST_ID = 1
PROGRESS_TOKEN = "call"  # noqa: S105


class TypedTools:
    """Lists and calls tools of the gateway's endpoints."""

    def __init__(self, resolve: EndpointResolver) -> None:
        self._resolve = resolve

    async def list_tools(self, request: mcp_pb2.ListToolsRequest, caller: CallContext) -> mcp_pb2.ListToolsResponse:
        params = {"cursor": request.cursor} if request.cursor else {}
        endpoint = self._resolve(request.target, caller)
        async with aclosing(endpoint.exchange(_request("tools/list", params, {}), caller)) as messages:
            async for message in messages:
                if message.is_response:
                    break
        if message.error is not UNSET:
            raise InvalidInput(str(message.error_object().get("message", "the server refuses to list its tools")))
        result = message.result_object()
        tools = [_tool(each) for each in result.get("tools", ()) if isinstance(each, dict)]
        return mcp_pb2.ListToolsResponse(tools=tools, next_cursor=str(result.get("nextCursor") or ""))

    async def call_tool(
        self, request: mcp_pb2.CallToolRequest, caller: CallContext, seconds: float | None
    ) -> AsyncGenerator[mcp_pb2.CallToolEvent, None]:
        """Yield the events of a call. `seconds` is the time until the caller's deadline."""
        if seconds is not None:
            caller = replace(caller, deadline=asyncio.get_running_loop().time() + seconds)
        params: dict[str, Any] = {"name": request.name, "arguments": _json_object(request.arguments_json, "arguments")}
        if request.input_responses_json:
            params["inputResponses"] = _json_object(request.input_responses_json, "input_responses")
        if request.request_state:
            params["requestState"] = request.request_state
        capabilities = decode_value(_json_object(request.capabilities_json, "capabilities"))
        endpoint = self._resolve(request.target, caller)
        async with aclosing(endpoint.exchange(_request("tools/call", params, capabilities), caller)) as messages:
            async for message in messages:
                event = _response_event(message) if message.is_response else _notification_event(message)
                if event is not None:
                    yield event


def _request(method: str, params: dict[str, Any], capabilities: Any) -> JsonRpcMessage:
    meta = {
        revisions.META_REVISION: revisions.STATELESS_REVISION,
        revisions.META_CLIENT_INFO: CLIENT_INFO,
        revisions.META_CLIENT_CAPABILITIES: capabilities,
        revisions.PROGRESS_TOKEN: PROGRESS_TOKEN,
    }
    return make_request(REQUEST_ID, method, {**params, "_meta": meta})


def _json_object(content: bytes, field: str) -> Raw:
    """Return a field that holds a JSON object, unchanged. Raises `InvalidInput`."""
    if not content:
        return Raw(b"{}")
    if not isinstance(decode_value(content), dict):
        raise InvalidInput(f"{field}_json: must be a JSON object")
    return Raw(content)


def _tool(definition: dict[str, Any]) -> mcp_pb2.Tool:
    def text(field: str) -> str:
        value = definition.get(field)
        return value if isinstance(value, str) else ""

    def schema(field: str) -> bytes:
        return bytes(encode_value(definition[field])) if field in definition else b""

    return mcp_pb2.Tool(
        name=text("name"),
        title=text("title"),
        description=text("description"),
        input_schema_json=schema("inputSchema"),
        output_schema_json=schema("outputSchema"),
        definition_json=bytes(encode_value(definition)),
    )


def _response_event(message: JsonRpcMessage) -> mcp_pb2.CallToolEvent:
    if message.error is not UNSET:
        error = message.error_object()
        code = error.get("code")
        failure = mcp_pb2.ToolError(
            code=code if isinstance(code, int) and abs(code) < 2**31 else INVALID_PARAMS,
            message=str(error.get("message", "")),
            data_json=bytes(encode_value(error["data"])) if "data" in error else b"",
        )
        return mcp_pb2.CallToolEvent(error=failure)
    result = message.result_object()
    if result.get(revisions.RESULT_TYPE) == revisions.INPUT_REQUIRED:
        required = mcp_pb2.InputRequired(
            input_requests_json=bytes(encode_value(result.get("inputRequests", {}))),
            request_state=str(result.get("requestState") or ""),
        )
        return mcp_pb2.CallToolEvent(input_required=required)
    parts = result.get("content")
    texts = [part.get("text") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    structured = result.get("structuredContent")
    return mcp_pb2.CallToolEvent(
        result=mcp_pb2.ToolResult(
            text="\n".join(each for each in texts if isinstance(each, str)),
            is_error=result.get("isError") is True,
            structured_json=b"" if structured is None else bytes(encode_value(structured)),
            result_json=bytes(encode_value(message.result)),
        )
    )


def _notification_event(message: JsonRpcMessage) -> mcp_pb2.CallToolEvent | None:
    params = message.params_object()
    if message.method == "notifications/progress":
        total = params.get("total")
        progress = mcp_pb2.Progress(
            progress=_number(params.get("progress")),
            total=None if total is None else _number(total),
            message=str(params.get("message") or ""),
        )
        return mcp_pb2.CallToolEvent(progress=progress)
    if message.method == "notifications/message":
        entry = mcp_pb2.Log(
            level=str(params.get("level") or ""),
            logger=str(params.get("logger") or ""),
            data_json=bytes(encode_value(params.get("data"))),
        )
        return mcp_pb2.CallToolEvent(log=entry)
    return None


def _number(value: Any) -> float:
    try:
        return float(value) if isinstance(value, (int, float)) else 0.0
    except OverflowError:
        return 0.0
