"""Strict fakes of real providers with the protocol of each: they refuse wrong keys, models, fields and tools.

Models, errors and answers have the shapes that the provider's own documentation shows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.support.fake_provider import (
    FakeProvider,
    PlannedResponse,
    ReceivedRequest,
    json_response,
    run_fake_provider,
    sse_response,
)
from tests.support.strict_request_checks import (
    DASHSCOPE_FIELDS,
    OPENAI_FIELDS,
    ZHIPU_FIELDS,
    chat_completions_problem,
    generate_content_problem,
    messages_problem,
)

PROVIDER_KEY = "key-of-the-provider"
REPLY = "Hello from {model}."


@dataclass
class StrictProvider:
    """A strict provider with the protocol of OpenAI."""

    models: tuple[str, ...]
    default: str
    """The model that Paddock should choose for chats."""
    hidden: tuple[str, ...]
    """Models that cannot chat."""
    key_variable: str
    address_variable: str
    base_path: str = ""
    """Path at the end of the address."""
    fields: frozenset[str] = OPENAI_FIELDS
    """Top-level fields of requests that the provider accepts."""
    page_size: int = 1000
    accepts_key: bool = True
    lists_models: bool = True
    """Whether `/models` exists."""
    requested_models: list[str] = field(default_factory=list)
    """Models named by requests, refused ones included."""
    requested_tools: list[set[str]] = field(default_factory=list)
    """Names of the tools of each accepted request."""
    problems: list[str] = field(default_factory=list)
    """Errors found in requests."""
    server: FakeProvider = field(init=False)

    def environment(self) -> dict[str, str]:
        return {self.key_variable: PROVIDER_KEY, self.address_variable: f"{self.server.url}{self.base_path}"}

    def __call__(self, request: ReceivedRequest) -> PlannedResponse:
        target = urlsplit(request.target)
        path = target.path
        if not path.startswith(self.base_path + "/"):
            return self.refuse(404, f"no such path: {path}")
        query = dict(parse_qsl(target.query))
        if not self.accepts_key or not self.has_valid_key(request):
            return self.refuse_key()
        return self.route(request, path.removeprefix(self.base_path), query)

    def has_valid_key(self, request: ReceivedRequest) -> bool:
        """Return whether the valid key is in this provider's header and in no other."""
        others = {"x-api-key", "x-goog-api-key"} & {name.lower() for name, _ in request.headers}
        return request.header("authorization") == f"Bearer {PROVIDER_KEY}" and not others

    def refuse(self, status: int, message: str) -> PlannedResponse:
        self.problems.append(message)
        return json_response({"error": {"message": message, "type": "invalid_request_error", "code": None}}, status)

    def refuse_key(self) -> PlannedResponse:
        error = {"message": f"Incorrect API key provided: {PROVIDER_KEY[:8]}***", "code": "invalid_api_key"}
        return json_response({"error": {**error, "type": "invalid_request_error", "param": None}}, 401)

    def route(self, request: ReceivedRequest, path: str, query: Mapping[str, str]) -> PlannedResponse:
        if (request.method, path) == ("GET", "/models"):
            return (
                json_response({"object": "list", "data": self.model_objects()})
                if self.lists_models
                else self.refuse(404, "no list")
            )
        if (request.method, path) != ("POST", "/chat/completions"):
            return self.refuse(404, f"no such path: {request.method} {path}")
        body = request.document
        if not self.accepts_model(body["model"]):
            return self.refuse_model(body["model"])
        if problem := chat_completions_problem(body, self.fields):
            return self.refuse(400, problem)
        self.requested_tools.append({tool["function"]["name"] for tool in body.get("tools", [])})
        return self.chat_response(body)

    def model_objects(self) -> list[dict[str, Any]]:
        return [{"id": name, "object": "model", "created": 1_700_000_000, "owned_by": "system"} for name in self.models]

    def accepts_model(self, model: str) -> bool:
        self.requested_models.append(model)
        return model in self.models and model not in self.hidden

    def refuse_model(self, model: str) -> PlannedResponse:
        return self.refuse(404, f"The model `{model}` does not exist or you do not have access to it.")

    def chat_response(self, body: dict[str, Any]) -> PlannedResponse:
        model, text = body["model"], REPLY.format(model=body["model"])
        usage = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
        head = {"id": "chatcmpl-1", "created": 1_700_000_000, "model": model}
        if not body.get("stream"):
            message = {"role": "assistant", "content": text}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            return json_response({**head, "object": "chat.completion", "choices": [choice], "usage": usage})
        deltas: list[tuple[dict[str, Any], str | None]] = [
            ({"role": "assistant", "content": ""}, None),
            ({"content": text}, None),
            ({}, "stop"),
        ]
        chunks = [
            {**head, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": end}]}
            for delta, end in deltas
        ]
        chunks.append({**head, "object": "chat.completion.chunk", "choices": [], "usage": usage})
        return sse_response([b"data: %s\n\n" % json.dumps(chunk).encode() for chunk in chunks] + [b"data: [DONE]\n\n"])


class StrictAnthropic(StrictProvider):
    def has_valid_key(self, request: ReceivedRequest) -> bool:
        return request.header("x-api-key") == PROVIDER_KEY and request.header("authorization") is None

    def refuse(self, status: int, message: str) -> PlannedResponse:
        self.problems.append(message)
        kind = "not_found_error" if status == 404 else "invalid_request_error"
        return json_response({"type": "error", "error": {"type": kind, "message": message}}, status)

    def refuse_key(self) -> PlannedResponse:
        error = {"type": "authentication_error", "message": "invalid x-api-key"}
        return json_response({"type": "error", "error": error}, 401)

    def route(self, request: ReceivedRequest, path: str, query: Mapping[str, str]) -> PlannedResponse:
        if request.header("anthropic-version") != "2023-06-01":
            return self.refuse(400, "anthropic-version: header is required")
        if (request.method, path) == ("GET", "/v1/models"):
            return self.list_models(query) if self.lists_models else self.refuse(404, "no list")
        if (request.method, path) != ("POST", "/v1/messages"):
            return self.refuse(404, f"no such path: {request.method} {path}")
        body = request.document
        if not self.accepts_model(body["model"]):
            return self.refuse(404, f"model: {body['model']}")
        if problem := messages_problem(body):
            return self.refuse(400, problem)
        self.requested_tools.append({tool["name"] for tool in body.get("tools", [])})
        return self.message_response(body)

    def list_models(self, query: Mapping[str, str]) -> PlannedResponse:
        if int(query.get("limit", 20)) > 1000:
            return self.refuse(400, "limit: at most 1000")
        begin = self.models.index(query["after_id"]) + 1 if "after_id" in query else 0
        names = self.models[begin : begin + self.page_size]
        data = [
            {"type": "model", "id": name, "display_name": name.title(), "created_at": "2025-09-29T00:00:00Z"}
            for name in names
        ]
        more = begin + self.page_size < len(self.models)
        return json_response({"data": data, "has_more": more, "first_id": names[0], "last_id": names[-1]})

    def message_response(self, body: dict[str, Any]) -> PlannedResponse:
        text = REPLY.format(model=body["model"])
        head = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"]}
        usage = {"input_tokens": 9, "output_tokens": 4}
        if not body.get("stream"):
            content = [{"type": "text", "text": text}]
            return json_response(
                {**head, "content": content, "stop_reason": "end_turn", "stop_sequence": None, "usage": usage}
            )
        stop = {"stop_reason": "end_turn", "stop_sequence": None}
        stream_events: list[dict[str, Any]] = [
            {"type": "message_start", "message": {**head, "content": [], "stop_reason": None, "usage": usage}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 4}},
            {"type": "message_stop"},
        ]
        return sse_response([f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in stream_events])


