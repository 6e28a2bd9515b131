"""The contract of agent engines, and the turn that an engine works on.

An engine decides what to ask the model and which tools to call, and does both through the turn, which records every
reply and result before the engine sees it. A crashed engine is therefore restarted with `ContinueTurn`: repeated
questions get their recorded replies, finished calls are not run again, and no event is emitted twice. The engine only
saves its own state.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Collection, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

from paddock.errors import PaddockError
from paddock.model.sandbox import FrozenModel
from paddock.model.session_events import SessionEvent
from paddock.model.sessions import Approval, CallResult, QuestionChoice, Session, SessionMessage, ToolCall

FILE_SCHEME = "paddock-file:"
"""URL scheme of session images in model messages, followed by their SHA-256."""


class UserMessage(FrozenModel):
    """Starts a turn with a message of a person."""

    message: SessionMessage


class ApprovalsDecided(FrozenModel):
    """Some pending approvals were decided."""

    approvals: tuple[Approval, ...]


class ContinueTurn(FrozenModel):
    """Continue the turn after a server restart, or on request of a client."""

    cause: Literal["continue", "restart"] = "continue"


TurnInput: TypeAlias = UserMessage | ApprovalsDecided | ContinueTurn


@dataclass(frozen=True)
class TurnDone:
    """The agent has finished its turn."""

    reason: str | None = None


@dataclass(frozen=True)
class TurnPaused:
    """The agent waits for pending approvals; `run` is called again with `ApprovalsDecided`."""


TurnOutcome: TypeAlias = TurnDone | TurnPaused


class ApprovalNeeded(Exception):
    """The call needs approval before it can run. Not an error: engines that can pause catch it."""

    def __init__(self, approval: Approval) -> None:
        super().__init__(approval.id)
        self.approval = approval


class TurnLimitReached(PaddockError):
    """The turn has used up its steps; send a message to let the agent continue."""

    code = "TURN_LIMIT"


class ToolSpec(FrozenModel):
    """Description of a tool for the model and the policy."""

    name: str
    """Name with the kind: `linux_run_shell_command`."""
    description: str
    input_schema: Mapping[str, Any]
    kind: str | None = None
    """Kind of sandbox; None for session tools such as `ask_user`."""
    tool: str
    """Name in the sandbox."""
    effect: Literal["none", "command", "write", "network", "server", "other"] = "other"
    """Possible changes, for the policy: none, anything (`command`), files (`write`), those of an MCP server (`server`),
    or other."""
    server: str | None = None
    """MCP server of the tool."""
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
    """A complete call. Its id is assigned by the session, not by the model."""

    call: ToolCall


@dataclass(frozen=True)
class ModelReply:
    """The end of a reply: the whole message as it is stored."""

    message: SessionMessage
    finish: str
    """`stop`, `tool_calls`, `length`, `content_filter`."""
    input_tokens: int = 0
    output_tokens: int = 0
    from_records: bool = False
    """Whether the reply was recorded earlier, so that the model was not asked."""


ReplyPiece: TypeAlias = TextPiece | ThoughtPiece | CallPiece | ModelReply


@dataclass(frozen=True)
class CallVerdict:
    """Verdict of the policy or a person on a call that an agent program runs itself."""

    allowed: bool
    arguments: Mapping[str, Any] | None = None
    """Edited arguments, if a person changed them."""
    reason: str | None = None
    always: bool = False
    choice: str | None = None
    """Id of the selected choice, if the question had choices."""


class MessageWriter(Protocol):
    """Streams a message that does not come from `Turn.ask_model`, such as one of an agent program.

    Used as an async context manager. Without `finish`, the message is stored as cut off.
    """

    message_id: str

    async def __aenter__(self) -> MessageWriter: ...
    async def __aexit__(self, *exc: object) -> None: ...
    async def write_text(self, piece: str) -> None: ...
    async def write_thought(self, piece: str) -> None: ...
    async def finish(self, calls: Sequence[ToolCall] = ()) -> SessionMessage: ...


class Turn(Protocol):
    """One turn of a session: `session` is a snapshot from its start, `number` counts turns from 1."""

    session: Session
    number: int

    async def system_prompt(self) -> str:
        """Return the system prompt: role, sandboxes, rules and the user's instructions."""
        ...

    async def list_tools(self) -> Sequence[ToolSpec]:
        """Return the tools that the agent may call: session tools and tools of every allowed kind."""
        ...

    async def history(self) -> Sequence[SessionMessage]:
        """Return all messages before this turn, including messages from a fork or an import."""
        ...

    def ask_model(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec] = (), *, by: str | None = None
    ) -> AsyncGenerator[ReplyPiece, None]:
        """Ask the model with OpenAI chat completion messages, and emit its reply as it streams.

        The last piece is the `ModelReply`; a caller that stops earlier closes the generator, which ends the message. A
        question repeated within the turn gets its recorded reply. Waits while a person controls a sandbox. Moves images
        of results into a message after them, replaces older images, and summarizes conversations that are too long.
        Raises `TurnLimitReached`, `BudgetSpent` for the session's budget, and `ModelError` for failed or interrupted
        requests.
        """
        ...

    async def call_tool(self, call: ToolCall, *, wait: bool = True) -> CallResult:
        """Run a tool call once; a call that has a result is not run again and returns that result.

        Unknown tools, invalid arguments, refusals and failures are results too. If the call needs approval, waits for
        it, or raises `ApprovalNeeded` without `wait`.
        """
        ...

    async def authorize_call(
        self,
        call: ToolCall,
        *,
        question: str = "",
        choices: Sequence[QuestionChoice] = (),
        effect: str = "other",
        kind: str | None = None,
    ) -> CallVerdict:
        """Return whether an agent program may run a call itself; waits for approval if the policy requires it.

        `kind` is the kind of the sandbox in which the call runs, if any.
        """
        ...

    async def record_result(self, call: ToolCall, result: CallResult, *, kind: str | None = None) -> None:
        """Record the result of a call that an agent program ran itself. The first result counts."""
        ...

    async def unread_messages(self, known: Collection[str]) -> Sequence[SessionMessage]:
        """Return this turn's user messages and server notes in order, without the ids in `known`.

        Called before each question to the model; waits while a person controls a sandbox.
        """
        ...

    def start_message(self) -> MessageWriter: ...

    async def emit(self, event: SessionEvent) -> None:
        """Emit an event that no other method emits."""
        ...

    async def load_state(self) -> bytes | None:
        """Return the state that the engine saved last in this session."""
        ...

    async def save_state(self, state: bytes) -> None:
        """Save the engine's state, durably before anything stored after it."""
        ...


