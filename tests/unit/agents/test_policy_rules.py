"""Policy rules: which calls need no approval."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from paddock.agents.approvals.policy_rules import (
    PolicySubject,
    add_always_rule,
    escape_policy_pattern,
    evaluate_policy,
    is_denied_by_policy,
)
from paddock.errors import InvalidInput
from paddock.model.sessions import Policy, PolicyAction, PolicyRule

ALLOW, ASK, DENY = PolicyAction.ALLOW, PolicyAction.ASK, PolicyAction.DENY


def shell(command: str = "ls", **arguments: Any) -> PolicySubject:
    return PolicySubject(
        "linux_run_shell_command", "run_shell_command", "linux", "command", {"command": command, **arguments}
    )


def write(path: str) -> PolicySubject:
    return PolicySubject("linux_write_file", "write_file", "linux", "write", {"path": path, "content": "x"})


def read(path: str) -> PolicySubject:
    return PolicySubject("linux_read_file", "read_file", "linux", "none", {"path": path})


def own(tool: str, effect: str = "write") -> PolicySubject:
    return PolicySubject(tool, tool, None, effect, {})


def rules(*actions_and_fields: tuple[PolicyAction, dict[str, Any]], allow_all: tuple[str, ...] = ()) -> Policy:
    return Policy(
        rules=tuple(PolicyRule(action=action, **fields) for action, fields in actions_and_fields), allow_all=allow_all
    )


@pytest.mark.parametrize(
    ("subject", "action"),
    [
        (shell(), ASK),
        (write("/workspace/a"), ASK),
        (read("/etc/passwd"), ALLOW),
        (PolicySubject("linux_click", "click", "linux", "other", {"x": 1}), ALLOW),
        (own("move_between_sandboxes"), ALLOW),
        (own("ask_user", "none"), ASK),
    ],
)
def test_without_rules_commands_and_writes_need_approval(subject: PolicySubject, action: PolicyAction) -> None:
    assert evaluate_policy(Policy(), subject) is action


def test_first_matching_rule_decides() -> None:
    policy = rules((DENY, {"arguments": {"path": "/etc/*"}}), (ALLOW, {"tool": "write_file"}), (DENY, {}))
    assert evaluate_policy(policy, write("/etc/x")) is DENY
    assert evaluate_policy(policy, write("/tmp/x")) is ALLOW
    assert evaluate_policy(policy, shell()) is DENY


@pytest.mark.parametrize(
    "tool", ["run_shell_command", "linux_run_shell_command", "*shell*", "linux_*", "run_shell_comman?"]
)
def test_rule_names_tools_with_or_without_kind(tool: str) -> None:
    assert evaluate_policy(rules((ALLOW, {"tool": tool})), shell()) is ALLOW


def test_kinds_are_case_sensitive_patterns() -> None:
    assert evaluate_policy(rules((ALLOW, {"kind": "lin*"})), shell()) is ALLOW
    assert evaluate_policy(rules((ALLOW, {"kind": "Linux"})), shell()) is ASK
    assert evaluate_policy(rules((DENY, {"kind": "linux"})), own("update_plan")) is ALLOW


def test_arguments_named_by_rule_must_exist() -> None:
    assert evaluate_policy(rules((DENY, {"arguments": {"cwd": "*"}})), shell()) is ASK
    assert evaluate_policy(rules((DENY, {"arguments": {"cwd": "*"}})), shell(cwd="/")) is DENY


def test_non_text_arguments_are_compared_as_json() -> None:
    policy = rules((DENY, {"arguments": {"keys": '*"ctrl",*'}}))
    assert evaluate_policy(policy, PolicySubject("a", "a", "linux", "other", {"keys": ["ctrl", "c"]})) is DENY
    assert evaluate_policy(policy, PolicySubject("a", "a", "linux", "other", {"keys": ["alt"]})) is ALLOW


def test_allow_all_skips_approval_but_not_deny_rules() -> None:
    for allow_all in (("linux",), ("*",)):
        policy = rules((ASK, {}), (DENY, {"arguments": {"command": "rm *"}}), allow_all=allow_all)
        assert evaluate_policy(policy, shell("make")) is ALLOW
        assert evaluate_policy(policy, shell("rm -rf /")) is DENY
    elsewhere = Policy(allow_all=("browser",))
    assert evaluate_policy(elsewhere, shell()) is ASK


def network_access(host: str = "pypi.org", reason: str = "to install") -> PolicySubject:
    arguments = {"kind": "code", "host": host, "port": 443, "reason": reason}
    return PolicySubject("request_network_access", "request_network_access", None, "network", arguments)


def test_network_access_needs_approval_unless_a_rule_allows_it() -> None:
    assert evaluate_policy(Policy(), network_access()) is ASK
    assert evaluate_policy(Policy(allow_all=("*",)), network_access()) is ASK
    assert evaluate_policy(rules((DENY, {"tool": "request_network_access"})), network_access()) is DENY


def test_network_access_is_always_allowed_by_host_whatever_the_reason() -> None:
    policy = add_always_rule(Policy(), network_access(), "call")
    assert evaluate_policy(policy, network_access(reason="for another package")) is ALLOW
    assert evaluate_policy(policy, network_access(host="example.com")) is ASK


def test_question_always_needs_answer_unless_denied() -> None:
    assert evaluate_policy(Policy(allow_all=("*",)), own("ask_user")) is ASK
    assert evaluate_policy(rules((ALLOW, {})), own("ask_user")) is ASK
    assert evaluate_policy(rules((DENY, {"tool": "ask_user"})), own("ask_user")) is DENY


@pytest.mark.parametrize(
    "command",
    [
        "ls; rm -rf /",
        "ls && rm x",
        "ls & rm x",
        "ls | sh",
        "ls `rm x`",
        "ls $(rm x)",
        "ls ${x@P}",
        "ls > /etc/passwd",
        "ls < x",
        "ls \nrm x",
        "ls \rrm x",
        "ls ../../etc",
        "ls ..",
        "ls '../x'",
    ],
)
def test_allow_wildcards_do_not_match_further_commands(command: str) -> None:
    for pattern in ("ls *", "ls*", "l[s] *", "ls ?*", "ls [!a]*"):
        assert evaluate_policy(rules((ALLOW, {"arguments": {"command": pattern}})), shell(command)) is ASK
    assert evaluate_policy(rules((ALLOW, {"arguments": {"command": "*"}})), shell(command)) is ALLOW
    assert evaluate_policy(rules((DENY, {"arguments": {"command": "ls*"}})), shell(command)) is DENY


def test_continuations_must_be_in_the_pattern_itself() -> None:
    policy = rules((ALLOW, {"arguments": {"command": "cd /workspace && make *"}}))
    assert evaluate_policy(policy, shell("cd /workspace && make all")) is ALLOW
    assert evaluate_policy(policy, shell("cd /workspace && make all && rm x")) is ASK
    assert evaluate_policy(rules((ALLOW, {"arguments": {"command": "echo $*"}})), shell("echo $(rm x)")) is ASK
    assert evaluate_policy(rules((ALLOW, {"arguments": {"command": "echo *(*"}})), shell("echo $(rm x)")) is ASK
    assert evaluate_policy(rules((ALLOW, {"arguments": {"command": "a[;&]*"}})), shell("a;&rm")) is ASK
    assert (
        evaluate_policy(rules((ALLOW, {"arguments": {"command": "cat /a/..*"}})), shell("cat /a/..x/../../etc")) is ASK
    )
    assert evaluate_policy(rules((ALLOW, {"arguments": {"command": "cat ../*"}})), shell("cat ../a")) is ALLOW


def test_plain_values_match_allow_pattern() -> None:
    policy = rules((ALLOW, {"arguments": {"command": "ls *"}}))
    for command in ("ls -l", "ls /a/b..c", "ls $HOME 'a b' ...", "ls "):
        assert evaluate_policy(policy, shell(command)) is ALLOW


def test_dot_segments_do_not_leave_allowed_directory() -> None:
    policy = rules((ALLOW, {"arguments": {"path": "/workspace/*"}}), (DENY, {"arguments": {"path": "/etc/*"}}))
    assert evaluate_policy(policy, write("/workspace/a/b")) is ALLOW
    for path in ("/workspace/../root/x", "/workspace/a/..", "/workspace/..\\x"):
        assert evaluate_policy(policy, write(path)) is ASK
    for path in ("/workspace/../etc/passwd", "/workspace/../../etc/passwd", "//etc/passwd", "/./etc//passwd"):
        assert evaluate_policy(policy, read(path)) is DENY, path


def test_always_for_a_call_allows_only_that_call() -> None:
    policy = add_always_rule(Policy(), shell("rm *.[ch] ?; ls"), "call")
    assert evaluate_policy(policy, shell("rm *.[ch] ?; ls")) is ALLOW
    for other in ("rm a.c ?; ls", "rm *.[ch] x; ls", "rm *.c ?; ls", "rm *.[ch] ?; ls "):
        assert evaluate_policy(policy, shell(other)) is ASK
    assert evaluate_policy(policy, shell("rm *.[ch] ?; ls", cwd="/")) is ASK
    assert (
        evaluate_policy(
            policy, PolicySubject("code_run_shell_command", "run_shell_command", "code", "command", shell().arguments)
        )
        is ASK
    )


def test_always_for_a_call_without_arguments_is_not_for_the_tool() -> None:
    reset = PolicySubject("linux_reset", "reset", "linux", "command", {})
    policy = add_always_rule(Policy(), reset, "call")
    assert evaluate_policy(policy, reset) is ALLOW
    assert evaluate_policy(policy, reset._replace(arguments={"force": True})) is ASK


def test_always_for_a_tool_keeps_deny_rules() -> None:
    policy_before = rules(
        (ASK, {"tool": "*shell*", "arguments": {"command": "git *"}}),
        (DENY, {"arguments": {"command": "rm *"}}),
        (ASK, {"kind": "linux"}),
        (DENY, {"tool": "write_file"}),
    )
    policy = add_always_rule(policy_before, shell("git push"), "tool")
    for command in ("git push", "make"):
        assert evaluate_policy(policy, shell(command)) is ALLOW
    assert evaluate_policy(policy, shell("git log; rm x")) is ASK
    assert evaluate_policy(policy, shell("rm x")) is DENY
    assert evaluate_policy(policy, write("/a")) is ASK
    assert add_always_rule(policy, shell("make"), "tool") == policy


def test_always_names_the_tool_literally() -> None:
    star = PolicySubject("linux_a*", "a*", "linux", "command", {})
    policy = add_always_rule(Policy(), star, "tool")
    assert evaluate_policy(policy, star) is ALLOW
    assert evaluate_policy(policy, star._replace(name="linux_ab", tool="ab")) is ASK


def test_too_long_arguments_and_too_many_rules_are_refused() -> None:
    with pytest.raises(InvalidInput, match="without `always`"):
        add_always_rule(Policy(), shell("x" * 1001), "call")
    full = Policy(rules=tuple(PolicyRule(tool=f"t{n}", action=ASK) for n in range(200)))
    with pytest.raises(InvalidInput, match="too many rules"):
        add_always_rule(full, shell(), "tool")


VALUES = st.text(st.sampled_from("ab*?[]!-;&|$(){}./\\\n`<> "), max_size=12)


@given(VALUES, VALUES)
def test_escaped_pattern_matches_one_text_only(value: str, other: str) -> None:
    policy = Policy(rules=(PolicyRule(arguments={"command": escape_policy_pattern(value)}, action=ALLOW),))
    assert evaluate_policy(policy, shell(value)) is ALLOW
    assume(other != value)
    assert evaluate_policy(policy, shell(other)) is ASK


@given(
    st.lists(
        st.builds(
            PolicyRule,
            tool=st.sampled_from(["*", "run_*", "write_file"]),
            action=st.sampled_from(PolicyAction),
            arguments=st.dictionaries(st.sampled_from(["command", "path"]), VALUES, max_size=1),
        ),
        max_size=5,
    ),
    VALUES,
    VALUES,
)
def test_always_for_a_tool_never_allows_denied_calls(
    policy_rules: list[PolicyRule], approved: str, candidate: str
) -> None:
    policy = Policy(rules=tuple(policy_rules))
    assume(evaluate_policy(policy, shell(approved)) is ASK)
    extended = add_always_rule(policy, shell(approved), "tool")
    if evaluate_policy(policy, shell(candidate)) is DENY:
        assert evaluate_policy(extended, shell(candidate)) is DENY
    assert (
        is_denied_by_policy(policy, shell(candidate)) == is_denied_by_policy(extended, shell(candidate))
        or evaluate_policy(policy, shell(candidate)) is ASK
    )


@pytest.mark.parametrize(
    ("policy", "action"),
    [
        (Policy(), PolicyAction.ASK),
        (Policy(allow_all=("code",)), PolicyAction.ASK),
        (Policy(allow_all=("*",)), PolicyAction.ALLOW),
        (Policy(rules=(PolicyRule(action=PolicyAction.ALLOW, tool="tracker_*"),)), PolicyAction.ALLOW),
        (Policy(rules=(PolicyRule(action=PolicyAction.DENY, tool="tracker_*"),)), PolicyAction.DENY),
    ],
)
def test_tools_of_mcp_servers_need_approval_unless_everything_is_allowed(policy: Policy, action: PolicyAction) -> None:
    assert evaluate_policy(policy, PolicySubject("tracker_add", "add", None, "server", {})) is action
    assert evaluate_policy(Policy(), PolicySubject("tracker_look", "look", None, "none", {})) is PolicyAction.ALLOW
