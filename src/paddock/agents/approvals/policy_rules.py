"""Policy rules: which calls are allowed, denied or need approval."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from paddock.errors import InvalidInput
from paddock.model.sessions import Policy, PolicyAction, PolicyRule
from paddock.model.task_fields import WORKSPACE

ASK_USER_TOOL = "ask_user"
_EFFECTS_THAT_ASK = ("command", "write")
NETWORK_EFFECT = "network"
"""Effect of calls that let a sandbox connect to a host. They need approval unless a rule allows them, also in kinds
whose calls need none."""
SERVER_EFFECT = "server"
"""Effect of tools of MCP servers that do not say that they change nothing. They need approval unless a rule, or the
permission for everything, allows them."""
_REASON_ARGUMENT = "reason"
_ANYTHING = "*"
_MAX_PATH_LENGTH = 4096
_HOMES = ("/home/agent", "/root")
_OTHER_COMMAND = r"[\n\r;&|`<>]|\$[({]|"
_CONTINUATIONS = re.compile(_OTHER_COMMAND + r"(?<![\w.])\.\.(?![\w.])")
"""Text that starts another command or leaves a directory; wildcards of allow rules never match it."""
_PATTERN_CONTINUATIONS = re.compile(_OTHER_COMMAND + r"(?<![\w.*?\0])\.\.(?![\w.*?\0])")
"""The same text within a pattern, where it may stand next to wildcards."""
_SET = re.compile(r"\[!?\]?[^\]]*\]")


class PolicySubject(NamedTuple):
    """The properties of a call that a policy is evaluated on."""

    name: str
    tool: str
    kind: str | None
    effect: str
    arguments: Mapping[str, Any]


def evaluate_policy(policy: Policy, subject: PolicySubject) -> PolicyAction:
    """Apply the first matching rule, otherwise the effect of the call; `allow_all` kinds need no approval."""
    allows_all = _ANYTHING in policy.allow_all or subject.kind in policy.allow_all
    if subject.kind is None and subject.tool == ASK_USER_TOOL:
        return PolicyAction.DENY if is_denied_by_policy(policy, subject) else PolicyAction.ASK
    index = _first_matching_rule(policy, subject, include_ask=not allows_all)
    if index is not None:
        return policy.rules[index].action
    needs_approval = subject.kind is not None and subject.effect in _EFFECTS_THAT_ASK and not allows_all
    needs_approval = needs_approval or subject.effect == NETWORK_EFFECT
    needs_approval = needs_approval or (subject.effect == SERVER_EFFECT and _ANYTHING not in policy.allow_all)
    return PolicyAction.ASK if needs_approval else PolicyAction.ALLOW


def is_denied_by_policy(policy: Policy, subject: PolicySubject) -> bool:
    """Return whether a rule denies the call, regardless of approvals."""
    index = _first_matching_rule(policy, subject, include_ask=False)
    return index is not None and policy.rules[index].action is PolicyAction.DENY


def is_call_allowed_by_policy(policy: Policy, subject: PolicySubject) -> bool:
    """Return whether a rule allows the call without approval."""
    index = _first_matching_rule(policy, subject, include_ask=True)
    return index is not None and policy.rules[index].action is PolicyAction.ALLOW


def add_always_rule(policy: Policy, subject: PolicySubject, scope: Literal["call", "tool"]) -> Policy:
    """Return a policy that always allows this exact call, or this tool; deny rules keep precedence.

    Raises `InvalidInput` if rules cannot express it.
    """
    rules = list(policy.rules)
    try:
        if scope == "call":
            patterns = {
                name: escape_policy_pattern(argument_as_text(value))
                for name, value in subject.arguments.items()
                if not (subject.effect == NETWORK_EFFECT and name == _REASON_ARGUMENT)
            }
            index = _first_matching_rule(policy, subject, include_ask=True)
            rules.insert(
                len(rules) if index is None else index,
                _allow_rule(subject, patterns, exact=subject.effect != NETWORK_EFFECT),
            )
        else:
            rules = [each for rule in rules for each in (*_allow_rules_before(rule, subject), rule)]
            rules.append(_allow_rule(subject, {}))
        unique = tuple(rule for index, rule in enumerate(rules) if rule not in rules[:index])
        return Policy(rules=unique, allow_all=policy.allow_all)
    except ValidationError:
        raise InvalidInput(
            f"this cannot always be allowed ({scope}): the arguments are too long for a rule, or there are too "
            "many rules; approve it without `always`, or change the session's policy"
        ) from None


def escape_policy_pattern(text: str) -> str:
    """Return a pattern that matches only this text."""
    return re.sub(r"[*?\[]", r"[\g<0>]", text)


def argument_as_text(value: Any) -> str:
    """Return an argument as the text that patterns are matched against."""
    if isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _allow_rule(subject: PolicySubject, arguments: Mapping[str, str], *, exact: bool = False) -> PolicyRule:
    kind = _ANYTHING if subject.kind is None else escape_policy_pattern(subject.kind)
    return PolicyRule(
        tool=escape_policy_pattern(subject.name), kind=kind, arguments=arguments, exact=exact, action=PolicyAction.ALLOW
    )


def _allow_rules_before(rule: PolicyRule, subject: PolicySubject) -> tuple[PolicyRule, ...]:
    """Return the allow rule to insert before a rule that asks about this tool.

    It allows no more than the rule asked about, because later rules may deny other calls of the tool.
    """
    if rule.action is not PolicyAction.ASK or not _rule_names_tool(rule, subject):
        return ()
    return (_allow_rule(subject, rule.arguments, exact=rule.exact),)


def _first_matching_rule(policy: Policy, subject: PolicySubject, *, include_ask: bool) -> int | None:
    for index, rule in enumerate(policy.rules):
        if (include_ask or rule.action is not PolicyAction.ASK) and _rule_matches(rule, subject):
            return index
    return None


def _rule_matches(rule: PolicyRule, subject: PolicySubject) -> bool:
    if not _rule_names_tool(rule, subject) or (rule.exact and subject.arguments.keys() != rule.arguments.keys()):
        return False
    match = _allow_pattern_matches if rule.action is PolicyAction.ALLOW else _deny_pattern_matches
    return all(
        name in subject.arguments and match(subject.arguments[name], pattern)
        for name, pattern in rule.arguments.items()
    )


def _rule_names_tool(rule: PolicyRule, subject: PolicySubject) -> bool:
    if not fnmatchcase(subject.kind or "", rule.kind):
        return False
    return fnmatchcase(subject.name, rule.tool) or fnmatchcase(subject.tool, rule.tool)


def _allow_pattern_matches(argument: Any, pattern: str) -> bool:
    """Match for allow rules, where wildcards do not match continuations: `ls *` does not match `ls; rm -rf /`.

    Every continuation must be in the pattern itself, as often as in the value; only a lone `*` matches everything.
    """
    if pattern == _ANYTHING:
        return True
    value = argument_as_text(argument)
    continuations = _PATTERN_CONTINUATIONS.findall(_SET.sub(_literal_part_of_set, pattern))
    return _CONTINUATIONS.findall(value) == continuations and fnmatchcase(value, pattern)


def _literal_part_of_set(match: re.Match[str]) -> str:
    """Return the character that a one-character set stands for; other sets stand for no known character."""
    characters = match[0][1:-1]
    if characters in ("*", "?"):
        return "\1"
    return characters if len(characters) == 1 else "\0"


def _deny_pattern_matches(argument: Any, pattern: str) -> bool:
    """Match for deny and ask rules: the value itself, its normalized path, or an item of a list."""
    if fnmatchcase(argument_as_text(argument), pattern):
        return True
    if isinstance(argument, list | tuple):
        return any(_deny_pattern_matches(each, pattern) for each in argument)
    if not isinstance(argument, str) or "\n" in argument or len(argument) > _MAX_PATH_LENGTH:
        return False
    return any(fnmatchcase(path, pattern) for path in _possible_paths(argument))


def _possible_paths(value: str) -> list[str]:
    """Return the absolute paths that a value may mean, relative to the workspace or a home directory."""
    user, _, rest = value.partition("/")
    candidates = [f"{home}/{rest}" for home in _HOMES] if user.startswith("~") else [value, f"{WORKSPACE}/{value}"]
    if value.startswith("/"):
        candidates = [value]
    return [re.sub("^//", "/", posixpath.normpath(each)) for each in candidates]