async def stream_reply_after_save(
    save: Coroutine[Any, Any, None], pieces: AsyncGenerator[ReplyPiece, None]
) -> AsyncGenerator[ReplyPiece, None]:
    """Yield the pieces of a reply, none of them before the engine's state is saved.

    Saving and asking run concurrently; the state is written first, so no reply is stored without it.
    """
    save_task = asyncio.create_task(save)
    try:
        await asyncio.sleep(0)
        # On cancellation while the state is being saved, the reply must be closed here.
        async with aclosing(pieces):
            async for piece in pieces:
                await asyncio.shield(save_task)
                yield piece
    finally:
        # Cancellation must not interrupt the save; its errors are raised.
        if not save_task.done():
            await asyncio.wait({save_task})
        save_task.result()


class Engine(ABC):
    """An agent engine: decides what to ask the model and which tools to call.

    One instance serves all sessions; state of a session belongs to its turn.
    """

    name: ClassVar[str]
    has_own_tools: ClassVar[bool] = False
    """Whether the engine has its own tools and uses none of Paddock's."""

    @abstractmethod
    async def run(self, turn: Turn, turn_input: TurnInput) -> TurnOutcome:
        """Work until the turn is done or waits for approvals.

        Cancellation stops the work at once; records stay, and the next `UserMessage` must find the engine able to
        continue. Raises `PaddockError` for errors that end the turn.
        """

    async def release(self, session: Session) -> None:  # noqa: B027
        """Release everything held for a deleted session. Idempotent."""

    async def close(self) -> None:  # noqa: B027
        """Release all resources."""
