"""Translates Playwright's errors into one-line messages that say what to do."""

from __future__ import annotations

import re

from ..tool_result import ToolError
from .browser_thread import ChromiumGone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .browser_session import BrowserSession

CHROMIUM_ENDED = "chromium has crashed or was killed and is being restarted; call again"
_CLOSED = ("has been closed", "Target closed", "Connection closed", "Browser closed", "Target crashed", "not attached")
_COVERED = re.compile(r"(<[^>]{0,200}>).{0,200}? intercepts pointer events", re.DOTALL)
_STATES = (
    ("element is not visible", "it is not visible; scroll, or wait until it is shown"),
    ("element is outside of the viewport", "it is outside the visible part of the page; scroll to it first"),
    ("element is not enabled", "it is disabled"),
    ("element is not editable", "it cannot be edited (it is read-only)"),
    ("element is not stable", "it keeps moving; wait until it stops"),
    ("did not find some options", "it has no such option; browser_snapshot lists its options"),
)
_NETWORK = {
    "ERR_NAME_NOT_RESOLVED": "the host name cannot be resolved, or the sandbox has no network",
    "ERR_INTERNET_DISCONNECTED": "the sandbox has no network",
    "ERR_ADDRESS_UNREACHABLE": "the sandbox cannot reach that address",
    "ERR_CONNECTION_REFUSED": "the connection was refused",
    "ERR_CERT_AUTHORITY_INVALID": "its certificate is not trusted",
    "ERR_INVALID_URL": "the address is invalid",
    "ERR_FILE_NOT_FOUND": "the file does not exist",
}


def explain_playwright_error(error: Exception, session: BrowserSession | None = None) -> ToolError:
    """Return a ToolError with a message an agent can act on."""
    text = str(error)
    first = (text.splitlines() or [type(error).__name__])[0][:300]
    if session is not None:
        session.note_error(error)
        if not session.is_alive:
            return ChromiumGone(CHROMIUM_ENDED)
    if "Page crashed" in text or any(sign in text for sign in _CLOSED):
        return ToolError("the tab has crashed or was closed; call again to use the current tab")
    for code, meaning in _NETWORK.items():
        if code in text:
            return ToolError(f"the page cannot be opened: {meaning} ({code})")
    if "net::" in text:
        return ToolError(f"the page cannot be opened ({_network_error_code(text)})")
    if "Timeout" in first or "timeout" in first.lower():
        return ToolError(_timeout_message(text))
    if "Unexpected token" in text or "is not a valid selector" in text or "while parsing" in text:
        return ToolError(f"that is not a valid selector: {first}")
    return ToolError(re.sub(r"^(\w+\.\w+): ", "", first))


def _timeout_message(text: str) -> str:
    covered = _COVERED.findall(text)
    if covered:
        return f"the element is covered by {covered[-1]}; close or move that element first"
    for sign, meaning in _STATES:
        if sign in text:
            return f"the element was found, but {meaning}"
    return "timed out; browser_snapshot shows the page"


def _network_error_code(text: str) -> str:
    found = re.search(r"net::(\w+)", text)
    return found[1] if found else "network error"
