"""The official SDKs, on providers of every format, through two real servers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from google.genai import errors, types
from pydantic import BaseModel

from tests.contract.llm.conftest import PROVIDERS
from tests.contract.llm.sdk_conversations import PICTURE_TEXT, SDK_CONVERSATIONS, SdkAnswer, sdk_conversation
from tests.support.server import Server, eventually

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
SDKS = pytest.mark.parametrize("sdk", list(SDK_CONVERSATIONS))
EVERY_PROVIDER = pytest.mark.parametrize("provider", list(PROVIDERS))


@STREAMED
@EVERY_PROVIDER
@SDKS
def test_conversation_with_tools(front: Server, sdk: str, provider: str, stream: bool) -> None:
    with sdk_conversation(sdk, front.url, front.key, f"via-{provider}-weather") as conversation:
        first, second, last = conversation.run("How warm is it?", stream=stream)
    assert first.text == "I look it up."
    assert [(call.name, call.arguments) for call in first.calls] == [
        ("get_weather", {"city": "Oslo"}),
        ("get_weather", {"city": "São Paulo"}),
    ]
    assert len({call.id for call in first.calls}) == 2
    assert first.thought in ("Two cities, so two calls.", "")
    assert [call.arguments for call in second.calls] == [{"city": "Rome"}]
    assert last.text == "It is 7 degrees everywhere." and not last.calls
    assert_ended(sdk, first, second, last)
    assert_counted(sdk, last)


def assert_ended(sdk: str, first: SdkAnswer, second: SdkAnswer, last: SdkAnswer) -> None:
    calls, done = {
        "openai-chat": ("tool_calls", "stop"),
        "openai-responses": ("completed", "completed"),
        "anthropic": ("tool_use", "end_turn"),
        "gemini": ("STOP", "STOP"),
    }[sdk]
    assert (first.finish, second.finish, last.finish) == (calls, calls, done)


def assert_counted(sdk: str, last: SdkAnswer) -> None:
    """Check usage in the client's convention: Anthropic excludes cached tokens, Gemini thoughts."""
    expected = {"anthropic": (20, 30), "gemini": (120, 25)}.get(sdk, (120, 30))
    assert last.tokens == expected


@EVERY_PROVIDER
@SDKS
def test_thoughts_are_relayed_if_both_formats_support_thoughts(front: Server, sdk: str, provider: str) -> None:
    with sdk_conversation(sdk, front.url, front.key, f"via-{provider}-weather") as conversation:
        first, *_ = conversation.run("How warm is it?", stream=True)
    assert first.thought == "Two cities, so two calls."


@STREAMED
@EVERY_PROVIDER
@SDKS
def test_picture_in_tool_result(front: Server, scripted: Server, sdk: str, provider: str, stream: bool) -> None:
    before = datetime.now(UTC)
    with sdk_conversation(sdk, front.url, front.key, f"via-{provider}-picture") as conversation:
        called, last = conversation.run("What do you see?", stream=stream)
    assert [call.name for call in called.calls] == ["take_picture"]
    assert last.text == "A grey dot."
    first_request, second_request = received(scripted, "picture", before, 2)
    assert PICTURE_TEXT not in first_request and PICTURE_TEXT in second_request


def received(server: Server, model: str, since: datetime, number: int) -> list[str]:
    """Wait for a number of archived requests for a model and return their bodies."""
    query: dict[str, Any] = {"model": model, "since": since.isoformat()}
    with server.client() as client:

        def found() -> list[str]:
            items = client.get("/v1/exchanges", params=query).json()["items"]
            in_order = sorted(items, key=lambda item: item["number"])
            return [item["id"] for item in in_order] if len(items) == number else []

        exchanges = eventually(found)
        return [client.get(f"/v1/exchanges/{each}", params={"raw": "request"}).text for each in exchanges]


class Weather(BaseModel):
    city: str
    degrees: int


@EVERY_PROVIDER
def test_structured_answers(front: Server, provider: str) -> None:
    model, question = f"via-{provider}-form", "How warm is it in Oslo?"
    expected = Weather(city="Oslo", degrees=7)
    messages: Any = [{"role": "user", "content": question}]
    with openai.OpenAI(base_url=f"{front.url}/v1", api_key=front.key, max_retries=0) as sdk:
        completion = sdk.chat.completions.parse(model=model, messages=messages, response_format=Weather)
        assert completion.choices[0].message.parsed == expected
        response = sdk.responses.parse(model=model, input=question, text_format=Weather)
        assert response.output_parsed == expected
    with anthropic.Anthropic(base_url=front.url, api_key=front.key, max_retries=0) as claude:
        message = claude.messages.parse(model=model, max_tokens=500, messages=messages, output_format=Weather)
        assert message.parsed_output == expected
    with gemini(front) as google:
        config = types.GenerateContentConfig(response_mime_type="application/json", response_schema=Weather)
        assert google.models.generate_content(model=model, contents=question, config=config).parsed == expected


