"""The system prompt of a session.

It contains nothing that changes within a turn, because a restarted engine must ask the model the same question.
"""

from __future__ import annotations

from collections.abc import Sequence

from paddock.agents.tools.tool_results import FETCH_TOOL
from paddock.model.screens import SandboxKind
from paddock.model.sessions import Session
from paddock.model.task_fields import WORKSPACE

_KIND_ADVICE = {
    "code": "the quickest; choose it for programs, data, files and whatever needs no screen",
    "linux": "choose it when a program with windows is to be used, seen or shown",
    "browser": "choose it for web pages: to read them, fill them in, or test them",
    "windows": "choose it only for programs that are made for Windows",
    "mobile": "choose it for how pages look and work on a phone",
}


def build_system_prompt(session: Session, kinds: Sequence[SandboxKind]) -> str:
    """Write the system prompt of a session with the given kinds of sandbox."""
    parts = [
        _ROLE,
        *([_sandboxes_section(kinds), _files_section(kinds)] if kinds else [_NO_SANDBOXES]),
        _screens_section(kinds),
        _RULES,
    ]
    if session.instructions.strip():
        parts.append(f"# Instructions of the user\n{session.instructions.strip()}")
    return "\n\n".join(part for part in parts if part)


_ROLE = (
    "You are an agent that does work for a user on computers of its own. Find out what is wanted, do it with your "
    "tools, check that it is right, and say shortly what you did and where the results are. Do not say that "
    "something is done that you have not seen to be so."
)
_NO_SANDBOXES = "You have no sandboxes in this session: answer with what you know and what the user gives you."
_RULES = f"""\
# Working with people
- Some calls need the user's approval. One that is refused was not run: heed the reason, and do not try to get round it.
- Where something only the user can know or decide is unclear, ask with ask_user before you spend work on a guess.
- For work of more than a few steps show your plan with update_plan, and keep it up to date.
- Messages that begin with [note] are from the server, not from the user.
- Files that the user attaches are kept by the session, not in a sandbox; {FETCH_TOOL} writes one to a sandbox. \
keep_file gives the user a file.
- Results that are too long are cut in the middle, and say so. Better read only what you need."""


def _sandboxes_section(kinds: Sequence[SandboxKind]) -> str:
    lines = []
    for kind in kinds:
        advice = f" Of these, {_KIND_ADVICE[kind.name]}." if len(kinds) > 1 and kind.name in _KIND_ADVICE else ""
        screen = " It has a screen." if kind.screen else ""
        lines.append(f"- **{kind.name}** ({kind.title}): {kind.description}{screen}{advice}")
    kind_lines = "\n".join(lines)
    return f"""\
# Sandboxes
You have sandboxes: separate computers, each of a kind. One starts when you first use a tool of its kind; the name of \
a tool begins with its kind. They reach only the hosts that their network policy allows, and do not see each other. \
A denied connection is reset, or answered with the rule that would allow it; ask for a host that you need with \
request_network_access.
{kind_lines}
Calls to different sandboxes can be made at the same time. If one breaks, the others go on, and a new one is made when \
you next use its kind; the result of the call tells you what was lost."""


def _files_section(kinds: Sequence[SandboxKind]) -> str:
    move_hint = (
        " Each sandbox has its own; move_between_sandboxes copies files and directories from one to another."
        if len(kinds) > 1
        else ""
    )
    return f"""\
# Files
- Work in {WORKSPACE}, and leave results there. It stays as long as the session does, even if a sandbox is lost.\
{move_hint}
- /shared can be read in every sandbox, if it is there, and not written."""


def _screens_section(kinds: Sequence[SandboxKind]) -> str:
    if not any(kind.screen for kind in kinds):
        return ""
    return """\
# Screens
Look at the screen before and after you do something on it. A person may take mouse and keyboard of a sandbox; you \
wait meanwhile, and a note tells you afterwards what they did. Then look again before you go on."""
