"""The scripted model answers in every format; answers depend only on the conversation."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.config.llm import ProviderConfig
from paddock.errors import ConfigError
from paddock.llm.exchange import ModelCaller
from paddock.llm.formats.neutral import (
    AnswerPartDelta,
    AnswerStreamFailed,
    FinishReason,
    MessageRole,
    ModelMessage,
    ModelRefusal,
    ModelRequest,
    ModelText,
    ModelThinking,
    ModelToolCall,
    ToolChoice,
    ToolDefinition,
)
from paddock.llm.formats.registry import FORMATS
from paddock.llm.providers.base import ProviderRequest
from paddock.llm.providers.script_provider import ScriptProvider, new_script_provider
from paddock.llm.scripted_model.script_loader import load_script, parse_script
from paddock.llm.wire.base import UpstreamBroken, UpstreamTimedOut, UpstreamTimeouts

from .script_helpers import (
    BASH,
    CALLER,
    CLIS,
    ask,
    calls_of,
    cli_tools,
    continue_conversation,
    get_whole_answer,
    received,
    script,
    start_conversation,
    text_of,
)

pytestmark = pytest.mark.anyio
REPOSITORY = Path(__file__).parents[4]
EXAMPLES = REPOSITORY / "examples" / "scripts"
STREAMS = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
ALL = pytest.mark.parametrize("format", FORMATS)
WORK = """
turns:
  - [{think: Hm.}, {say: I will look.}, {shell: ls}, {shell: pwd}]
  - say: "It says {{ tool.output }}"
