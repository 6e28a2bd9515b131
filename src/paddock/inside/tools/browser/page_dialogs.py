"""Dialogs of pages: kept open until a tool answers them, without blocking other calls."""

from __future__ import annotations

import asyncio

from .event_ring_buffer import EventRingBuffer, truncate_with_note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_PER_CALL = 5
"""Dialogs per call that are kept open; further ones are dismissed."""


class PageDialogs:
    """The alert, confirm, prompt and beforeunload dialogs of all pages."""

    def __init__(self, events: EventRingBuffer) -> None:
        self._events = events
        self._pending: list[Any] = []
        self._opened = asyncio.Event()
        self._tasks: set[asyncio.Future[Any]] = set()
        self._planned_answer: tuple[bool, str | None] | None = None
        self._met_in_call = 0
        self.muted = 0
        """While above zero, new dialogs are dismissed."""

    @property
    def pending(self) -> str:
        """Description of the open dialog, or an empty string."""
        return describe_dialog(self._pending[-1]) if self._pending else ""

    def plan_answer(self, accept: bool, text: str | None) -> None:
        """Set the answer of the next dialog."""
        self._planned_answer = (accept, text)

    def start_call(self) -> None:
        """Reset the dialog limit for a new call."""
        self._met_in_call = 0

    def dialog_opened(self, dialog: Any) -> None:
        """Handle a new dialog: answer it as planned, dismiss it, or keep it open."""
        self._met_in_call += 1
        if dialog.type == "beforeunload":
            # A tool that leaves the page does so intentionally.
            self._start_task(self._send_answer(dialog, True, None, "accepted because the page is being left"))
        elif self._planned_answer is not None:
            (accept, text), self._planned_answer = self._planned_answer, None
            self._start_task(self._send_answer(dialog, accept, text, "answered as planned"))
        elif self.muted or self._met_in_call > MAX_PER_CALL:
            self._start_task(self._send_answer(dialog, False, None, "dismissed automatically"))
        else:
            self._pending.append(dialog)
            self._events.add(
                kind="dialog", text=f"The page asks: {describe_dialog(dialog)}. Answer with browser_dialog."
            )
            self._opened.set()

    async def answer(self, accept: bool, text: str | None) -> bool:
        """Answer the open dialog; False if there is none."""
        if not self._pending:
            return False
        dialog = self._pending.pop()
        self._update_event()
        await self._send_answer(dialog, accept, text, "accepted" if accept else "dismissed")
        return True

    async def dismiss_pending(self, reason: str) -> None:
        """Dismiss all unanswered dialogs, so that their pages continue."""
        while self._pending:
            dialog = self._pending.pop()
            self._update_event()
            await self._send_answer(dialog, False, None, f"dismissed because {reason}")

    async def wait_opened(self) -> None:
        await self._opened.wait()

    def forget_page(self, page: Any) -> None:
        """Drop the dialogs of a closed page."""
        self._pending = [dialog for dialog in self._pending if dialog.page is not page]
        self._update_event()

    def _update_event(self) -> None:
        if not self._pending:
            self._opened.clear()

    def _start_task(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_answer(self, dialog: Any, accept: bool, text: str | None, how: str) -> None:
        try:
            if not accept:
                await asyncio.wait_for(dialog.dismiss(), 3.0)
            elif text is not None and dialog.type == "prompt":
                await asyncio.wait_for(dialog.accept(text), 3.0)
            else:
                await asyncio.wait_for(dialog.accept(), 3.0)
        except Exception:
            how = "already gone: a person answered it, or its page was closed"
        self._events.add(kind="dialog", text=f"The dialog {describe_dialog(dialog)} was {how}.")


def describe_dialog(dialog: Any) -> str:
    return f'{dialog.type} "{truncate_with_note(dialog.message, 500)}"'
