"""Models in the console: real model names from a key in the environment, and a key refused by the provider."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Route, expect

from tests.e2e.browser_pages import run_chromium, save_screenshot
from tests.e2e.console.console_visitor import ConsoleVisitor, open_visitor
from tests.support.server import Server, run_server
from tests.support.strict_providers import PROVIDER_KEY, REPLY, StrictProvider, run_strict_provider

PHONE_WIDTH = 390
expect.set_options(timeout=20_000)


@pytest.fixture(scope="module")
def provider() -> Iterator[StrictProvider]:
    with run_strict_provider("openai") as provider:
        yield provider


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, provider: StrictProvider) -> Iterator[Server]:
    """A server with only the key and the address of a provider in its environment."""
    directory = tmp_path_factory.mktemp("paddock")
    with pytest.MonkeyPatch.context() as patch:
        environment = {"PATH": os.environ["PATH"], "HOME": str(directory), **provider.environment()}
        patch.setattr(Server, "_environment", lambda _: environment)
        with run_server(directory, {"sandboxes": {"min_free_disk": 0}, "chat": {"kinds": []}}) as running:
            yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with run_chromium() as chromium:
        yield chromium


@pytest.mark.parametrize(("language", "width"), [("en", 1440), ("zh", PHONE_WIDTH)])
def test_first_message_gets_reply_of_provider_model(
    browser: Browser, server: Server, provider: StrictProvider, language: str, width: int
) -> None:
    with open_visitor(browser, server, language=language, width=width) as person:
        page = person.page
        person.sign_in("/chats")
        summary = page.get_by_role("button", name="gpt-5.1")
        expect(summary).to_be_visible()
        assert "*" not in str(summary.text_content())
        summary.click()
        options = page.get_by_label(person.t("chat.model")).locator("option")
        expect(options.last).to_have_text(person.t("chat.modelOther"))
        names = options.all_text_contents()
        chatting = [name for name in provider.models if name not in provider.hidden]
        assert sorted(names) == sorted([*chatting, person.t("chat.modelOther")])

        page.get_by_label(person.t("chat.model")).select_option(label=person.t("chat.modelOther"))
        field = page.get_by_label(person.t("chat.model"))
        field.fill("gpt-*")
        expect(page.get_by_text(person.t("chat.modelNoName"))).to_be_visible()
        person.check_accessibility("typed model")
        save_screenshot(page, f"model-typed-{language}-{width}")
        field.fill("gpt-4o")
        person.button("chat.done").click()
        expect(page.get_by_role("button", name="gpt-4o")).to_be_visible()

        composer = page.get_by_placeholder(person.t("chat.askAnything"))
        composer.fill("Hello, who are you?")
        composer.press("Enter")
        expect(page.get_by_text(REPLY.format(model="gpt-4o")).first).to_be_visible()
        save_screenshot(page, f"first-model-{language}-{width}")
        assert set(provider.requested_models) == {"gpt-4o"} and provider.problems == []

        person.button("chat.menu").click()
        page.get_by_role("menuitem", name=person.t("chat.settings"), exact=True).click()
        options = page.get_by_role("dialog").get_by_label(person.t("chat.model")).locator("option")
        expect(options.last).to_have_text(person.t("chat.modelOther"))
        assert sorted(options.all_text_contents()) == sorted([*chatting, person.t("chat.modelOther")])
        person.assert_no_errors()


@pytest.mark.parametrize(("language", "width"), [("en", 1440), ("zh", PHONE_WIDTH)])
def test_refused_provider_key_is_reported(
    browser: Browser, server: Server, provider: StrictProvider, language: str, width: int
) -> None:
    with open_visitor(browser, server, language=language, width=width) as person:
        person.expected_errors.append(re.compile(r"401 .*/v1/chat/completions"))
        page = person.page
        provider.accepts_key = True
        person.sign_in("/settings/models")
        expect(_try_button(person).first).to_be_visible()
        provider.accepts_key = False
        _try_button(person).first.click()
        person.button("settings.try.go").click()
        dialog = page.get_by_role("dialog")
        hint = person.t("shell.provider.keyRefusedBy", name="openai", where="OPENAI_API_KEY")
        expect(dialog.get_by_text(hint)).to_be_visible()
        expect(dialog.get_by_role("heading", name=hint)).to_have_count(0)
        expect(dialog.get_by_text(person.t("errors.signIn"))).to_have_count(0)
        person.check_accessibility("trying a model")
        save_screenshot(page, f"key-refused-try-{language}-{width}")
        page.keyboard.press("Escape")

        expect(page.get_by_text(person.t("shell.provider.keyRefused"))).to_be_visible()
        person.check_accessibility("providers")
        save_screenshot(page, f"key-refused-settings-{language}-{width}")
        person.open_path("/status")
        expect(page.get_by_text(person.t("shell.provider.keyRefused"))).to_be_visible()
        expect(page.get_by_text(hint)).to_be_visible()
        person.check_accessibility("health")
        save_screenshot(page, f"key-refused-health-{language}-{width}")

        person.open_path("/chats")
        composer = page.get_by_placeholder(person.t("chat.askAnything"))
        composer.fill("Hello?")
        composer.press("Enter")
        error = page.get_by_role("alert").filter(has_text=hint)
        expect(error).to_be_visible()
        expect(error.get_by_text("refused the key it is configured with")).to_be_hidden()
        expect(page.get_by_text(person.t("errors.signIn"))).to_have_count(0)
        person.check_accessibility("a chat with a refused key")
        save_screenshot(page, f"key-refused-chat-{language}-{width}")

        person.open_path("/chats")
        expect(page.get_by_role("note").filter(has_text=hint)).to_be_visible()
        person.check_accessibility("a new chat with a refused key")
        save_screenshot(page, f"key-refused-new-chat-{language}-{width}")
        person.assert_no_errors()


def test_unreachable_provider_is_not_shown_as_connected(browser: Browser, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        found = {"OPENAI_API_KEY": "sk-1", "OPENAI_BASE_URL": "http://127.0.0.1:9"}
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **found}
        patch.setattr(Server, "_environment", lambda _: environment)
        with run_server(tmp_path, {"sandboxes": {"min_free_disk": 0}, "chat": {"kinds": []}}) as running:
            for language, width in (("en", 1440), ("zh", PHONE_WIDTH)):
                with open_visitor(browser, running, language=language, width=width) as person:
                    page, state = person.page, person.t("shell.provider.unreached")
                    person.sign_in("/settings/models")
                    expect(page.get_by_text(state, exact=True)).to_be_visible()
                    expect(page.get_by_text(person.t("settings.models.wellKnown")).first).to_be_visible()
                    person.check_accessibility("providers")
                    save_screenshot(page, f"not-reached-settings-{language}-{width}")
                    person.open_path("/status")
                    expect(page.get_by_text(state, exact=True)).to_be_visible()
                    expect(page.get_by_text("http://127.0.0.1:9").first).to_be_visible()
                    save_screenshot(page, f"not-reached-health-{language}-{width}")
                    person.open_path("/")
                    expect(page.get_by_text(state, exact=True)).to_be_visible()
                    save_screenshot(page, f"not-reached-home-{language}-{width}")
                    person.assert_no_errors()


def test_chat_without_matching_model_explains_disabled_input(browser: Browser, tmp_path: Path) -> None:
    with run_strict_provider("openai") as provider:
        provider.models = ("acme-large",)
        settings = {"kind": "openai", "key": PROVIDER_KEY, "base_url": f"{provider.server.url}{provider.base_path}"}
        llm = {"providers": {"acme": settings}, "models": {"gpt-*": "acme/gpt-*"}}
        with run_server(tmp_path, {"sandboxes": {"min_free_disk": 0}, "chat": {"kinds": []}, "llm": llm}) as running:
            for language, width in (("en", 1440), ("zh", PHONE_WIDTH)):
                with open_visitor(browser, running, language=language, width=width) as person:
                    person.sign_in("/chats")
                    expect(person.page.get_by_text(person.t("chat.noneListed", patterns="gpt-*"))).to_be_visible()
                    person.check_accessibility("no fitting model")
                    save_screenshot(person.page, f"none-listed-{language}-{width}")
                    person.assert_no_errors()


def test_unknown_price_is_not_shown_as_zero(browser: Browser, tmp_path: Path) -> None:
    with run_strict_provider("openai") as provider:
        provider.models = ("acme-large",)
        settings = {"kind": "openai", "key": PROVIDER_KEY, "base_url": f"{provider.server.url}{provider.base_path}"}
        llm = {"providers": {"acme": settings}, "models": {"acme-large": "acme"}}
        with run_server(tmp_path, {"sandboxes": {"min_free_disk": 0}, "llm": llm}) as running:
            with running.client() as client:
                body = {"model": "acme-large", "messages": [{"role": "user", "content": "Hello?"}]}
                client.post("/v1/chat/completions", json=body).raise_for_status()
            for language in ("en", "zh"):
                with open_visitor(browser, running, language=language) as person:
                    page, unknown = person.page, person.t("usage.unknown")
                    person.sign_in("/usage")
                    row = page.get_by_role("row").filter(has_text="acme-large")
                    expect(row.get_by_role("cell").last).to_have_text(unknown)
                    expect(page.get_by_role("definition").get_by_text(unknown, exact=True)).to_be_visible()
                    expect(page.get_by_text(re.compile(r"0\.00"))).to_have_count(0)
                    person.assert_no_errors()
            with open_visitor(browser, running) as person:
                check_usage_range_loads_first(person)


def check_usage_range_loads_first(person: ConsoleVisitor) -> None:
    """Check that the usage page shows no range until the month's usage is loaded."""
    held: list[Route] = []
    first_only = True
    person.page.route(
        re.compile(r"/v1/usage(/series)?\?"), lambda route: held.append(route) if first_only else route.continue_()
    )
    person.sign_in("/usage")
    expect(person.page.get_by_role("status", name=person.t("common.loading"))).to_be_visible()
    chooser = person.page.get_by_role("combobox", name=person.t("usage.range"))
    expect(chooser).to_have_value("")
    person.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert len(held) == 1
    first_only = False
    held[0].continue_()
    expect(chooser).to_have_value("1")
    expect(person.page.get_by_role("row").filter(has_text="acme-large")).to_be_visible()
    person.assert_no_errors()


def _try_button(person: ConsoleVisitor) -> Locator:
    return person.button("settings.models.try")
