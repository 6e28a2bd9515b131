"""Completion of names without a real shell."""

from __future__ import annotations

from paddock.cli.framework.shell_completion import _LIST_PATHS


def test_list_requests_use_the_query_parameters_of_the_api() -> None:
    assert {path.partition("?")[2].partition("=")[0] for path in _LIST_PATHS.values()} == {"", "pageSize"}
