"""Embeddings are translated between formats."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.errors import InvalidInput
from paddock.llm.formats.base import BrokenModelStream, UntranslatableRequest
from paddock.llm.formats.embeddings import EMBEDDING_FORMATS, EmbeddingAnswer, EmbeddingFormat, EmbeddingRequest
from paddock.llm.formats.model_list import ModelListEntry, write_model_list, write_model_list_entry

OPENAI, GEMINI = EMBEDDING_FORMATS["openai-chat"], EMBEDDING_FORMATS["gemini"]
BOTH = [OPENAI, GEMINI]
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
vectors = st.lists(st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=4), min_size=1, max_size=3)


@pytest.mark.parametrize("form", BOTH, ids=["openai", "gemini"])
@given(inputs=st.lists(texts, min_size=1, max_size=3), dimensions=st.none() | st.integers(1, 4096))
def test_requests_survive_a_round_trip(
    form: EmbeddingFormat, inputs: list[str | list[int]], dimensions: int | None
) -> None:
    request = EmbeddingRequest("e", inputs, dimensions)
    assert form.read_request(form.write_request(request)) == request


@pytest.mark.parametrize("form", BOTH, ids=["openai", "gemini"])
@pytest.mark.parametrize("packed", [False, True], ids=["numbers", "base64"])
@given(found=vectors)
def test_answers_survive_a_round_trip(form: EmbeddingFormat, packed: bool, found: list[list[float]]) -> None:
    request = EmbeddingRequest("e", ["x"] * len(found), as_base64=packed)
    again = form.read_answer(form.write_answer(EmbeddingAnswer("e", found, 5), request))
    assert (again.vectors, again.input_tokens) == (found, 5)


def test_token_inputs_are_not_translated() -> None:
    request = OPENAI.read_request(b'{"model":"e","input":[1,2]}')
    assert request.inputs == [[1, 2]]
    assert json.loads(OPENAI.write_request(request))["input"] == [[1, 2]]
    with pytest.raises(UntranslatableRequest):
        GEMINI.write_request(request)


def test_unsupported_fields_are_noted() -> None:
    body = {"content": {"parts": [{"text": "a"}, {"text": "b"}]}, "task_type": "RETRIEVAL_QUERY", "title": "t"}
    request = GEMINI.read_request(json.dumps(body).encode(), model="models/e")
    assert (request.model, request.inputs, request.single) == ("e", ["a\nb"], True)
    OPENAI.write_request(request)
    assert [text.partition(":")[0] for text in request.notes] == ["taskType", "title"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"model":"e","input":[]}',
        b'{"model":"e","input":[1,"a"]}',
        b'{"model":"e","input":7}',
        b'{"model":"e","input":"a","encoding_format":"x"}',
    ],
)
def test_wrong_requests_are_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput):
        OPENAI.read_request(body)


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"requests":[]}',
        b'{"requests":[{}]}',
        b'{"model":"e","content":{"parts":[{"inlineData":{}}]}}',
        b'{"requests":[{"model":"e","content":"a","taskType":"x"},{"content":"b"}]}',
    ],
)
def test_wrong_requests_to_gemini_are_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput):
        GEMINI.read_request(body)


@pytest.mark.parametrize("form", BOTH, ids=["openai", "gemini"])
@pytest.mark.parametrize(
    "item", [{}, {"embedding": "!", "values": "!"}, {"embedding": ["a"], "values": ["a"]}, None, 7]
)
def test_malformed_answers_are_errors(form: EmbeddingFormat, item: Any) -> None:
    with pytest.raises(BrokenModelStream):
        form.read_answer(json.dumps({"data": [item], "embeddings": [item]}).encode())
    with pytest.raises(BrokenModelStream, match="no"):
        form.read_answer(b'{"error":{"message":"no"}}')


def test_models_are_listed_in_the_shape_of_each_format() -> None:
    models = [ModelListEntry("a"), ModelListEntry("b", name="Bee", context=10, output=5)]
    assert [item["id"] for item in json.loads(write_model_list("openai-responses", models))["data"]] == ["a", "b"]
    listed = json.loads(write_model_list("anthropic", models))
    assert (listed["first_id"], listed["last_id"], listed["has_more"]) == ("a", "b", False)
    assert json.loads(write_model_list("anthropic", []))["first_id"] is None
    assert json.loads(write_model_list_entry("gemini", models[1]))["inputTokenLimit"] == 10
    assert json.loads(write_model_list_entry("anthropic", models[1]))["display_name"] == "Bee"
