"""Bash sessions."""

from __future__ import annotations

from ..box import Box
from ..errors import invalid
from ..events import CONTENT_TYPE
from ..fields import optional, required
from ..http import Reply, Request, StreamReply, json_reply


def create(box: Box, request: Request) -> Reply:
    cwd = optional(request.json_object(), "cwd", str) or ""
    return json_reply({"session_id": box.sessions.create(cwd).id})


def run(box: Box, request: Request) -> Reply:
    shell = box.sessions.get(request.params["id"])
    document = request.json_object()
    command = required(document, "command", str)
    if not command.strip() or "\0" in command:
        raise invalid("'command' must not be empty or contain NUL")
    timeout_ms = optional(document, "timeout", int)
    return StreamReply(CONTENT_TYPE, shell.prepare(command, timeout_ms, optional(document, "cwd", str) or ""))


def delete(box: Box, request: Request) -> Reply:
    box.sessions.delete(request.params["id"])
    return Reply(200)