"""


@STREAMS
@ALL
async def test_a_conversation_goes_through_the_turns_to_the_end(format: str, stream: bool) -> None:
    provider, request = script(WORK), start_conversation(stream=stream)
    first = await get_whole_answer(provider, request, format)
    assert text_of(first) == "I will look."
    assert calls_of(first) == [("Bash", {"command": "ls"}), ("Bash", {"command": "pwd"})]
    assert first.finish is FinishReason.TOOLS
    second = await get_whole_answer(provider, continue_conversation(request, first, "a.txt"), format)
    assert text_of(second) == "It says a.txt\na.txt"
    assert second.finish is FinishReason.STOP
    third = await get_whole_answer(
        provider, continue_conversation(continue_conversation(request, first), second, "And now?"), format
    )
    assert text_of(third) == "Done."


@STREAMS
@ALL
async def test_answers_are_marked_as_scripted(format: str, stream: bool) -> None:
    provider, request = script(WORK), start_conversation(stream=stream)
    answered = await provider.send(ask(request, format))
    assert (b"x-paddock-script", b"demo") in answered.headers
    answered.close()
    answer = await get_whole_answer(provider, request, format)
    ids = [part.id for part in answer.parts if hasattr(part, "id")]
    assert len(set(ids)) == 2
    assert all(each.startswith("script-") for each in [*ids, answer.id])


@ALL
async def test_repeated_request_gets_the_same_answer(format: str) -> None:
    provider = script(WORK)
    first = await get_whole_answer(provider, start_conversation(stream=True), format)
    again = await get_whole_answer(provider, start_conversation(stream=False), format)
    assert (text_of(first), calls_of(first), first.id) == (text_of(again), calls_of(again), again.id)
    assert first.usage is not None and again.usage is not None
    assert (first.usage.input, first.usage.output) == (again.usage.input, again.usage.output)


@ALL
async def test_usage_is_estimated_from_the_lengths_of_texts(format: str) -> None:
    answer = await get_whole_answer(
        script("- say: Twenty letters here."), start_conversation("x" * 400, [], stream=True), format
    )
    assert answer.usage is not None
    assert 100 <= answer.usage.input <= 110
    assert answer.usage.output == 5


@ALL
async def test_usage_and_finish_reason_can_be_set(format: str) -> None:
    provider = script("- [{say: Half a}, {finish: length}, {usage: {input: 7, output: 9}}]")
    answer = await get_whole_answer(provider, start_conversation(stream=True), format)
    assert answer.finish is FinishReason.LENGTH
    assert answer.usage is not None
    assert (answer.usage.input, answer.usage.output) == (7, 9)


async def test_thoughts_and_refusals_are_parts_of_their_kind() -> None:
    answer = await get_whole_answer(script("- [{think: Hm.}, {refuse: No.}]"), start_conversation(), "openai-responses")
    assert [type(part) for part in answer.parts] == [ModelThinking, ModelRefusal]
    assert answer.finish is FinishReason.REFUSAL


async def test_texts_are_streamed_in_pieces() -> None:
    text = "One two three four five six seven eight nine ten. " * 3
    answered = await script(f"- say: '{text}'").send(ask(start_conversation(stream=True), "openai-chat"))
    assert (b"content-type", b"text/event-stream; charset=utf-8") in answered.headers
    assert len(await received(answered)) > 8


async def test_gemini_streams_an_array_on_request() -> None:
    request = start_conversation(stream=True)
    answered = await script(WORK).send(ask(request, "gemini", array=True))
    assert (b"content-type", b"application/json") in answered.headers
    assert len(json.loads(b"".join(await received(answered)))) > 1
    answer = await get_whole_answer(script(WORK), request, "gemini", array=True)
    assert len(calls_of(answer)) == 2


@pytest.mark.parametrize("cli", CLIS)
async def test_the_example_works_with_every_agents_tools(cli: str) -> None:
    provider = ScriptProvider("demo", load_script(EXAMPLES / "hello.yaml"))
    format = CLIS[cli]["format"]
    request = start_conversation("Write hello.txt", cli_tools(cli), stream=True)
    request.messages[0] = ModelMessage(MessageRole.SYSTEM, [ModelText("Working directory: /work")])
    first = await get_whole_answer(provider, request, format)
    request = continue_conversation(request, first)
    second = await get_whole_answer(provider, request, format)
    last = await get_whole_answer(provider, continue_conversation(request, second, "Hello."), format)
    [(_, written)], [(_, shown)] = calls_of(first), calls_of(second)
    assert any("Hello from a script." in str(value) for value in written.values())
    assert "cat hello.txt" in shown.values()
    assert "Hello." in text_of(last)


@STREAMS
@ALL
async def test_the_documented_script_for_agents_without_tools_writes_an_edit_block(format: str, stream: bool) -> None:
    page = (REPOSITORY / "docs" / "reference" / "scripts.md").read_text()
    section = page.partition("### Agents without tools\n")[2]
    example = re.search(r"^```yaml\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert example is not None
    answer = await get_whole_answer(script(example[1]), start_conversation("Write hello.txt.", [], stream), format)
    lines = ["hello.txt", "```", "<<<<<<< SEARCH", "=======", "Hello", ">>>>>>> REPLACE", "```"]
    assert text_of(answer).splitlines() == lines and not calls_of(answer)


@ALL
async def test_a_missing_tool_is_a_clear_error(format: str) -> None:
    answered = await script("- shell: ls").send(
        ask(start_conversation(tools=[ToolDefinition("todo", None, {"type": "object"})]), format)
    )
    assert answered.status == 400
    failure = FORMATS[format].read_failure(400, await answered.read())
    assert "the client offers: todo" in failure.message and "script demo" in failure.message


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"model": 1}', b"\xff", b"[" * 100_000])
@ALL
async def test_malformed_requests_are_refused(format: str, body: bytes) -> None:
    answered = await script(WORK).send(ProviderRequest(format, "generate", "m", body, False, CALLER))
    assert answered.status == 400
    json.loads(await answered.read())


# Selection of turns


async def test_text_added_by_clients_is_ignored() -> None:
    setting_up = ModelMessage(
        MessageRole.USER, [ModelText("We are setting up the context. I'm working in the directory: /w")]
    )
    request = start_conversation("Go.")
    request.messages[1:1] = [
        setting_up,
        ModelMessage(MessageRole.ASSISTANT, [ModelText("Got it. Thanks for the context!")]),
    ]
    request.messages.append(ModelMessage(MessageRole.SYSTEM, [ModelText("Skills: none.")]))
    request.messages[-2].parts.insert(0, ModelText("<system-reminder>\nIt is Monday.\n</system-reminder>"))
    answer = await get_whole_answer(script("- say: '{{ prompt }} in {{ directory }}'"), request)
    assert text_of(answer) == "Go. in /w"


@pytest.mark.parametrize(
    "text",
    [
        " - Primary working directory: /w/x\n - Platform: linux",
        "<environment_context>\n  <cwd>/w/x</cwd>\n</environment_context>",
        "<env>\n  Working directory: /w/x\n  Is git: no\n</env>",
        "I'm currently working in the directory: /w/x\nHere",
        "- **Workspace Directories:**\n  - /w/x\n- **Directory",
        "The current working directory is `/w/x/`.",
    ],
)
async def test_working_directory_is_found_in_agent_prompts(text: str) -> None:
    request = start_conversation()
    request.messages[0] = ModelMessage(MessageRole.SYSTEM, [ModelText(text)])
    assert text_of(await get_whole_answer(script("- say: '{{ directory }}'"), request)) == "/w/x"


BRANCHES = """
turns:
  - shell: make
  - when: {tool: "(?i)error in (\\\\w+)"}
    do: [{say: "Mending {{ match.1 }}."}, {shell: fix}]
  - say: Made.
