"""Runs a command in a sandbox: starts, follows and interrupts it, and reconnects after a server restart."""

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

from paddock.cli.connection.server_client import ServerClient
from paddock.cli.output.errors import CliError, ConnectionLost, NoServerError, RequestRefused, print_warning

RECONNECT_SECONDS = 60.0
"""Time to wait for a server that is away."""
_CURSOR_PAST_END = "999999999999999"
"""A cursor beyond any output; the daemon replies with the end of the output."""
_CURSOR_HEADER = "EXECD-COMMANDS-TAIL-CURSOR"
TRANSIENT_CODES = ("UNAVAILABLE", "HTTP_502", "HTTP_503", "HTTP_504")
"""Error codes of a server that is starting or stopping, or of a proxy in front of it."""


@dataclass(frozen=True)
class RemoteCommandEnd:
    """Exit code of a command, with a reason if it did not exit normally."""

    exit_code: int
    reason: str = ""


class CommandOutputLost(CliError):
    """Part of the command's output is lost."""

    code = "OUTPUT_LOST"


class CommandOutputWriter:
    """Writes a command's output byte for byte to the own streams, or as JSON lines."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json

    def write(self, documents: list[dict[str, Any]]) -> None:
        if self._as_json:
            for document in documents:
                event = {key: document[key] for key in ("type", "text", "data", "timestamp") if key in document}
                if document.get("eol"):
                    event["text"] = f"{event.get('text', '')}\n"
                    if "data" in event:
                        event["data"] = base64.b64encode(output_event_bytes(document)).decode()
                sys.stdout.write(json.dumps(event) + "\n")
            sys.stdout.flush()
            return
        waiting, stream = bytearray(), ""
        for document in documents:
            if document["type"] != stream and waiting:
                _write_all(stream, waiting)
                waiting.clear()
            stream = document["type"]
            waiting += output_event_bytes(document)
        if waiting:
            _write_all(stream, waiting)

    def write_event(self, kind: str, **fields: Any) -> None:
        """Write an event other than output, with `--json` only."""
        if self._as_json:
            sys.stdout.write(json.dumps({"type": kind, **fields}) + "\n")
            sys.stdout.flush()


class RemoteCommand:
    """A command in a sandbox."""

    def __init__(self, client: ServerClient, sandbox_id: str, sink: CommandOutputWriter) -> None:
        self._client = client
        self._sandbox = sandbox_id
        self._sink = sink
        self.id: str | None = None
        self.cursor = 0

    async def start(self, document: Mapping[str, Any], *, hold: bool = False) -> str:
        """Start the command in the background and return its id.

        With `hold`, the command blocks while the reader is far behind, so that no output is dropped.
        """
        body = {**document, "background": True, "raw": True, "hold": hold}
        async with self._client.request("POST", self._daemon_path("/command"), json=body) as answer:
            async for documents in self._client.json_lines(answer):
                for event in documents:
                    if event.get("type") == "init":
                        self.id = str(event["text"])
                        self._sink.write_event("started", id=self.id)
                        return self.id
        raise CliError("the sandbox accepted the command but returned no id")

    async def run_attached(self, document: Mapping[str, Any]) -> RemoteCommandEnd:
        """Run the command on this connection: no output is stored, and it ends with the connection."""
        body = {**document, "raw": True}
        async with self._client.request("POST", self._daemon_path("/command"), json=body) as answer:
            async for documents in self._client.json_lines(answer):
                for event in documents:
                    if event.get("type") == "init":
                        self.id = str(event["text"])
                        self._sink.write_event("started", id=self.id)
                if ending := self._handle_events(documents):
                    return ending
        raise ConnectionLost("the connection was lost, which stopped the command")

    async def follow_output(self) -> RemoteCommandEnd:
        """Print the command's output until it ends, reconnecting after server restarts."""
        last_seen = time.monotonic()
        warned = False
        while True:
            try:
                async for documents in self._stream_output():
                    last_seen = time.monotonic()
                    self._check_for_lost_output(documents)
                    if ending := self._handle_events(documents):
                        return ending
                raise ConnectionLost("the connection was lost")
            except (ConnectionLost, NoServerError, RequestRefused) as error:
                if isinstance(error, RequestRefused) and error.server_code not in TRANSIENT_CODES:
                    raise
                if time.monotonic() - last_seen > RECONNECT_SECONDS:
                    raise ConnectionLost(
                        f"the server has been away for {RECONNECT_SECONDS:.0f} s; the command may still be running",
                        hint=f"follow it again with: paddock sandbox logs {self._sandbox} --command {self.id} --follow",
                    ) from None
                if not warned:
                    print_warning("lost the connection to the server; the command continues, waiting for the server")
                    warned = True
                await asyncio.sleep(0.25)

    async def print_output_so_far(self) -> None:
        """Print the output written so far."""
        end = await self._end_of_output()
        while self.cursor < end:
            async for documents in self._stream_output():
                if self._handle_events(documents) or self.cursor >= end:
                    return

    async def failure_reason(self) -> str:
        """Return why the command failed; empty if it is running or succeeded."""
        status = await self._client.get(self._daemon_path(f"/command/status/{self.id}"))
        if status.get("running") or not status.get("exit_code"):
            return ""
        return str(status.get("error") or f"the command ended with exit code {status['exit_code']}")

    async def send_signal(self, name: str) -> None:
        """Send a signal to the command."""
        await self._request_interrupt(signal=name)

    async def terminate(self) -> None:
        """Send SIGTERM, and SIGKILL after two seconds."""
        await self._request_interrupt()

    async def _request_interrupt(self, **query: str) -> None:
        if self.id is not None:
            try:
                await self._client.delete(self._daemon_path("/command"), id=self.id, **query)
            except RequestRefused as error:
                if error.status != 404:
                    raise

    async def _end_of_output(self) -> int:
        path = self._daemon_path(f"/command/{self.id}/logs")
        async with self._client.request("GET", path, params={"cursor": _CURSOR_PAST_END}) as answer:
            return int(answer.headers.get(_CURSOR_HEADER, 0))

    async def _stream_output(self) -> AsyncIterator[list[dict[str, Any]]]:
        path = self._daemon_path(f"/command/{self.id}/logs")
        query = {"cursor": str(self.cursor), "follow": "1"}
        async with self._client.request("GET", path, params=query) as answer:
            async for documents in self._client.json_lines(answer):
                yield documents

    def _handle_events(self, documents: list[dict[str, Any]]) -> RemoteCommandEnd | None:
        self._sink.write([document for document in documents if document.get("type") in ("stdout", "stderr")])
        for document in documents:
            self.cursor = document.get("cursor", self.cursor)
            if document.get("type") == "execution_complete":
                return RemoteCommandEnd(0)
            if document.get("type") == "error":
                return parse_command_error(document.get("error") or {})
        return None

    def _check_for_lost_output(self, documents: list[dict[str, Any]]) -> None:
        """Raise `CommandOutputLost` if the daemon dropped output before it was read; it keeps a limited amount."""
        position = self.cursor
        for document in documents:
            end = document.get("cursor")
            if document.get("type") not in ("stdout", "stderr") or end is None:
                continue
            begin = end - len(output_event_bytes(document))
            if begin > position:
                raise CommandOutputLost(
                    f"the command wrote faster than its output could be read; {begin - position} bytes are lost",
                    hint="for large output use --attached, or write to a file and copy it with `sandbox cp`",
                )
            position = end

    def _daemon_path(self, path: str) -> str:
        return self._client.daemon_path(self._sandbox, path)


def output_event_bytes(document: Mapping[str, Any]) -> bytes:
    """Return the exact bytes of an output event."""
    exact = document.get("data")
    data = base64.b64decode(exact) if exact else str(document.get("text", "")).encode()
    return data + (b"\n" if document.get("eol") else b"")


def parse_command_error(error: Mapping[str, Any]) -> RemoteCommandEnd:
    value = str(error.get("evalue", ""))
    code = int(value) if value.lstrip("-").isdigit() else 1
    traceback = error.get("traceback") or [""]
    reason = str(traceback[0])
    return RemoteCommandEnd(code, "" if reason == f"exit status {code}" else reason)


def _write_all(stream: str, data: bytearray) -> None:
    target = sys.stderr if stream == "stderr" else sys.stdout
    target.flush()
    view = memoryview(data)
    while view:
        view = view[os.write(target.fileno(), view) :]