class StrictGemini(StrictProvider):
    def has_valid_key(self, request: ReceivedRequest) -> bool:
        return request.header("x-goog-api-key") == PROVIDER_KEY and request.header("authorization") is None

    def refuse(self, status: int, message: str) -> PlannedResponse:
        self.problems.append(message)
        name = "NOT_FOUND" if status == 404 else "INVALID_ARGUMENT"
        return json_response({"error": {"code": status, "message": message, "status": name}}, status)

    def refuse_key(self) -> PlannedResponse:
        detail = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
        message = "API key not valid. Please pass a valid API key."
        return json_response(
            {"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT", "details": [detail]}}, 400
        )

    def route(self, request: ReceivedRequest, path: str, query: Mapping[str, str]) -> PlannedResponse:
        if (request.method, path) == ("GET", "/v1beta/models"):
            return self.list_models(query) if self.lists_models else self.refuse(404, "no list")
        found, _, method = unquote(path).removeprefix("/v1beta/models/").partition(":")
        if request.method != "POST" or method not in ("generateContent", "streamGenerateContent"):
            return self.refuse(404, f"no such path: {request.method} {path}")
        if not self.accepts_model(found):
            return self.refuse(404, f"models/{found} is not found for API version v1beta")
        body = request.document
        if problem := generate_content_problem(body):
            return self.refuse(400, problem)
        self.requested_tools.append(
            {each["name"] for tool in body.get("tools", []) for each in tool["functionDeclarations"]}
        )
        return self.generate_response(found, stream=method == "streamGenerateContent")

    def list_models(self, query: Mapping[str, str]) -> PlannedResponse:
        begin = int(query.get("pageToken", 0))
        methods = ["generateContent", "countTokens"]
        model_objects = [
            {
                "name": f"models/{name}",
                "displayName": name.title(),
                "inputTokenLimit": 1_048_576,
                "outputTokenLimit": 65_536,
                "supportedGenerationMethods": ["embedContent"] if "embedding" in name else methods,
            }
            for name in self.models[begin : begin + self.page_size]
        ]
        more = begin + self.page_size < len(self.models)
        return json_response(
            {"models": model_objects, **({"nextPageToken": str(begin + self.page_size)} if more else {})}
        )

    def generate_response(self, model: str, *, stream: bool) -> PlannedResponse:
        content = {"role": "model", "parts": [{"text": REPLY.format(model=model)}]}
        document = {
            "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 4, "totalTokenCount": 13},
            "modelVersion": model,
        }
        return (
            sse_response([b"data: %s\r\n\r\n" % json.dumps(document).encode()]) if stream else json_response(document)
        )


