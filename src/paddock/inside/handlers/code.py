"""Code contexts and the code that runs in them."""

from __future__ import annotations

from ..box import Box
from ..errors import invalid, missing_query
from ..events import CONTENT_TYPE
from ..fields import optional, required
from ..http import Reply, Request, StreamReply, json_reply


def create(box: Box, request: Request) -> Reply:
    document = request.json_object()
    language = optional(document, "language", str) or "python"
    return json_reply(box.contexts.create(language, optional(document, "cwd", str) or "").describe())


def list_all(box: Box, request: Request) -> Reply:
    return json_reply([context.describe() for context in box.contexts.list_all(request.query("language"))])


def get(box: Box, request: Request) -> Reply:
    return json_reply(box.contexts.get(request.params["id"]).describe())


def delete(box: Box, request: Request) -> Reply:
    box.contexts.delete(request.params["id"])
    return Reply(200)


def delete_language(box: Box, request: Request) -> Reply:
    language = request.query("language")
    if not language:
        raise missing_query("language")
    for context in box.contexts.list_all(language):
        box.contexts.delete(context.id)
    return Reply(200)


def run(box: Box, request: Request) -> Reply:
    document = request.json_object()
    code = required(document, "code", str)
    if "\0" in code:
        raise invalid("'code' must not contain NUL")
    named = optional(document, "context", dict) or {}
    identifier = optional(named, "id", str)
    language = optional(named, "language", str) or "python"
    context = box.contexts.get(identifier) if identifier else box.contexts.default(language)
    return StreamReply(CONTENT_TYPE, context.interpreter.prepare(code, optional(document, "timeout", int)))


def interrupt(box: Box, request: Request) -> Reply:
    identifier = request.query("id")
    if not identifier:
        raise missing_query("id")
    box.contexts.interrupt(identifier)
    return Reply(200)
