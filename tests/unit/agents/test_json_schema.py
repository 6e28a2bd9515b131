"""Tool arguments are validated before approval."""

from __future__ import annotations

from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.agents.json_schema_validation import find_schema_problems

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1, "maxLength": 5},
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "ratio": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        "mode": {"enum": ["a", "b"]},
        "fast": {"type": "boolean"},
        "keys": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2},
        "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "one": {"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 5}]},
        "step": {"$ref": "#/$defs/Step"},
        "many": {"type": ["string", "integer"]},
        "all": {"allOf": [{"type": "string"}, {"minLength": 2}]},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 1},
        "only": {"const": 1},
    },
    "required": ["path"],
    "additionalProperties": False,
    "$defs": {"Step": {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}},
}


@pytest.mark.parametrize(
    ("arguments", "expected_text"),
    [
        ({}, "`path` is missing"),
        ({"path": 1}, "`path` must be text, not a whole number"),
        ({"path": ""}, "at least 1 characters"),
        ({"path": "abcdef"}, "at most 5 characters"),
        ({"count": 0}, "at least 1"),
        ({"count": 10}, "at most 9"),
        ({"count": 1.5}, "a whole number, not a number"),
        ({"count": True}, "not true or false"),
        ({"count": float("nan")}, "a whole number"),
        ({"ratio": 0}, "more than 0"),
        ({"ratio": 1}, "less than 1"),
        ({"mode": "c"}, "`mode` must be `a` or `b`, not `c`"),
        ({"fast": 1}, "true or false"),
        ({"keys": "x"}, "`keys` must be a list, not text"),
        ({"keys": []}, "at least 1 items"),
        ({"keys": ["a", "b", "c"]}, "at most 2 items"),
        ({"keys": ["a", 2]}, "`keys[1]` must be text"),
        ({"either": 1}, "must be text, not a whole number or `either` must be null"),
        ({"one": "x"}, "`one` must be a whole number"),
        ({"one": 7}, "fits several"),
        ({"step": {}}, "`step.title` is missing"),
        ({"step": None}, "must be an object, not null"),
        ({"many": None}, "text or a whole number"),
        ({"all": "x"}, "at least 2 characters"),
        ({"map": {"a": "x"}}, "`map.a` must be a whole number"),
        ({"map": {"a": 1, "b": 2}}, "at most 1 fields"),
        ({"only": True}, "must be 1"),
        ({"pth": "a"}, "`pth` is not known; there is `path`, `count`"),
    ],
)
def test_problem_message_names_the_argument(arguments: dict[str, Any], expected_text: str) -> None:
    problems = find_schema_problems(
        SCHEMA, arguments if expected_text == "`path` is missing" else {"path": "a", **arguments}
    )
    assert len(problems) == 1 and expected_text in problems[0], problems


def test_valid_arguments_have_no_problems() -> None:
    arguments = {"path": "a", "count": 3.0, "ratio": 0.5, "mode": "a", "fast": False, "keys": ["a"], "either": None}
    assert (
        find_schema_problems(SCHEMA, {**arguments, "one": 4, "step": {"title": "x"}, "many": 3, "map": {"a": 1}}) == []
    )


def test_number_of_problems_and_recursion_are_limited() -> None:
    assert len(find_schema_problems(SCHEMA, {f"x{number}": 1 for number in range(1000)})) == 5
    circle = {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}
    assert "too deeply" in find_schema_problems(circle, 1)[0]


@pytest.mark.parametrize("schema", [{}, {"type": "unheard-of"}, {"$ref": "http://x/y"}, {"properties": 3}, {"type": 3}])
def test_unknown_schema_keywords_allow_any_value(schema: dict[str, Any]) -> None:
    assert find_schema_problems(schema, {"a": 1}) == []


PLAIN = st.none() | st.booleans() | st.integers(-3, 12) | st.floats(-1, 6, width=16) | st.sampled_from(["", "a", "abc"])
VALUES = st.recursive(
    PLAIN,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.sampled_from("ab"), children),
    max_leaves=5,
)
TYPES = st.sampled_from(["string", "integer", "number", "boolean", "array", "object", "null"])
LEAVES = st.fixed_dictionaries(
    {},
    optional={
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=2, unique=True),
        "enum": st.lists(PLAIN, min_size=1, max_size=3),
        "minimum": st.integers(-2, 3),
        "exclusiveMaximum": st.integers(0, 6),
        "minLength": st.integers(0, 2),
        "maxItems": st.integers(0, 2),
    },
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda children: st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(st.sampled_from("ab"), children, max_size=2),
            "required": st.lists(st.sampled_from("ab"), unique=True),
            "additionalProperties": st.booleans() | children,
            "items": children,
            "anyOf": st.lists(children, min_size=1, max_size=2),
            "oneOf": st.lists(children, min_size=1, max_size=2),
            "allOf": st.lists(children, min_size=1, max_size=2),
        },
    ),
    max_leaves=4,
)


@given(SCHEMAS, VALUES)
def test_validation_agrees_with_jsonschema(schema: dict[str, Any], value: Any) -> None:
    assert (not find_schema_problems(schema, value)) == jsonschema.Draft202012Validator(schema).is_valid(value)
