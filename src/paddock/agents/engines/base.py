"""What an engine is, and the turn that it is handed.

An engine decides what to ask the model and which tools to call; it does neither by itself. Both go through the turn,
which keeps whatever comes back before the engine sees it. So an engine that died may be started again with `Continue`:
questions it asked are answered as before without asking the model, calls that were run are not run again, and nothing
is told twice. What an engine has to keep for that is only its own place.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Collection, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

from paddock.errors import PaddockError
from paddock.model.sandbox import Frozen
from paddock.model.session_events import SessionEvent
from paddock.model.sessions import Approval, Call, CallResult, Choice, Message, Session

FILE_SCHEME = "paddock-file:"
"""Engines name pictures of the session by this and their SHA-256, where a model's message has an image's address."""


class UserMessage(Frozen):
    """Begins a turn with what a person wrote."""

    message: Message


class Decisions(Frozen):
    """Persons have decided some of what was waiting."""

    approvals: tuple[Approval, ...]


class Continue(Frozen):
    """Go on from where it was, after a restart of the server or because somebody asks for it."""

    cause: Literal["continue", "restart"] = "continue"


Given: TypeAlias = UserMessage | Decisions | Continue


@dataclass(frozen=True)
class Done:
    """The agent has said all it has to say."""

    reason: str | None = None


@dataclass(frozen=True)
class Paused:
    """Nothing can go on before persons decide what is pending; `run` is called again with their `Decisions`."""


Outcome: TypeAlias = Done | Paused


class Undecided(Exception):
    """A person has to decide before the call can be run. Not an error: engines that can stop there catch it."""

    def __init__(self, approval: Approval) -> None:
        super().__init__(approval.id)
        self.approval = approval


class TurnLimit(PaddockError):
    """The turn has taken as many steps as it may; send a message to let the agent go on."""

    code = "TURN_LIMIT"


class ToolSpec(Frozen):
    """A tool as the model is told of it."""

    name: str
    """With its kind: `linux_run_shell_command`."""
    description: str
    input_schema: Mapping[str, Any]
    kind: str | None = None
    """None for those of the session itself, such as `ask_user`."""
    tool: str
    """Its name in the sandbox."""
    effect: Literal["none", "command", "write", "other"] = "other"
    """What it may change, for the policy: nothing, anything (a command), files, something else."""
    client: bool = False
    """Whether the session's client runs it: a call waits until the client sends the result."""


@dataclass(frozen=True)
class TextPiece:
    text: str


@dataclass(frozen=True)
class ThoughtPiece:
    text: str


@dataclass(frozen=True)
class CallPiece:
    """A call that is whole. Its id is the session's own, not the model's."""

    call: Call


@dataclass(frozen=True)
class Reply:
    """The end of an answer: all of it, as it is kept."""

    message: Message
    finish: str
    """`stop`, `tool_calls`, `length`, `content_filter`."""
    input_tokens: int = 0
    output_tokens: int = 0
    again: bool = False
    """Whether it was given before, and was found in the records instead of asking the model."""


Piece: TypeAlias = TextPiece | ThoughtPiece | CallPiece | Reply


@dataclass(frozen=True)
class Verdict:
    """What persons or the policy say of a call that somebody else carries out."""

    allowed: bool
    arguments: Mapping[str, Any] | None = None
    """Where a person has edited them."""
    reason: str | None = None
    always: bool = False
    choice: str | None = None
    """The id of the choice that was made, where the question had choices."""


class Speech(Protocol):
    """An answer that comes from elsewhere than `Turn.ask`, such as an agent program, and is told as it comes.

    Used as an async context manager. Left without `finish`, it is kept as cut.
    """

    message_id: str

    async def __aenter__(self) -> Speech: ...
    async def __aexit__(self, *exc: object) -> None: ...
    async def text(self, piece: str) -> None: ...
    async def thought(self, piece: str) -> None: ...
    async def finish(self, calls: Sequence[Call] = ()) -> Message: ...


