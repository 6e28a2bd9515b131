"""Handlers for bash sessions."""

from __future__ import annotations

from ..daemon import Daemon
from ..errors import invalid_body_error
from ..exec.execution_events import CONTENT_TYPE
from ..http.http11 import HttpReply, IncomingRequest, StreamingReply, json_reply
from ..http.json_fields import optional_json_field, required_json_field


def create_bash_session(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    cwd = optional_json_field(request.json_object(), "cwd", str) or ""
    return json_reply({"session_id": daemon.bash_sessions.create(cwd).id})


def run_in_bash_session(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    shell = daemon.bash_sessions.get(request.params["id"])
    document = request.json_object()
    command = required_json_field(document, "command", str)
    if not command.strip() or "\0" in command:
        raise invalid_body_error("'command' must not be empty or contain NUL")
    timeout_ms = optional_json_field(document, "timeout", int)
    return StreamingReply(
        CONTENT_TYPE, shell.start_execution(command, timeout_ms, optional_json_field(document, "cwd", str) or "")
    )


def delete_bash_session(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    daemon.bash_sessions.delete(request.params["id"])
    return HttpReply(200)
