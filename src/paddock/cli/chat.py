"""`paddock chat`: a conversation with an agent, in the terminal."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from paddock.cli.commands import command
from paddock.cli.context import Cli
from paddock.cli.failure import UsageProblem


def register(app: typer.Typer) -> None:
    command(
        app,
        "chat",
        server=True,
        examples="""
            paddock chat
            paddock chat "What is in this CSV?" --kind code --attach data.csv
            paddock chat --agent claude-code --model claude-sonnet-4-5
            paddock chat --kind linux --kind browser --allow linux
            paddock chat --resume
            echo "Count to three." | paddock chat --json
        """,
    )(chat)


async def chat(
    cli: Cli,
    message: Annotated[
        str | None, typer.Argument(metavar="MESSAGE", help="What to begin with.", show_default=False)
    ] = None,
    kinds: Annotated[
        list[str] | None, typer.Option("--kind", metavar="KIND", help="A kind of sandbox that it may use.")
    ] = None,
    agent: Annotated[
        str | None, typer.Option(metavar="NAME", help="Who works: langgraph, agentscope, claude-code …")
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="Ask this model.")] = None,
    resume: Annotated[
        str | None, typer.Option("--resume", metavar="SESSION", help="Go on with a session; `last` is the latest.")
    ] = None,
    allow: Annotated[
        list[str] | None, typer.Option("--allow", metavar="KIND", help="Ask nothing about this kind; `*` is all.")
    ] = None,
    attach: Annotated[
        list[str] | None, typer.Option("--attach", metavar="FILE", help="Send pictures or files with the message.")
    ] = None,
    instructions: Annotated[str | None, typer.Option(metavar="TEXT", help="What it is to be told first.")] = None,
    once: Annotated[bool, typer.Option("--print", "-p", help="Leave after one answer.")] = False,
) -> int:
    """Chat with an agent that works in sandboxes.

    Without a server it starts one of its own until the end. Ctrl-C stops what the agent is doing, not the chat; ctrl-d
    leaves, and `--resume last` comes back. What you type while it works is read before its next step. In a pipe it
    answers once; the exit code is then 0 when it is done, 3 when it waits for somebody's decision, and 1 if it failed.
    """
    from paddock.cli.chat_talk import converse

    if resume and (kinds or agent or instructions):
        raise UsageProblem("--resume goes on with a session as it is; --kind, --agent and --instructions begin one")
    interactive = sys.stdin.isatty() and sys.stdout.isatty() and not cli.as_json
    if not interactive:
        once = True
        message = message if message is not None else sys.stdin.read()
    if once and not (message or "").strip():
        raise UsageProblem("there is no message", hint='write one: paddock chat "…"')
    wishes: dict[str, Any] = {"agent": agent, "model": model, "kinds": kinds, "instructions": instructions}
    settings = {name: value for name, value in wishes.items() if value}
    if allow:
        settings["policy"] = {"allow_all": allow}
    return await converse(cli, message, settings, resume=resume, attach=attach or [], once=once, people=interactive)
