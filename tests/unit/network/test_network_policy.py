"""Network policies: accepted forms, canonical texts, and errors that name the rule and the fix."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.config.network_policy import (
    MAX_RULES,
    describe_network_policy,
    encode_host_name,
    normalize_network_policy,
    parse_network_rule,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ()),
        ("none", ()),
        ([], ()),
        ("open", ("allow open",)),
        (["web", "deny *.ads.example"], ("allow web", "deny *.ads.example")),
        ("pypi.org", ("allow pypi.org",)),
        ("PyPI.org.:443", ("allow pypi.org:443",)),
        ({"allow": ["a.example", "b.example"], "ports": 443}, ("allow a.example:443", "allow b.example:443")),
        ([{"deny": "10.0.0.0/8", "ports": [22, "80-90"]}], ("deny 10.0.0.0/8:22,80-90",)),
        ("allow 2001:db8::/32", ("allow 2001:db8::/32",)),
        ({"allow": "2001:db8::1", "ports": 443}, ("allow [2001:db8::1]:443",)),
        ("*:80,443", ("allow *:80,443",)),
        ("bücher.example", ("allow xn--bcher-kva.example",)),
        ("192.0.2.7", ("allow 192.0.2.7",)),
    ],
)
def test_accepted_forms_have_one_canonical_form(value: object, expected: tuple[str, ...]) -> None:
    assert normalize_network_policy(value) == expected
    assert normalize_network_policy(expected) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (["allow"], "'allow TARGET'"),
        ("foo bar baz", "'allow TARGET'"),
        ("api.*.example.com", r"put the wildcard before a whole name, such as \*.example.com"),
        ("10.0.0.1/8", "write 10.0.0.0/8"),
        ("example.com:https", "'https' must be ports such as 443"),
        ("example.com:0", "not a range of ports"),
        ("example.com:90-80", "not a range of ports"),
        ("1.2.3", "not a host name, an address or a network"),
        ("https://example.com", "not a host name|must be ports"),
        (["none"], "'none' stands alone"),
        ("all", "'all' is not one of none, open, web, packages and git; write a host as 'allow HOST'"),
        ({"allow": "a.example", "deny": "b.example"}, "one of 'allow' and 'deny'"),
        ({"alow": "a.example"}, "one of 'allow' and 'deny'"),
        (7, "must be none, open, web, packages, git"),
        (["a.example"] * (MAX_RULES + 1), f"a policy may have {MAX_RULES}"),
    ],
)
def test_errors_name_rule_and_fix(value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        normalize_network_policy(value)


@given(st.text(max_size=60))
def test_parsing_any_text_succeeds_or_raises_value_error(text: str) -> None:
    try:
        rule = parse_network_rule(text)
    except ValueError:
        return
    assert parse_network_rule(str(rule)) == rule


def test_policies_are_described_in_short_words() -> None:
    assert describe_network_policy(()) == "none"
    assert describe_network_policy(("allow packages", "deny a.example")) == "packages, deny a.example"


def test_host_names_are_encoded_to_ascii() -> None:
    assert encode_host_name("Exämple.COM.") == "xn--exmple-cua.com"
    assert encode_host_name("a b") is None
    assert encode_host_name("a" * 300) is None
