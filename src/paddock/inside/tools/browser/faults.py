"""Says in one line what went wrong in the browser, and what to do about it."""

from __future__ import annotations

import re

from ..results import ToolError
from .engine import Gone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .session import Session

ENDED = "chromium has ended, by a crash or because it was killed; it is started again: call once more"
_CLOSED = ("has been closed", "Target closed", "Connection closed", "Browser closed", "Target crashed", "not attached")
_COVERED = re.compile(r"(<[^>]{0,200}>).{0,200}? intercepts pointer events", re.DOTALL)
_STATES = (
    ("element is not visible", "it is there, but not visible; scroll, or wait until it is shown"),
    ("element is outside of the viewport", "it is outside the visible part of the page; scroll to it first"),
    ("element is not enabled", "it is disabled"),
    ("element is not editable", "it cannot be edited (it is read-only)"),
    ("element is not stable", "it keeps moving; wait until it rests"),
    ("did not find some options", "it has no such option; browser_snapshot shows those it has"),
)
_NETWORK = {
    "ERR_NAME_NOT_RESOLVED": "there is no host of that name, or the box has no network",
    "ERR_INTERNET_DISCONNECTED": "the box has no network",
    "ERR_ADDRESS_UNREACHABLE": "the box has no way to that address",
    "ERR_CONNECTION_REFUSED": "nothing listens there",
    "ERR_CERT_AUTHORITY_INVALID": "its certificate is not trusted",
    "ERR_INVALID_URL": "that is not an address",
    "ERR_FILE_NOT_FOUND": "there is no such file",
}


def explained(error: Exception, session: Session | None = None) -> ToolError:
    """Turn any failure of Playwright's into one an agent can act on."""
    text = str(error)
    first = (text.splitlines() or [type(error).__name__])[0][:300]
    if session is not None:
        session.note(error)
        if not session.alive:
            return Gone(ENDED)
    if "Page crashed" in text or any(sign in text for sign in _CLOSED):
        return ToolError("the tab has crashed or was closed; call again to work with the one that is there now")
    for code, meaning in _NETWORK.items():
        if code in text:
            return ToolError(f"the page cannot be opened: {meaning} ({code})")
    if "net::" in text:
        return ToolError(f"the page cannot be opened ({_code(text)})")
    if "Timeout" in first or "timeout" in first.lower():
        return ToolError(_late(text))
    if "Unexpected token" in text or "is not a valid selector" in text or "while parsing" in text:
        return ToolError(f"that is not a valid selector: {first}")
    return ToolError(re.sub(r"^(\w+\.\w+): ", "", first))


def _late(text: str) -> str:
    covered = _COVERED.findall(text)
    if covered:
        return f"the element is covered by {covered[-1]}; close or move that first"
    for sign, meaning in _STATES:
        if sign in text:
            return f"the element was found, but {meaning}"
    return "it did not happen within the time limit; browser_snapshot shows what is there"


def _code(text: str) -> str:
    found = re.search(r"net::(\w+)", text)
    return found[1] if found else "network error"
