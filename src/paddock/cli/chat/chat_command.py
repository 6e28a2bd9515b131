"""`paddock chat`: chat with an agent in the terminal."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from paddock.cli.framework.command_registration import register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.framework.option_parsing import parse_chat_network
from paddock.cli.output.errors import UsageError


def register_commands(app: typer.Typer) -> None:
    register_command(
        app,
        "chat",
        server=True,
        examples="""
            paddock chat
            paddock chat "What is in this CSV?" --kind code --attach data.csv
            paddock chat --agent claude-code --model claude-sonnet-4-5
            paddock chat --kind linux --kind browser --allow linux
            paddock chat --network packages --network "allow *.example.com:443"
            paddock chat --resume
            echo "Count to three." | paddock chat --json
        """,
    )(run_chat_command)


async def run_chat_command(
    cli: CliContext,
    message: Annotated[str | None, typer.Argument(metavar="MESSAGE", help="First message.", show_default=False)] = None,
    kinds: Annotated[
        list[str] | None,
        typer.Option("--kind", metavar="KIND", help="Kind of sandbox that the agent may use; repeatable."),
    ] = None,
    agent: Annotated[
        str | None, typer.Option(metavar="NAME", help="Agent: langgraph, agentscope, claude-code …")
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="Model to use.")] = None,
    resume: Annotated[
        str | None, typer.Option("--resume", metavar="SESSION", help="Continue a session; `last` is the latest.")
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="KIND", help="Require no approval for this kind; `*` for all."),
    ] = None,
    network: Annotated[
        list[str] | None,
        typer.Option(
            "--network",
            metavar="RULE",
            help="Network policy of its sandboxes; repeatable. `default` restores that of each kind.",
        ),
    ] = None,
    attach: Annotated[
        list[str] | None, typer.Option("--attach", metavar="FILE", help="Attach a picture or file; repeatable.")
    ] = None,
    instructions: Annotated[str | None, typer.Option(metavar="TEXT", help="System instructions.")] = None,
    once: Annotated[bool, typer.Option("--print", "-p", help="Exit after one answer.")] = False,
) -> int:
    """Chat with an agent that works in sandboxes.

    If no server is running, a temporary one is started for this chat. Ctrl-C stops the agent, not the chat; Ctrl-D
    exits, and `--resume last` continues later. The agent reads lines typed while it works before its next step. In a
    pipe the command prints one answer; the exit code is then 0 on success, 3 if an approval is pending, 1 on failure.
    """
    from paddock.cli.chat.chat_conversation import run_chat_conversation

    if resume and (kinds or agent or instructions):
        raise UsageError(
            "--resume continues an existing session; --kind, --agent and --instructions are only for new ones"
        )
    interactive = sys.stdin.isatty() and sys.stdout.isatty() and not cli.as_json
    if not interactive:
        once = True
        message = message if message is not None else sys.stdin.read()
    if once and not (message or "").strip():
        raise UsageError("the message is empty", hint='for example: paddock chat "…"')
    options: dict[str, Any] = {"agent": agent, "model": model, "kinds": kinds, "instructions": instructions}
    settings = {name: value for name, value in options.items() if value}
    if network:
        settings["network"] = parse_chat_network(network)
    if allow:
        settings["policy"] = {"allow_all": allow}
    return await run_chat_conversation(
        cli, message, settings, resume=resume, attach=attach or [], once=once, interactive=interactive
    )
