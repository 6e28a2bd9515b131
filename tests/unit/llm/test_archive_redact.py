"""The archive keeps no keys."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.config.llm import ArchiveConfig
from paddock.llm.archive.redact import Redactor

from .archive_cases import chat_stream

SECRET = "prov/ider+Key-123"


def redactor(*secrets: str, **settings: Any) -> Redactor:
    return Redactor(ArchiveConfig(**settings), secrets)


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
@pytest.mark.parametrize("around", ["{}", "key={}", "line\n{}\nline", "'{}'", "see {}, please", "\t{}", "<b>{}</b>"])
def test_what_looks_like_a_key_is_taken_out(key: str, around: str) -> None:
    for ensure_ascii in (True, False):
        data = json.dumps({"content": around.format(key)}, ensure_ascii=ensure_ascii).encode()
        assert redactor().suspects(data)
        assert json.loads(redactor().json(data)) == {"content": around.format("[redacted]")}
    assert redactor().text(around.format(key)) == around.format("[redacted]")
    assert redactor(redact_keys=False).json(data) is data


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("Authorization: Bearer abcdefghijklmnopqrstuvwxyz", "Authorization: Bearer [redacted]"),
        ("AWS_SECRET_ACCESS_KEY=" + "aB3/" * 10, "AWS_SECRET_ACCESS_KEY=[redacted]"),
        ("aws_secret_access_key = '" + "aB3+" * 10 + "'", "aws_secret_access_key = '[redacted]'"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\nab==\n-----END RSA PRIVATE KEY-----", "[redacted]"),
    ],
)
def test_so_are_those_known_by_what_stands_before_them(said: str, kept: str) -> None:
    data = json.dumps({"a": said}).encode()
    assert redactor().suspects(data)
    assert json.loads(redactor().json(data)) == {"a": kept}


@pytest.mark.parametrize(
    "said", ["task-12345678901234567890", "sk-learn-compatible-estimators-are", "AKIA", "Bearer of news", "eyJ", "hf_x"]
)
def test_ordinary_words_stay(said: str) -> None:
    data = json.dumps({"a": said}).encode()
    assert redactor().json(data) is data


def test_keys_as_fields_of_json_stay_json() -> None:
    data = json.dumps({"aws_secret_access_key": "w" * 40, "b": 1}).encode()
    assert json.loads(redactor().json(data)) == {"aws_secret_access_key": "[redacted]", "b": 1}


@pytest.mark.parametrize("written", [SECRET, SECRET.replace("/", "\\/")])
def test_providers_keys_are_found_however_they_are_written(written: str) -> None:
    data = b'{"a":"x' + written.encode() + b'y"}'
    assert json.loads(redactor(SECRET, redact_keys=False).json(data)) == {"a": "x[redacted]y"}


def test_very_short_keys_are_not_looked_for() -> None:
    assert not redactor("abc", "", redact_keys=False).suspects(b"abcabc")


@given(st.integers(1, 9), st.integers(1, 200))
def test_a_key_said_a_few_letters_at_a_time_is_found(letters: int, size: int) -> None:
    said = f"The key is {SECRET}, or sk-proj-abcdefghij1234567890; \u00e9t\u00e9."
    raw = b"".join(chat_stream([said[at : at + letters] for at in range(0, len(said), letters)]))
    pieces = [(at / 1000, raw[at : at + size]) for at in range(0, len(raw), size)]
    redact = redactor(SECRET)
    kept = redact.stream(redact.answer(pieces, True))
    whole = b"".join(piece for _, piece in kept)
    events = [json.loads(line[6:]) for line in whole.decode().split("\n\n") if line.startswith("data: {")]
    told = "".join(event["choices"][0]["delta"].get("content", "") for event in events)
    assert told == "The key is [redacted], or [redacted]; \u00e9t\u00e9."
    assert len(kept) == len(pieces) and [at for at, _ in kept] == [at for at, _ in pieces]


def test_an_answer_without_keys_is_not_touched() -> None:
    pieces = [(0.1, piece) for piece in chat_stream(["It ", "is ", "four."])]
    redact = redactor(SECRET, redact=[{"pattern": r"\d{3}-\d{4}"}])
    assert redact.stream(redact.answer(pieces, True)) is pieces


def test_rules_see_what_was_said_and_leave_json_whole() -> None:
    redact = redactor(redact=[{"pattern": r'pass"word=\S+', "replacement": 'a "secret"'}, {"pattern": "été"}])
    data = json.dumps({"pass": 'pass"word=x1 été', "été": [1.50, "no"]}).encode()
    kept = redact.json(data)
    assert json.loads(kept) == {"pass": 'a "secret" [redacted]', "été": [1.50, "no"]}
    assert b"1.5" in kept


def test_rules_hold_for_what_is_not_json() -> None:
    redact = redactor(redact=[{"pattern": "internal-[a-z]+"}])
    assert redact.plain(b"<html>internal-name \xff</html>") == b"<html>[redacted] \xff</html>"
    assert redact.answer([(0.1, b"<p>internal-"), (0.2, b"name</p>")], False) == [(0.1, b"<p>[redacted]</p>")]
