"""A model drives a browser sandbox from inside, through the proxy and with the sandbox's own key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.live.screen_sandboxes import Sandbox, sandbox_of, screens_server, text_of
from tests.integration.live.web_sites import DONE, FORM, serve_site
from tests.support.server import eventually

SECRET = "very secret 李"


def model_reply(document: Any) -> dict[str, Any]:
    return {"say": {"text": json.dumps(document)}}


def step(tool: str, **arguments: Any) -> dict[str, Any]:
    return model_reply({"tool": tool, "arguments": arguments, "why": "it is next"})


RULES = [
    ("fill in the order[\\s\\S]*Done so far: nothing", step("browser_input", text="Name", value="%who%")),
    ("fill in the order[\\s\\S]*\n1\\. (?![\\s\\S]*\n2\\. )", step("browser_input", text="Amount", value="7")),
    ("fill in the order[\\s\\S]*\n2\\. (?![\\s\\S]*\n3\\. )", step("browser_click", text="Send it")),
    ("fill in the order[\\s\\S]*\n3\\. ", model_reply({"done": True, "answer": "The order is sent."})),
    ("go on for ever", step("browser_scroll", direction="down")),
    ("steal the cookies", step("browser_cookies", action="get")),
    ("find the form[\\s\\S]*Done so far: nothing", step("browser_navigate", url="http://127.0.0.1:8000/form.html")),
    ("find the form", model_reply({"done": True, "answer": "There it is."})),
    ("who has ordered", model_reply({"data": {"name": "Li", "amount": 7}})),
    ("a wrong shape", model_reply({"data": {"name": 3}})),
    (
        "what can be filled in",
        model_reply({"elements": [{"ref": "e1", "description": "the name", "tool": "browser_input"}]}),
    ),
    ("talk about it", {"say": {"text": "I would rather talk."}}),
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    directory: Path = tmp_path_factory.mktemp("paddock")
    scenario = directory / "scenario.json"
    scenario.write_text(json.dumps({"rules": [{"when": {"prompt": prompt}, "do": [do]} for prompt, do in RULES]}))
    llm = {"providers": {"script": {"kind": "script", "file": str(scenario)}}, "models": {"demo": "script"}}
    with screens_server(directory, "browser", llm=llm) as server, server.client() as made:
        yield made


@pytest.fixture(scope="module")
def sandbox(client: httpx.Client) -> Iterator[Sandbox]:
    with sandbox_of(client, "browser") as made:
        serve_site(made, form=FORM, done=DONE)
        yield made


@pytest.fixture
def form(sandbox: Sandbox) -> Sandbox:
    sandbox.call("browser_navigate", url="http://127.0.0.1:8000/form.html")
    return sandbox


def test_agent_acts_in_steps_and_keeps_secrets_from_the_model(form: Sandbox, client: httpx.Client) -> None:
    done = form.call("browser_agent_act", instruction="fill in the order", variables={"who": SECRET})
    assert done["structuredContent"]["done"] and len(done["structuredContent"]["steps"]) == 3
    assert f"Thank you, {SECRET}: 7" in form.text("browser_get_text")

    def recorded_exchanges() -> list[str]:
        """Return the recorded exchanges once all of them have been stored."""
        items = client.get("/v1/exchanges", params={"sandbox": form.id}).json()["items"]
        return [client.get(f"/v1/exchanges/{item['id']}").text for item in items] if len(items) >= 4 else []

    exchanges_text = "".join(eventually(recorded_exchanges))
    assert "%who%" in exchanges_text and "very" not in exchanges_text


def test_agent_navigates_to_a_page(sandbox: Sandbox) -> None:
    sandbox.call("browser_navigate", url="http://127.0.0.1:8000/done.html")
    found = sandbox.call("browser_agent_navigate", instruction="find the form")
    assert found["structuredContent"]["answer"] == "There it is."
    assert "Amount" in sandbox.text("browser_get_text")


def test_agent_extracts_data_that_match_a_schema(form: Sandbox) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "amount": {"type": "integer"}},
        "required": ["name"],
    }
    found = form.call("browser_agent_extract", instruction="who has ordered", schema=schema)
    assert found["structuredContent"] == {"data": {"name": "Li", "amount": 7}}
    error = form.fails("browser_agent_extract", instruction="a wrong shape", schema=schema)
    assert "do not fit the schema: 'name' must be text" in error


def test_agent_observes_usable_elements(form: Sandbox) -> None:
    found = form.call("browser_agent_observe", instruction="what can be filled in")
    assert found["structuredContent"]["elements"][0]["description"] == "the name"
    assert text_of(found) == "e1: the name"


def test_agent_stops_after_max_steps(form: Sandbox) -> None:
    error = form.fails("browser_agent_act", instruction="go on for ever", max_steps=2)
    assert "Not done: it was not done after 2 steps" in error


def test_model_gets_only_the_allowed_tools(form: Sandbox) -> None:
    error = form.fails("browser_agent_act", instruction="steal the cookies", max_steps=1)
    assert "there is no tool 'browser_cookies'" in error


def test_reply_without_json_is_refused(form: Sandbox) -> None:
    assert "did not reply with JSON" in form.fails("browser_agent_observe", instruction="talk about it")


def test_sandbox_without_models_is_reported(client: httpx.Client) -> None:
    with sandbox_of(client, "browser", extensions={"paddock.llm": "off"}) as bare:
        assert "this sandbox has no model" in bare.fails("browser_agent_observe", instruction="anything")
