"""Commands: run, interrupt, status, logs."""

from __future__ import annotations

from ..box import Box
from ..commands import CommandRequest
from ..errors import ApiError, missing_query
from ..events import CONTENT_TYPE, completed, event
from ..http import Chunks, Reply, Request, StreamReply, json_reply


def run(box: Box, request: Request) -> Reply:
    wanted = CommandRequest(request.json_object())
    if not wanted.background:
        execution = box.commands.prepare(wanted)
        return StreamReply(CONTENT_TYPE, execution)
    command = box.commands.start(wanted)

    def announce(chunks: Chunks) -> None:
        chunks.send(event("init", text=command.id) + completed(0.0))

    return StreamReply(CONTENT_TYPE, announce)


def interrupt(box: Box, request: Request) -> Reply:
    identifier = request.query("id")
    if not identifier:
        raise missing_query("id")
    name = request.query("signal")
    if name:
        box.commands.signal(identifier, name)
    elif box.commands.find(identifier) is not None or not box.sessions.interrupt(identifier):
        box.commands.interrupt(identifier)
    return Reply(200)


def status(box: Box, request: Request) -> Reply:
    return json_reply(box.commands.get(request.params["id"]).status())


def logs(box: Box, request: Request) -> Reply:
    command = box.commands.get(request.params["id"])
    spool = command.spool
    if spool is None:
        raise ApiError(404, "CONTEXT_NOT_FOUND", f"command {command.id!r} ran in the foreground and has no logs")
    cursor = request.query_int("cursor", 0) or 0
    if request.query("follow") == "1":
        from ..follow import follow

        whole = request.query("whole") == "1"
        return StreamReply("application/x-ndjson", lambda chunks: follow(command, spool, cursor, chunks, whole))
    start = spool.clamp(cursor)
    end = spool.end
    headers = [("Content-Type", "text/plain; charset=utf-8"), ("EXECD-COMMANDS-TAIL-CURSOR", str(end))]
    if request.method == "HEAD":
        return Reply(200, b"", headers)

    def produce(chunks: Chunks) -> None:
        position = start
        while position < end:
            runs = spool.read(position, min(end - position, 256 * 1024))
            if not runs:
                return
            for part in runs:
                chunks.send(part.data)
                position = part.end

    reply = StreamReply("text/plain; charset=utf-8", produce)
    reply.headers = headers
    return reply
