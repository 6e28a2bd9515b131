"""One session with a server: requests under own ids, and their answers, however the channel delivers them.

Serves programs of the stateless revision too, since all their messages share one channel.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

import msgspec
import structlog
from msgspec import UNSET, Raw, UnsetType

from paddock.errors import InvalidInput, McpTimeout, PaddockError, Unavailable
from paddock.mcp.protocol import CallContext, JsonRpcMessage
from paddock.mcp.protocol.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    make_error,
    make_notification,
    make_request,
    make_result,
)
from paddock.mcp.protocol.revisions import (
    DISCOVER,
    INPUT_REQUIRED,
    META_REVISION,
    META_SUBSCRIPTION,
    PROGRESS_TOKEN,
    RESULT_TYPE,
    STATELESS_REVISION,
)
from paddock.mcp.upstreams.call_clock import CallClock
from paddock.mcp.upstreams.request_fields import (
    RequestFields,
    change_meta,
    raw_object,
    with_subscription_id,
)
from paddock.mcp.upstreams.sessions.legacy_translation import (
    INPUT_CAPABILITIES,
    LOG_LEVELS,
    SESSION_METHODS,
    discover_result,
    is_logged,
    legacy_request,
    request_digest,
    stateless_response,
)
from paddock.mcp.upstreams.sessions.notification_fields import NotificationFields, notification_fields
from paddock.mcp.upstreams.sessions.pending_calls import PendingCall
from paddock.mcp.upstreams.sessions.session_channel import SessionChannel
from paddock.mcp.upstreams.sessions.suspended_calls import SuspendedCall, SuspendedCalls
from paddock.mcp.upstreams.task_set import TaskSet
from paddock.model.mcp import McpServer

MAX_INPUT_ROUNDS = 32
"""How often a server may ask for input during one call."""
MAX_LOGGED = 5
"""Ignored messages of a session that are logged."""
SHORT_REQUEST_TIME = 10.0
"""Seconds for requests that a session makes by itself, such as setting the log level."""
log = structlog.get_logger()


class UpstreamSession:
    """A session in a revision with `initialize`, or requests to a program of the stateless revision."""

    def __init__(
        self,
        server: McpServer,
        channel: SessionChannel,
        suspended: SuspendedCalls,
        on_notification: Callable[[JsonRpcMessage, NotificationFields], None],
        on_closed: Callable[[PaddockError], None],
    ) -> None:
        self.server = server
        self.capabilities: Mapping[str, Any] = {}
        """Capabilities of the client as declared to the server."""
        self.initialized: Mapping[str, Any] = {}
        """The server's answer to `initialize`."""
        self.is_stateless = False
        self.closed_by: PaddockError | None = None
        self.tasks = TaskSet()
        self.channel = channel
        self._suspended = suspended
        self._on_notification = on_notification
        self._on_closed = on_closed
        self._calls: dict[int, PendingCall] = {}
        self._next_id = 1
        self._log_level: str | None = None
        self._ignored = 0
        self._context = CallContext(tenant="", caller="")
        """Of the request for which the session was opened."""

    @property
    def is_busy(self) -> bool:
        """True if calls are under way or suspended."""
        return bool(self._calls)

    async def open(self, context: CallContext, clock: CallClock) -> None:
        self._context = context
        await self.channel.open(self, context, clock)

    def on_initialized(self, result: Mapping[str, Any], capabilities: Mapping[str, Any]) -> None:
        """Use what the handshake agreed on."""
        self.initialized = result
        self.capabilities = capabilities

    async def exchange(
        self, request: JsonRpcMessage, fields: RequestFields, context: CallContext
    ) -> AsyncGenerator[JsonRpcMessage, None]:
        """Send a request and yield what the server sends for it, in the stateless form. Raises `PaddockError`."""
        if not self.is_stateless:
            if request.method == DISCOVER:
                yield make_result(_required_id(request), discover_result(self.initialized))
                return
            if request.method in SESSION_METHODS:  # A client could change the session of others.
                yield make_error(_required_id(request), METHOD_NOT_FOUND, f"{request.method} needs a session")
                return
            await self._set_log_level(fields.meta.log_level, context)
        call = self._start_call(request, fields, context)
        is_endless = self.is_stateless and request.method == "subscriptions/listen"
        clock = CallClock.unlimited(self.server, context) if is_endless else CallClock(self.server, context)
        try:
            await self._send(call, self._translate(call, request, fields), clock)
        except BaseException:
            self.abandon(call, "the request was not sent")
            raise
        async for message in self._follow(call, request, clock):
            yield message

    async def resume(
        self, found: SuspendedCall, request: JsonRpcMessage, fields: RequestFields, context: CallContext
    ) -> AsyncGenerator[JsonRpcMessage, None]:
        """Continue a suspended call with the client's answers. Raises `PaddockError`."""
        call = found.call
        call.continue_as(request, fields, context)
        clock = CallClock(self.server, context)
        try:
            async with clock.wait():
                for key, answer in raw_object(fields.input_responses).items():
                    asked = call.inputs.pop(key, None)
                    if asked is not None:
                        await self.channel.send_other(JsonRpcMessage(id=asked.id, result=answer), context)
        except TimeoutError:
            self.abandon(call, "time-out")
            raise clock.timeout_error() from None
        except BaseException:
            self.abandon(call, "the client's answers were not sent")
            raise
        async for message in self._follow(call, request, clock):
            yield message

    async def request_answer(self, method: str, params: Any, context: CallContext, clock: CallClock) -> JsonRpcMessage:
        """Send a request of the session itself, and return the response. Raises `PaddockError`."""
        request = make_request(self._next_id, method, params)
        call = self._start_call(request, RequestFields(), context)
        try:
            await self._send(call, request, clock)
            while True:
                item = await self._next_item(call, clock)
                if isinstance(item, PaddockError):
                    raise item
                if item is not None and item.is_response:
                    return item
        finally:
            if call.is_over or method == "initialize":
                self._end_call(call)
            else:
                self.abandon(call, "time-out")

    def abandon(self, call: PendingCall, reason: str) -> None:
        """Cancel a call on the server, if it has not ended."""
        if self._calls.get(call.id) is not call:
            return
        is_over = call.is_over
        self._end_call(call)
        if not is_over and self.closed_by is None:
            params = {"requestId": call.id, "reason": reason}
            self.tasks.spawn(self._send_quietly(make_notification("notifications/cancelled", params), call.context))

    def listen(self, context: CallContext) -> None:
        """Receive notifications that belong to no request."""
        self.channel.listen(context)

    async def close(self, error: PaddockError | None = None) -> None:
        """End the session and all its calls."""
        self.on_channel_closed(error or Unavailable(f"the connection to the MCP server {self.server.name} was closed"))
        await self.tasks.close()
        await self.channel.close()

    # Received from the channel.

    def on_message(self, message: JsonRpcMessage, request_id: int | None) -> None:
        try:
            if message.is_response:
                self._on_response(message, request_id)
            elif message.is_notification:
                self._on_any_notification(message, request_id)
            elif message.is_request:
                self._on_request(message, request_id)
        except InvalidInput as error:
            self._log_ignored("invalid message of MCP server ignored", reason=error.message)

    def on_request_failed(self, request_id: int, error: PaddockError) -> None:
        if call := self._calls.get(request_id):
            call.add(error)

    def on_channel_closed(self, error: PaddockError) -> None:
        if self.closed_by is not None:
            return
        self.closed_by = error
        for call in list(self._calls.values()):
            call.add(error)
        self._suspended.drop(lambda each: each.owner is self)
        self._on_closed(error)

    def _on_response(self, message: JsonRpcMessage, request_id: int | None) -> None:
        call = self._calls.get(message.id) if isinstance(message.id, int) else None
        if call is None and message.id is None and request_id is not None and message.error is not UNSET:
            call = self._calls.get(request_id)  # Errors may lack the id.
        if call is None or (request_id is not None and call.id != request_id):
            self._log_ignored("unexpected response of MCP server ignored", id=str(message.id)[:100])
            return
        call.add(message)

    def _on_any_notification(self, message: JsonRpcMessage, request_id: int | None) -> None:
        fields = notification_fields(message)
        own = self._calls.get(request_id) if request_id is not None else None
        if message.method == "notifications/progress":
            call = self._calls.get(fields.progress_token) if isinstance(fields.progress_token, int) else None
            if call is not None and not isinstance(call.progress_token, UnsetType):
                params = raw_object(message.params) | {
                    PROGRESS_TOKEN: msgspec.Raw(msgspec.json.encode(call.progress_token))
                }
                call.add(message.with_params(params))
        elif message.method == "notifications/message":
            call = own or self._logging_call()
            if call is not None and is_logged(fields.level, call.log_level):
                call.add(message)
        elif message.method == "notifications/cancelled":
            for call in self._calls.values():
                call.withdraw_input(fields.request_id)
        elif isinstance(fields.meta.subscription, int) and (call := self._calls.get(fields.meta.subscription)):
            self._on_notification(message, fields)
            call.add(with_subscription_id(message, call.request_id))
        else:
            self._on_notification(message, fields)
            if fields.uri is None and not str(message.method).endswith("/list_changed") and own is not None:
                own.add(message)

    def _on_request(self, message: JsonRpcMessage, request_id: int | None) -> None:
        method = str(message.method)
        if method == "ping":
            answer = make_result(_required_id(message), {})
        elif self.is_stateless or method not in INPUT_CAPABILITIES:
            answer = make_error(_required_id(message), METHOD_NOT_FOUND, f"{method[:100]} is not known")
        else:
            call = self._calls.get(request_id) if request_id is not None else self._asking_call(method)
            if call is None or not call.takes_input:
                text = "no request is under way whose client could be asked"
                answer = make_error(_required_id(message), INTERNAL_ERROR, text)
            elif INPUT_CAPABILITIES[method] not in raw_object(call.capabilities):
                answer = make_error(_required_id(message), METHOD_NOT_FOUND, f"the client does not support {method}")
            elif not call.add_input(message):
                answer = make_error(_required_id(message), INTERNAL_ERROR, "the client is asked too much already")
            else:
                return
        self.tasks.spawn(self._send_quietly(answer, self._context_of(request_id)))

    def _log_ignored(self, text: str, **fields: str) -> None:
        """Log a message that was ignored; a server cannot fill the log with them."""
        self._ignored += 1
        if self._ignored <= MAX_LOGGED:
            log.info(text, server=self.server.name, **fields)

    # Calls.

    def _start_call(self, request: JsonRpcMessage, fields: RequestFields, context: CallContext) -> PendingCall:
        if self.closed_by is not None:
            raise type(self.closed_by)(self.closed_by.message)
        call = PendingCall(self._next_id, request, fields, context, self.server.limits.response_size)
        self._next_id += 1
        self._calls[call.id] = call
        return call

    def _translate(self, call: PendingCall, request: JsonRpcMessage, fields: RequestFields) -> JsonRpcMessage:
        has_progress = not isinstance(fields.meta.progress_token, UnsetType)
        if not self.is_stateless:
            return legacy_request(request, call.id, has_progress)
        changes: dict[str, Any] = {PROGRESS_TOKEN: call.id} if has_progress else {}
        if fields.meta.revision != STATELESS_REVISION or not isinstance(request.params, Raw):
            changes[META_REVISION] = STATELESS_REVISION
        return (change_meta(request, changes) if changes else request).with_id(call.id)

    async def _send(self, call: PendingCall, message: JsonRpcMessage, clock: CallClock) -> None:
        try:
            async with clock.wait():
                await self.channel.send_request(message, call.id, call.context)
        except TimeoutError:
            raise clock.timeout_error() from None

    async def _follow(
        self, call: PendingCall, request: JsonRpcMessage, clock: CallClock
    ) -> AsyncGenerator[JsonRpcMessage, None]:
        """Yield the items of a call until its response, or until the client is asked for input."""
        reason = "the client cancelled the request"
        is_suspended = False
        try:
            while True:
                item = await self._next_item(call, clock)
                if isinstance(item, PaddockError):
                    raise type(item)(item.message)
                if item is None:
                    message = self._suspend(call, request)
                    is_suspended = True
                    yield message
                    return
                if item.is_response:
                    yield self._final_response(call, item)
                    return
                yield item
        except McpTimeout:
            reason = "time-out"
            raise
        finally:
            if not is_suspended:
                self.abandon(call, reason)

    async def _next_item(self, call: PendingCall, clock: CallClock) -> JsonRpcMessage | PaddockError | None:
        try:
            async with clock.wait():
                await call.wait()
        except TimeoutError:
            raise clock.timeout_error() from None
        clock.restart()
        return call.take()

    def _suspend(self, call: PendingCall, request: JsonRpcMessage) -> JsonRpcMessage:
        """Return the result that asks the client for input; the call goes on when the request is repeated."""
        call.rounds += 1
        digest = request_digest(request)
        state = self._suspended.suspend(self, call, digest) if call.rounds <= MAX_INPUT_ROUNDS else None
        if state is None:
            self.abandon(call, "too much input was asked for")
            raise Unavailable(f"the MCP server {self.server.name} asks its clients for too much input")
        asked = {
            key: {"method": each.method} | ({"params": each.params} if isinstance(each.params, Raw) else {})
            for key, each in call.inputs.items()
        }
        result = {RESULT_TYPE: INPUT_REQUIRED, "inputRequests": asked, "requestState": state}
        return make_result(call.request_id, result)

    def _final_response(self, call: PendingCall, response: JsonRpcMessage) -> JsonRpcMessage:
        if not self.is_stateless:
            return stateless_response(response, call.request_id, call.method)
        if call.method == "subscriptions/listen" and isinstance(response.result, Raw):
            result = raw_object(response.result)
            meta = raw_object(result.get("_meta", UNSET))
            meta[META_SUBSCRIPTION] = Raw(msgspec.json.encode(call.request_id))
            response = response.with_result(result | {"_meta": meta})
        return response.with_id(call.request_id)

    def _end_call(self, call: PendingCall) -> None:
        call.is_over = True
        self._calls.pop(call.id, None)
        self.channel.forget_request(call.id)

    async def _set_log_level(self, level: str | UnsetType, context: CallContext) -> None:
        """Let the server log as much as the most verbose request asked for."""
        if not isinstance(level, str) or level not in LOG_LEVELS or "logging" not in self._server_capabilities():
            return
        if self._log_level is not None and LOG_LEVELS.index(self._log_level) <= LOG_LEVELS.index(level):
            return
        self._log_level = level
        clock = CallClock(self.server, context, SHORT_REQUEST_TIME)
        try:
            await self.request_answer("logging/setLevel", {"level": level}, context, clock)
        except McpTimeout:
            log.info("log level of MCP server not set", server=self.server.name)

    def _server_capabilities(self) -> Mapping[str, Any]:
        found = self.initialized.get("capabilities")
        return found if isinstance(found, dict) else {}

    def _logging_call(self) -> PendingCall | None:
        """Return the oldest call that wants log messages."""
        wanted = (call for call in self._calls.values() if isinstance(call.log_level, str) and not call.is_over)
        return next(wanted, None)

    def _asking_call(self, method: str) -> PendingCall | None:
        """Return the newest call with a client that can answer a request of the server."""
        capability = INPUT_CAPABILITIES[method]
        calls = [call for call in reversed(self._calls.values()) if call.takes_input]
        return next((call for call in calls if capability in raw_object(call.capabilities)), next(iter(calls), None))

    def _context_of(self, request_id: int | None) -> CallContext:
        call = self._calls.get(request_id) if request_id is not None else None
        return call.context if call is not None else self._context

    async def _send_quietly(self, message: JsonRpcMessage, context: CallContext) -> None:
        try:
            async with asyncio.timeout(SHORT_REQUEST_TIME):
                await self.channel.send_other(message, context)
        except (PaddockError, TimeoutError) as error:
            log.info("message to MCP server not sent", server=self.server.name, reason=str(error)[:200])


def invalid_state_error(request: JsonRpcMessage) -> JsonRpcMessage:
    """Build the response to a repeated request without a suspended call."""
    text = "requestState: the call is over, or belongs to another request; send the request without it"
    return make_error(_required_id(request), INVALID_PARAMS, text)


def _required_id(request: JsonRpcMessage) -> int | str:
    if not isinstance(request.id, (int, str)):
        raise InvalidInput("a request needs an id")
    return request.id
