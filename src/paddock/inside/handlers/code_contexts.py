"""Handlers for code contexts and the code run in them."""

from __future__ import annotations

from ..daemon import Daemon
from ..errors import invalid_body_error, missing_query_error
from ..exec.execution_events import CONTENT_TYPE
from ..http.http11 import HttpReply, IncomingRequest, StreamingReply, json_reply
from ..http.json_fields import optional_json_field, required_json_field


def create_code_context(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    document = request.json_object()
    language = optional_json_field(document, "language", str) or "python"
    return json_reply(daemon.code_contexts.create(language, optional_json_field(document, "cwd", str) or "").describe())


def list_code_contexts(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    return json_reply([context.describe() for context in daemon.code_contexts.list_all(request.query("language"))])


def get_code_context(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    return json_reply(daemon.code_contexts.get(request.params["id"]).describe())


def delete_code_context(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    daemon.code_contexts.delete(request.params["id"])
    return HttpReply(200)


def delete_language_contexts(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    language = request.query("language")
    if not language:
        raise missing_query_error("language")
    for context in daemon.code_contexts.list_all(language):
        daemon.code_contexts.delete(context.id)
    return HttpReply(200)


def run_code(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    document = request.json_object()
    code = required_json_field(document, "code", str)
    if "\0" in code:
        raise invalid_body_error("'code' must not contain NUL")
    named = optional_json_field(document, "context", dict) or {}
    identifier = optional_json_field(named, "id", str)
    language = optional_json_field(named, "language", str) or "python"
    context = daemon.code_contexts.get(identifier) if identifier else daemon.code_contexts.default(language)
    return StreamingReply(
        CONTENT_TYPE, context.interpreter.start_execution(code, optional_json_field(document, "timeout", int))
    )


def interrupt_code(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    identifier = request.query("id")
    if not identifier:
        raise missing_query_error("id")
    daemon.code_contexts.interrupt(identifier)
    return HttpReply(200)
