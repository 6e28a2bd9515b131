from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from paddock.mcp.gateway.tool_names import aggregate_name, matches_pattern, server_prefix

SERVERS = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,62}", fullmatch=True)
TOOLS = st.text(min_size=1, max_size=150)


def test_plain_names_stay_readable() -> None:
    assert aggregate_name("tracker", "search_issues") == "tracker_search_issues"
    assert aggregate_name("web-search", "get") == "web-search_get"


def test_names_that_would_be_equal_stay_different() -> None:
    assert aggregate_name("a", "b_c") != aggregate_name("a_b", "c")
    assert server_prefix("a.b") != server_prefix("a_b") != server_prefix("a-b")
    assert aggregate_name("a", "x.y") != aggregate_name("a", "x_y")
    hashed = aggregate_name("a", "x.y").removeprefix("a_")
    assert aggregate_name("a", hashed) != aggregate_name("a", "x.y")


@given(SERVERS, TOOLS)
@example("a" * 63, "b" * 200)
@example("a", "\ud800")
def test_every_name_is_legal_in_all_model_apis(server: str, tool: str) -> None:
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", aggregate_name(server, tool))


@given(st.tuples(SERVERS, TOOLS), st.tuples(SERVERS, TOOLS))
def test_different_tools_have_different_names(first: tuple[str, str], second: tuple[str, str]) -> None:
    assert (aggregate_name(*first) == aggregate_name(*second)) == (first == second)


LETTERS = st.text("ab_-.", min_size=1, max_size=4)


@given(st.lists(st.tuples(LETTERS.map(lambda text: f"a{text}"), LETTERS), unique=True, max_size=60))
def test_similar_names_stay_different(pairs: list[tuple[str, str]]) -> None:
    assert len({aggregate_name(*pair) for pair in pairs}) == len(pairs)


def test_only_the_star_is_a_wildcard() -> None:
    assert matches_pattern("delete_all", ["delete_*"])
    assert not matches_pattern("deleteX", ["delete?"])
    assert matches_pattern("a[b]", ["a[b]"])
    assert not matches_pattern("undelete_all", ["delete_*"])
