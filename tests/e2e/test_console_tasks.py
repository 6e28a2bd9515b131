"""Tasks in the console on a fresh server: templates, the form, and runs that cannot start."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.browser import chromium
from tests.e2e.consoles import Visitor, visitor
from tests.serving import Server, serving

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {"sandboxes": {"min_free_disk": 0}, "llm": {"environment": False}}
    with serving(tmp_path_factory.mktemp("paddock"), settings) as running:
        yield running


@pytest.fixture(scope="module")
def browser(server: Server) -> Iterator[Browser]:
    with chromium() as made:
        yield made


def open_page(person: Visitor, path: str) -> None:
    person.sign_in(path)
    expect(person.page.get_by_role("heading", level=1)).to_be_visible()


def test_a_template_runs_with_one_click(browser: Browser, server: Server) -> None:
    with visitor(browser, server) as person:
        open_page(person, "/tasks")
        expect(person.button("runs.templates.buildAndRunNamed", name="hello")).to_be_visible()
        expect(person.page.get_by_text("agent-claude-code").first).to_be_visible()
        person.button("runs.tasks.runNamed", name="hello-script").click()
        person.page.wait_for_url(re.compile("/runs/run-"))
        expect(person.page.get_by_text(person.t("runs.state.succeeded")).first).to_be_visible(timeout=60_000)
        person.page.get_by_role("tab", name=re.compile(person.t("runs.tab.deliverables"))).click()
        expect(person.page.get_by_text("counts.txt").first).to_be_visible()
        person.is_content()


def test_the_form_says_what_is_missing_when_it_is_asked(browser: Browser, server: Server) -> None:
    with visitor(browser, server) as person:
        open_page(person, "/tasks/new")
        goal = person.page.get_by_role("textbox", name=person.t("runs.field.goal"))
        start = person.button("runs.form.start")
        expect(person.page.get_by_text(person.t("runs.form.incomplete"))).to_be_visible()
        expect(person.page.get_by_text(person.t("runs.form.needsGoal"))).to_have_count(0)
        expect(start).to_be_enabled()
        start.click()
        expect(person.page.get_by_text(person.t("runs.form.needsGoal")).first).to_be_visible()
        expect(goal).to_be_focused()
        goal.fill("Read sales.csv.")
        # Without a model it is never "Ready to run".
        issues = person.page.get_by_role("list", name=person.t("runs.form.issues"))
        expect(issues.get_by_text(person.t("runs.issue.NO_MODEL"))).to_be_visible()
        expect(person.page.get_by_text(person.t("runs.form.notReady"))).to_be_visible()
        expect(person.page.get_by_text(person.t("runs.form.valid"), exact=True)).to_have_count(0)
        start.click()
        expect(person.page).to_have_url(re.compile("/tasks/new$"))
        person.check_access("the form")
        issues.get_by_role("link", name=person.t("runs.form.toModels")).click()
        expect(person.page).to_have_url(re.compile("/settings/models"))
        person.is_content()


def test_a_template_in_the_form_runs_on_its_script(browser: Browser, server: Server) -> None:
    with visitor(browser, server) as person:
        open_page(person, "/tasks/new?template=fix-bug")
        expect(person.page.get_by_text(person.t("runs.form.valid"))).to_be_visible()
        expect(person.page.get_by_text(person.t("runs.issue.SCRIPT_ANSWERS"))).to_be_visible()
        person.is_content()


def test_why_a_run_could_not_start_is_told_in_chinese(browser: Browser, server: Server) -> None:
    task = {"name": "no-model", "goal": "x", "image": "host", "entrypoint": "true", "llm": "claude-sonnet-4-5"}
    with server.client() as client:
        run = client.post("/v1/runs", json={"task": task}).raise_for_status().json()["runs"][0]["id"]
    with visitor(browser, server, language="zh", width=390) as person:
        open_page(person, f"/runs/{run}")
        expect(person.page.get_by_text("没有名为“claude-sonnet-4-5”的模型")).to_be_visible()
        expect(person.page.get_by_text("There is no model")).to_have_count(0)
        stages = person.page.get_by_role("list", name=person.t("runs.stages"))
        expect(stages.get_by_text(person.t("runs.skipped"))).to_have_count(7)
        person.check_access("a run that could not start")
        person.page.get_by_role("link", name=person.t("runs.form.toModels")).click()
        expect(person.page).to_have_url(re.compile("/settings/models"))
        person.is_content()


def test_a_small_screen_leads_home_and_names_what_sandboxes_belong_to(browser: Browser, server: Server) -> None:
    metadata = {"paddock.run": "run-0000000000000001", "paddock.task": "hello"}
    asked = {"image": {"uri": "host"}, "timeout": 600, "metadata": metadata}
    with server.client() as client:
        box = client.post("/v1/sandboxes", json=asked).raise_for_status().json()["id"]
    with visitor(browser, server, width=390) as person:
        open_page(person, "/sandboxes")
        row = person.page.get_by_role("row").filter(has_text=box)
        expect(row.get_by_role("link", name=person.t("sandboxes.owners.run"))).to_be_visible()
        expect(row.get_by_text("hello").first).to_be_visible()
        person.page.get_by_role("button", name=person.t("common.more")).click()
        expect(person.page.get_by_role("menuitem", name=person.t("shell.places.tasks"))).to_be_visible()
        person.page.get_by_role("menuitem").first.click()
        expect(person.page).to_have_url(f"{server.url}/")
        person.is_content()
    with server.client() as client:
        client.delete(f"/v1/sandboxes/{box}").raise_for_status()


def test_example_cards_set_up_what_they_need(browser: Browser, server: Server) -> None:
    with visitor(browser, server) as person:
        open_page(person, "/chats")
        person.page.get_by_text(person.t("chat.example.desktop.title")).click()
        expect(person.page.get_by_role("button", name=re.compile("linux"))).to_be_visible()
        person.page.get_by_text(person.t("chat.example.data.title")).click()
        attached = person.page.get_by_role("list", name=person.t("chat.attached"))
        expect(attached.get_by_text("visitors.csv")).to_be_visible()
        person.page.get_by_text(person.t("chat.example.page.title")).click()
        expect(attached).to_have_count(0)
        person.is_content()
