"""How a function that works on a page becomes a tool."""

from __future__ import annotations

from ..registry import Tool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from typing import Any

    from ..context import Context
    from ..results import Result
    from .engine import Engine
    from .session import Session, Tab

MAX_SECONDS = 120


class Call:
    """One call under way: the session, the tab it works on, and how long it may take."""

    def __init__(self, context: Context, session: Session, tab: Tab, seconds: float) -> None:
        self.context = context
        self.session = session
        self.tab = tab
        self.page: Any = tab.page
        self.seconds = seconds

    @property
    def milliseconds(self) -> float:
        return self.seconds * 1000


class Kit:
    """Makes tools of one browser."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def tool(
        self,
        name: str,
        description: str,
        properties: Mapping[str, Mapping[str, Any]],
        function: Callable[..., Awaitable[str | Result]],
        *,
        required: Sequence[str] = (),
        seconds: float = 5,
        hands: bool = False,
        read_only: bool = False,
        answers_dialogs: bool = False,
        quiet: bool = False,
    ) -> Tool:
        """A tool whose result says what it changed.

        `function(call, **arguments)` returns what it did in words, or a whole result. A dialog that waits for an
        answer is dismissed before it runs, unless it `answers_dialogs`; in `quiet` ones nobody is asked. Those that
        are `hands` wait while a person has the mouse and the keyboard, and change the screen.
        """
        limit = {"type": "number", "minimum": 0.1, "maximum": MAX_SECONDS, "default": seconds}
        limit["description"] = "seconds to wait at most"

        def call(context: Context, *, timeout: float, **arguments: Any) -> Result:
            async def work(session: Session) -> Result:
                from .running import run

                calm = "" if answers_dialogs else f"{name} was called before it was answered"
                return await run(context, session, function, arguments, timeout, calm, quiet, hands)

            return self.engine.call(work, timeout, context.caller)

        arguments = {**properties, "timeout": limit}
        return Tool(
            name, description, arguments, required, call, input=hands, changes_screen=hands, read_only=read_only
        )
