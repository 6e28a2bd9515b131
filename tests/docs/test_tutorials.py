"""The commands of tutorials without screens."""

from __future__ import annotations

import pytest

from tests.docs.conftest import RunPage

pytestmark = pytest.mark.timeout(400)


def test_first_sandbox(run_page: RunPage) -> None:
    run_page("docs/tutorial/first-sandbox.md")


def test_first_model(run_page: RunPage) -> None:
    run_page("docs/tutorial/first-model.md")


def test_first_chat(run_page: RunPage) -> None:
    run_page("docs/tutorial/first-chat.md", "agent-base")


def test_first_task(run_page: RunPage) -> None:
    run_page("docs/tutorial/first-task.md", "agent-claude-code")
