"""A model that follows a script: for demos and tests, without a network and without a bill.

Everything it says is labelled: the header `x-paddock-script` names the script, and ids begin with `script-`.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from dataclasses import replace

from paddock.config.llm import ProviderConfig
from paddock.errors import ConfigError, PaddockError
from paddock.llm.formats.base import Format
from paddock.llm.formats.failures import kind_of
from paddock.llm.formats.registry import FORMATS
from paddock.llm.neutral import Failure, Finish, Request, Text
from paddock.llm.offload.tasks import is_large
from paddock.llm.providers.base import Answered, Ask, Provider
from paddock.llm.providers.local import Beat, LocalAnswered, pause
from paddock.llm.script import other
from paddock.llm.script.conversation import Conversation, read_conversation
from paddock.llm.script.decide import Attempts, Decision, decide
from paddock.llm.script.forced import forced_call, forced_tool
from paddock.llm.script.load import load_scenario
from paddock.llm.script.render import Break, Pause, Rendering, estimate, render
from paddock.llm.script.scenario import Scenario
from paddock.llm.script.schema import sample
from paddock.llm.script.template import fill
from paddock.llm.wire.base import Broken, Headers, Timeouts

LABEL = b"x-paddock-script"


class ScriptProvider(Provider):
    """Answers from a scenario, in every format."""

    kind = "script"

    def __init__(self, name: str, scenario: Scenario, timeouts: Timeouts | None = None) -> None:
        super().__init__(name, tuple(FORMATS))
        self.scenario = scenario
        self._timeouts = timeouts or Timeouts()
        self._attempts = Attempts()

    async def send(self, ask: Ask) -> Answered:
        form = FORMATS[ask.format]
        # A thread does not make it quicker, but lets others be served in between.
        large = is_large(ask.body)
        try:
            if ask.operation != "generate":
                return await asyncio.to_thread(self._other, form, ask) if large else self._other(form, ask)
            if large:
                request, rendering = await asyncio.to_thread(self._decided, form, ask)
            else:
                request, rendering = self._decided(form, ask)
        except PaddockError as error:
            return self._failed(form, Failure(400, error.message, kind_of(400)))
        return await self._told(form, request, rendering)

    def _decided(self, form: Format, ask: Ask) -> tuple[Request, Rendering]:
        request = form.read_request(ask.body, model=ask.model, stream=ask.stream)
        request.exchange = ask.exchange
        if ask.array:
            request.extra["gemini_array"] = True
        rendering = self._rendering(read_conversation(request), ask)
        # Nothing of what was said is needed any more; to let go of it takes a while too, so that is done here.
        return replace(request, messages=[]), rendering

    def _rendering(self, conversation: Conversation, ask: Ask) -> Rendering:
        # The request itself may be the same for many, so whose it is belongs to what is remembered.
        key = "\0".join((ask.caller.tenant, ask.caller.key_id, ask.conversation or "", conversation.digest))
        decision = decide(self.scenario, conversation, self._attempts, key)
        tool = forced_tool(conversation.request)
        if tool is not None:
            return forced_call(conversation, decision, tool, self.scenario.pace)
        if decision is None:
            return self._side(conversation)
        return render(conversation, decision, self.scenario.pace)

    def _side(self, conversation: Conversation) -> Rendering:
        """A short harmless answer, in JSON where that is wanted."""
        request = conversation.request
        text = self.scenario.name
        if self.scenario.side is not None:
            words = {"prompt": conversation.now.prompt, "last.text": conversation.now.last, "model": request.model}
            text = fill(self.scenario.side, words)
        elif request.json_schema is not None:
            text = json.dumps(sample(request.json_schema))
        elif request.json_mode:
            text = "{}"
        rendering = render(conversation, Decision(()))
        rendering.items.append(Text(text))
        rendering.finish = Finish.STOP
        rendering.usage = estimate(conversation, [Text(text)])
        return rendering

    async def _told(self, form: Format, request: Request, rendering: Rendering) -> Answered:
        """The head of the answer, after whatever pauses come before it."""
        waited = 0.0
        while rendering.items and isinstance(before := rendering.items[0], Pause):
            await pause(before.seconds, self._timeouts.first_byte - waited, "the script took too long to answer")
            waited += before.seconds
            del rendering.items[0]
        first = rendering.items[0] if rendering.items else None
        if isinstance(first, Break):
            raise Broken("the connection ended before there was an answer")
        if isinstance(first, Failure):
            return self._failed(form, first, rendering.retry_after)
        headers = self._headers()
        if request.stream:
            array = bool(request.extra.get("gemini_array"))
            headers[0] = (b"content-type", b"application/json" if array else b"text/event-stream; charset=utf-8")
            return LocalAnswered(200, headers, _streamed(form, request, rendering), self._timeouts)
        return await self._whole(form, request, rendering, waited)

    async def _whole(self, form: Format, request: Request, rendering: Rendering, waited: float) -> Answered:
        for item in rendering.items:
            if isinstance(item, Pause):
                await pause(item.seconds, self._timeouts.first_byte - waited, "the script took too long to answer")
                waited += item.seconds
            elif isinstance(item, Failure):
                return self._failed(form, item, rendering.retry_after)
            elif isinstance(item, Break):
                body = form.write_answer(rendering.answer(), request)
                beats = [Beat(body[: len(body) // 2]), Beat(breaks=True)]
                return LocalAnswered(200, self._headers(), beats, self._timeouts)
        return LocalAnswered(200, self._headers(), [Beat(form.write_answer(rendering.answer(), request))])

    def _other(self, form: Format, ask: Ask) -> Answered:
        tell = other.count_tokens if ask.operation == "count_tokens" else other.embed
        body = tell(form.name, ask.body, ask.model)
        if body is None:
            message = f"a script has no answer to {ask.operation} in the format {form.name}"
            return self._failed(form, Failure(404, message, kind_of(404)))
        return LocalAnswered(200, self._headers(), [Beat(body)])

    def _failed(self, form: Format, failure: Failure, retry_after: float | None = None) -> Answered:
        headers = self._headers()
        if retry_after is not None:
            headers.append((b"retry-after", str(math.ceil(retry_after)).encode()))
        failure = replace(failure, message=f"{failure.message} (script {self.scenario.name})")
        return LocalAnswered(failure.status, headers, [Beat(form.write_failure(failure))])

    def _headers(self) -> Headers:
        return [(b"content-type", b"application/json"), (LABEL, self.scenario.name.encode())]


def _streamed(form: Format, request: Request, rendering: Rendering) -> Iterator[Beat]:
    writer = form.writer(request)
    for event in rendering.events():
        if isinstance(event, Pause):
            yield Beat(wait=event.seconds)
        elif isinstance(event, Break):
            yield Beat(breaks=True)
            return
        else:
            yield Beat(writer.write(event))


def make_script(name: str, config: ProviderConfig) -> ScriptProvider:
    """The provider that a configuration describes. Raises `ConfigError` naming the scenario's file and line."""
    if config.file is None:
        raise ConfigError(f"llm.providers.{name}: a script needs a file")
    timeouts = Timeouts(config.connect_timeout, config.first_byte_timeout, config.stall_timeout)
    return ScriptProvider(name, load_scenario(config.file, f"llm.providers.{name}.file"), timeouts)
