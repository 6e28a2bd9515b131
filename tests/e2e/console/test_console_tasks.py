"""Tasks in the console of a new server: templates, the form, and runs that cannot start."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.e2e.browser_pages import run_chromium
from tests.e2e.console.console_visitor import ConsoleVisitor, open_visitor
from tests.support.server import Server, run_server

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {"sandboxes": {"min_free_disk": 0}, "llm": {"environment": False}}
    with run_server(tmp_path_factory.mktemp("paddock"), settings) as running:
        yield running


@pytest.fixture(scope="module")
def server_with_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a model besides the demo."""
    directory = tmp_path_factory.mktemp("with-model")
    script = directory / "model.yaml"
    script.write_text(json.dumps({"turns": [{"say": "Hello."}]}))
    llm = {"providers": {"own": {"kind": "script", "file": str(script)}}, "models": {"own-model": "own"}}
    with run_server(directory, {"sandboxes": {"min_free_disk": 0}, "llm": llm}) as running:
        yield running


@pytest.fixture(scope="module")
def browser(server: Server) -> Iterator[Browser]:
    with run_chromium() as chromium:
        yield chromium


def sign_in_to_page(person: ConsoleVisitor, path: str) -> None:
    person.sign_in(path)
    expect(person.page.get_by_role("heading", level=1)).to_be_visible()


def test_template_runs_with_one_click(browser: Browser, server: Server) -> None:
    with open_visitor(browser, server) as person:
        sign_in_to_page(person, "/tasks")
        expect(person.button("runs.templates.buildAndRunNamed", name="hello")).to_be_visible()
        expect(person.page.get_by_text("agent-claude-code").first).to_be_visible()
        person.button("runs.tasks.runNamed", name="hello-script").click()
        person.page.wait_for_url(re.compile("/runs/run-"))
        expect(person.page.get_by_text(person.t("runs.state.succeeded")).first).to_be_visible(timeout=60_000)
        person.page.get_by_role("tab", name=re.compile(person.t("runs.tab.deliverables"))).click()
        expect(person.page.get_by_text("counts.txt").first).to_be_visible()
        person.assert_no_errors()


def test_form_names_missing_fields_on_submit(browser: Browser, server: Server) -> None:
    with open_visitor(browser, server) as person:
        sign_in_to_page(person, "/tasks/new")
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
        person.check_accessibility("the form")
        issues.get_by_role("link", name=person.t("runs.form.toModels")).click()
        expect(person.page).to_have_url(re.compile("/settings/models"))
        person.assert_no_errors()


def test_form_offers_agents_of_the_server(browser: Browser, server: Server) -> None:
    with server.client() as client:
        agents = [each["name"] for each in client.get("/v1/server").raise_for_status().json()["agents"]["tasks"]]
    assert "claude-code" in agents
    with open_visitor(browser, server) as person:
        sign_in_to_page(person, "/tasks/new")
        field = person.page.get_by_role("combobox", name=person.t("runs.field.agent"))
        expect(field.get_by_role("option", name="claude-code")).to_have_count(1)
        values = field.get_by_role("option").evaluate_all("options => options.map(each => each.value)")
        assert values == ["", *agents]
        person.assert_no_errors()


def test_form_offers_models_kinds_and_images_of_the_server(browser: Browser, server_with_model: Server) -> None:
    with server_with_model.client() as client:
        facts = client.get("/v1/server").raise_for_status().json()
        images = client.get("/v1/images").raise_for_status().json()
    models = [each["name"] for each in facts["models"]["items"]]
    kinds = [each["name"] for each in facts["kinds"]]
    known = sorted({*(each["name"] for each in images["items"]), *images["known"]})
    assert "own-model" in models and "code" in kinds and "host" in known
    with open_visitor(browser, server_with_model) as person:
        sign_in_to_page(person, "/tasks/new")
        person.page.get_by_text(person.t("runs.form.more")).click()
        editor = person.page.get_by_role("textbox", name=person.t("runs.form.yaml"))

        def chooser(name: str) -> Locator:
            return person.page.get_by_role("combobox", name=person.t(f"runs.field.{name}"), exact=True)

        def values(name: str) -> list[str]:
            found = chooser(name).get_by_role("option").evaluate_all("options => options.map(each => each.value)")
            return [value for value in found if value.strip() == value and value]

        for name, expected, chosen in (
            ("llm_model", models, "own-model"),
            ("kind", kinds, "code"),
            ("image", known, "host"),
        ):
            expect(chooser(name).locator(f"option[value={expected[0]!r}]")).to_have_count(1)
            assert values(name) == expected
            if name == "image":
                chooser("kind").select_option("")
            chooser(name).select_option(chosen)
            expect(editor).to_have_value(re.compile(f"{name.removeprefix('llm_')}: {chosen}"))
        # A name that is not in the list can be typed, and the list comes back.
        chooser("image").select_option(label=person.t("runs.form.other"))
        typed = person.page.get_by_role("textbox", name=person.t("runs.field.image"), exact=True)
        typed.fill("docker.io/library/debian:trixie")
        expect(editor).to_have_value(re.compile("image: docker.io/library/debian:trixie"))
        person.button("runs.form.fromList").click()
        expect(chooser("image")).to_have_value("docker.io/library/debian:trixie")
        person.assert_no_errors()


