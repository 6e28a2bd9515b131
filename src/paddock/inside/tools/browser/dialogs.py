"""Dialogs of pages: held until somebody answers, and never in the way of anything else."""

from __future__ import annotations

import asyncio

from .journal import Ring, cut

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

IN_A_ROW = 5
"""Dialogs that one call may meet before all further ones are dismissed unasked."""


class Dialogs:
    """What pages ask by alert, confirm, prompt and beforeunload."""

    def __init__(self, journal: Ring) -> None:
        self._journal = journal
        self._pending: list[Any] = []
        self._opened = asyncio.Event()
        self._tasks: set[asyncio.Future[Any]] = set()
        self._plan: tuple[bool, str | None] | None = None
        self._met = 0
        self.quiet = 0
        """While above zero, nobody is asked."""

    @property
    def pending(self) -> str:
        """What the page asks now, or nothing."""
        return described(self._pending[-1]) if self._pending else ""

    def plan(self, accept: bool, text: str | None) -> None:
        """Say how the next dialog is to be answered."""
        self._plan = (accept, text)

    def begin(self) -> None:
        """A new call: it may be asked again."""
        self._met = 0

    def met(self, dialog: Any) -> None:
        """A page opens a dialog. Answer it as planned, or hold it."""
        self._met += 1
        if dialog.type == "beforeunload":
            # Whoever leaves a page through a tool means it.
            self._start(self._answer(dialog, True, None, "accepted, because the page is being left"))
        elif self._plan is not None:
            (accept, text), self._plan = self._plan, None
            self._start(self._answer(dialog, accept, text, "answered as planned"))
        elif self.quiet or self._met > IN_A_ROW:
            self._start(self._answer(dialog, False, None, "dismissed unasked"))
        else:
            self._pending.append(dialog)
            self._journal.add(kind="dialog", text=f"The page asks: {described(dialog)}. Answer with browser_dialog.")
            self._opened.set()

    async def answer(self, accept: bool, text: str | None) -> bool:
        """Answer what is pending; False when nothing is."""
        if not self._pending:
            return False
        dialog = self._pending.pop()
        self._settle()
        await self._answer(dialog, accept, text, "accepted" if accept else "dismissed")
        return True

    async def clear(self, why: str) -> None:
        """Dismiss what nobody has answered, so that the page lives on."""
        while self._pending:
            dialog = self._pending.pop()
            self._settle()
            await self._answer(dialog, False, None, f"dismissed, because {why}")

    async def wait_opened(self) -> None:
        await self._opened.wait()

    def forget(self, page: Any) -> None:
        """A page is gone, and its dialogs with it."""
        self._pending = [dialog for dialog in self._pending if dialog.page is not page]
        self._settle()

    def _settle(self) -> None:
        if not self._pending:
            self._opened.clear()

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, dialog: Any, accept: bool, text: str | None, how: str) -> None:
        try:
            if not accept:
                await asyncio.wait_for(dialog.dismiss(), 3.0)
            elif text is not None and dialog.type == "prompt":
                await asyncio.wait_for(dialog.accept(text), 3.0)
            else:
                await asyncio.wait_for(dialog.accept(), 3.0)
        except Exception:
            how = "gone already: a person has answered it, or its page was closed"
        self._journal.add(kind="dialog", text=f"The dialog {described(dialog)} was {how}.")


def described(dialog: Any) -> str:
    return f'{dialog.type} "{cut(dialog.message, 500)}"'
