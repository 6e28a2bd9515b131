"""The official SDKs parse Paddock's answers: complete, streamed, refused and failed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from google.genai import errors, types
from openai.types.responses import ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from paddock.llm.formats.answer_events import stream_events_from_answer
from paddock.llm.formats.embeddings import EMBEDDING_FORMATS, EmbeddingAnswer
from paddock.llm.formats.model_list import ModelListEntry, write_model_list, write_model_list_entry
from paddock.llm.formats.neutral import (
    AnswerStreamFailed,
    FinishReason,
    MessagePart,
    ModelAnswer,
    ModelFailure,
    ModelRefusal,
    ModelRequest,
    ModelText,
    ModelThinking,
    ModelToolCall,
    ProviderSignature,
    StreamEvent,
    TokenUsage,
)
from paddock.llm.formats.registry import FORMATS

from .sdk_clients import CLIENTS, Client, GeminiClient
from .sdk_upstream import Upstream, upstream


class City(BaseModel):
    name: str
    people: int


def answer(
    *parts: MessagePart, finish: FinishReason = FinishReason.STOP, stop_sequence: str | None = None
) -> ModelAnswer:
    usage = TokenUsage(input=10, output=7, cache_read=3, cache_write=2, reasoning=4)
    return ModelAnswer("id_1", "some-model", list(parts), finish, stop_sequence, usage)


ANSWERS = {
    "text": answer(ModelText('Grüße, "you" 🌍\n')),
    "nothing": answer(),
    "calls": answer(
        ModelText("I look."),
        ModelToolCall("c1", "look", '{"a":1}'),
        ModelToolCall("c2", "look", '{"a":2}'),
        finish=FinishReason.TOOLS,
    ),
    "thinking": answer(ModelThinking("hm, well", ProviderSignature("c2VhbA==", "anthropic")), ModelText("Yes.")),
    "sealed": answer(ModelThinking(redacted=ProviderSignature("c2VhbA==", "anthropic")), ModelText("Yes.")),
    "openai thinking": answer(ModelThinking("", ProviderSignature("c2VhbA==", "openai")), ModelText("Yes.")),
    "signed call": answer(
        ModelToolCall("c1", "look", '{"a":1}', ProviderSignature("c2VhbA==", "gemini")), finish=FinishReason.TOOLS
    ),
    "no arguments": answer(ModelToolCall("c1", "look", "{}"), finish=FinishReason.TOOLS),
    "refusal": answer(ModelRefusal("No."), finish=FinishReason.REFUSAL),
    "cut": answer(ModelText("And so"), finish=FinishReason.LENGTH),
    "filtered": answer(ModelText("And"), finish=FinishReason.FILTERED),
    "stopped": answer(ModelText("And"), stop_sequence="."),
    "json": answer(ModelText('{"name":"Rome","people":3}')),
}
OWN = {"annotations", "parsed", "parsed_arguments", "created", "created_at", "function_call", "audio", "stop_details"}
"""Fields added by the SDKs, and random values."""


@pytest.fixture(scope="module")
def server() -> Iterator[Upstream]:
    with upstream() as running:
        yield running


@pytest.fixture
def up(server: Upstream) -> Upstream:
    server.answers, server.others, server.provider = [], {}, None
    return server


@pytest.fixture(scope="module", params=CLIENTS, ids=lambda kind: kind.form)
def client(request: pytest.FixtureRequest, server: Upstream) -> Iterator[Client]:
    made: Client = request.param(server.url)
    yield made
    made.close()


def plain(value: Any) -> Any:
    """Return an SDK object as plain data, without fields that the SDK adds."""
    if isinstance(value, dict):
        return {
            name: plain(inner)
            for name, inner in value.items()
            if name not in OWN and inner is not None and not (name in ("id", "index") and "type" in value)
        }
    return [plain(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", ANSWERS)
def test_stream_ends_in_same_object_as_whole_answer(client: Client, up: Upstream, name: str) -> None:
    up.answers = [ANSWERS[name], ANSWERS[name]]
    client.history = []
    whole = client.ask("Go", stream=False)
    client.history = []
    if client.form == "openai-chat" and name in ("cut", "filtered"):
        with pytest.raises((openai.LengthFinishReasonError, openai.ContentFilterFinishReasonError)):
            client.ask("Go", stream=True)
        return
    streamed = client.ask("Go", stream=True)
    assert (streamed.text, streamed.calls) == (whole.text, whole.calls)
    if not isinstance(client, GeminiClient):
        # Google's SDK does not join pieces; their content is compared.
        assert plain(streamed.final.to_dict()) == plain(whole.final.to_dict())
    texts = [part.text for part in ANSWERS[name].parts if isinstance(part, ModelText)]
    assert whole.text == "".join(texts) or name == "refusal"


STOPS = {
    "openai-chat": {"text": "stop", "calls": "tool_calls", "cut": "length", "filtered": "content_filter"},
    "anthropic": {"text": "end_turn", "calls": "tool_use", "cut": "max_tokens", "refusal": "refusal"},
    "gemini": {"text": "STOP", "calls": "STOP", "cut": "MAX_TOKENS", "filtered": "SAFETY"},
    "openai-responses": {"text": "completed", "calls": "completed", "cut": "incomplete", "filtered": "incomplete"},
}


def stop_of(client: Client, final: Any) -> str:
    if client.form == "anthropic":
        return str(final.stop_reason)
    if client.form == "openai-responses":
        return str(final.status)
    reason = final.choices[0].finish_reason if client.form == "openai-chat" else final.candidates[0].finish_reason
    return str(getattr(reason, "value", reason))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_sdk_reads_stop_reasons_and_usage(client: Client, up: Upstream, stream: bool) -> None:
    for name, expected in STOPS[client.form].items():
        if client.form == "openai-chat" and stream and name in ("cut", "filtered"):
            continue  # The SDK raises, see the test above.
        up.answers = [ANSWERS[name]]
        client.history = []
        final = client.ask("Go", stream=stream).final
        assert stop_of(client, final) == expected
        usage = final.usage_metadata if client.form == "gemini" else final.usage
        counted = {
            "openai-chat": ("prompt_tokens", "completion_tokens"),
            "openai-responses": ("input_tokens", "output_tokens"),
            "anthropic": ("input_tokens", "output_tokens"),
            "gemini": ("prompt_token_count", "candidates_token_count"),
        }[client.form]
        # Anthropic counts cached tokens separately, Gemini thoughts.
        expected_counts = {"anthropic": (5, 7), "gemini": (10, 3)}.get(client.form, (10, 7))
        assert tuple(getattr(usage, field) for field in counted) == expected_counts


KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
    529: "overloaded_error",
}
OPENAI_ERRORS: dict[int, type[openai.APIStatusError]] = {
    400: openai.BadRequestError,
    401: openai.AuthenticationError,
    403: openai.PermissionDeniedError,
    404: openai.NotFoundError,
    413: openai.APIStatusError,
    429: openai.RateLimitError,
}
ANTHROPIC_ERRORS: dict[int, type[anthropic.APIStatusError]] = {
    400: anthropic.BadRequestError,
    401: anthropic.AuthenticationError,
    403: anthropic.PermissionDeniedError,
    404: anthropic.NotFoundError,
    413: anthropic.APIStatusError,
    429: anthropic.RateLimitError,
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("status", KINDS)
@pytest.mark.parametrize("provider", ["openai-chat", "anthropic", "gemini"])
def test_errors_are_parsed_by_the_sdk(client: Client, up: Upstream, provider: str, status: int, stream: bool) -> None:
    up.provider = provider
    up.answers = [ModelFailure(status, "the reason", KINDS[status])]
    client.history = []
    kinds: dict[str, type[Exception]] = {
        "anthropic": ANTHROPIC_ERRORS.get(status, anthropic.InternalServerError),
        "gemini": errors.ClientError if status < 500 else errors.ServerError,
    }
    expected = kinds.get(client.form, OPENAI_ERRORS.get(status, openai.InternalServerError))
    with pytest.raises(expected, match="the reason") as raised:
        client.ask("Go", stream=stream)
    assert getattr(raised.value, "status_code", None) == status or getattr(raised.value, "code", None) == status


def test_stream_failing_midway_raises_sdk_error(up: Upstream) -> None:
    events: list[StreamEvent] = stream_events_from_answer(ANSWERS["text"])[:-1]
    events.append(AnswerStreamFailed(ModelFailure(529, "too much to do", "overloaded_error")))

    def stream_body(form: str) -> bytes:
        writer = FORMATS[form].new_stream_writer(ModelRequest("m", [], stream=True))
        return b"".join(map(writer.write, events))

    ask: Any = {"model": "m", "messages": [{"role": "user", "content": "Go"}]}
    up.others = {
        "/v1/chat/completions": stream_body("openai-chat"),
        "/v1/responses": stream_body("openai-responses"),
        "/v1/messages": stream_body("anthropic"),
        "/v1/models/m:streamGenerateContent": stream_body("gemini"),
        "/v1beta/models/m:streamGenerateContent": stream_body("gemini"),
    }
    with openai.OpenAI(base_url=f"{up.url}/v1", api_key="k", max_retries=0) as sdk:
        with pytest.raises(openai.APIError, match="too much to do"):
            for _ in sdk.chat.completions.create(**ask, stream=True):
                pass
        kinds = [event.type for event in sdk.responses.create(model="m", input="Go", stream=True)]
        assert kinds[-1] == "response.failed"
    with (
        anthropic.Anthropic(base_url=up.url, api_key="k", max_retries=0) as claude,
        pytest.raises(anthropic.APIStatusError, match="too much to do"),
    ):
        for _ in claude.messages.create(**ask, max_tokens=5, stream=True):
            pass
    gemini = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=up.url))
    with pytest.raises(errors.APIError, match="too much to do"):
        for _ in gemini.models.generate_content_stream(model="m", contents="Go"):
            pass
    gemini.close()


def test_structured_outputs_are_parsed(up: Upstream) -> None:
    rome = City(name="Rome", people=3)
    up.answers = [ANSWERS["json"]] * 4
    with openai.OpenAI(base_url=f"{up.url}/v1", api_key="k", max_retries=0) as sdk:
        chat = sdk.chat.completions.parse(model="m", messages=[{"role": "user", "content": "Go"}], response_format=City)
        assert chat.choices[0].message.parsed == rome
        assert (up.request().json_schema or {})["required"] == ["name", "people"]
        assert sdk.responses.parse(model="m", input="Go", text_format=City).output_parsed == rome
        assert (up.request().json_schema or {})["required"] == ["name", "people"]
    with anthropic.Anthropic(base_url=up.url, api_key="k", max_retries=0) as claude:
        message = claude.messages.parse(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "Go"}], output_format=City
        )
        assert message.parsed_output == rome
        assert (up.request().json_schema or {})["required"] == ["name", "people"]
    gemini = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=up.url))
    config = types.GenerateContentConfig(response_mime_type="application/json", response_schema=City)
    assert gemini.models.generate_content(model="m", contents="Go", config=config).parsed == rome
    assert sorted((up.request().json_schema or {})["required"]) == ["name", "people"]
    gemini.close()


@pytest.mark.parametrize("name", ANSWERS)
def test_all_stream_events_are_known_to_sdk(name: str) -> None:
    known: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
    writer = FORMATS["openai-responses"].new_stream_writer(ModelRequest("m", [], stream=True))
    data = b"".join(map(writer.write, stream_events_from_answer(ANSWERS[name]))).decode()
    events = [json.loads(line.removeprefix("data: ")) for line in data.splitlines() if line.startswith("data: ")]
    for event in events:
        known.validate_python(event)
    whole = json.loads(FORMATS["anthropic"].write_answer(ANSWERS[name]))
    anthropic.types.Message.model_validate(whole, strict=True)
    chat = json.loads(FORMATS["openai-chat"].write_answer(ANSWERS[name]))
    openai.types.chat.ChatCompletion.model_validate(chat, strict=True)
    gemini = FORMATS["gemini"].write_answer(ANSWERS[name])
    types.GenerateContentResponse.model_validate_json(gemini)


def test_sdk_lists_models_counts_tokens_and_embeds(up: Upstream) -> None:
    models = [ModelListEntry("a", context=1000, output=100), ModelListEntry("b", created=1_700_000_000, name="Bee")]
    vectors = EmbeddingAnswer("e", [[0.5, -1.0], [0.25, 2.0]], 6)
    openai_embed, gemini_embed = EMBEDDING_FORMATS["openai-chat"], EMBEDDING_FORMATS["gemini"]
    packed = openai_embed.read_request(b'{"model":"e","input":["x","y"],"encoding_format":"base64"}')
    up.others = {
        "/v1/models": write_model_list("openai-chat", models),
        "/v1/models/b": write_model_list_entry("openai-chat", models[1]),
        "/v1/embeddings": openai_embed.write_answer(vectors, packed),
        "/anthropic/v1/models": write_model_list("anthropic", models),
        "/anthropic/v1/models/b": write_model_list_entry("anthropic", models[1]),
        "/anthropic/v1/messages/count_tokens": FORMATS["anthropic"].write_token_count(12),
    }
    with openai.OpenAI(base_url=f"{up.url}/v1", api_key="k", max_retries=0) as sdk:
        assert [model.id for model in sdk.models.list()] == ["a", "b"]
        assert sdk.models.retrieve("b").owned_by == "paddock"
        embedded = sdk.embeddings.create(model="e", input=["x", "y"])
        assert [item.embedding for item in embedded.data] == vectors.vectors
        assert openai_embed.read_request(up.requests[-1][1]).as_base64
    with anthropic.Anthropic(base_url=f"{up.url}/anthropic", api_key="k", max_retries=0) as claude:
        assert [model.display_name for model in claude.models.list()] == ["a", "Bee"]
        assert claude.models.retrieve("b").created_at.year == 2023
        assert claude.messages.count_tokens(model="m", messages=[{"role": "user", "content": "Go"}]).input_tokens == 12
    single = EMBEDDING_FORMATS["gemini"].read_request(b'{"content":{"parts":[{"text":"x"}]}}', model="e")
    both = gemini_embed.read_request(
        b'{"requests":[{"model":"models/e","content":{"parts":[{"text":"x"}]}},{"content":{"parts":[{"text":"y"}]}}]}'
    )
    assert json.loads(gemini_embed.write_answer(vectors, single)) == {
        "embedding": {"values": [0.5, -1.0]},
        "usageMetadata": {"promptTokenCount": 6},
    }
    for version in ("v1", "v1beta"):
        up.others |= {
            f"/g/{version}/models": write_model_list("gemini", models),
            f"/g/{version}/models/b": write_model_list_entry("gemini", models[1]),
            f"/g/{version}/models/m:countTokens": FORMATS["gemini"].write_token_count(12),
            f"/g/{version}/models/e:batchEmbedContents": gemini_embed.write_answer(vectors, both),
        }
    gemini = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=f"{up.url}/g"))
    assert [model.name for model in gemini.models.list()] == ["models/a", "models/b"]
    assert gemini.models.get(model="b").display_name == "Bee"
    assert gemini.models.count_tokens(model="m", contents="Go").total_tokens == 12
    found = gemini.models.embed_content(model="e", contents=["x", "y"])
    assert [item.values for item in found.embeddings or []] == vectors.vectors
    assert gemini_embed.read_request(up.requests[-1][1], model="e").inputs == ["x", "y"]
    gemini.close()