def test_form_explains_wrong_values_in_chinese(browser: Browser, server: Server) -> None:
    with open_visitor(browser, server, language="zh") as person:
        sign_in_to_page(person, "/tasks/new")
        editor = person.page.get_by_role("textbox", name=person.t("runs.form.yaml"))
        editor.fill("goal: 阅读 sales.csv\nimage: host\nentrypoint: 'true'\nend: {timeout: zz}\nfrobnicate: 1\n")
        expect(person.page.get_by_text("'zz' 不是时长").first).to_be_visible()
        expect(person.page.get_by_text("is not a duration")).to_have_count(0)
        expect(person.page.get_by_text("没有此项").first).to_be_visible()
        shown = person.page.get_by_role("main").inner_text()
        assert not re.search(r"\b[a-z]+ [a-z]+ [a-z]+ [a-z]+\b", shown), shown
        person.assert_no_errors()


def test_task_and_provider_errors_are_shown_in_chinese(browser: Browser, tmp_path: Path) -> None:
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    (tasks / "broken.yaml").write_text("name: broken\ngoal: x\nagent: nobody\nend: {timeout: zz}\nfrobnicate: 1\n")
    (tasks / "unreadable.yaml").write_text("name: [a\n")
    far = {"kind": "openai", "key": "k", "base_url": "http://127.0.0.1:9", "retries": 0}
    settings = {
        "sandboxes": {"min_free_disk": 0, "max_limits": {"memory": "8Gi"}},
        "runs": {"tasks": str(tasks)},
        "llm": {"environment": False, "providers": {"far": far}, "models": {"gpt-5": "far"}},
    }
    latin_words = re.compile(r"\b[a-z]+ [a-z]+ [a-z]+ [a-z]+\b")
    with run_server(tmp_path, settings) as running, open_visitor(browser, running, language="zh") as person:
        sign_in_to_page(person, "/tasks")
        card = person.page.get_by_role("listitem").filter(has=person.page.get_by_role("heading", name="broken.yaml"))
        expect(card.get_by_role("listitem")).to_have_count(3)
        expect(card).to_contain_text("第 3 行: agent: 没有智能体 nobody")
        expect(card).to_contain_text("第 4 行: end.timeout: 'zz' 不是时长")
        expect(card).to_contain_text("没有此项")
        assert not latin_words.search(card.inner_text()), card.inner_text()
        expect(person.page.get_by_text(re.compile("YAML 无效"))).to_be_visible()
        person.check_accessibility("broken tasks")

        person.open_path("/tasks/new")
        editor = person.page.get_by_role("textbox", name=person.t("runs.form.yaml"))
        editor.fill("name: a\ngoal: 看\nimage: host\nentrypoint: 'true'\nllm: gpt-5\nresources: {memory: 9Gi}\n")
        expect(person.page.get_by_text("服务器允许的上限为 8Gi").first).to_be_visible()
        editor.fill("name: a\ngoal: 看\nimage: host\nentrypoint: 'true'\nllm: gpt-5\n")
        issues = person.page.get_by_role("list", name=person.t("runs.form.issues"))
        expect(issues).to_contain_text("未能连通提供方 far")
        expect(issues).to_contain_text("请检查其地址 http://127.0.0.1:9")
        issues.get_by_role("link", name=person.t("runs.form.toModels")).click()
        badge = person.page.get_by_text(person.t("shell.provider.unreached")).first
        expect(badge).to_have_attribute("title", re.compile("^无法连接.+请检查其地址"))
        person.assert_no_errors()