"""


@pytest.mark.parametrize(
    ("output", "expected"), [("all fine", ["Made.", "Done."]), ("Error in parser", ["Mending parser.", "Made."])]
)
async def test_a_turn_with_a_false_condition_is_skipped(output: str, expected: list[str]) -> None:
    provider, request = script(BRANCHES), start_conversation()
    request = continue_conversation(request, await get_whole_answer(provider, request), output)
    texts: list[str] = []
    for _ in range(2):
        answer = await get_whole_answer(provider, request)
        texts.append(text_of(answer))
        request = continue_conversation(request, answer, "fine now")
    assert texts == expected


async def test_rules_answer_at_any_time_without_using_up_turns() -> None:
    provider = script("rules: [{when: {last: time}, do: [say: Noon.]}]\nturns: [{say: One.}, {say: Two.}]")
    request, texts = start_conversation("Hello"), []
    for following in ("the time?", "go on", "the time?", "go on"):
        answer = await get_whole_answer(provider, request)
        texts.append(text_of(answer))
        request = continue_conversation(request, answer, following)
    assert texts == ["One.", "Noon.", "Two.", "Noon."]


async def test_conditions_on_model_system_and_offered_tools() -> None:
    provider = script(
        """
        rules:
          - {when: {model: ^big}, do: [say: big]}
          - {when: {system: Be brief, offers: Bash, prompt: why}, do: [say: all three]}
        turns: [{say: none}]
        """
    )
    assert text_of(await get_whole_answer(provider, replace(start_conversation(), model="big-1"))) == "big"
    assert text_of(await get_whole_answer(provider, start_conversation("why?"))) == "all three"
    assert text_of(await get_whole_answer(provider, start_conversation("why?", []))) == "none"


async def test_turns_can_restart_with_each_prompt() -> None:
    provider = script("each_prompt: true\nturns: [{shell: ls}, {say: 'Heard {{ prompt }}'}]")
    request, texts = start_conversation("one"), []
    for following in ("ok", "two", "ok", "three"):
        answer = await get_whole_answer(provider, request)
        texts.append(text_of(answer) or "call")
        request = continue_conversation(request, answer, following)
    assert texts == ["call", "Heard one", "call", "Heard two"]


async def test_several_conversations_do_not_disturb_each_other() -> None:
    provider = script("turns: [{say: '1 {{ prompt }}'}, {say: '2 {{ prompt }}'}]")
    one, two = start_conversation("a"), start_conversation("b")
    first, other = await get_whole_answer(provider, one), await get_whole_answer(provider, two)
    assert (text_of(first), text_of(other)) == ("1 a", "1 b")
    assert text_of(await get_whole_answer(provider, continue_conversation(one, first, "c"))) == "2 c"


@ALL
async def test_side_calls_get_a_harmless_answer(format: str) -> None:
    provider = script(WORK)
    title = await get_whole_answer(provider, start_conversation("Name this conversation", []), format)
    assert (text_of(title), calls_of(title)) == ("demo", [])
    assert len(calls_of(await get_whole_answer(provider, start_conversation("Name this conversation"), format))) == 2


@pytest.mark.parametrize("format", ["anthropic", "openai-chat", "gemini"])
async def test_a_probe_for_a_single_token_is_a_side_call(format: str) -> None:
    # The Responses API does not accept a limit that small.
    probe = await get_whole_answer(script(WORK), replace(start_conversation("quota"), max_tokens=1), format)
    assert calls_of(probe) == []


async def test_a_side_call_for_json_gets_a_sample_of_its_schema() -> None:
    schema = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
    answer = await get_whole_answer(
        script(WORK), replace(start_conversation(tools=[]), json_schema=schema), "openai-chat"
    )
    assert json.loads(text_of(answer)) == {"title": ""}
    answer = await get_whole_answer(script(WORK + 'side: "On {{ prompt }}"'), start_conversation("cats", []))
    assert text_of(answer) == "On cats"


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant", "system"]), st.text(max_size=20)), max_size=12))
def test_any_conversation_gets_an_answer(role_texts: list[tuple[str, str]]) -> None:
    messages = [
        ModelMessage(MessageRole.USER, [ModelText("Go")]),
        *(ModelMessage(MessageRole(role), [ModelText(text)]) for role, text in role_texts),
    ]
    request = ModelRequest("m", messages, tools=[BASH], max_tokens=9)
    body = FORMATS["openai-chat"].write_request(request)

    async def status() -> int:
        return (
            await script(BRANCHES).send(ProviderRequest("openai-chat", "generate", "m", body, False, CALLER))
        ).status

    assert asyncio.run(status()) == 200


# Injected faults


@STREAMS
@ALL
async def test_turn_fails_the_set_number_of_times(format: str, stream: bool) -> None:
    provider = script("- fail: {status: 429, message: Slow down, retry_after: 1500ms, times: 2}\n- say: Here.")
    request = start_conversation(stream=stream)
    for _ in range(2):
        answered = await provider.send(ask(request, format))
        assert answered.status == 429
        assert (b"retry-after", b"2") in answered.headers
        failure = FORMATS[format].read_failure(429, await answered.read())
        assert failure.message == "Slow down (script demo)"
    assert text_of(await get_whole_answer(provider, request, format)) == "Here."
    assert (await provider.send(ask(request, format))).status == 429


async def test_failures_are_counted_for_each_caller() -> None:
    provider = script("- [{fail: 500}, {say: Here.}]")
    assert (await provider.send(ask(start_conversation()))).status == 500
    assert (await provider.send(ask(start_conversation(), caller=ModelCaller("tenant", "other")))).status == 500
    assert text_of(await get_whole_answer(provider, start_conversation())) == "Here."


async def test_faults_occur_in_order() -> None:
    provider = script("- [{fail: 500}, {say: Hel}, drop, {say: lo.}]\n- [{fail: {times: always}}, {say: Never.}]")
    request = start_conversation(stream=True)
    assert (await provider.send(ask(request))).status == 500
    with pytest.raises(UpstreamBroken):
        await received(await provider.send(ask(request)))
    answer = await get_whole_answer(provider, request)
    assert text_of(answer) == "Hello."
    for _ in range(3):
        assert (await provider.send(ask(continue_conversation(request, answer)))).status == 500


@ALL
async def test_a_drop_breaks_the_connection_at_its_position(format: str) -> None:
    provider = script("- [{say: Half of}, drop, {say: it}]")
    answered = await provider.send(ask(start_conversation(stream=True), format))
    pieces: list[bytes] = []

    async def listen() -> None:
        while True:
            pieces.append(await answered.read_piece())

    with pytest.raises(UpstreamBroken):
        await listen()
    events = FORMATS[format].new_stream_reader().feed(b"".join(pieces))
    assert "".join(event.text for event in events if isinstance(event, AnswerPartDelta)) == "Half of"
    assert await answered.read_piece() == b""
    with pytest.raises(UpstreamBroken):
        await (await script("- [{say: Half of}, drop]").send(ask(start_conversation(), format))).read()
    with pytest.raises(UpstreamBroken):
        await script("- [drop, {say: it}]").send(ask(start_conversation(stream=True), format))


@ALL
async def test_error_within_a_stream_ends_the_stream_as_failed(format: str) -> None:
    provider = script("- [{say: Half of}, {fail: {status: 529, message: Too busy}}]")
    reader = FORMATS[format].new_stream_reader()
    pieces = await received(await provider.send(ask(start_conversation(stream=True), format)))
    events = [*reader.feed(b"".join(pieces)), *reader.close()]
    assert isinstance(events[-1], AnswerStreamFailed)
    assert "Too busy" in events[-1].failure.message


@STREAMS
async def test_a_stall_delays_the_head_or_the_middle(stream: bool) -> None:
    started = time.monotonic()
    answered = await script("- [{stall: 60ms}, {say: a}]").send(ask(start_conversation(stream=stream)))
    assert time.monotonic() - started >= 0.06
    answered.close()
    answered = await script("- [{say: a}, {stall: 60ms}, {say: b}]").send(ask(start_conversation(stream=stream)))
    await received(answered)
    assert time.monotonic() - started >= 0.12


async def test_a_stall_beyond_the_providers_limits_is_a_time_out() -> None:
    script = parse_script("- [{say: a}, {stall: 1h}, {say: b}]", Path("demo.yaml"))
    provider = ScriptProvider("demo", script, UpstreamTimeouts(first_byte=0.02, stall=0.02))
    with pytest.raises(UpstreamTimedOut):
        await received(await provider.send(ask(start_conversation(stream=True))))
    with pytest.raises(UpstreamTimedOut):
        await provider.send(ask(start_conversation()))


async def test_closed_answer_ends() -> None:
    answered = await script("- say: One two three four five six.").send(ask(start_conversation(stream=True)))
    await answered.read_piece()
    answered.close()
    answered.close()
    assert await answered.read_piece() == b""


# Token counts and embeddings


@pytest.mark.parametrize(("format", "field"), [("anthropic", "input_tokens"), ("gemini", "totalTokens")])
async def test_tokens_are_counted(format: str, field: str) -> None:
    count_request = replace(ask(start_conversation("x" * 400), format), operation="count_tokens")
    answered = await script(WORK).send(count_request)
    assert json.loads(await answered.read())[field] > 100


@pytest.mark.parametrize("operation", ["embed", "count_tokens"])
async def test_operations_unknown_to_a_format_are_not_found(operation: str) -> None:
    format = "anthropic" if operation == "embed" else "openai-chat"
    answered = await script(WORK).send(replace(ask(start_conversation(), format), operation=operation))
    assert answered.status == 404
    json.loads(await answered.read())


async def get_embeddings(format: str, body: dict[str, Any]) -> Any:
    answered = await script(WORK).send(ProviderRequest(format, "embed", "m", json.dumps(body).encode(), False, CALLER))
    assert answered.status == 200
    return json.loads(await answered.read())


async def test_embeddings_have_the_requested_shape() -> None:
    [one, two] = (await get_embeddings("openai-chat", {"input": ["a", "b"], "dimensions": 8}))["data"]
    assert len(one["embedding"]) == 8
    assert one["embedding"] != two["embedding"]
    [packed] = (await get_embeddings("openai-chat", {"input": "a", "encoding_format": "base64", "dimensions": 8}))[
        "data"
    ]
    assert len(base64.b64decode(packed["embedding"])) == 32
    single = await get_embeddings("gemini", {"content": {"parts": [{"text": "a"}]}})
    several = await get_embeddings("gemini", {"requests": [{"content": {"parts": [{"text": "a"}]}}]})
    assert several["embeddings"] == [single["embedding"]]
    body = b'{"input": "a", "dimensions": 100000000}'
    assert (await script(WORK).send(ProviderRequest("openai-chat", "embed", "m", body, False, CALLER))).status == 400


async def test_the_provider_is_created_from_settings(tmp_path: Path) -> None:
    (tmp_path / "talk.yaml").write_text("- say: Hello.")
    provider = new_script_provider("demo", ProviderConfig(kind="script", file=tmp_path / "talk.yaml"))
    assert provider.formats == tuple(FORMATS)
    assert text_of(await get_whole_answer(provider, start_conversation())) == "Hello."
    (tmp_path / "talk.yaml").write_text("- shout: Hello.")
    with pytest.raises(ConfigError, match=r"talk\.yaml:1: 0\.shout: no such action"):
        new_script_provider("demo", ProviderConfig(kind="script", file=tmp_path / "talk.yaml"))


async def test_a_forced_tool_is_called_with_arguments_of_its_schema() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    request = replace(
        start_conversation(tools=[ToolDefinition("answer", None, schema)]),
        tool_choice=ToolChoice.NAMED,
        tool_name="answer",
    )
    shell_answer = await get_whole_answer(script("turns: [{shell: ls}]"), request)
    assert [(part.name, part.arguments) for part in shell_answer.parts if isinstance(part, ModelToolCall)] == [
        ("answer", '{"city":""}')
    ]
    text_answer = await get_whole_answer(script("""turns: [{say: '{"city": "Rome"}'}]"""), request)
    assert [part.arguments for part in text_answer.parts if isinstance(part, ModelToolCall)] == ['{"city":"Rome"}']


LOOK = ToolDefinition("look", None, {"type": "object", "properties": {"where": {"type": "string"}}})
RESULT = ToolDefinition("result", None, {"type": "object", "properties": {"city": {"type": "string"}}})


@pytest.mark.parametrize("format", ["openai-chat", "openai-responses", "anthropic", "gemini"])
async def test_a_required_call_is_made_if_several_tools_are_offered(format: str) -> None:
    tool_request = replace(start_conversation(tools=[BASH, LOOK, RESULT]), tool_choice=ToolChoice.ANY)
    text_answer = await get_whole_answer(script("turns: [{say: Hello}]"), tool_request, format)
    assert calls_of(text_answer) == [("Bash", {"command": ""})]
    typed = await get_whole_answer(script("""turns: [{say: '{"city": "Rome"}'}]"""), tool_request, format)
    assert calls_of(typed) == [("result", {"city": "Rome"})]
    called = await get_whole_answer(
        script("turns: [{call: {tool: look, arguments: {where: up}}}]"), tool_request, format
    )
    assert calls_of(called) == [("look", {"where": "up"})]


@pytest.mark.parametrize("format", ["openai-chat", "openai-responses", "anthropic", "gemini"])
async def test_no_tool_is_called_if_calls_are_forbidden(format: str) -> None:
    tool_request = replace(start_conversation(), tool_choice=ToolChoice.NONE)
    silent = await get_whole_answer(script("turns: [{shell: ls}, {say: Done}]"), tool_request, format)
    assert not calls_of(silent) and text_of(silent) and silent.finish is FinishReason.STOP
    text_answer = await get_whole_answer(script("turns: [[{say: I will look.}, {shell: ls}]]"), tool_request, format)
    assert (
        not calls_of(text_answer) and text_of(text_answer) == "I will look." and text_answer.finish is FinishReason.STOP
    )


@pytest.mark.parametrize("format", ["openai-chat", "openai-responses", "anthropic", "gemini"])
async def test_forced_tool_not_offered_is_refused(format: str) -> None:
    tool_request = replace(start_conversation(), tool_choice=ToolChoice.NAMED, tool_name="nope")
    answered = await script("turns: [{say: Hello}]").send(ask(tool_request, format))
    body = b"".join(await received(answered))
    assert answered.status == 400
    assert b"the tool choice names 'nope', which the request does not offer; it offers: Bash" in body
