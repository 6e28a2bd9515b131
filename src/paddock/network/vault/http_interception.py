"""Serve one connection to a bound host: put credentials into matching requests, mask them in responses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus

import h11

from paddock.network.vault.byte_streams import ByteStream
from paddock.network.vault.content_decoding import IdentityDecoder, UnknownEncoding, make_decoder
from paddock.network.vault.credential_vaults import ActiveVault
from paddock.network.vault.http_heads import (
    HEAD_END,
    MAX_HEAD,
    RefusedRequest,
    asks_to_close,
    check_raw_head,
    check_request,
    header_values,
    request_headers,
    response_headers,
)
from paddock.network.vault.request_matching import find_bindings
from paddock.network.vault.secret_masking import SecretMask, StreamMask

HEAD_TIMEOUT = 30.0
"""Seconds for the rest of a head that has begun."""
READ_AHEAD = 64 * 1024
"""Bytes of the next requests that are read while a response is awaited."""
COLLECTED = 64 * 1024
"""Bytes of a message that are sent at once."""
HOLD_SECONDS = 0.02
"""Seconds that the end of a piece of a response is held back, because a value may be split there."""
DRAIN_TIMEOUT = 1.0
"""Seconds in which a refused program can read the answer while it still sends."""
DEFAULT_PORTS = {"https": 443, "http": 80}


class HttpInterception:
    """Relays requests of one connection to one host, one after the other."""

    def __init__(
        self,
        scheme: str,
        host: str,
        port: int,
        vault: Callable[[], ActiveVault],
        on_refused: Callable[[str], None],
    ) -> None:
        """`vault` returns the current vault; `on_refused` gets the reason why a request was refused."""
        self._scheme = scheme
        self._host = host
        self._port = port
        self._vault = vault
        self._on_refused = on_refused
        shown = host if port == DEFAULT_PORTS[scheme] else f"{host}:{port}"
        self._host_header = shown.encode()

    async def serve(self, program: ByteStream, server: ByteStream) -> None:
        """Serve until one side ends. Raises `OSError` if a side failed in the middle of a message."""
        inward = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        outward = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
        while True:
            try:
                request = await _read_request(inward, program)
                if request is None:
                    return await program.finish()
                prepared = self._prepare(request)
            except RefusedRequest as refused:
                return await self._refuse(inward, program, refused)
            except h11.RemoteProtocolError as error:
                invalid = RefusedRequest(error.error_status_hint, f"the request is not valid HTTP/1.1: {error}")
                return await self._refuse(inward, program, invalid)
            exchange = _Exchange(
                inward, program, outward, server, self._vault().mask, may_half_close=self._scheme == "http"
            )
            try:
                await exchange.run(prepared)
            except RefusedRequest as refused:
                return await self._refuse(inward, program, refused)
            except h11.ProtocolError as error:
                raise ConnectionAbortedError(f"{self._host} or the program broke HTTP/1.1: {error}") from None
            if exchange.has_switched:
                return None
            if inward.our_state is not h11.DONE or inward.their_state is not h11.DONE:
                return await _finish_with_drain(program)
            if outward.our_state is not h11.DONE or outward.their_state is not h11.DONE:
                return await _finish_with_drain(program)
            inward.start_next_cycle()
            outward.start_next_cycle()

    async def refuse_first(self, program: ByteStream, status: int, message: str) -> None:
        """Answer the first request with an error, because the server cannot be used."""
        inward = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        with suppress(RefusedRequest, h11.RemoteProtocolError):
            if await _read_request(inward, program) is None:
                return
        await self._refuse(inward, program, RefusedRequest(status, message))

    def _prepare(self, request: h11.Request) -> h11.Request:
        """Return the request to send on. Raises `RefusedRequest`."""
        check_request(request, self._host, self._port, DEFAULT_PORTS[self._scheme])
        path = request.target.partition(b"?")[0].decode("ascii", "replace")
        method = request.method.decode("ascii")
        found = find_bindings(self._vault().bindings, self._scheme, self._host, self._port, method, path)
        if len(found) > 1:
            names = ", ".join(sorted(binding.name for binding in found))
            raise RefusedRequest(403, f"it matches several credential bindings: {names}; make them differ")
        headers, _ = request_headers(request, self._host_header, found[0].headers if found else ())
        return h11.Request(method=request.method, target=request.target, headers=headers)

    async def _refuse(self, inward: h11.Connection, program: ByteStream, refused: RefusedRequest) -> None:
        self._on_refused(refused.message)
        if inward.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            raise ConnectionAbortedError(refused.message)
        body = f"Paddock refused this request: {refused.message}\n".encode(errors="replace")
        headers = [
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
            ("X-Paddock-Vault", "refused"),
        ]
        reason = HTTPStatus(refused.status).phrase
        response = inward.send(h11.Response(status_code=refused.status, headers=headers, reason=reason))
        await program.write((response or b"") + (inward.send(h11.Data(data=body)) or b""))
        inward.send(h11.EndOfMessage())
        await _finish_with_drain(program)


class _MessageWriter:
    """Collects small parts of a message, so that head and body are sent together."""

    def __init__(self, connection: h11.Connection, stream: ByteStream) -> None:
        self._connection = connection
        self._stream = stream
        self._parts: list[bytes] = []
        self._size = 0

    async def send(self, event: h11.Event) -> None:
        """Take an event; it is on its way after `flush`."""
        if data := self._connection.send(event):
            self._parts.append(data)
            self._size += len(data)
            if self._size >= COLLECTED:
                await self.flush()

    async def flush(self) -> None:
        if self._parts:
            data = b"".join(self._parts)
            self._parts, self._size = [], 0
            await self._stream.write(data)


class _Exchange:
    """One request and its response; both directions flow at the same time."""

    def __init__(
        self,
        inward: h11.Connection,
        program: ByteStream,
        outward: h11.Connection,
        server: ByteStream,
        mask: SecretMask,
        *,
        may_half_close: bool,
    ) -> None:
        """`may_half_close`: a program that sends nothing more may still wait for the response."""
        self._inward = inward
        self._program = program
        self._outward = outward
        self._server = server
        self._to_program = _MessageWriter(inward, program)
        self._to_server = _MessageWriter(outward, server)
        self._mask = mask
        self._masking = StreamMask(mask)
        self._may_half_close = may_half_close
        self.has_switched = False

    async def run(self, request: h11.Request) -> None:
        await self._to_server.send(request)
        upload = asyncio.ensure_future(self._upload())
        download = asyncio.ensure_future(self._download())
        try:
            await asyncio.wait((upload, download), return_when=asyncio.FIRST_COMPLETED)
            if upload.done() and not download.done() and upload.exception() is None:
                watch = asyncio.ensure_future(self._watch_program())
                try:
                    await asyncio.wait((watch, download), return_when=asyncio.FIRST_COMPLETED)
                    if not download.done():
                        watch.result()
                finally:
                    watch.cancel()
                    await asyncio.gather(watch, return_exceptions=True)
            elif upload.done():
                upload.result()
            await download
        finally:
            # A response may come before the request's body has ended; then the connection is not used again.
            for task in (upload, download):
                task.cancel()
            await asyncio.gather(upload, download, return_exceptions=True)
        if self.has_switched:
            await self._tunnel()

    async def _upload(self) -> None:
        """Send the request's body on."""
        while True:
            try:
                event = self._inward.next_event()
            except h11.RemoteProtocolError as error:
                raise RefusedRequest(error.error_status_hint, f"the body is not valid HTTP/1.1: {error}") from None
            if event is h11.NEED_DATA:
                await self._to_server.flush()
                self._inward.receive_data(await self._program.read())
            elif isinstance(event, h11.Data):
                await self._to_server.send(h11.Data(data=event.data))
            elif isinstance(event, h11.EndOfMessage):
                await self._to_server.send(h11.EndOfMessage())
                return await self._to_server.flush()
            else:
                raise ConnectionAbortedError("the program ended the connection")

    async def _watch_program(self) -> None:
        """Read ahead while the response is awaited. Raises `OSError` if the program ends the connection."""
        seen = len(self._inward.trailing_data[0])
        while seen < READ_AHEAD:
            data = await self._program.read()
            if not data and self._may_half_close:
                break
            if not data:
                raise ConnectionAbortedError("the program ended the connection")
            self._inward.receive_data(data)
            seen += len(data)
        await asyncio.get_running_loop().create_future()

    async def _download(self) -> None:
        """Send the response on, masked. Raises `RefusedRequest` if that is impossible."""
        while True:
            event = await self._next_response_event()
            if isinstance(event, h11.InformationalResponse):
                headers = response_headers(event, self._mask, decoded=False)
                informed = h11.InformationalResponse(
                    status_code=event.status_code, headers=headers, reason=self._mask.mask(event.reason)
                )
                if event.status_code == 101:
                    await self._to_program.send(informed)
                    self.has_switched = True
                    return await self._to_program.flush()
                if event.status_code != 100 or self._inward.they_are_waiting_for_100_continue:
                    await self._to_program.send(informed)
            elif isinstance(event, h11.Response):
                return await self._relay_response(event)
            else:
                raise ConnectionAbortedError("the server ended the connection without an answer")

    async def _relay_response(self, response: h11.Response) -> None:
        try:
            decoder = make_decoder(header_values(response.headers, b"content-encoding"))
        except UnknownEncoding as error:
            raise RefusedRequest(
                502, f"the server compressed its answer ({error}), although it was asked not to"
            ) from None
        headers = response_headers(response, self._mask, decoded=not isinstance(decoder, IdentityDecoder))
        if response.http_version < b"1.1" or asks_to_close(response):
            headers.append((b"Connection", b"close"))
        masked = h11.Response(
            status_code=response.status_code, headers=headers, reason=self._mask.mask(response.reason)
        )
        await self._to_program.send(masked)
        while True:
            event = await self._next_response_event()
            if isinstance(event, h11.Data):
                for piece in decoder.feed(bytes(event.data)):
                    if safe := self._masking.feed(piece):
                        await self._to_program.send(h11.Data(data=safe))
            elif isinstance(event, h11.EndOfMessage):
                decoder.finish()
                if rest := self._masking.release():
                    await self._to_program.send(h11.Data(data=rest))
                trailers = [(name, self._mask.mask(value)) for name, value in event.headers.raw_items()]
                can_have_trailers = self._inward.their_http_version == b"1.1"
                end = h11.EndOfMessage(headers=trailers if can_have_trailers else [])
                await self._to_program.send(end)
                return await self._to_program.flush()
            else:
                raise ConnectionAbortedError("the server ended the connection in the middle of its answer")

    async def _next_response_event(self) -> object:
        while (event := self._outward.next_event()) is h11.NEED_DATA:
            await self._to_program.flush()
            self._outward.receive_data(await _read_or_release(self._server, self._masking, self._send_released))
        return event

    async def _send_released(self, data: bytes) -> None:
        await self._to_program.send(h11.Data(data=data))
        await self._to_program.flush()

    async def _tunnel(self) -> None:
        """Relay the protocol that both sides switched to. Raises `OSError`."""
        copies = [
            asyncio.ensure_future(copying)
            for copying in (
                _copy(self._program, self._server, self._inward.trailing_data[0], StreamMask(SecretMask(()))),
                _copy(self._server, self._program, self._outward.trailing_data[0], self._masking),
            )
        ]
        try:
            ended, _ = await asyncio.wait(copies, return_when=asyncio.FIRST_EXCEPTION)
            for copy in ended:
                copy.result()
        finally:
            for copy in copies:
                copy.cancel()
            await asyncio.gather(*copies, return_exceptions=True)


