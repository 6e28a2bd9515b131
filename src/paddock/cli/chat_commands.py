"""Slash commands of `paddock chat` that show or change the session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddock.cli.failure import Refused
from paddock.cli.llm_words import money
from paddock.cli.run_follow import Reach
from paddock.cli.session import path_of
from paddock.errors import SandboxNotFound

HELP = """\
Write what you want. While it works, a line you type is read before its next step, and ctrl-c stops it.
  /continue   let it go on where it was stopped
  /model NAME ask another model from the next step on; without a name: which one it is
  /sandboxes  the session's sandboxes
  /usage      requests, tokens and cost so far
  /title TEXT give the session a title
  /quit       leave (or ctrl-d); come back with: paddock chat --resume last"""


async def session_note(reach: Reach, session: str, word: str, rest: str) -> str | None:
    """Run a slash command and return what to show; `None` for words that are no such command."""
    match word:
        case "/model" if rest:
            changed = await reach.ask("PATCH", path_of(session), json={"model": rest})
            return f"the model is {changed['model']} from the next step on"
        case "/model":
            found = await reach.ask("GET", path_of(session))
            return f"the model is {found['model']}; /model NAME changes it, and paddock llm list shows which there are"
        case "/sandboxes":
            return await _sandboxes(reach, await reach.ask("GET", path_of(session)))
        case "/usage":
            return usage_line(await reach.ask("GET", path_of(session)))
    return None


def usage_line(session: Mapping[str, Any]) -> str:
    usage = session.get("usage") or {}
    spent, budget = usage.get("input_tokens", 0) + usage.get("output_tokens", 0), session.get("budget")
    parts = [
        f"{usage.get('requests', 0):,} requests",
        f"{usage.get('input_tokens', 0):,} tokens in, {usage.get('output_tokens', 0):,} out",
        money(usage.get("cost")) or "cost not known",
    ]
    if budget:
        parts.append(f"{spent:,} of {budget:,} tokens of the budget")
    return "; ".join(parts)


async def _sandboxes(reach: Reach, session: Mapping[str, Any]) -> str:
    known: Mapping[str, str] = session.get("sandboxes") or {}
    kinds = list(dict.fromkeys([*session.get("kinds", ()), *known]))
    if not kinds:
        return "this session uses no sandboxes"
    rows = [(kind, known.get(kind, ""), await _state(reach, known.get(kind))) for kind in kinds]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return "\n".join(f"{kind:{widths[0]}}  {sandbox:{widths[1]}}  {state}".rstrip() for kind, sandbox, state in rows)


async def _state(reach: Reach, sandbox: str | None) -> str:
    if sandbox is None:
        return "not started yet"
    try:
        found = await reach.ask("GET", f"/v1/sandboxes/{sandbox}")
    except Refused as error:
        if error.server_code == SandboxNotFound.code:
            return "gone; the next call makes a new one"
        raise
    return str(found["status"]["state"])