def test_template_form_is_valid_with_its_script(browser: Browser, server: Server) -> None:
    with open_visitor(browser, server) as person:
        sign_in_to_page(person, "/tasks/new?template=fix-bug")
        expect(person.page.get_by_text(person.t("runs.form.valid"))).to_be_visible()
        expect(person.page.get_by_text(person.t("runs.issue.SCRIPT_ANSWERS"))).to_be_visible()
        person.assert_no_errors()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_failed_run_start_shows_reason_with_link(browser: Browser, server: Server, language: str) -> None:
    task = {"name": "no-model", "goal": "x", "image": "host", "entrypoint": "true", "llm": "claude-sonnet-4-5"}
    with server.client() as client:
        run = client.post("/v1/runs", json={"task": task}).raise_for_status().json()["runs"][0]["id"]
    with open_visitor(browser, server, language=language, width=390) as person:
        sign_in_to_page(person, f"/runs/{run}")
        reasons = {"en": "There is no model 'claude-sonnet-4-5'", "zh": "没有名为“claude-sonnet-4-5”的模型"}
        expect(person.page.get_by_text(reasons.pop(language))).to_be_visible()
        expect(person.page.get_by_text(*reasons.values())).to_have_count(0)
        stages = person.page.get_by_role("list", name=person.t("runs.stages"))
        expect(stages.get_by_text(person.t("runs.skipped"))).to_have_count(7)
        person.check_accessibility("a run that could not start")
        link = person.t("runs.form.toModels")
        person.page.get_by_role("main").get_by_role("link", name=link).click()
        expect(person.page).to_have_url(re.compile("/settings/models$"))
        person.assert_no_errors()


def test_small_screen_links_home_and_names_sandbox_owners(browser: Browser, server: Server) -> None:
    metadata = {"paddock.run": "run-0000000000000001", "paddock.task": "hello"}
    body = {"image": {"uri": "host"}, "timeout": 600, "metadata": metadata}
    with server.client() as client:
        sandbox = client.post("/v1/sandboxes", json=body).raise_for_status().json()["id"]
    with open_visitor(browser, server, width=390) as person:
        sign_in_to_page(person, "/sandboxes")
        row = person.page.get_by_role("row").filter(has_text=sandbox)
        expect(row.get_by_role("link", name=person.t("sandboxes.owners.run"))).to_be_visible()
        expect(row.get_by_text("hello").first).to_be_visible()
        person.page.get_by_role("button", name=person.t("common.more")).click()
        expect(person.page.get_by_role("menuitem", name=person.t("shell.places.tasks"))).to_be_visible()
        person.page.get_by_role("menuitem").first.click()
        expect(person.page).to_have_url(f"{server.url}/")
        person.assert_no_errors()
    with server.client() as client:
        client.delete(f"/v1/sandboxes/{sandbox}").raise_for_status()


def test_server_without_models_offers_only_the_demo(browser: Browser, server: Server) -> None:
    with open_visitor(browser, server) as person:
        sign_in_to_page(person, "/chats")
        examples = person.page.get_by_role("region", name=person.t("chat.examples"))
        expect(examples.get_by_role("button")).to_have_count(1)
        expect(examples.get_by_role("button")).to_contain_text(person.t("welcome.demo.begin"))
        person.assert_no_errors()


def test_example_cards_select_kinds_and_attach_files(browser: Browser, server_with_model: Server) -> None:
    with open_visitor(browser, server_with_model) as person:
        sign_in_to_page(person, "/chats")
        person.page.get_by_text(person.t("chat.example.desktop.title")).click()
        expect(person.page.get_by_role("button", name=re.compile("linux"))).to_be_visible()
        person.page.get_by_text(person.t("chat.example.data.title")).click()
        attached = person.page.get_by_role("list", name=person.t("chat.attached"))
        expect(attached.get_by_text("visitors.csv")).to_be_visible()
        person.page.get_by_text(person.t("chat.example.page.title")).click()
        expect(attached).to_have_count(0)
        person.assert_no_errors()
