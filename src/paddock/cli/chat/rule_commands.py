"""The command `/rules` of `paddock chat`: shows and changes the session's approval rules."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from paddock.cli.chat.approval_prompt import escape_invisible_characters
from paddock.cli.chat.session_commands import session_api_path
from paddock.cli.connection.reconnecting_client import ReconnectingClient
from paddock.cli.output.errors import UsageError

RULE_HELP = """\
/rules allow|ask|deny TOOL [ARGUMENT=PATTERN …]   add a rule before the others
/rules allow all [KIND]                           approve all calls in sandboxes of a kind
/rules remove NUMBER                              remove a rule of the list
for example: /rules allow run_shell_command command='git status*'"""
_DEFAULT = "Without a matching rule, commands and file changes need your approval, and everything else is allowed."
_ACTIONS = ("allow", "ask", "deny")
_ALL = "all"


async def run_rules_command(client: ReconnectingClient, session: str, arguments: str) -> str:
    """Show the rules of a session, or change them. Raises `UsageError` for a wrong change."""
    policy = (await client.request_json("GET", session_api_path(session))).get("policy") or {}
    if not arguments:
        return f"{_list_rules(policy)}\n{_DEFAULT}\n{RULE_HELP}"
    policy_after = change_policy_rules(policy, arguments)
    session_after = await client.request_json("PATCH", session_api_path(session), json={"policy": policy_after})
    return f"{_list_rules(session_after.get('policy') or {})}\nThis applies from the next call."


def change_policy_rules(policy: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Return a policy with one change, written as in `RULE_HELP`. Raises `UsageError`."""
    try:
        action, *words = shlex.split(text)
    except ValueError:
        raise UsageError("a quotation mark is not closed", hint=RULE_HELP) from None
    rules, kinds = list(policy.get("rules") or ()), list(policy.get("allow_all") or ())
    if action == "remove" and len(words) == 1:
        number = int(words[0]) - 1 if words[0].isdecimal() else -1
        if not 0 <= number < len(rules) + len(kinds):
            raise UsageError(f"there is no rule {words[0]}", hint="/rules lists them with their numbers")
        if number < len(rules):
            del rules[number]
        else:
            del kinds[number - len(rules)]
    elif action == "allow" and words[:1] == [_ALL] and len(words) <= 2:
        kind = words[1] if len(words) == 2 else "*"
        kinds = ["*"] if kind == "*" else [*(each for each in kinds if each != kind), kind]
    elif action in _ACTIONS and words and words[0] != _ALL:
        tool, *pairs = words
        if invalid_pair := next((pair for pair in pairs if not pair.partition("=")[0] or "=" not in pair), None):
            raise UsageError(f"{invalid_pair} is not ARGUMENT=PATTERN", hint=RULE_HELP)
        arguments = {name: pattern for name, _, pattern in (pair.partition("=") for pair in pairs)}
        rule = {"tool": tool, "kind": "*", "arguments": arguments, "exact": False, "action": action}
        rules = [rule, *(each for each in rules if {**each, "action": action} != rule)]
    else:
        raise UsageError(f"/rules {action} is not a change of rules", hint=RULE_HELP)
    return {"rules": rules, "allow_all": kinds}


def _list_rules(policy: Mapping[str, Any]) -> str:
    lines = [(str(rule["action"]), _describe_rule(rule)) for rule in policy.get("rules") or ()]
    for kind in policy.get("allow_all") or ():
        lines.append(("allow", "all calls" if kind == "*" else f"all calls in sandboxes of kind {kind}"))
    if not lines:
        return "This session has no rules."
    numbered = (f"{number}. {action:5}  {text}" for number, (action, text) in enumerate(lines, 1))
    return "\n".join(escape_invisible_characters(line, "") for line in numbered)


def _describe_rule(rule: Mapping[str, Any]) -> str:
    words = [str(rule.get("tool") or "*")]
    words += [shlex.quote(f"{name}={pattern}") for name, pattern in (rule.get("arguments") or {}).items()]
    if rule.get("exact"):
        words.append("(no other arguments)")
    if (kind := rule.get("kind") or "*") != "*":
        words.append(f"in sandboxes of kind {kind}")
    return " ".join(words)