class Turn(Protocol):
    """One turn of a session. `session` is as it was when the turn began; `number` is which turn it is."""

    session: Session
    number: int

    async def prompt(self) -> str:
        """The system prompt: who the agent is, which sandboxes there are, what it was told to be."""
        ...

    async def tools(self) -> Sequence[ToolSpec]:
        """What the agent may call: the session's own tools, and those of every kind it may use."""
        ...

    async def history(self) -> Sequence[Message]:
        """All that was said in the session before this turn; what a fork or an import begins with."""
        ...

    def ask(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec] = (), *, by: str | None = None
    ) -> AsyncGenerator[Piece, None]:
        """Ask the model, in the words of OpenAI's chat completions, and tell what it says as it comes.

        The last piece is the `Reply`; who stops before it closes the generator, which ends what is told. Asking the
        same again within the turn gives what was answered then. Waits while a person has the mouse. Puts the pictures
        of results after them as a message of their own, replaces older ones, sums up what has become too long. Raises
        `TurnLimit`, `BudgetSpent` over the session's budget, and `ModelError` (see voice) for what the proxy refuses or
        breaks off.
        """
        ...

    async def call(self, call: Call, *, wait: bool = True) -> CallResult:
        """Run a tool, once: a call that has a result is not run again, and is given that.

        Unknown tools, arguments that do not fit, refusals and failures are results too. Where a person has to decide,
        waits for it, or raises `Undecided` if it shall not.
        """
        ...

    async def consult(
        self,
        call: Call,
        *,
        question: str = "",
        choices: Sequence[Choice] = (),
        effect: str = "other",
        kind: str | None = None,
    ) -> Verdict:
        """Whether a call may be run that somebody else carries out. Waits for a person where the policy says so.

        `kind` is that of the sandbox in which it is carried out, if it is in one.
        """
        ...

    async def settle(self, call: Call, result: CallResult, *, kind: str | None = None) -> None:
        """Keep the result of a call that somebody else has carried out. The first result counts."""
        ...

    async def unread(self, known: Collection[str]) -> Sequence[Message]:
        """Messages of persons and notes of the server in this turn, in order, whose ids the engine does not know yet.

        Asked before each question to the model; waits while a person has the mouse.
        """
        ...

    def speaking(self) -> Speech: ...

    async def tell(self, event: SessionEvent) -> None:
        """Tell something that has no other way."""
        ...

    async def load(self) -> bytes | None:
        """What the engine has saved last in this session."""
        ...

    async def save(self, state: bytes) -> None:
        """Keep the engine's own place; on disk before anything that is kept after it."""
        ...


async def meanwhile(
    saving: Coroutine[Any, Any, None], asking: AsyncGenerator[Piece, None]
) -> AsyncGenerator[Piece, None]:
    """The pieces of an answer, of which none is seen before the engine's place is kept.

    Both are under way at the same time; what is kept is first in line, so no answer is kept without it.
    """
    keeping = asyncio.create_task(saving)
    try:
        await asyncio.sleep(0)
        # Who is cancelled while the place is kept has to end the answer too: nobody else does.
        async with aclosing(asking):
            async for piece in asking:
                await asyncio.shield(keeping)
                yield piece
    finally:
        # Who is cancelled leaves nothing half done; what went wrong is told.
        if not keeping.done():
            await asyncio.wait({keeping})
        keeping.result()


class Engine(ABC):
    """Somebody who thinks. One instance serves all sessions; what belongs to one is in its turn."""

    name: ClassVar[str]
    own_tools: ClassVar[bool] = False
    """Whether it brings its own tools and takes none of ours."""

    @abstractmethod
    async def run(self, turn: Turn, given: Given) -> Outcome:
        """Work until there is nothing more to do, or nothing can be done before persons decide.

        Cancelling it ends what is under way at once; what was recorded stays, and the next `UserMessage` finds the
        engine able to go on. Raises `PaddockError` for what ends the turn.
        """

    async def release(self, session: Session) -> None:  # noqa: B027
        """The session is gone: let go of all that is kept for it. Idempotent."""

    async def close(self) -> None:  # noqa: B027
        """Let go of everything."""
