"""Routes for MCP servers and sets: declare, look at, try, and approve changed tools."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import ValidationError
from starlette.responses import Response, StreamingResponse

from paddock.api.http.authorization import McpUser, McpWriter
from paddock.api.http.error_responses import openapi_errors, sanitize_message
from paddock.api.http.event_log_responses import AcceptHeader
from paddock.api.http.server_sent_events import HEARTBEAT_COMMENT, STREAM_HEADERS, STREAM_OPENED, with_heartbeats
from paddock.api.mcp.server_bodies import (
    ApproveToolsRequest,
    ApproveToolsResponse,
    HeldToolListResponse,
    HeldToolResponse,
    McpCallRequest,
    McpCallResponse,
    McpServerListResponse,
    McpServerResponse,
    McpSetListResponse,
    McpSetResponse,
    McpTestResponse,
    McpToolListResponse,
)
from paddock.api.services import ApiServices
from paddock.errors import Conflict, InvalidInput, PaddockError, Unavailable
from paddock.mcp.gateway.access import check_server_access, server_refusal
from paddock.mcp.gateway.aggregate import META_MISSING
from paddock.mcp.gateway.contexts import principal_context
from paddock.mcp.protocol import CallContext, JsonRpcMessage
from paddock.mcp.protocol.messages import make_request
from paddock.mcp.protocol.revisions import (
    DISCOVER,
    INPUT_REQUIRED,
    META_CLIENT_CAPABILITIES,
    META_CLIENT_INFO,
    META_REVISION,
    META_SERVER_INFO,
    PROGRESS_TOKEN,
    RESULT_TYPE,
    STATELESS_REVISION,
)
from paddock.model.keys import Principal, Scope
from paddock.model.mcp import McpServer, McpSet

MAX_PAGES = 200
TEST_SECONDS = 60.0
SandboxQuery = Annotated[str | None, Query(max_length=63, description="A sandbox; programs need one, and run in it.")]

_CALL_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "model": McpCallResponse,
        "description": "JSON, or for `Accept: text/event-stream` the events `progress`, and `result` or `error`.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1/mcp", tags=["MCP"])
    mcp = services.mcp_services
    gateway, management, directory = mcp.gateway, mcp.management, mcp.gateway.directory

    async def context_of(principal: Principal, sandbox: str | None = None) -> CallContext:
        context = principal_context(principal, "console" if principal.login else "http")
        if sandbox is not None:
            principal.require(Scope.SANDBOXES_WRITE)  # Programs are started in it.
            await services.fleet.get(principal.tenant, sandbox)
            context = replace(context, sandbox=sandbox)
        return context

    async def ask(path: str, method: str, params: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        """Return the result of a request. Raises `PaddockError`."""
        return _result(await _response(gateway.resolve(path, context), method, params, context), path or "gateway")

    async def list_all_tools(path: str, context: CallContext) -> McpToolListResponse:
        items: list[dict[str, Any]] = []
        params: dict[str, Any] = {}
        missing: list[dict[str, Any]] = []
        for _ in range(MAX_PAGES):
            result = await ask(path, "tools/list", params, context)
            items += [tool for tool in result.get("tools", []) if isinstance(tool, dict)]
            missing = (result.get("_meta") or {}).get(META_MISSING, missing)
            if not isinstance(result.get("nextCursor"), str):
                break
            params = {"cursor": result["nextCursor"]}
        return McpToolListResponse(items=items, missing=missing)

    @router.get("/servers", responses=openapi_errors())
    async def list_mcp_servers(principal: McpUser) -> McpServerListResponse:
        """List the servers of the configuration and of the tenant, with their state."""
        context = await context_of(principal)
        found = directory.servers_of(context)
        shown = [
            found[name]
            for name in sorted(found)
            if not (found[name].server.access.tenants and context.tenant not in found[name].server.access.tenants)
        ]
        return McpServerListResponse(items=[McpServerResponse.from_declared(each, mcp, context) for each in shown])

    @router.post("/servers", status_code=201, responses=openapi_errors(409))
    async def create_mcp_server(body: dict[str, Any], principal: McpWriter) -> McpServerResponse:
        """Add a server. The body is a declaration as in `mcp.servers` of the configuration."""
        context = await context_of(principal)
        server = _parse(McpServer, body)
        declared = await management.put_server(context, server, principal.name or None, replace=False)
        return McpServerResponse.from_declared(declared, mcp, context)

    @router.get("/servers/{name}", responses=openapi_errors(404))
    async def get_mcp_server(name: str, principal: McpUser, sandbox: SandboxQuery = None) -> McpServerResponse:
        """Return a server with the history of its state."""
        context = await context_of(principal, sandbox)
        return McpServerResponse.from_declared(directory.find(name, context), mcp, context, with_health=True)

    @router.put("/servers/{name}", responses=openapi_errors(404, 409))
    async def replace_mcp_server(name: str, body: dict[str, Any], principal: McpWriter) -> McpServerResponse:
        """Replace the declaration of a server of the tenant. A value of `***` keeps the hidden one."""
        context = await context_of(principal)
        server = _parse(McpServer, {"name": name, **body})
        if server.name != name:
            raise InvalidInput(f"name: a server cannot be renamed; it is {name!r}")
        declared = await management.put_server(context, server, principal.name or None, replace=True)
        return McpServerResponse.from_declared(declared, mcp, context)

    @router.delete("/servers/{name}", status_code=204, responses=openapi_errors(404, 409))
    async def delete_mcp_server(name: str, principal: McpWriter) -> None:
        """Remove a server of the tenant. Calls under way continue for a short time."""
        context = await context_of(principal)
        removed = await management.remove_server(context, name)
        await mcp.sign_ins.forget_server(context.tenant, removed.server)

    @router.get("/servers/{name}/tools", responses=openapi_errors(404, 409))
    async def list_mcp_server_tools(name: str, principal: McpUser, sandbox: SandboxQuery = None) -> McpToolListResponse:
        """List the tools of a server that can be called, under their offered names."""
        return await list_all_tools(name, await context_of(principal, sandbox))

    @router.get("/tools", responses=openapi_errors(404))
    async def list_mcp_tools(principal: McpUser, sandbox: SandboxQuery = None) -> McpToolListResponse:
        """List the tools of all servers that the key may use, with the name of the server in front."""
        return await list_all_tools("", await context_of(principal, sandbox))

    @router.post("/servers/{name}/call", responses={**openapi_errors(404, 409), **_CALL_RESPONSES}, response_model=None)
    async def call_mcp_tool(
        name: str, body: McpCallRequest, principal: McpUser, sandbox: SandboxQuery = None, accept: AcceptHeader = ""
    ) -> Response:
        """Call a tool, and return its result as in the protocol.

        With `Accept: text/event-stream` the answer is a stream of `progress` and then `result` or `error`; closing it
        cancels the call.
        """
        context = await context_of(principal, sandbox)
        endpoint = gateway.resolve(name, context)
        params = {"name": body.tool, "arguments": body.arguments}
        if "text/event-stream" in accept:
            events = _stream_call(endpoint, params, context, name)
            return StreamingResponse(events, 200, STREAM_HEADERS, "text/event-stream")
        started = asyncio.get_running_loop().time()
        result = _call_result(await _response(endpoint, "tools/call", params, context), name, started)
        return Response(result.model_dump_json(by_alias=True), media_type="application/json")

    @router.post("/servers/{name}/test", responses=openapi_errors(404))
    async def test_mcp_server(name: str, principal: McpUser, sandbox: SandboxQuery = None) -> McpTestResponse:
        """Connect to a server and list its tools; failures are part of the answer."""
        context = await context_of(principal, sandbox)
        declared = directory.find(name, context)
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            check_server_access(declared, context)
            async with asyncio.timeout(TEST_SECONDS):
                discovered = await ask(name, DISCOVER, {}, context)
                capabilities = discovered.get("capabilities")
                tools = await list_all_tools(name, context)
        except PaddockError as error:
            return McpTestResponse(ok=False, seconds=round(loop.time() - started, 3), error=error.message)
        except TimeoutError:
            return McpTestResponse(ok=False, seconds=TEST_SECONDS, error="the server does not answer")
        names = capabilities if isinstance(capabilities, dict) else {}
        info = (discovered.get("_meta") or {}).get(META_SERVER_INFO) or {}
        return McpTestResponse(
            ok=True,
            seconds=round(loop.time() - started, 3),
            server=" ".join(str(info[key])[:100] for key in ("name", "version") if info.get(key)) or None,
            revisions=[str(each)[:20] for each in discovered.get("supportedVersions", [])][:20],
            capabilities=sorted(str(each)[:100] for each in names)[:50],
            tools=len(tools.items),
        )

    @router.get("/servers/{name}/changes", responses=openapi_errors(404))
    async def list_mcp_tool_changes(name: str, principal: McpUser) -> HeldToolListResponse:
        """List the tools that are held because they differ from their approved version."""
        declared = directory.find(name, await context_of(principal))
        return HeldToolListResponse(
            items=[HeldToolResponse.from_held(each) for each in gateway.versions.held(declared)]
        )

    @router.post("/servers/{name}/changes/approve", responses=openapi_errors(404, 409))
    async def approve_mcp_tool_changes(
        name: str, body: ApproveToolsRequest, principal: McpWriter
    ) -> ApproveToolsResponse:
        """Approve versions of held tools, exactly as they were looked at."""
        context = await context_of(principal)
        declared = directory.find(name, context)
        if declared.source == "file" and (refusal := server_refusal(declared, context)) is not None:
            raise Conflict(f"The MCP server {name} cannot be used with this key: {refusal}.")
        approved = await gateway.versions.approve(declared, body.digests, principal.name or principal.subject)
        gateway.refresh_lists(declared)
        return ApproveToolsResponse(approved=approved)

    @router.get("/sets", responses=openapi_errors())
    async def list_mcp_sets(principal: McpUser) -> McpSetListResponse:
        """List the sets of the configuration and of the tenant."""
        sets = directory.sets_of(await context_of(principal))
        return McpSetListResponse(items=[McpSetResponse.from_declared(sets[name]) for name in sorted(sets)])

    @router.post("/sets", status_code=201, responses=openapi_errors(409))
    async def create_mcp_set(body: dict[str, Any], principal: McpWriter) -> McpSetResponse:
        """Add a set. The body is a declaration as in `mcp.sets` of the configuration."""
        context = await context_of(principal)
        declared = await management.put_set(context, _parse(McpSet, body), principal.name or None, replace=False)
        return McpSetResponse.from_declared(declared)

    @router.get("/sets/{name}", responses=openapi_errors(404))
    async def get_mcp_set(name: str, principal: McpUser) -> McpSetResponse:
        """Return a set."""
        return McpSetResponse.from_declared(directory.find_set(name, await context_of(principal)))

    @router.get("/sets/{name}/tools", responses=openapi_errors(404))
    async def list_mcp_set_tools(name: str, principal: McpUser, sandbox: SandboxQuery = None) -> McpToolListResponse:
        """List the tools of a set."""
        return await list_all_tools(f"sets/{name}", await context_of(principal, sandbox))

    @router.put("/sets/{name}", responses=openapi_errors(404, 409))
    async def replace_mcp_set(name: str, body: dict[str, Any], principal: McpWriter) -> McpSetResponse:
        """Replace a set of the tenant."""
        chosen = _parse(McpSet, {"name": name, **body})
        if chosen.name != name:
            raise InvalidInput(f"name: a set cannot be renamed; it is {name!r}")
        declared = await management.put_set(await context_of(principal), chosen, principal.name or None, replace=True)
        return McpSetResponse.from_declared(declared)

    @router.delete("/sets/{name}", status_code=204, responses=openapi_errors(404, 409))
    async def delete_mcp_set(name: str, principal: McpWriter) -> None:
        """Remove a set of the tenant."""
        await management.remove_set(await context_of(principal), name)

    return router


def _parse(kind: type[Any], body: dict[str, Any]) -> Any:
    """Return a declaration. Raises `InvalidInput`."""
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in problem["loc"])
        message = problem["msg"].removeprefix("Value error, ")
        raise InvalidInput(f"{field}: {message}" if field else message) from None


async def _response(endpoint: Any, method: str, params: Mapping[str, Any], context: CallContext) -> JsonRpcMessage:
    async with aclosing(_exchange(endpoint, method, params, context)) as messages:
        async for message in messages:
            if message.is_response:
                return message
    raise Unavailable("the MCP server ended without a response")


async def _exchange(
    endpoint: Any, method: str, params: Mapping[str, Any], context: CallContext, progress_token: str | None = None
) -> AsyncGenerator[JsonRpcMessage]:
    meta = {
        META_REVISION: STATELESS_REVISION,
        META_CLIENT_INFO: {"name": "paddock-api", "version": "1"},
        META_CLIENT_CAPABILITIES: {},
    }
    if progress_token is not None:
        meta[PROGRESS_TOKEN] = progress_token
    request = make_request(1, method, {**params, "_meta": meta})
    async with aclosing(endpoint.exchange(request, context)) as messages:
        async for message in messages:
            assert isinstance(message, JsonRpcMessage)
            yield message


async def _stream_call(
    endpoint: Any, params: Mapping[str, Any], context: CallContext, name: str
) -> AsyncIterator[bytes]:
    """Yield the progress of a call and its result as server-sent events."""
    started = asyncio.get_running_loop().time()
    yield STREAM_OPENED
    try:
        messages = _exchange(endpoint, "tools/call", params, context, "api")
        async with aclosing(with_heartbeats(messages)) as following:  # type: ignore[type-var]
            async for message in following:
                if message is None:
                    yield HEARTBEAT_COMMENT
                elif message.is_response:
                    result = _call_result(message, name, started).model_dump_json(by_alias=True)
                    yield f"event: result\ndata: {result}\n\n".encode()
                    return
                elif message.method == "notifications/progress":
                    yield f"event: progress\ndata: {json.dumps(_progress(message))}\n\n".encode()
        raise Unavailable("the MCP server ended without a response")
    except PaddockError as error:
        problem = json.dumps({"code": error.code, "message": sanitize_message(error.message)})
        yield f"event: error\ndata: {problem}\n\n".encode()


def _progress(message: JsonRpcMessage) -> dict[str, Any]:
    params = message.params_object()
    text = params.get("message")
    numbers = {name: params.get(name) for name in ("progress", "total")}
    shown: dict[str, Any] = {
        name: value
        for name, value in numbers.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    }
    return {**shown, "message": text[:2000]} if isinstance(text, str) else shown


def _call_result(response: JsonRpcMessage, server: str, started: float) -> McpCallResponse:
    result = _result(response, server)
    if result.get(RESULT_TYPE) == INPUT_REQUIRED:
        raise Conflict("The tool needs input from a person; call it from an MCP client that supports elicitation.")
    return McpCallResponse(result=result, seconds=round(asyncio.get_running_loop().time() - started, 4))


def _result(response: JsonRpcMessage, server: str) -> dict[str, Any]:
    if error := response.error_object():
        text = error.get("message")
        raise Conflict(
            f"The MCP server {server} answers: {text if isinstance(text, str) else json.dumps(error)}"[:2000]
        )
    try:
        return response.result_object()
    except InvalidInput as error_:
        raise Unavailable(f"The answer of the MCP server {server} cannot be read: {error_.message}") from None