@EVERY_PROVIDER
def test_tokens_are_counted(front: Server, provider: str) -> None:
    model = f"via-{provider}-hello"
    with anthropic.Anthropic(base_url=front.url, api_key=front.key, max_retries=0) as claude:
        words = "some words " * 40
        counted = claude.messages.count_tokens(model=model, messages=[{"role": "user", "content": words}])
        assert 40 <= counted.input_tokens <= 400
    with gemini(front) as google:
        count = google.models.count_tokens(model=model, contents=words)
        assert 40 <= (count.total_tokens or 0) <= 400


@pytest.mark.parametrize("provider", ["chat", "gemini"])
def test_embeddings(front: Server, provider: str) -> None:
    model = f"via-{provider}-hello"
    with openai.OpenAI(base_url=f"{front.url}/v1", api_key=front.key, max_retries=0) as sdk:
        found = sdk.embeddings.create(model=model, input=["one", "two", "one"], dimensions=16)
    vectors = [each.embedding for each in found.data]
    assert [len(vector) for vector in vectors] == [16, 16, 16]
    assert vectors[0] == pytest.approx(vectors[2]) and vectors[0] != pytest.approx(vectors[1])
    with gemini(front) as google:
        config = types.EmbedContentConfig(output_dimensionality=16)
        embedded = google.models.embed_content(model=model, contents=["one", "two"], config=config).embeddings
    assert embedded is not None
    assert [each.values for each in embedded] == [pytest.approx(vectors[0]), pytest.approx(vectors[1])]


def test_models_are_listed(front: Server, scripted: Server) -> None:
    """Patterns are not listed, so the front server lists few models."""
    for server, expected in ((front, {"seldom"}), (scripted, {"hello", "weather", "work"})):
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key=server.key, max_retries=0) as sdk:
            assert expected <= {model.id for model in sdk.models.list()}
        with anthropic.Anthropic(base_url=server.url, api_key=server.key, max_retries=0) as claude:
            assert expected <= {model.id for model in claude.models.list()}
        with gemini(server) as google:
            assert expected <= {(model.name or "").removeprefix("models/") for model in google.models.list()}


@STREAMED
def test_unknown_model_is_sdk_error(front: Server, stream: bool) -> None:
    for sdk in SDK_CONVERSATIONS:
        error = sdk_error(front, sdk, "nobody-knows-it", stream)
        assert status_of(error) == 404
        assert "seldom" in str(error), "the complaint lists what there is"
        if not isinstance(error, errors.APIError):
            assert isinstance(error, openai.NotFoundError | anthropic.NotFoundError)


@STREAMED
def test_invalid_key_is_sdk_error(front: Server, stream: bool) -> None:
    for sdk in SDK_CONVERSATIONS:
        error = sdk_error(front, sdk, "via-chat-hello", stream, key="pk-wrong")
        assert status_of(error) == 401
        if not isinstance(error, errors.APIError):
            assert isinstance(error, openai.AuthenticationError | anthropic.AuthenticationError)


@STREAMED
@EVERY_PROVIDER
def test_overloaded_provider_is_sdk_error(front: Server, provider: str, stream: bool) -> None:
    for sdk in SDK_CONVERSATIONS:
        error = sdk_error(front, sdk, f"faults-{provider}-busy", stream)
        assert status_of(error) == 429
        if isinstance(error, openai.RateLimitError | anthropic.RateLimitError):
            assert error.response.headers["retry-after"] == "7"
            assert "x-should-retry" not in error.response.headers
        else:
            assert isinstance(error, errors.ClientError)


def test_paddock_rate_limit_is_sdk_error(front: Server) -> None:
    complained = [error for _ in range(2) if (error := sdk_error(front, "anthropic", "seldom", False))]
    assert isinstance(complained[-1], anthropic.RateLimitError)
    assert 1 <= int(complained[-1].response.headers["retry-after"]) <= 61


@EVERY_PROVIDER
@SDKS
def test_truncated_stream_is_sdk_error(front: Server, sdk: str, provider: str) -> None:
    """A truncated stream must not look like a complete answer."""
    assert sdk_error(front, sdk, f"faults-{provider}-cut", stream=True) is not None


def sdk_error(server: Server, sdk: str, model: str, stream: bool, key: str | None = None) -> Any:
    """Return the error that the SDK raises, or `None`."""
    with sdk_conversation(sdk, server.url, server.key if key is None else key, model) as conversation:
        try:
            conversation.run("Hello?", stream=stream)
        except Exception as error:
            return error
    return None


def status_of(error: Any) -> int:
    status: int = error.code if isinstance(error, errors.APIError) else error.status_code
    return status


def gemini(server: Server) -> genai.Client:
    return genai.Client(api_key=server.key, http_options=types.HttpOptions(base_url=server.url))
