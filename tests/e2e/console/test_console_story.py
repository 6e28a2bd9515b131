"""All pages of the console in a real browser, with a real desktop: from the first visit to the usage page.

In English, in Chinese and at the width of a phone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

from paddock.api.sessions.demo_session_route import TITLES
from tests.e2e.browser_pages import run_chromium, save_screenshot
from tests.e2e.console.console_visitor import ConsoleVisitor, open_visitor
from tests.support.screen_images import share_screen_images
from tests.support.server import DAEMON_PORT, Server, eventually, run_server

PHONE_WIDTH = 390
expect.set_options(timeout=20_000)
GREETING_TASK = """\
name: greeting
description: Asks the model for a greeting, and keeps it.
image: host
agent: script
goal: Ask the model for a greeting.
llm: {model: demo}
entrypoint: |
  python3 - <<'END'
  import json, os, urllib.request
  body = {"model": "demo", "messages": [{"role": "user", "content": "A greeting for the archive, please."}]}
  headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
  address = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
  asked = urllib.request.Request(address, json.dumps(body).encode(), headers)
  said = json.load(urllib.request.urlopen(asked, timeout=30))["choices"][0]["message"]["content"]
  open("greeting.md", "w").write("# Greeting\\n\\n" + said + "\\n")
  END
deliverables: [greeting.md]
"""


@contextmanager
def console_server(directory: Path) -> Iterator[Server]:
    """Run a new server with a desktop and a task, without a model."""
    share_screen_images(directory / "data", "desktop")
    tasks = directory / "tasks"
    tasks.mkdir()
    (tasks / "greeting.yaml").write_text(GREETING_TASK)
    settings = {
        "sandboxes": {"min_free_disk": 0},
        "llm": {"environment": False},
        "runs": {"tasks": str(tasks)},
    }
    with run_server(directory, settings) as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with console_server(tmp_path_factory.mktemp("paddock")) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with run_chromium() as chromium:
        yield chromium


@pytest.mark.slow
@pytest.mark.parametrize(("language", "width"), [("en", 1440), ("zh", 1440), ("en", PHONE_WIDTH)])
def test_console_story_from_sign_in_to_usage(
    browser: Browser, server: Server, tmp_path: Path, language: str, width: int
) -> None:
    with open_visitor(browser, server, language=language, width=width) as person:
        # The sandbox of a run may be deleted before its state is requested.
        person.expected_errors.append(re.compile(r"404 .*/v1/sandboxes/sb-\w+\W*$"))
        story = ConsoleStory(person, narrow=width == PHONE_WIDTH, name=f"story-{language}-{width}")
        try:
            story.run_all_steps(tmp_path)
        except BaseException:
            save_screenshot(person.page, f"{story.name}-where-it-ended")
            raise
        person.assert_no_errors()


class ConsoleStory:
    """Steps of one visitor through the console."""

    def __init__(self, person: ConsoleVisitor, *, narrow: bool, name: str) -> None:
        self.person = person
        self.page = person.page
        self.narrow = narrow
        self.name = name
        self.t = person.t

    def run_all_steps(self, directory: Path) -> None:
        self.sign_in()
        session = self.start_demo()
        sandbox = self.approve_call(session)
        self.use_desktop(sandbox)
        self.use_terminal(sandbox)
        self.check_deliverable(directory)
        self.run_task()
        self.check_archive()
        self.check_usage()
        self.check_other_pages()

    def check_page(self, where: str) -> None:
        """Check accessibility and save a screenshot."""
        save_screenshot(self.page, f"{self.name}-{where}")
        self.person.check_accessibility(f"{self.name} {where}")

    def sign_in(self) -> None:
        self.person.open_path("/")
        expect(self.page.get_by_role("heading", name=self.t("shell.signIn.title"))).to_be_visible()
        self.check_page("sign-in")
        self.page.get_by_label(self.t("shell.signIn.key"), exact=True).fill(self.person.server.key)
        self.person.button("shell.signIn.go").click()
        expect(self.page.get_by_role("heading", name=self.t("welcome.title"))).to_be_visible()
        self.check_page("welcome")

    def start_demo(self) -> str:
        # Each language has its own demo; a started demo is restarted.
        with self.person.server.client() as client:
            chats = client.get("/v1/sessions").raise_for_status().json()["items"]
        started = TITLES[self.person.language] in {chat["title"] for chat in chats}
        self.person.button("welcome.demo.again" if started else "welcome.demo.begin").click()
        self.page.wait_for_url(re.compile("/chats/ses-"))
        return self.page.url.rsplit("/", 1)[1].partition("?")[0]

    def approve_call(self, session: str) -> str:
        card = self.page.get_by_role("button", name=re.compile(f"^{re.escape(self.t('chat.approve'))}")).first
        expect(card).to_be_visible(timeout=60_000)
        self.check_page("approval")
        card.click()
        with self.person.server.client() as client:
            sandboxes = eventually(lambda: client.get(f"/v1/sessions/{session}").json()["sandboxes"], 60)
        return str(sandboxes["linux"])

    def use_desktop(self, sandbox: str) -> None:
        """Take over the desktop that opened by itself, write with mouse and keyboard, and hand back."""
        if self.narrow:
            self.page.get_by_role("tab", name=re.compile(self.t("chat.sandboxes"))).click()
        shown = self.page.get_by_role("tab", name=self.t("sandboxPanel.views.desktop"), selected=True)
        expect(shown).to_be_visible(timeout=60_000)
        screen = self.page.locator("canvas").first
        expect(screen).to_be_visible(timeout=30_000)
        with self.person.server.client() as client:
            # The report is open in the editor, in the middle of the screen.
            eventually(lambda: "report.md" in self.list_windows(sandbox), 60)
            self.person.button("sandboxPanel.input.take").click()
            expect(self.person.button("sandboxPanel.input.handBack")).to_be_visible()
            self.check_page("taken-over")
            path, report = (
                f"/v1/sandboxes/{sandbox}/proxy/{DAEMON_PORT}/files/download",
                {"path": "/workspace/report.md"},
            )
            self.write_in_editor(screen)
            eventually(lambda: client.get(path, params=report).text.startswith("A person was here. "), 30)
        self.person.button("sandboxPanel.input.handBack").click()
        # The agent has control again if its turn goes on, else nobody.
        expect(self.person.button("sandboxPanel.input.take")).to_be_visible()
        with self.person.server.client() as client:
            session = self.page.url.rsplit("/", 1)[1].partition("?")[0]
            eventually(lambda: client.get(f"/v1/sessions/{session}").json()["state"] == "idle", 60)
        self.check_page("chat")

    def list_windows(self, sandbox: str) -> str:
        with self.person.server.client() as client:
            return client.post(f"/v1/sandboxes/{sandbox}/tools/list_windows", json={}).text

    def write_in_editor(self, screen: Locator) -> None:
        bounds = screen.bounding_box()
        assert bounds is not None
        self.page.mouse.click(bounds["x"] + bounds["width"] * 0.5, bounds["y"] + bounds["height"] * 0.55)
        # The window manager inspects clicks but not keys: when it is busy, keys overtake clicks.
        self.page.wait_for_timeout(1000)
        self.page.keyboard.press("Control+Home")
        self.page.keyboard.type("A person was here. ", delay=20)
        self.page.keyboard.press("Control+s")

    def use_terminal(self, sandbox: str) -> None:
        """Check the agent's commands, then type in the visitor's own terminal."""
        self.page.get_by_role("tab", name=self.t("sandboxPanel.views.terminal")).click()
        agent = self.page.get_by_role("tab", name=re.compile(f"^{self.t('sandboxPanel.terminal.agent')}"))
        expect(agent).to_have_attribute("aria-selected", "true")
        log = self.page.get_by_role("region", name=self.t("sandboxPanel.terminal.agentLog"))
        expect(log.locator(".xterm-screen")).to_be_visible()
        self.check_page("agent-terminal")
        self.page.get_by_role("tab", name=self.t("sandboxPanel.terminal.you"), exact=True).click()
        panel = self.page.get_by_role("tabpanel", name=self.t("sandboxPanel.views.terminal"))
        expect(panel.locator(".xterm-helper-textarea")).to_be_focused()
        expect(panel.get_by_text(self.t("sandboxPanel.terminal.connecting"))).to_have_count(0)
        path = f"/v1/sandboxes/{sandbox}/proxy/{DAEMON_PORT}/files/download"
        with self.person.server.client() as client:
            found = {"path": "/workspace/typed.txt"}
            for attempt in range(5):
                # Text typed before the terminal is connected is lost.
                self.page.keyboard.type("echo $((6 * 7)) | tee typed.txt\n", delay=15)
                self.page.wait_for_timeout(1000 * attempt)
                if client.get(path, params=found).text == "42\n":
                    break
            eventually(lambda: client.get(path, params=found).text == "42\n", 20)
        self.check_page("terminal")

    def check_deliverable(self, directory: Path) -> None:
        self.page.get_by_role("tab", name=self.t("sandboxPanel.views.files")).click()
        self.page.get_by_role("treeitem", name=re.compile(r"report\.md")).first.click()
        expect(self.page.get_by_text(re.compile("A person was here")).first).to_be_visible()
        self.check_page("deliverable")
        with self.page.expect_download() as coming:
            panel = self.page.get_by_role("tabpanel", name=self.t("sandboxPanel.views.files"))
            self.person.button("common.download", panel).first.click()
        coming.value.save_as(directory / "report.md")
        assert (directory / "report.md").read_text().startswith("A person was here.")

    def run_task(self) -> None:
        self.person.open_path("/tasks")
        expect(self.page.get_by_text("greeting").first).to_be_visible()
        self.check_page("tasks")
        self.page.get_by_role("link", name=self.t("runs.tasks.runNamed", name="greeting")).click()
        start = self.person.button("runs.form.start")
        expect(start).to_be_enabled()
        self.check_page("form")
        start.click()
        self.page.wait_for_url(re.compile("/runs/run-"))
        expect(self.page.get_by_text(self.t("runs.state.succeeded")).first).to_be_visible(timeout=60_000)
        self.page.get_by_role("tab", name=re.compile(self.t("runs.tab.deliverables"))).click()
        expect(self.page.get_by_text("greeting.md").first).to_be_visible()
        self.check_page("run")

    def check_archive(self) -> None:
        self.person.button("runs.toArchive").click()
        self.page.wait_for_url(re.compile("/archive"))
        link = self.page.locator("table a[href^='/archive/']").first
        # The list shows the prompt and fits a narrow screen.
        expect(link).to_contain_text("A greeting for the archive, please.")
        if self.narrow:
            last = self.page.get_by_role("columnheader").locator("visible=true").last.bounding_box()
            assert last is not None and last["x"] + last["width"] <= PHONE_WIDTH
        link.click()
        expect(self.page.get_by_text("A greeting for the archive, please.").first).to_be_visible()
        self.check_page("exchange")

    def check_usage(self) -> None:
        self.person.open_path("/usage")
        expect(self.page.get_by_text("demo").first).to_be_visible()
        # The legend has the newest values although no point is hovered.
        values = self.page.locator(".u-legend .u-value")
        expect(values.first).to_be_visible()
        expect(self.page.get_by_text("--", exact=True)).to_have_count(0)
        assert all(re.search(r"\d", text) for text in values.all_text_contents())
        self.check_page("usage")

    def check_other_pages(self) -> None:
        for path in ("/runs", "/archive", "/sandboxes", "/screens", "/status", "/settings/models", "/settings/keys"):
            self.person.open_path(path)
            expect(self.page.get_by_role("heading", level=1)).to_be_visible()
            self.page.wait_for_load_state("networkidle") if path not in ("/screens", "/status") else None
            if path == "/status" and not self.narrow:
                self.check_status_layout()
            self.check_page(path.strip("/").replace("/", "-"))

    def check_status_layout(self) -> None:
        """The first row of cards fills the page."""
        expect(self.page.get_by_role("region", name=self.t("health.agents"))).to_be_visible()
        cards = self.page.locator("section[aria-label]").filter(has=self.page.locator("h2"))
        bounds = [bound for card in cards.all() if (bound := card.bounding_box())]
        first_row = [bound for bound in bounds if abs(bound["y"] - bounds[0]["y"]) < 2]
        main = self.page.get_by_role("main").bounding_box()
        assert main is not None
        assert max(bound["x"] + bound["width"] for bound in first_row) >= main["x"] + 0.9 * main["width"]