async def _copy(source: ByteStream, sink: ByteStream, first: bytes, masking: StreamMask) -> None:
    data = first or await source.read()
    while data:
        if safe := masking.feed(data):
            await sink.write(safe)
        data = await _read_or_release(source, masking, sink.write)
    if rest := masking.release():
        await sink.write(rest)
    await sink.finish()


async def _read_or_release(stream: ByteStream, masking: StreamMask, send: Callable[[bytes], Awaitable[None]]) -> bytes:
    """Read, and send what the mask holds back if nothing comes soon."""
    if not masking.is_holding:
        return await stream.read()
    reading = asyncio.ensure_future(stream.read())
    try:
        await asyncio.wait((reading,), timeout=HOLD_SECONDS)
        if not reading.done():
            await send(masking.release())
        return await reading
    finally:
        if not reading.done():
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


async def _read_request(inward: h11.Connection, program: ByteStream) -> h11.Request | None:
    """Return the next request, `None` at the end. Raises `RefusedRequest` and `h11.RemoteProtocolError`."""
    head = bytearray(inward.trailing_data[0])
    if not head:
        data = await program.read()
        inward.receive_data(data)
        head += data
    if head:
        try:
            async with asyncio.timeout(HEAD_TIMEOUT):
                await _read_head(inward, program, head)
        except TimeoutError:
            raise RefusedRequest(408, "the head of the request did not come in time") from None
    event = inward.next_event()
    return event if isinstance(event, h11.Request) else None


async def _read_head(inward: h11.Connection, program: ByteStream, head: bytearray) -> None:
    """Read until the head is complete, and check it before h11 parses it."""
    searched = 0
    while (end := head.find(HEAD_END, searched)) < 0:
        if len(head) > MAX_HEAD:
            raise RefusedRequest(431, f"the head of the request has more than {MAX_HEAD} bytes")
        if head.find(b"\n\n") >= 0 or head.find(b"\n\r\n") == 0:
            raise RefusedRequest(400, "a line of the request's head does not end with CR LF")
        searched = max(0, len(head) - len(HEAD_END))
        data = await program.read()
        inward.receive_data(data)
        if not data:
            return
        head += data
    check_raw_head(bytes(head[:end]) + HEAD_END)


async def _finish_with_drain(program: ByteStream) -> None:
    """End the connection in a way that lets the program read the answer: unread bytes would turn it into a reset."""
    await program.finish()
    with suppress(TimeoutError, OSError):
        async with asyncio.timeout(DRAIN_TIMEOUT):
            while await program.read():
                pass