def create_strict_provider(name: str) -> StrictProvider:
    """Return a strict fake of one of the providers that Paddock configures from environment keys."""
    hidden: tuple[str, ...]
    models: tuple[str, ...]
    if name == "openai":
        hidden = ("text-embedding-3-small", "whisper-1", "gpt-4o-mini-tts", "gpt-image-1", "gpt-realtime", "gpt-5-pro")
        models = ("gpt-4o", "gpt-5", "gpt-5.1", "gpt-5.1-2025-11-13", "gpt-5-mini", "o3", *hidden)
        return StrictProvider(models, "gpt-5.1", hidden, "OPENAI_API_KEY", "OPENAI_BASE_URL", "/v1")
    if name == "anthropic":
        models = ("claude-opus-4-5-20251101", "claude-haiku-4-5-20251001", "claude-sonnet-4-5-20250929")
        models += ("claude-opus-4-1-20250805", "claude-sonnet-4-20250514")
        address = "ANTHROPIC_BASE_URL"
        return StrictAnthropic(models, "claude-sonnet-4-5-20250929", (), "ANTHROPIC_API_KEY", address, page_size=2)
    if name == "gemini":
        hidden = ("gemini-embedding-001", "gemini-2.5-flash-image", "gemini-2.5-flash-preview-tts")
        models = ("gemini-2.5-pro", "gemini-2.5-flash", "gemini-2.5-flash-lite", "gemini-2.0-flash", *hidden)
        address = "GOOGLE_GEMINI_BASE_URL"
        return StrictGemini(models, "gemini-2.5-flash", hidden, "GEMINI_API_KEY", address, page_size=3)
    if name == "dashscope":
        hidden = ("text-embedding-v4", "qwen-image", "qwen-mt-plus", "qwen3-asr-flash", "qwen-vl-ocr", "wan2.5-t2v")
        models = ("qwen-max", "qwen-plus", "qwen-flash", "qwen3-max", *hidden)
        base_path = "/compatible-mode/v1"
        return StrictProvider(
            models, "qwen-plus", hidden, "DASHSCOPE_API_KEY", "DASHSCOPE_BASE_URL", base_path, DASHSCOPE_FIELDS
        )
    assert name == "zhipu"
    hidden = ("embedding-3", "cogview-4", "glm-tts", "glm-ocr")
    models = ("glm-4.5", "glm-4.5-air", "glm-4.6", *hidden)
    return StrictProvider(
        models, "glm-4.6", hidden, "ZHIPUAI_API_KEY", "ZHIPUAI_BASE_URL", "/api/paas/v4", ZHIPU_FIELDS
    )


PROVIDER_NAMES = ("openai", "anthropic", "gemini", "dashscope", "zhipu")


@contextmanager
def run_strict_provider(name: str) -> Iterator[StrictProvider]:
    provider = create_strict_provider(name)
    with run_fake_provider(provider) as server:
        provider.server = server
        yield provider
