"""Asks a client of an older revision for the input that a server requires, by requests on the stream of its call."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, Raw

from paddock.errors import InvalidInput
from paddock.mcp.protocol.messages import (
    INTERNAL_ERROR,
    LEGACY_REQUEST_TIMEOUT,
    MISSING_CLIENT_CAPABILITY,
    JsonRpcMessage,
    decode_raw_fields,
    decode_value,
    encode_value,
    make_notification,
)
from paddock.mcp.protocol.revisions import LATEST_LEGACY_REVISION
from paddock.mcp.serving.client_sessions import ClientSession
from paddock.mcp.serving.message_buffer import MessageBuffer

MAX_REQUESTS = 16
"""Requests to the client in one round."""
RETRY_PAUSE = 0.2
"""Seconds before a request is repeated for which the server wanted no input."""
_CAPABILITIES = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}


class ClientInputFailed(Exception):
    """The client cannot or will not give the input; the call ends with this error."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


class ClientInput:
    """Requests of one call to its client."""

    def __init__(self, session: ClientSession, buffer: MessageBuffer, timeout: float, *, can_ask: bool) -> None:
        self._session = session
        self._buffer = buffer
        self._timeout = timeout
        self._can_ask = can_ask

    async def answers(self, result: Mapping[str, Raw]) -> dict[str, Any]:
        """Return the parameters that are added to the repeated request. Raises `ClientInputFailed`."""
        requests = decode_raw_fields(result["inputRequests"]) if "inputRequests" in result else {}
        if len(requests) > MAX_REQUESTS:
            raise ClientInputFailed(INTERNAL_ERROR, f"the server asks for more than {MAX_REQUESTS} inputs at once")
        checked = {key: self._client_request(raw) for key, raw in requests.items()}
        if not checked:
            await asyncio.sleep(RETRY_PAUSE)
        try:
            async with asyncio.TaskGroup() as group:
                asked = {key: group.create_task(self._ask(request)) for key, request in checked.items()}
        except BaseExceptionGroup as failures:
            raise next((each for each in failures.exceptions), failures) from None
        added: dict[str, Any] = {"inputResponses": {key: task.result() for key, task in asked.items()}}
        if "requestState" in result:
            added["requestState"] = result["requestState"]
        return added

    def _client_request(self, raw: Raw) -> JsonRpcMessage:
        """Return the request to the client. Raises `ClientInputFailed` if the client does not have the capability."""
        try:
            fields = decode_raw_fields(raw)
            method = decode_value(fields["method"])
            params: dict[str, Any] = dict(decode_raw_fields(fields.get("params", UNSET)))
        except (InvalidInput, KeyError):
            raise ClientInputFailed(INTERNAL_ERROR, "the server's request for input cannot be read") from None
        capability = _CAPABILITIES.get(method) if isinstance(method, str) else None
        if capability is None:
            raise ClientInputFailed(INTERNAL_ERROR, "the server asks the client for something that MCP does not have")
        declared = decode_raw_fields(self._session.capabilities)
        if capability not in declared:
            raise self._missing(capability)
        mode = decode_value(params["mode"]) if "mode" in params else "form"
        if method == "elicitation/create" and mode != "form":
            if "url" not in decode_raw_fields(declared[capability]):
                raise self._missing("elicitation.url")
        elif method == "elicitation/create" and self._session.revision != LATEST_LEGACY_REVISION:
            params.pop("mode", None)  # Older revisions know only forms.
        if not self._can_ask:
            text = f"the server needs {capability}, and this client does not accept text/event-stream"
            raise ClientInputFailed(MISSING_CLIENT_CAPABILITY, text)
        number = f"paddock-{self._session.next_number()}"
        return JsonRpcMessage(id=number, method=method, params=encode_value(params))

    def _missing(self, capability: str) -> ClientInputFailed:
        text = f"the server needs the client's capability {capability}, which this client did not declare"
        return ClientInputFailed(MISSING_CLIENT_CAPABILITY, text)

    async def _ask(self, request: JsonRpcMessage) -> Raw:
        assert isinstance(request.id, str)
        answer: asyncio.Future[JsonRpcMessage] = asyncio.get_running_loop().create_future()
        self._session.client_answers[request.id] = answer
        try:
            async with asyncio.timeout(self._timeout):
                await self._buffer.put(request)
                response = await answer
        except TimeoutError:
            await self._buffer.put(
                make_notification("notifications/cancelled", {"requestId": request.id, "reason": "timed out"})
            )
            text = f"the client did not answer {request.method} within {self._timeout:g} s"
            raise ClientInputFailed(LEGACY_REQUEST_TIMEOUT, text) from None
        finally:
            self._session.client_answers.pop(request.id, None)
        if isinstance(response.result, Raw):
            return response.result
        error = response.error_object()
        code, text = error.get("code"), str(error.get("message"))[:1000]
        code = code if isinstance(code, int) and not isinstance(code, bool) else INTERNAL_ERROR
        raise ClientInputFailed(code, f"the client refused {request.method}: {text}")
