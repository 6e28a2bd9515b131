"""What the agent may do by itself, and what a person is asked about."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from paddock.errors import InvalidInput
from paddock.model.sessions import Action, Policy, Rule
from paddock.model.words import WORKSPACE

ASK_USER = "ask_user"
_ASKED = ("command", "write")
_ANYTHING = "*"
_LONGEST_PATH = 4096
_HOMES = ("/home/agent", "/root")
_OTHER_COMMAND = r"[\n\r;&|`<>]|\$[({]|"
_LEADS_ON = re.compile(_OTHER_COMMAND + r"(?<![\w.])\.\.(?![\w.])")
"""What begins another command, or leads out of a directory. No `*` of a rule that allows stands for one of these."""
_WRITTEN = re.compile(_OTHER_COMMAND + r"(?<![\w.*?\0])\.\.(?![\w.*?\0])")
"""The same where a pattern has it in it, whatever its `*` and `?` stand for."""
_SET = re.compile(r"\[!?\]?[^\]]*\]")


class Subject(NamedTuple):
    """What a policy looks at in a call."""

    name: str
    tool: str
    kind: str | None
    effect: str
    arguments: Mapping[str, Any]


def judge(policy: Policy, subject: Subject) -> Action:
    """The first rule that fits decides; then what the call may change. In kinds that allow all, nothing is asked."""
    free = _ANYTHING in policy.allow_all or subject.kind in policy.allow_all
    if subject.kind is None and subject.tool == ASK_USER:
        return Action.DENY if denied(policy, subject) else Action.ASK
    place = _place(policy, subject, heed_asking=not free)
    if place is not None:
        return policy.rules[place].action
    asked = subject.kind is not None and subject.effect in _ASKED and not free
    return Action.ASK if asked else Action.ALLOW


def denied(policy: Policy, subject: Subject) -> bool:
    """Whether the rules forbid it, whoever allows it."""
    place = _place(policy, subject, heed_asking=False)
    return place is not None and policy.rules[place].action is Action.DENY


def allowed(policy: Policy, subject: Subject) -> bool:
    """Whether a rule allows it, so that nobody is asked."""
    place = _place(policy, subject, heed_asking=True)
    return place is not None and policy.rules[place].action is Action.ALLOW


def with_always(policy: Policy, subject: Subject, scope: Literal["call", "tool"]) -> Policy:
    """A policy that does not ask any more about this very call, or this tool. What it denies it goes on to deny.

    Raises `InvalidInput` where that cannot be said in rules.
    """
    rules = list(policy.rules)
    try:
        if scope == "call":
            written = {name: literal(as_text(value)) for name, value in subject.arguments.items()}
            place = _place(policy, subject, heed_asking=True)
            rules.insert(len(rules) if place is None else place, _allowing(subject, written, exact=True))
        else:
            rules = [each for rule in rules for each in (*_before(rule, subject), rule)]
            rules.append(_allowing(subject, {}))
        unique = tuple(rule for place, rule in enumerate(rules) if rule not in rules[:place])
        return Policy(rules=unique, allow_all=policy.allow_all)
    except ValidationError:
        raise InvalidInput(
            f"this cannot be allowed for always ({scope}): the arguments are too long for a rule, or there are too "
            "many rules; approve it without `always`, or change the session's policy"
        ) from None


def literal(text: str) -> str:
    """A pattern that only this text fits."""
    return re.sub(r"[*?\[]", r"[\g<0>]", text)


def as_text(value: Any) -> str:
    """An argument as patterns see it."""
    if isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _allowing(subject: Subject, arguments: Mapping[str, str], *, exact: bool = False) -> Rule:
    kind = _ANYTHING if subject.kind is None else literal(subject.kind)
    return Rule(tool=literal(subject.name), kind=kind, arguments=arguments, exact=exact, action=Action.ALLOW)


def _before(rule: Rule, subject: Subject) -> tuple[Rule, ...]:
    """What has to come before a rule that asks, so that it does not ask about this tool.

    It allows no more than the rule asked about, because rules after it may deny other calls of the tool.
    """
    if rule.action is not Action.ASK or not _names(rule, subject):
        return ()
    return (_allowing(subject, rule.arguments, exact=rule.exact),)


def _place(policy: Policy, subject: Subject, *, heed_asking: bool) -> int | None:
    for place, rule in enumerate(policy.rules):
        if (heed_asking or rule.action is not Action.ASK) and _fits(rule, subject):
            return place
    return None


def _fits(rule: Rule, subject: Subject) -> bool:
    if not _names(rule, subject) or (rule.exact and subject.arguments.keys() != rule.arguments.keys()):
        return False
    match = _allows if rule.action is Action.ALLOW else _catches
    return all(
        name in subject.arguments and match(subject.arguments[name], pattern)
        for name, pattern in rule.arguments.items()
    )


def _names(rule: Rule, subject: Subject) -> bool:
    if not fnmatchcase(subject.kind or "", rule.kind):
        return False
    return fnmatchcase(subject.name, rule.tool) or fnmatchcase(subject.tool, rule.tool)


def _allows(given: Any, pattern: str) -> bool:
    """Whether a value fits, and does nothing more than what fits: `ls *` is not `ls; rm -rf /`.

    Whatever leads on has to be in the pattern itself, once for each time; only a lone `*` stands for anything at all.
    """
    if pattern == _ANYTHING:
        return True
    value = as_text(given)
    written = _WRITTEN.findall(_SET.sub(_one, pattern))
    return _LEADS_ON.findall(value) == written and fnmatchcase(value, pattern)


def _one(found: re.Match[str]) -> str:
    """What a set in a pattern is sure to stand for: itself if it is of one character, otherwise nothing."""
    inside = found[0][1:-1]
    if inside in ("*", "?"):
        return "\1"
    return inside if len(inside) == 1 else "\0"


def _catches(given: Any, pattern: str) -> bool:
    """Whether a value fits as it is, or as the path that it comes to; of a list, whether one of its items does."""
    if fnmatchcase(as_text(given), pattern):
        return True
    if isinstance(given, list | tuple):
        return any(_catches(each, pattern) for each in given)
    if not isinstance(given, str) or "\n" in given or len(given) > _LONGEST_PATH:
        return False
    return any(fnmatchcase(path, pattern) for path in _paths(given))


def _paths(value: str) -> list[str]:
    """What a value may come to if it is a path: tools begin in the workspace, and `~` is a home."""
    user, _, rest = value.partition("/")
    meant = [f"{home}/{rest}" for home in _HOMES] if user.startswith("~") else [value, f"{WORKSPACE}/{value}"]
    if value.startswith("/"):
        meant = [value]
    return [re.sub("^//", "/", posixpath.normpath(each)) for each in meant]
