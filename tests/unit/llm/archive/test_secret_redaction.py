"""The archive stores no keys."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.config.llm import ArchiveConfig
from paddock.llm.archive.secret_redaction import SecretRedactor

from .exchange_samples import chat_stream

SECRET = "prov/ider+Key-123"


def redactor(*secrets: str, **settings: Any) -> SecretRedactor:
    return SecretRedactor(ArchiveConfig(**settings), secrets)


@pytest.mark.parametrize(
    "key",
    [
        "sk-abcdefghij1234567890abcdefghij",
        "sk-proj-abc_DEF-1234567890abcdef",
        "sk-ant-api03-abcdefghijk-1234567890",
        "AIzaSyA1234567890abcdefghijklmnopqrstuv",
        "pdk_" + "a1" * 21 + "Z",
        "AKIAABCDEFGHIJKLMNOP",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "glpat-abcdefghij0123456789",
        "xoxb-1234567890-abcdefghijkl",
        "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abcdefghijklmnop",
    ],
)
@pytest.mark.parametrize("template", ["{}", "key={}", "line\n{}\nline", "'{}'", "see {}, please", "\t{}", "<b>{}</b>"])
def test_key_like_texts_are_redacted(key: str, template: str) -> None:
    for ensure_ascii in (True, False):
        data = json.dumps({"content": template.format(key)}, ensure_ascii=ensure_ascii).encode()
        assert redactor().may_contain_secrets(data)
        assert json.loads(redactor().redact_json(data)) == {"content": template.format("[redacted]")}
    assert redactor().redact_text(template.format(key)) == template.format("[redacted]")
    assert redactor(redact_keys=False).redact_json(data) is data


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Authorization: Bearer abcdefghijklmnopqrstuvwxyz", "Authorization: Bearer [redacted]"),
        ("AWS_SECRET_ACCESS_KEY=" + "aB3/" * 10, "AWS_SECRET_ACCESS_KEY=[redacted]"),
        ("aws_secret_access_key = '" + "aB3+" * 10 + "'", "aws_secret_access_key = '[redacted]'"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\nab==\n-----END RSA PRIVATE KEY-----", "[redacted]"),
    ],
)
def test_keys_after_a_known_name_are_redacted(text: str, expected: str) -> None:
    data = json.dumps({"a": text}).encode()
    assert redactor().may_contain_secrets(data)
    assert json.loads(redactor().redact_json(data)) == {"a": expected}


@pytest.mark.parametrize(
    "text", ["task-12345678901234567890", "sk-learn-compatible-estimators-are", "AKIA", "Bearer of news", "eyJ", "hf_x"]
)
def test_ordinary_words_are_kept(text: str) -> None:
    data = json.dumps({"a": text}).encode()
    assert redactor().redact_json(data) is data


def test_redacted_json_stays_valid() -> None:
    data = json.dumps({"aws_secret_access_key": "w" * 40, "b": 1}).encode()
    assert json.loads(redactor().redact_json(data)) == {"aws_secret_access_key": "[redacted]", "b": 1}


@pytest.mark.parametrize("written", [SECRET, SECRET.replace("/", "\\/")])
def test_provider_keys_are_found_in_all_json_forms(written: str) -> None:
    data = b'{"a":"x' + written.encode() + b'y"}'
    assert json.loads(redactor(SECRET, redact_keys=False).redact_json(data)) == {"a": "x[redacted]y"}


def test_very_short_keys_are_not_redacted() -> None:
    assert not redactor("abc", "", redact_keys=False).may_contain_secrets(b"abcabc")


@given(st.integers(1, 9), st.integers(1, 200))
def test_key_spread_over_stream_events_is_redacted(characters: int, size: int) -> None:
    text = f"The key is {SECRET}, or sk-proj-abcdefghij1234567890; \u00e9t\u00e9."
    raw = b"".join(chat_stream([text[at : at + characters] for at in range(0, len(text), characters)]))
    pieces = [(at / 1000, raw[at : at + size]) for at in range(0, len(raw), size)]
    redact = redactor(SECRET)
    redacted_pieces = redact.redact_stream(redact.redact_response(pieces, True))
    redacted_stream = b"".join(piece for _, piece in redacted_pieces)
    events = [json.loads(line[6:]) for line in redacted_stream.decode().split("\n\n") if line.startswith("data: {")]
    redacted_text = "".join(event["choices"][0]["delta"].get("content", "") for event in events)
    assert redacted_text == "The key is [redacted], or [redacted]; \u00e9t\u00e9."
    assert len(redacted_pieces) == len(pieces) and [at for at, _ in redacted_pieces] == [at for at, _ in pieces]


def test_answer_without_keys_is_unchanged() -> None:
    pieces = [(0.1, piece) for piece in chat_stream(["It ", "is ", "four."])]
    redact = redactor(SECRET, redact=[{"pattern": r"\d{3}-\d{4}"}])
    assert redact.redact_stream(redact.redact_response(pieces, True)) is pieces


def test_rules_apply_to_decoded_strings() -> None:
    redact = redactor(redact=[{"pattern": r'pass"word=\S+', "replacement": 'a "secret"'}, {"pattern": "été"}])
    data = json.dumps({"pass": 'pass"word=x1 été', "été": [1.50, "no"]}).encode()
    redacted_json = redact.redact_json(data)
    assert json.loads(redacted_json) == {"pass": 'a "secret" [redacted]', "été": [1.50, "no"]}
    assert b"1.5" in redacted_json


def test_rules_apply_to_plain_bytes() -> None:
    redact = redactor(redact=[{"pattern": "internal-[a-z]+"}])
    assert redact.redact_bytes(b"<html>internal-name \xff</html>") == b"<html>[redacted] \xff</html>"
    assert redact.redact_response([(0.1, b"<p>internal-"), (0.2, b"name</p>")], False) == [(0.1, b"<p>[redacted]</p>")]
