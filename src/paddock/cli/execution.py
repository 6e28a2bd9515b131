"""A command in a box: started, followed until it ends, interrupted, found again when the server was away."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from paddock.cli.client import Client
from paddock.cli.failure import CliError, ConnectionLost, NoServer, Refused, warn

RECONNECT_SECONDS = 60.0
"""How long the server may be away before we give up on it."""
_BEYOND = "999999999999999"
"""A cursor past every output, which the daemon answers with where the output ends."""
_CURSOR = "EXECD-COMMANDS-TAIL-CURSOR"
PASSING = ("UNAVAILABLE", "HTTP_502", "HTTP_503", "HTTP_504")
"""Refusals by a server that is starting or stopping, or by something in front of it."""


@dataclass(frozen=True)
class Ending:
    """How a command ended."""

    exit_code: int
    reason: str = ""


class OutputLost(CliError):
    """Some of the command's output is gone."""

    code = "OUTPUT_LOST"


class Sink:
    """Where a command's output goes: byte for byte to our own streams, or as JSON lines."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json

    def write(self, documents: list[dict[str, Any]]) -> None:
        if self._as_json:
            for document in documents:
                kept = {key: document[key] for key in ("type", "text", "data", "timestamp") if key in document}
                if document.get("eol"):
                    kept["text"] = f"{kept.get('text', '')}\n"
                    if "data" in kept:
                        kept["data"] = base64.b64encode(content(document)).decode()
                sys.stdout.write(json.dumps(kept) + "\n")
            sys.stdout.flush()
            return
        waiting, stream = bytearray(), ""
        for document in documents:
            if document["type"] != stream and waiting:
                _write(stream, waiting)
                waiting.clear()
            stream = document["type"]
            waiting += content(document)
        if waiting:
            _write(stream, waiting)

    def tell(self, kind: str, **fields: Any) -> None:
        """Something about the command that is not its output; only programs want to know."""
        if self._as_json:
            sys.stdout.write(json.dumps({"type": kind, **fields}) + "\n")
            sys.stdout.flush()


class Execution:
    """One command in one box."""

    def __init__(self, client: Client, sandbox_id: str, sink: Sink) -> None:
        self._client = client
        self._sandbox = sandbox_id
        self._sink = sink
        self.id: str | None = None
        self.cursor = 0

    async def start(self, document: Mapping[str, Any], *, hold: bool = False) -> str:
        """Start it so that it goes on by itself, and return its id.

        With `hold` it waits when it is far ahead of who follows it, so that no output is ever dropped.
        """
        body = {**document, "background": True, "raw": True, "hold": hold}
        async with self._client.request("POST", self._path("/command"), json=body) as answer:
            async for documents in self._client.lines(answer):
                for event in documents:
                    if event.get("type") == "init":
                        self.id = str(event["text"])
                        self._sink.tell("started", id=self.id)
                        return self.id
        raise CliError("the sandbox took the command but gave it no id")

    async def run_attached(self, document: Mapping[str, Any]) -> Ending:
        """Run it on this connection: nothing is kept in the box, and it ends when the connection does."""
        body = {**document, "raw": True}
        async with self._client.request("POST", self._path("/command"), json=body) as answer:
            async for documents in self._client.lines(answer):
                for event in documents:
                    if event.get("type") == "init":
                        self.id = str(event["text"])
                        self._sink.tell("started", id=self.id)
                if ending := self._take(documents):
                    return ending
        raise ConnectionLost("the connection broke off, and the command with it")

    async def follow(self) -> Ending:
        """Pass on its output until it ends, through restarts of the server."""
        last_seen = time.monotonic()
        told = False
        while True:
            try:
                async for documents in self._pieces():
                    last_seen = time.monotonic()
                    self._check_gaps(documents)
                    if ending := self._take(documents):
                        return ending
                raise ConnectionLost("the connection broke off")
            except (ConnectionLost, NoServer, Refused) as error:
                if isinstance(error, Refused) and error.server_code not in PASSING:
                    raise
                if time.monotonic() - last_seen > RECONNECT_SECONDS:
                    raise ConnectionLost(
                        f"the server has been away for {RECONNECT_SECONDS:.0f} s; the command may still run",
                        hint=f"see it again with: paddock sandbox logs {self._sandbox} --command {self.id} --follow",
                    ) from None
                if not told:
                    warn("the connection to the server is lost; the command goes on, waiting for the server")
                    told = True
                await asyncio.sleep(0.25)

    async def catch_up(self) -> None:
        """Pass on what it has written so far, and no more."""
        end = await self._written()
        while self.cursor < end:
            async for documents in self._pieces():
                if self._take(documents) or self.cursor >= end:
                    return

    async def failure(self) -> str:
        """Why it ended, in words; empty while it runs and when it ended well."""
        status = await self._client.get(self._path(f"/command/status/{self.id}"))
        if status.get("running") or not status.get("exit_code"):
            return ""
        return str(status.get("error") or f"it ended with exit code {status['exit_code']}")

    async def signal(self, name: str) -> None:
        """Pass a signal on to it."""
        await self._delete(signal=name)

    async def interrupt(self) -> None:
        """Ask it to end; after two seconds it is made to."""
        await self._delete()

    async def _delete(self, **query: str) -> None:
        if self.id is not None:
            try:
                await self._client.delete(self._path("/command"), id=self.id, **query)
            except Refused as error:
                if error.status != 404:
                    raise

    async def _written(self) -> int:
        path = self._path(f"/command/{self.id}/logs")
        async with self._client.request("GET", path, params={"cursor": _BEYOND}) as answer:
            return int(answer.headers.get(_CURSOR, 0))

    async def _pieces(self) -> AsyncIterator[list[dict[str, Any]]]:
        path = self._path(f"/command/{self.id}/logs")
        query = {"cursor": str(self.cursor), "follow": "1"}
        async with self._client.request("GET", path, params=query) as answer:
            async for documents in self._client.lines(answer):
                yield documents

    def _take(self, documents: list[dict[str, Any]]) -> Ending | None:
        self._sink.write([document for document in documents if document.get("type") in ("stdout", "stderr")])
        for document in documents:
            self.cursor = document.get("cursor", self.cursor)
            if document.get("type") == "execution_complete":
                return Ending(0)
            if document.get("type") == "error":
                return ending_of(document.get("error") or {})
        return None

    def _check_gaps(self, documents: list[dict[str, Any]]) -> None:
        """The box keeps a bounded amount; what was dropped before we read it must not go unnoticed."""
        position = self.cursor
        for document in documents:
            end = document.get("cursor")
            if document.get("type") not in ("stdout", "stderr") or end is None:
                continue
            begin = end - len(content(document))
            if begin > position:
                raise OutputLost(
                    f"the command wrote faster than it could be read, and {begin - position} bytes are lost",
                    hint="for output this large, use --attached, or write to a file and fetch it with cp",
                )
            position = end

    def _path(self, path: str) -> str:
        return self._client.box(self._sandbox, path)


def content(document: Mapping[str, Any]) -> bytes:
    """The exact bytes of an output event."""
    exact = document.get("data")
    data = base64.b64decode(exact) if exact else str(document.get("text", "")).encode()
    return data + (b"\n" if document.get("eol") else b"")


def ending_of(error: Mapping[str, Any]) -> Ending:
    value = str(error.get("evalue", ""))
    code = int(value) if value.lstrip("-").isdigit() else 1
    traceback = error.get("traceback") or [""]
    reason = str(traceback[0])
    return Ending(code, "" if reason == f"exit status {code}" else reason)


def _write(stream: str, data: bytearray) -> None:
    target = sys.stderr if stream == "stderr" else sys.stdout
    target.flush()
    view = memoryview(data)
    while view:
        view = view[os.write(target.fileno(), view) :]
