"""Handlers for commands: run, interrupt, status, logs."""

from __future__ import annotations

from ..daemon import Daemon
from ..errors import ApiError, missing_query_error
from ..exec.commands import CommandRequest
from ..exec.execution_events import CONTENT_TYPE, execution_completed_event, format_execution_event
from ..http.http11 import ChunkedWriter, HttpReply, IncomingRequest, StreamingReply, json_reply


def run_command(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    command_request = CommandRequest(request.json_object())
    if not command_request.background:
        execution = daemon.commands.start_foreground(command_request)
        return StreamingReply(CONTENT_TYPE, execution)
    command = daemon.commands.start_background(command_request)

    def announce(chunks: ChunkedWriter) -> None:
        chunks.send(format_execution_event("init", text=command.id) + execution_completed_event(0.0))

    return StreamingReply(CONTENT_TYPE, announce)


def interrupt_command(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    identifier = request.query("id")
    if not identifier:
        raise missing_query_error("id")
    name = request.query("signal")
    if name:
        daemon.commands.signal(identifier, name)
    elif daemon.commands.find(identifier) is not None or not daemon.bash_sessions.interrupt(identifier):
        daemon.commands.terminate(identifier)
    return HttpReply(200)


def get_command_status(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    return json_reply(daemon.commands.get(request.params["id"]).status_document())


def get_command_logs(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    command = daemon.commands.get(request.params["id"])
    spool = command.output_spool
    if spool is None:
        raise ApiError(404, "CONTEXT_NOT_FOUND", f"command {command.id!r} ran in the foreground and has no logs")
    cursor = request.query_int("cursor", 0) or 0
    if request.query("follow") == "1":
        from ..exec.follow_command_output import follow_command_output

        whole = request.query("whole") == "1"
        return StreamingReply(
            "application/x-ndjson", lambda chunks: follow_command_output(command, spool, cursor, chunks, whole)
        )
    start = spool.clamp_offset(cursor)
    end = spool.end
    headers = [("Content-Type", "text/plain; charset=utf-8"), ("EXECD-COMMANDS-TAIL-CURSOR", str(end))]
    if request.method == "HEAD":
        return HttpReply(200, b"", headers)

    def produce(chunks: ChunkedWriter) -> None:
        position = start
        while position < end:
            runs = spool.read(position, min(end - position, 256 * 1024))
            if not runs:
                return
            for part in runs:
                chunks.send(part.data)
                position = part.end

    reply = StreamingReply("text/plain; charset=utf-8", produce)
    reply.headers = headers
    return reply
