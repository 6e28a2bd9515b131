"""Checks of requests by the strict fake providers: unknown fields, tool names and schemas of tools.

Fields and rules are those of each provider's API reference. Every function returns the text of the first error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

OPENAI_FIELDS = frozenset(
    "audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens messages "
    "metadata modalities model n parallel_tool_calls prediction presence_penalty prompt_cache_key "
    "prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier stop store stream "
    "stream_options temperature tool_choice tools top_logprobs top_p user verbosity web_search_options".split()
)
DASHSCOPE_FIELDS = frozenset(
    "enable_search enable_thinking logprobs max_tokens messages model n parallel_tool_calls presence_penalty "
    "repetition_penalty response_format seed search_options stop stream stream_options temperature thinking_budget "
    "tool_choice tools top_k top_logprobs top_p".split()
)
ZHIPU_FIELDS = frozenset(
    "do_sample max_tokens messages model request_id response_format stop stream stream_options temperature thinking "
    "tool_choice tool_stream tools top_p user_id".split()
)
ANTHROPIC_FIELDS = frozenset(
    "cache_control container context_management inference_geo max_tokens messages metadata model output_config "
    "service_tier stop_sequences stream system temperature thinking tool_choice tools top_k top_p".split()
)
GEMINI_FIELDS = frozenset(
    "cachedContent contents generationConfig safetySettings systemInstruction toolConfig tools".split()
)
_GEMINI_GENERATION_FIELDS = frozenset(
    "candidateCount enableEnhancedCivicAnswers frequencyPenalty imageConfig logprobs maxOutputTokens mediaResolution "
    "presencePenalty responseJsonSchema responseLogprobs responseMimeType responseModalities responseSchema seed "
    "speechConfig stopSequences temperature thinkingConfig topK topP".split()
)
_GEMINI_SCHEMA_FIELDS = frozenset(
    "anyOf default description enum example format items maxItems maxLength maxProperties maximum minItems minLength "
    "minProperties minimum nullable pattern properties propertyOrdering required title type".split()
)
_GEMINI_TYPES = frozenset("STRING NUMBER INTEGER BOOLEAN ARRAY OBJECT NULL".split())
_OPENAI_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ANTHROPIC_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_GEMINI_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
_REFUSED_AT_TOP = ("oneOf", "anyOf", "allOf", "enum", "not")
"""Keywords that the schema of a tool may have only further down."""
_COMPLETION_TOKENS_ONLY = re.compile(r"o\d|gpt-5")


def chat_completions_problem(body: Mapping[str, Any], fields: Iterable[str]) -> str | None:
    """Check a request of OpenAI's Chat Completions; `fields` are the fields that the provider accepts."""
    if unknown := sorted(body.keys() - set(fields)):
        return f"Unrecognized request argument supplied: {', '.join(unknown)}"
    if "max_tokens" in body and _COMPLETION_TOKENS_ONLY.match(body["model"]):
        return "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'."
    if "tools" not in body:
        needs_tools = body.keys() & {"tool_choice", "parallel_tool_calls"}
        return f"{min(needs_tools)} is only allowed when 'tools' are specified." if needs_tools else None
    if not body["tools"]:
        return "Invalid 'tools': empty array."
    for at, tool in enumerate(body["tools"]):
        if tool.keys() != {"type", "function"} or tool["type"] != "function":
            return f"Invalid 'tools[{at}]': {sorted(tool)}"
        function = tool["function"]
        if unknown := sorted(function.keys() - {"name", "description", "parameters", "strict"}):
            return f"Unknown parameter: 'tools[{at}].function.{unknown[0]}'."
        if problem := _tool_problem(function["name"], function.get("parameters"), _OPENAI_NAME):
            return f"Invalid 'tools[{at}].function': {problem}"
    return _repeated_name(tool["function"]["name"] for tool in body["tools"])


def messages_problem(body: Mapping[str, Any]) -> str | None:
    """Check a request of Anthropic's Messages."""
    if unknown := sorted(body.keys() - ANTHROPIC_FIELDS):
        return f"{unknown[0]}: Extra inputs are not permitted"
    if not body.get("max_tokens"):
        return "max_tokens: Field required"
    tools = body.get("tools", [])
    if not tools and "tool_choice" in body:
        return "tool_choice: may only be specified while providing tools"
    for at, tool in enumerate(tools):
        if unknown := sorted(tool.keys() - {"name", "description", "input_schema", "type", "strict", "cache_control"}):
            return f"tools.{at}.custom.{unknown[0]}: Extra inputs are not permitted"
        if "input_schema" not in tool:
            return f"tools.{at}.custom.input_schema: Field required"
        if problem := _tool_problem(tool["name"], tool["input_schema"], _ANTHROPIC_NAME):
            return f"tools.{at}.custom: {problem}"
    return _repeated_name(tool["name"] for tool in tools)


