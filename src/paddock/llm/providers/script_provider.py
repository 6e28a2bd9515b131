"""A model that follows a script, for demos and tests without a network or costs.

All answers are labelled: the header `x-paddock-script` names the script, and ids begin with `script-`.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from paddock.config.llm import ProviderConfig
from paddock.errors import ConfigError, PaddockError
from paddock.llm.formats.base import WireFormat
from paddock.llm.formats.neutral import FinishReason, ModelFailure, ModelRequest, ModelText, ToolChoice
from paddock.llm.formats.provider_errors import error_kind_for_status
from paddock.llm.formats.registry import FORMATS
from paddock.llm.offload.worker_pool import OffloadWorkerPool
from paddock.llm.offload.worker_tasks import is_large_body
from paddock.llm.providers.base import Provider, ProviderRequest
from paddock.llm.providers.local_response import SimulatedResponseChunk, SimulatedUpstreamResponse, sleep_within_limit
from paddock.llm.request_kind import EMBED_OPERATION
from paddock.llm.scripted_model import counts_and_embeddings
from paddock.llm.scripted_model.answer_rendering import (
    RenderedAnswer,
    RenderedConnectionBreak,
    RenderedPause,
    estimate_scripted_usage,
    render_scripted_answer,
)
from paddock.llm.scripted_model.conversation_parsing import ScriptedConversation, parse_conversation
from paddock.llm.scripted_model.forced_tool_call import find_forced_tools, render_forced_tool_call, without_tool_calls
from paddock.llm.scripted_model.sample_arguments import sample_schema_value
from paddock.llm.scripted_model.script_loader import load_script
from paddock.llm.scripted_model.script_schema import ModelScript
from paddock.llm.scripted_model.search_cost import StepBoundedPattern
from paddock.llm.scripted_model.text_template import ScriptTemplateFiller
from paddock.llm.scripted_model.turn_conditions import (
    ScriptConditions,
    ScriptedConversationFacts,
    ScriptSearchTooLong,
    TurnConditionMatcher,
)
from paddock.llm.scripted_model.turn_selection import (
    InjectedFaultCounter,
    ScriptTurnChoice,
    ScriptTurnDecision,
    choose_script_turn,
    is_side_call,
    make_turn_decision,
)
from paddock.llm.wire.base import Headers, UpstreamBroken, UpstreamResponse, UpstreamTimeouts

SCRIPT_HEADER = b"x-paddock-script"
MAX_LONG_SEARCHES = 3
"""Choices of one tenant that may take too long; then its long conditions are refused at once."""
T = TypeVar("T")


class ScriptProvider(Provider):
    """Answers from a script, in every format."""

    kind = "script"

    def __init__(
        self,
        name: str,
        script: ModelScript,
        timeouts: UpstreamTimeouts | None = None,
        workers: OffloadWorkerPool | None = None,
    ) -> None:
        """`workers` choose turns whose conditions take long; without them, the provider has its own."""
        super().__init__(name, tuple(FORMATS))
        self.script = script
        self._conditions = ScriptConditions.from_script(script)
        self._patterns: dict[str, StepBoundedPattern] = {}
        self._timeouts = timeouts or UpstreamTimeouts()
        self._attempts = InjectedFaultCounter()
        self._workers = workers or OffloadWorkerPool(1)
        self._owns_workers = workers is None
        self._long_searches: Counter[str] = Counter()
        """Number of choices that were given up, by tenant."""

    async def close(self) -> None:
        if self._owns_workers:
            await self._workers.close()

    async def send(self, provider_request: ProviderRequest) -> UpstreamResponse:
        form = FORMATS[provider_request.format]
        # A thread is not faster, but keeps the event loop free. A short request can ask for many embeddings.
        large = is_large_body(provider_request.body) or provider_request.operation == EMBED_OPERATION
        try:
            if provider_request.operation != "generate":
                return (
                    await asyncio.to_thread(self._count_or_embed, form, provider_request)
                    if large
                    else self._count_or_embed(form, provider_request)
                )
            run = asyncio.to_thread if large else _run_here
            answer = await run(self._answer, form, provider_request)
            if isinstance(answer, ScriptedConversation):
                choice = await self._choose_in_worker(answer, provider_request.caller.tenant)
                answer = await run(self._render, answer, choice, provider_request)
        except PaddockError as error:
            return self._failure_response(form, ModelFailure(400, error.message, error_kind_for_status(400)))
        return await self._start_response(form, *answer)

    def _answer(
        self, form: WireFormat, provider_request: ProviderRequest
    ) -> tuple[ModelRequest, RenderedAnswer] | ScriptedConversation:
        """Answer a request, or return its conversation if a worker process has to choose the turn."""
        request = form.read_request(provider_request.body, model=provider_request.model, stream=provider_request.stream)
        request.exchange = provider_request.exchange
        if provider_request.array:
            request.extra["gemini_array"] = True
        conversation = parse_conversation(request)
        facts = ScriptedConversationFacts.from_conversation(conversation)
        matcher = TurnConditionMatcher(facts, self._patterns)
        try:
            choice = choose_script_turn(
                self._conditions, facts, matcher, side_call=is_side_call(self._conditions, conversation.request)
            )
        except ScriptSearchTooLong:
            return conversation
        return self._render(conversation, choice, provider_request)

    async def _choose_in_worker(self, conversation: ScriptedConversation, tenant: str) -> ScriptTurnChoice | None:
        """Choose the turn in a worker process. Raises `ScriptSearchTooLong`."""
        if self._long_searches[tenant] >= MAX_LONG_SEARCHES:
            raise ScriptSearchTooLong
        facts = ScriptedConversationFacts.from_conversation(conversation)
        side_call = is_side_call(self._conditions, conversation.request)
        try:
            choice, _ = await self._workers.run_task("choose_turn", (self._conditions, facts, side_call), b"")
        except ScriptSearchTooLong:
            self._long_searches[tenant] += 1
            raise
        assert choice is None or isinstance(choice, ScriptTurnChoice)
        return choice

    def _render(
        self, conversation: ScriptedConversation, choice: ScriptTurnChoice | None, provider_request: ProviderRequest
    ) -> tuple[ModelRequest, RenderedAnswer]:
        rendering = self._render_choice(conversation, choice, provider_request)
        # The messages are no longer needed; freeing them takes time too, so drop them in this thread.
        conversation.contexts.clear()
        conversation.request.messages = []
        return conversation.request, rendering

    def _render_choice(
        self, conversation: ScriptedConversation, choice: ScriptTurnChoice | None, provider_request: ProviderRequest
    ) -> RenderedAnswer:
        decision = None
        if choice is not None:
            # Callers may send identical requests, so the key includes the caller.
            key = "\0".join(
                (
                    provider_request.caller.tenant,
                    provider_request.caller.key_id,
                    provider_request.conversation or "",
                    conversation.digest,
                )
            )
            decision = make_turn_decision(self.script, conversation, choice, self._attempts, key)
        forced = find_forced_tools(conversation.request)
        if forced:
            return render_forced_tool_call(conversation, decision, forced, self.script.pace)
        if decision is not None and conversation.request.tool_choice is ToolChoice.NONE:
            decision = without_tool_calls(decision)
        if decision is None:
            return self._render_side_call(conversation)
        return render_scripted_answer(conversation, decision, self.script.pace)

    def _render_side_call(self, conversation: ScriptedConversation) -> RenderedAnswer:
        """Return a short harmless answer to a side call, as JSON if requested."""
        request = conversation.request
        text = self.script.name
        if self.script.side is not None:
            words = {
                "prompt": conversation.current.prompt,
                "last.text": conversation.current.last,
                "model": request.model,
            }
            text = ScriptTemplateFiller(words).fill(self.script.side)
        elif request.json_schema is not None:
            text = json.dumps(sample_schema_value(request.json_schema))
        elif request.json_mode:
            text = "{}"
        rendering = render_scripted_answer(conversation, ScriptTurnDecision(()))
        rendering.items.append(ModelText(text))
        rendering.finish = FinishReason.STOP
        rendering.usage = estimate_scripted_usage(conversation, [ModelText(text)])
        return rendering

    async def _start_response(
        self, form: WireFormat, request: ModelRequest, rendering: RenderedAnswer
    ) -> UpstreamResponse:
        """Return the response after the pauses that precede its head."""
        waited = 0.0
        while rendering.items and isinstance(before := rendering.items[0], RenderedPause):
            await sleep_within_limit(
                before.seconds, self._timeouts.first_byte - waited, "the script took too long to answer"
            )
            waited += before.seconds
            del rendering.items[0]
        first = rendering.items[0] if rendering.items else None
        if isinstance(first, RenderedConnectionBreak):
            raise UpstreamBroken("the connection ended before there was an answer")
        if isinstance(first, ModelFailure):
            return self._failure_response(form, first, rendering.retry_after)
        headers = self._headers()
        if request.stream:
            array = bool(request.extra.get("gemini_array"))
            headers[0] = (b"content-type", b"application/json" if array else b"text/event-stream; charset=utf-8")
            return SimulatedUpstreamResponse(200, headers, _stream_chunks(form, request, rendering), self._timeouts)
        return await self._whole_response(form, request, rendering, waited)

    async def _whole_response(
        self, form: WireFormat, request: ModelRequest, rendering: RenderedAnswer, waited: float
    ) -> UpstreamResponse:
        for item in rendering.items:
            if isinstance(item, RenderedPause):
                await sleep_within_limit(
                    item.seconds, self._timeouts.first_byte - waited, "the script took too long to answer"
                )
                waited += item.seconds
            elif isinstance(item, ModelFailure):
                return self._failure_response(form, item, rendering.retry_after)
            elif isinstance(item, RenderedConnectionBreak):
                body = form.write_answer(rendering.answer(), request)
                chunks = [SimulatedResponseChunk(body[: len(body) // 2]), SimulatedResponseChunk(breaks=True)]
                return SimulatedUpstreamResponse(200, self._headers(), chunks, self._timeouts)
        return SimulatedUpstreamResponse(
            200, self._headers(), [SimulatedResponseChunk(form.write_answer(rendering.answer(), request))]
        )

    def _count_or_embed(self, form: WireFormat, provider_request: ProviderRequest) -> UpstreamResponse:
        write_body = (
            counts_and_embeddings.write_scripted_token_count
            if provider_request.operation == "count_tokens"
            else counts_and_embeddings.write_scripted_embeddings
        )
        body = write_body(form.name, provider_request.body, provider_request.model)
        if body is None:
            message = f"a script has no answer to {provider_request.operation} in the format {form.name}"
            return self._failure_response(form, ModelFailure(404, message, error_kind_for_status(404)))
        return SimulatedUpstreamResponse(200, self._headers(), [SimulatedResponseChunk(body)])

    def _failure_response(
        self, form: WireFormat, failure: ModelFailure, retry_after: float | None = None
    ) -> UpstreamResponse:
        headers = self._headers()
        if retry_after is not None:
            headers.append((b"retry-after", str(math.ceil(retry_after)).encode()))
        failure = replace(failure, message=f"{failure.message} (script {self.script.name})")
        return SimulatedUpstreamResponse(failure.status, headers, [SimulatedResponseChunk(form.write_failure(failure))])

    def _headers(self) -> Headers:
        return [(b"content-type", b"application/json"), (SCRIPT_HEADER, self.script.name.encode())]


def _stream_chunks(
    form: WireFormat, request: ModelRequest, rendering: RenderedAnswer
) -> Iterator[SimulatedResponseChunk]:
    writer = form.new_stream_writer(request)
    for event in rendering.events():
        if isinstance(event, RenderedPause):
            yield SimulatedResponseChunk(delay=event.seconds)
        elif isinstance(event, RenderedConnectionBreak):
            yield SimulatedResponseChunk(breaks=True)
            return
        else:
            yield SimulatedResponseChunk(writer.write(event))


async def _run_here(function: Callable[..., T], *arguments: Any) -> T:
    return function(*arguments)


def new_script_provider(name: str, config: ProviderConfig, workers: OffloadWorkerPool | None = None) -> ScriptProvider:
    """Create a script provider from its configuration. Raises `ConfigError` with the script's file and line."""
    if config.file is None:
        raise ConfigError(f"llm.providers.{name}: a script needs a file")
    timeouts = UpstreamTimeouts(config.connect_timeout, config.first_byte_timeout, config.stall_timeout)
    return ScriptProvider(name, load_script(config.file, f"llm.providers.{name}.file"), timeouts, workers)
