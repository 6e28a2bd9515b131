"""The engine of agent programs: Claude Code, Codex, Gemini CLI, OpenCode and Qwen Code, each in a sandbox of its own.

The program outlives the server. What it was told, what it has said since and what it waits for is found again: its
output is kept in the box, and read on from where it was.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, TypeAlias

from pydantic import ValidationError

from paddock.agents.engines.acp.boxes import AgentBoxes
from paddock.agents.engines.acp.greeting import greet
from paddock.agents.engines.acp.place import Place
from paddock.agents.engines.acp.presets import PROGRAMS, Program, program_of
from paddock.agents.engines.acp.prompts import GO_ON, attachment, beginning, blocks_of, text_block
from paddock.agents.engines.acp.talk import Talk
from paddock.agents.engines.acp.telling import Teller
from paddock.agents.engines.acp.wire import ProgramError, ProgramGone, Wire
from paddock.agents.engines.base import Continue, Done, Engine, Given, Outcome, Turn, UserMessage
from paddock.agents.engines.registry import Means
from paddock.agents.files import Files
from paddock.agents.spending import check_budget
from paddock.errors import NotFound, PaddockError
from paddock.model.sandbox import Sandbox
from paddock.model.sessions import FileContent, Message, Session
from paddock.sandbox.client import Inside
from paddock.store.sessions import SessionStore

Blocks: TypeAlias = list[dict[str, Any]]
Kept: TypeAlias = Callable[[Turn], Awaitable[int]]


class AcpEngine(Engine):
    """Runs agent programs that bring their own tools, and asks persons what these may do."""

    name: ClassVar[str] = "acp"
    own_tools: ClassVar[bool] = True

    def __init__(self, means: Means, programs: Mapping[str, Program] = PROGRAMS, kept: Kept | None = None) -> None:
        """`kept` says how many whole messages of the agent a turn has, for turns that are not in the store."""
        self._means = means
        self._kept = kept or self._count
        self._programs = programs
        self._boxes = AgentBoxes(means)
        self._files = Files(means.config.data / "sessions", means.config.chat.file_size)

    async def run(self, turn: Turn, given: Given) -> Outcome:
        program = program_of(turn.session.agent, self._programs)
        place = _read(await turn.load())
        left_over = place.turn != turn.number and place.prompt is not None
        if left_over:
            # Nobody listens to it any more, and it must not go on beside what is asked now.
            place.ready = False
        place.begin(turn.number)
        if place.prompt is None:
            # What is under way may have been answered already, and is heard to its end.
            check_budget(turn.session, self._means.config.chat.budget)
        sandbox = await self._boxes.board(turn, place, program)
        inside = await self._means.fleet.inside(turn.session.tenant, sandbox.id)
        work = _Work(self, turn, place, program, sandbox, inside, await self._kept(turn))
        return await work.run(given)

    async def release(self, session: Session) -> None:
        await self._boxes.release(session)

    async def _count(self, turn: Turn) -> int:
        messages = await SessionStore(self._means.store).messages(turn.session.id, turn=turn.number)
        return sum(message.role == "assistant" and message.cut is None for message in messages)

    async def read_file(self, session: Session, sha: str) -> bytes | None:
        try:
            return await self._files.read(session.id, sha)
        except NotFound:
            return None

    async def keep_file(self, session: Session, data: bytes, mime: str) -> FileContent | None:
        try:
            return await self._files.put(session.id, data, mime=mime)
        except PaddockError:
            return None  # What came of a call is kept all the same.

    @property
    def means(self) -> Means:
        return self._means

    @property
    def boxes(self) -> AgentBoxes:
        return self._boxes


class _Work:
    """One run of the engine in one turn."""

    def __init__(
        self,
        engine: AcpEngine,
        turn: Turn,
        place: Place,
        program: Program,
        sandbox: Sandbox,
        inside: Inside,
        kept: int,
    ) -> None:
        self._engine = engine
        self._turn = turn
        self._place = place
        self._program = program
        self._sandbox = sandbox
        self._inside = inside
        chat = engine.means.config.chat
        self._repeats = chat.repeats
        session = turn.session
        self._teller = Teller(
            turn,
            place,
            lambda data, mime: engine.keep_file(session, data, mime),
            chat.result_size,
            kept,
            program.asides,
        )

    async def run(self, given: Given) -> Outcome:
        place = self._place
        cut_off = None
        if not await self._goes_on():
            cut_off = await self._lost()
            await self._begin()
        talk = self._talk()
        again = place.prompt is not None
        if not again:
            blocks, known = await self._next(given, cut_off)
            if not blocks:
                return Done()
            await talk.prompt(blocks, known)
        while True:
            try:
                reason = await talk.hear(lambda: self._engine.boxes.keep_alive(self._sandbox))
            except asyncio.CancelledError as error:
                await asyncio.shield(self._cancelled(talk, error))
                raise
            except PaddockError as error:
                await self._teller.cut(error)
                # A question to the model was cut off when the server stopped, and the program gave up.
                if not (again and isinstance(error, ProgramError) and not isinstance(error, ProgramGone)):
                    # The next turn has to know whether the program has read this prompt.
                    with suppress(PaddockError):
                        await talk.save()
                    raise
                again = False
                await talk.prompt([text_block(GO_ON)])
                continue
            except Exception as error:
                await self._teller.cut(error)
                raise
            again = False
            blocks, known = await self._more()
            if not blocks:
                return Done(None if reason == "end_turn" else reason)
            await talk.prompt(blocks, known)

    async def _goes_on(self) -> bool:
        """Whether the process is there and has the session."""
        place = self._place
        return place.ready and place.model == self._turn.session.model and await self._wire().alive()

    async def _lost(self) -> Blocks | None:
        """What the agent has to be told once more or go on with, if it was at work when it was lost."""
        place = self._place
        if place.prompt is None:
            return None
        talk = self._talk()
        await talk.conclude("The agent program ended before this came to its end.")
        # A prompt that was never sent is sent now; otherwise it knows by its own notes what it was doing.
        unsent = None if place.line is None else json.loads(place.line)["params"]["prompt"]
        fresh = place.fresh
        place.forget_prompt()
        place.fresh = fresh
        return unsent or [text_block(GO_ON)]

    async def _begin(self) -> None:
        place, session = self._place, self._turn.session
        if place.process:
            await self._wire().end()
        place.process += 1
        place.model = session.model
        place.ready = False
        # Saved first: a process that was begun and not greeted is never taken for one that is ready.
        await self._talk().save()
        home = await self._engine.boxes.home(self._program)
        for path, text in self._program.files(session.model).items():
            await self._inside.write_file(f"{home}/{path}", text.encode(), mode=600)
        wire = self._wire()
        try:
            await greet(wire, self._program, place)
        except BaseException as error:
            if isinstance(error, PaddockError | asyncio.CancelledError):
                await asyncio.shield(wire.end())
            raise
        await self._talk().save()

    async def _next(self, given: Given, cut_off: Blocks | None) -> tuple[Blocks, list[str]]:
        """What the agent is told first."""
        place = self._place
        messages = list(await self._turn.unread(place.known))
        if isinstance(given, UserMessage) and given.message.id not in {*place.known, *(each.id for each in messages)}:
            messages.insert(0, given.message)
        if cut_off is None and not place.fresh and place.told is not None:
            # What was said in turns that ended before the agent got to read it.
            missed = [each for each in await self._turn.history() if each.role == "user" and each.number > place.told]
            messages = [*missed, *messages]
        wants_more = isinstance(given, Continue) and given.cause == "continue"
        blocks, known = await self._blocks(messages)
        if cut_off is not None:
            blocks = [*cut_off, *blocks]
        elif not blocks and (wants_more or place.stopped or not place.ended):
            blocks = [text_block(GO_ON)]
        if blocks and place.fresh:
            blocks = [*beginning(self._turn.session, await self._turn.history()), *blocks]
        return blocks, known

    async def _more(self) -> tuple[Blocks, list[str]]:
        """What it is told after a prompt: what was written meanwhile, and why something was not allowed."""
        place = self._place
        blocks, known = await self._blocks(await self._turn.unread(place.known))
        if place.notes and place.noted < self._repeats:
            place.noted += 1
            blocks = [*(text_block(note) for note in place.notes), *blocks]
        return blocks, known

    async def _blocks(self, messages: Sequence[Message]) -> tuple[Blocks, list[str]]:
        session = self._turn.session
        for message in messages:
            for part in message.content:
                if isinstance(part, FileContent) and part.type == "file":
                    data = await self._engine.read_file(session, part.file)
                    if data is not None:
                        await self._inside.write_file(attachment(part), data)
        blocks = await blocks_of(messages, lambda sha: self._engine.read_file(session, sha), images=self._place.images)
        self._place.telling = max([self._place.telling, *(message.number for message in messages)])
        return blocks, [message.id for message in messages]

    async def _cancelled(self, talk: Talk, error: BaseException) -> None:
        await self._teller.cut(error)
        await talk.stop()
        if self._program.leaves_children:
            await self._wire().end()

    def _wire(self) -> Wire:
        directory = f"/tmp/.paddock-acp-{self._place.process}"  # noqa: S108 - in the box, where nobody else is.
        return Wire(self._inside, directory, f"acp-{self._place.process}")

    def _talk(self) -> Talk:
        return Talk(self._turn, self._place, self._wire(), self._teller)


def _read(saved: bytes | None) -> Place:
    """What was saved; what cannot be read is of a version that is long gone."""
    if saved is None:
        return Place()
    try:
        return Place.model_validate_json(saved)
    except ValidationError:
        return Place()
