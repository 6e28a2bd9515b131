"""Passes messages between standard input and output and an address of the MCP gateway, in the client's own revision."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any

import aiohttp

from paddock.errors import InvalidInput, TooLarge
from paddock.mcp.protocol.event_stream import McpEventReader
from paddock.mcp.protocol.headers import (
    ACCEPT_BOTH,
    METHOD_HEADER,
    NAME_HEADER,
    NAMED_METHODS,
    REVISION_HEADER,
    SESSION_HEADER,
    MirroredParameters,
    encode_header_value,
    mirrored_parameters,
    parameter_headers,
)
from paddock.mcp.protocol.messages import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    PARSE_ERROR,
    JsonRpcMessage,
    MessageId,
    decode_message,
    encode_message,
    make_error,
    make_notification,
)
from paddock.mcp.protocol.revisions import LATEST_LEGACY_REVISION, LISTEN, META_REVISION

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

MAX_MESSAGE = 256 * 2**20
EXIT_GRACE = 10.0
"""Seconds that requests under way have after the end of the input."""
RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Pauses before a broken stream is resumed; the last one repeats for the stream of changes."""
REQUEST_TIMEOUT = 30.0
_INITIALIZED = "notifications/initialized"


class StdioBridge:
    """One client on standard input and output."""

    def __init__(self, session: ClientSession, url: str, write: Callable[[bytes], None]) -> None:
        self._http = session
        self._url = url
        self._write_line = write
        self._requests: dict[MessageId, asyncio.Task[None]] = {}
        self._listens: set[MessageId] = set()
        self._mirrored: dict[str, MirroredParameters] = {}
        """Parameters of tools that are repeated as headers."""
        self._session_id: str | None = None
        self._revision = LATEST_LEGACY_REVISION
        self._initialize: JsonRpcMessage | None = None
        """The request that opened the session, to open another one when the gateway has forgotten it."""
        self._renewing = asyncio.Lock()
        self._changes: asyncio.Task[None] | None = None

    async def run(self, lines: AsyncIterator[bytes]) -> None:
        """Pass messages on until the end of the input."""
        try:
            async for line in lines:
                await self._take(line)
            waiting = [task for number, task in self._requests.items() if number not in self._listens]
            if waiting:
                await asyncio.wait(waiting, timeout=EXIT_GRACE)
        finally:
            await self._close()

    async def _take(self, line: bytes) -> None:
        try:
            message = decode_message(line)
        except InvalidInput as error:
            self._write(make_error(None, PARSE_ERROR, error.message))
            return
        if message.is_request:
            number = message.request_id
            task = self._requests[number] = asyncio.create_task(self._request(message))
            if message.method == LISTEN:
                self._listens.add(number)
            task.add_done_callback(lambda _: self._forget(number, task))
        elif self._session_id is None:
            self._cancel(message)  # Without a session, closing the response is what cancels a request.
        else:
            await self._notify(message)
            cancelled = self._cancelled_request(message) if message.method == "notifications/cancelled" else None
            if cancelled is not None:
                cancelled.cancel()  # There will be no response.

    def _forget(self, number: MessageId, task: asyncio.Task[None]) -> None:
        if self._requests.get(number) is task:
            del self._requests[number]
            self._listens.discard(number)

    def _cancel(self, message: JsonRpcMessage) -> None:
        if message.method == "notifications/cancelled" and (request := self._cancelled_request(message)) is not None:
            request.cancel()

    def _cancelled_request(self, message: JsonRpcMessage) -> asyncio.Task[None] | None:
        try:
            number = message.params_object().get("requestId")
        except InvalidInput:
            return None
        return self._requests.get(number) if isinstance(number, (int, str)) else None

    async def _notify(self, message: JsonRpcMessage) -> None:
        """Send a notification, or an answer of the client; nothing is returned for it."""
        try:
            async with (
                asyncio.timeout(REQUEST_TIMEOUT),
                self._http.post(self._url, data=encode_message(message), headers=self._session_headers()) as response,
            ):
                await response.read()
        except (aiohttp.ClientError, TimeoutError):
            return
        if message.method == _INITIALIZED and self._changes is None:
            self._changes = asyncio.create_task(self._follow_changes())

    async def _request(self, message: JsonRpcMessage) -> None:
        """Send a request, and write its notifications and its response; errors become a response."""
        try:
            await self._send(message)
        except aiohttp.ClientError as error:
            text = f"the connection to the Paddock server at {self._url} failed: {type(error).__name__}"
            self._write(make_error(message.request_id, INTERNAL_ERROR, text))
        except TooLarge as error:
            self._write(make_error(message.request_id, INTERNAL_ERROR, error.message))

    async def _send(self, message: JsonRpcMessage, *, is_repeated: bool = False) -> None:
        is_stateless = META_REVISION.encode() in bytes(message.params or b"")
        headers = self._stateless_headers(message) if is_stateless else self._session_headers()
        if message.method == "initialize" and not is_stateless:
            headers.pop(SESSION_HEADER, None)
            headers.pop(REVISION_HEADER, None)
        used_session = headers.get(SESSION_HEADER)
        async with self._http.post(self._url, data=encode_message(message), headers=headers) as response:
            if response.status == 404 and used_session is not None and not is_repeated:
                response.close()
                if await self._renew_session(used_session):
                    return await self._send(message, is_repeated=True)
                self._write(
                    make_error(message.request_id, INTERNAL_ERROR, "the session has ended, and cannot be renewed")
                )
                return None
            if response.content_type == "text/event-stream":
                return await self._pass_stream(message, response)
            answer = await self._whole_answer(message, response)
            if is_stateless and not is_repeated and _is_mismatch(answer) and message.method == "tools/call":
                await self._learn_tools(message)
                return await self._send(message, is_repeated=True)
            self._on_response(message, answer, response.headers)
            self._write(answer)
        return None

    async def _whole_answer(self, message: JsonRpcMessage, response: ClientResponse) -> JsonRpcMessage:
        content = await response.read()
        try:
            answer = decode_message(content)
        except InvalidInput:
            text = f"the Paddock server answered with status {response.status}: {content[:200]!r}"
            return make_error(message.request_id, INTERNAL_ERROR, text)
        return answer if isinstance(answer.id, (int, str)) else answer.with_id(message.request_id)

    async def _pass_stream(self, message: JsonRpcMessage, response: ClientResponse) -> None:
        """Write the messages of a stream; resume it if it breaks, as clients of sessions may."""
        last_event = await self._write_events(response, message)
        for pause in RETRY_SECONDS:
            if last_event is None:
                return
            if self._session_id is None or not last_event:
                break
            await asyncio.sleep(pause)
            headers = {**self._session_headers(), "Last-Event-ID": last_event}
            try:
                async with self._http.get(self._url, headers=headers) as resumed:
                    if resumed.content_type != "text/event-stream":
                        break
                    last_event = await self._write_events(resumed, message, last_event)
            except aiohttp.ClientError:
                continue
        if last_event is not None:
            self._write(make_error(message.request_id, INTERNAL_ERROR, "the connection was lost during the request"))

    async def _write_events(
        self, response: ClientResponse, message: JsonRpcMessage | None, last_event: str = ""
    ) -> str | None:
        """Write the messages of a stream until the response; return the last event's id if there was no response."""
        reader = McpEventReader(MAX_MESSAGE)
        try:
            async for chunk in response.content.iter_any():
                for event in reader.feed(chunk):
                    if not event.data:
                        continue
                    received = decode_message(event.data)
                    if message is not None and received.is_response:
                        self._on_response(message, received, response.headers)
                    self._write(received)
                    if message is not None and received.is_response:
                        return None
        except (aiohttp.ClientError, InvalidInput):
            pass
        return reader.last_id or last_event

    def _on_response(self, message: JsonRpcMessage, answer: JsonRpcMessage, headers: Mapping[str, str]) -> None:
        """Remember what later requests need."""
        try:
            if message.method == "initialize" and answer.result and (session := headers.get(SESSION_HEADER)):
                self._session_id, self._initialize = session, message
                self._revision = str(answer.result_object().get("protocolVersion", LATEST_LEGACY_REVISION))
            elif message.method == "tools/list" and b"x-mcp-header" in bytes(answer.result or b""):
                for tool in answer.result_object().get("tools") or ():
                    self._mirrored[str(tool.get("name"))] = mirrored_parameters(tool.get("inputSchema"))
        except (InvalidInput, ValueError, AttributeError):
            pass

    async def _learn_tools(self, message: JsonRpcMessage) -> None:
        """Read the tools' parameters that are repeated as headers, for a client that did not list them before."""
        meta = message.params_object().get("_meta")
        cursor: dict[str, Any] = {}
        for _ in range(100):
            listing = JsonRpcMessage(id="paddock-tools", method="tools/list").with_params({"_meta": meta, **cursor})
            headers = self._stateless_headers(listing) | {"Accept": "application/json"}
            async with self._http.post(self._url, data=encode_message(listing), headers=headers) as response:
                answer = await self._whole_answer(listing, response)
            self._on_response(listing, answer, response.headers)
            following = answer.result_object().get("nextCursor")
            if not isinstance(following, str):
                return
            cursor = {"cursor": following}

    async def _renew_session(self, ended: str) -> bool:
        """Open another session for one that the gateway has forgotten; True if there is one."""
        async with self._renewing:
            if self._session_id != ended:
                return self._session_id is not None
            if self._initialize is None:
                return False
            headers = {"Content-Type": "application/json", "Accept": ACCEPT_BOTH}
            async with self._http.post(self._url, data=encode_message(self._initialize), headers=headers) as response:
                answer = await self._whole_answer(self._initialize, response)
            self._session_id = None
            self._on_response(self._initialize, answer, response.headers)
            if self._session_id is None:
                return False
            await self._notify(make_notification(_INITIALIZED, {}))
            return True

    async def _follow_changes(self) -> None:
        """Write what the server tells outside of requests, as long as the client has a session."""
        attempt = 0
        while True:
            session = self._session_id
            try:
                async with self._http.get(self._url, headers=self._session_headers()) as response:
                    if response.status == 404 and session is not None:
                        await self._renew_session(session)
                    elif response.status != 200:
                        return
                    else:
                        attempt = 0
                        await self._write_events(response, None)
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)])
            attempt += 1

    def _session_headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": ACCEPT_BOTH}
        if self._session_id is not None:
            headers |= {SESSION_HEADER: self._session_id, REVISION_HEADER: self._revision}
        return headers

    def _stateless_headers(self, message: JsonRpcMessage) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": ACCEPT_BOTH, METHOD_HEADER: str(message.method)}
        try:
            params = message.params_object()
            revision = params["_meta"][META_REVISION]
        except (InvalidInput, KeyError, TypeError):
            return headers
        headers[REVISION_HEADER] = str(revision)
        name = params.get(NAMED_METHODS.get(str(message.method), ""))
        if isinstance(name, str):
            headers[NAME_HEADER] = encode_header_value(name)
            headers |= parameter_headers(self._mirrored.get(name, {}), params.get("arguments"))
        return headers

    def _write(self, message: JsonRpcMessage) -> None:
        data = encode_message(message)
        if b"\n" in data or b"\r" in data:
            data = data.replace(b"\r", b" ").replace(b"\n", b" ")
        self._write_line(data)

    async def _close(self) -> None:
        tasks = [*self._requests.values()] + ([] if self._changes is None else [self._changes])
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session_id is not None:
            try:
                async with asyncio.timeout(2.0), self._http.delete(self._url, headers=self._session_headers()) as ended:
                    await ended.read()
            except (aiohttp.ClientError, TimeoutError):
                pass


def _is_mismatch(answer: JsonRpcMessage) -> bool:
    try:
        return answer.error_object().get("code") == HEADER_MISMATCH
    except InvalidInput:
        return False
