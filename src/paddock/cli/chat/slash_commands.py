"""Slash commands of `paddock chat` that show or change the session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddock.cli.chat.rule_commands import run_rules_command
from paddock.cli.chat.session_commands import session_api_path
from paddock.cli.connection.reconnecting_client import ReconnectingClient
from paddock.cli.framework.option_parsing import parse_chat_network
from paddock.cli.output.errors import RequestRefused
from paddock.cli.output.formatting import format_cost
from paddock.config.network_policy import describe_network_policy
from paddock.errors import SandboxNotFound

SLASH_COMMAND_HELP = """\
Type a message. While the agent works, it reads lines you type before its next step, and Ctrl-C stops it.
  /continue   continue where the agent was stopped
  /model NAME switch the model from the next step on; without a name, show the model
  /network P  change the network policy: default (of each kind), none, packages, git, web, open, or rules
              separated by semicolons; without a policy, show it
  /rules      show and change which calls need your approval
  /sandboxes  the session's sandboxes
  /usage      requests, tokens and cost so far
  /title TEXT set the session's title
  /quit       exit (or Ctrl-D); continue later with: paddock chat --resume last"""


async def run_slash_command(client: ReconnectingClient, session: str, command: str, argument: str) -> str | None:
    """Run a slash command and return its output; None if `command` is not one of these commands."""
    match command:
        case "/model" if argument:
            changed = await client.request_json("PATCH", session_api_path(session), json={"model": argument})
            return f"the model is {changed['model']} from the next step on"
        case "/model":
            found = await client.request_json("GET", session_api_path(session))
            return f"the model is {found['model']}; /model NAME changes it, and paddock llm list shows which there are"
        case "/network":
            return await _run_network_command(client, session, argument)
        case "/rules":
            return await run_rules_command(client, session, argument)
        case "/sandboxes":
            return await _list_sandboxes(client, await client.request_json("GET", session_api_path(session)))
        case "/usage":
            return format_session_usage(await client.request_json("GET", session_api_path(session)))
    return None


def format_session_usage(session: Mapping[str, Any]) -> str:
    usage = session.get("usage") or {}
    spent, budget = usage.get("input_tokens", 0) + usage.get("output_tokens", 0), session.get("budget")
    parts = [
        f"{usage.get('requests', 0):,} requests",
        f"{usage.get('input_tokens', 0):,} tokens in, {usage.get('output_tokens', 0):,} out",
        format_cost(usage.get("cost")) or "unknown cost",
    ]
    if budget:
        parts.append(f"{spent:,} of {budget:,} tokens of the budget")
    return "; ".join(parts)


async def _run_network_command(client: ReconnectingClient, session: str, argument: str) -> str:
    """Show the network policy of a session, or change it to rules that are separated by semicolons."""
    path = session_api_path(session)
    if argument:
        body = {"network": parse_chat_network(argument.split(";"))}
        changed = await client.request_json("PATCH", path, json=body)
        return f"the network policy is {_describe_network(changed)}; running sandboxes have it at once"
    found = await client.request_json("GET", path)
    return f"the network policy is {_describe_network(found)}; /network POLICY changes it"


def _describe_network(session: Mapping[str, Any]) -> str:
    policy = session.get("network")
    return "the default of each kind" if policy is None else describe_network_policy(policy)


async def _list_sandboxes(client: ReconnectingClient, session: Mapping[str, Any]) -> str:
    sandboxes: Mapping[str, str] = session.get("sandboxes") or {}
    kinds = list(dict.fromkeys([*session.get("kinds", ()), *sandboxes]))
    if not kinds:
        return "this session uses no sandboxes"
    rows = [(kind, sandboxes.get(kind, ""), await _find_sandbox_state(client, sandboxes.get(kind))) for kind in kinds]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return "\n".join(f"{kind:{widths[0]}}  {sandbox:{widths[1]}}  {state}".rstrip() for kind, sandbox, state in rows)


async def _find_sandbox_state(client: ReconnectingClient, sandbox: str | None) -> str:
    if sandbox is None:
        return "not started yet"
    try:
        sandbox_document = await client.request_json("GET", f"/v1/sandboxes/{sandbox}")
    except RequestRefused as error:
        if error.server_code == SandboxNotFound.code:
            return "removed; the next call creates a new one"
        raise
    return str(sandbox_document["status"]["state"])