def generate_content_problem(body: Mapping[str, Any]) -> str | None:
    """Check a request of Gemini's `generateContent`."""
    if unknown := sorted(body.keys() - GEMINI_FIELDS):
        return f'Invalid JSON payload received. Unknown name "{unknown[0]}": Cannot find field.'
    if unknown := sorted(body.get("generationConfig", {}).keys() - _GEMINI_GENERATION_FIELDS):
        return f"Unknown name \"{unknown[0]}\" at 'generation_config': Cannot find field."
    names: list[str] = []
    for tool in body.get("tools", []):
        if unknown := sorted(tool.keys() - {"functionDeclarations"}):
            return f"Unknown name \"{unknown[0]}\" at 'tools[0]': Cannot find field."
        for at, function in enumerate(tool["functionDeclarations"]):
            where = f"tools[0].function_declarations[{at}]"
            if unknown := sorted(function.keys() - {"name", "description", "parameters"}):
                return f"Unknown name \"{unknown[0]}\" at '{where}': Cannot find field."
            if not _GEMINI_NAME.fullmatch(function["name"]):
                return f"{where}.name: Invalid function name: {function['name']}"
            parameters = function.get("parameters")
            if parameters is not None and parameters.get("type") != "OBJECT":
                return f"{where}.parameters: schema should be of type OBJECT"
            # Google's own SDK sends inner objects without properties for parameters of the type `dict`.
            if parameters is not None and not parameters.get("properties"):
                return f"{where}.parameters.properties: should be non-empty for OBJECT type"
            if parameters is not None and (problem := _gemini_schema_problem(parameters, f"{where}.parameters")):
                return problem
            names.append(function["name"])
    return _repeated_name(names)


def _tool_problem(name: str, schema: Any, names: re.Pattern[str]) -> str | None:
    if not names.fullmatch(name):
        return f"name: string does not match pattern '^{names.pattern}$': {name}"
    if schema is None:
        return None
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return f"{name}: schema must be a JSON Schema of 'type: \"object\"'"
    if refused := [key for key in _REFUSED_AT_TOP if key in schema]:
        return f"{name}: schema must not have {', '.join(refused)} at the top level"
    return _json_schema_problem(schema, name)


def _json_schema_problem(schema: Any, where: str) -> str | None:
    """Check the parts of a schema that providers validate."""
    if not isinstance(schema, dict):
        return None if isinstance(schema, bool) else f"{where}: {schema!r} is not a schema"
    if schema.get("type") == "array" and "items" not in schema and "prefixItems" not in schema:
        return f"{where}: array schema missing items"
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        return f"{where}: properties must be an object"
    if missing := set(schema.get("required", [])) - properties.keys():
        return f"{where}: required names unknown properties: {sorted(missing)}"
    below = {f"{where}.{name}": each for name, each in properties.items()}
    below |= {f"{where}.{key}": schema[key] for key in ("items", "additionalProperties") if key in schema}
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        below |= {f"{where}.{key}[{at}]": each for at, each in enumerate(schema.get(key, []))}
    return next((problem for name, each in below.items() if (problem := _json_schema_problem(each, name))), None)


def _gemini_schema_problem(schema: Mapping[str, Any], where: str) -> str | None:
    if unknown := sorted(schema.keys() - _GEMINI_SCHEMA_FIELDS):
        return f"Invalid JSON payload received. Unknown name \"{unknown[0]}\" at '{where}': Cannot find field."
    kind = schema.get("type")
    if kind is None and not schema.get("anyOf"):
        return f"{where}: schema didn't specify the schema type field"
    if kind is not None and (not isinstance(kind, str) or kind not in _GEMINI_TYPES):
        return f"{where}.type: invalid value {kind!r}"
    for key, owner in (("properties", "OBJECT"), ("required", "OBJECT"), ("items", "ARRAY")):
        if key in schema and kind != owner:
            return f"{where}.{key}: only allowed for {owner} type"
    if kind == "ARRAY" and "items" not in schema:
        return f"{where}.items: missing field."
    if "enum" in schema and (kind != "STRING" or not all(isinstance(each, str) and each for each in schema["enum"])):
        return f"{where}.enum: only allowed for STRING type, with texts that are not empty"
    if kind == "STRING" and schema.get("format") not in (None, "enum", "date-time"):
        return f"{where}.format: only 'enum' and 'date-time' are supported for STRING type"
    properties = schema.get("properties", {})
    if missing := set(schema.get("required", [])) - properties.keys():
        return f"{where}.required: property is not defined: {sorted(missing)}"
    below = {f"{where}.properties[{name}]": each for name, each in properties.items()}
    below |= {f"{where}.items": schema["items"]} if "items" in schema else {}
    below |= {f"{where}.any_of[{at}]": each for at, each in enumerate(schema.get("anyOf", []))}
    return next((problem for name, each in below.items() if (problem := _gemini_schema_problem(each, name))), None)


def _repeated_name(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return f"tools: Tool names must be unique: {name}"
        seen.add(name)
    return None
