"""Runs over HTTP: create, follow, cancel, and download results."""

from __future__ import annotations

import hashlib
import http.client
import io
import json
import tarfile
import zipfile
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.server import Server, eventually

ENDED = ("succeeded", "failed", "timed_out", "cancelled", "lost", "over_budget")
HELLO = {
    "name": "hello",
    "goal": "Say hello.",
    "image": "host",
    "entrypoint": "cat greeting.txt > report.md; echo written; echo careful >&2",
    "deliverables": ["report.md"],
    "verify": ["grep -q hello report.md"],
}
WAITS = {"name": "waits", "goal": "Wait.", "image": "host", "entrypoint": "echo begun; sleep 600"}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    tasks = tmp_path_factory.mktemp("offered")
    (tasks / "greeting.txt").write_text("hello from a file\n")
    (tasks / "hello.yaml").write_text(json.dumps({**HELLO, "inputs": ["greeting.txt"], "description": "Greets."}))
    (tasks / "broken.yaml").write_text("name: broken\ngaol: x\n")
    (tasks / "notes.txt").write_text("no task")
    (tasks / "hello.script.yaml").write_text("turns: [{say: Hello.}]\n")
    presets = tmp_path_factory.mktemp("presets")
    (presets / "no-image.yaml").write_text("command: 'true'\nimage: nowhere\n")
    return {"runs": {"tasks": str(tasks), "grace": "1s", "presets": [str(presets)]}}


def packed(**files: str) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name.replace("__", "."))
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return sink.getvalue()


def submit(client: httpx.Client, body: dict[str, Any], **headers: str) -> list[dict[str, Any]]:
    response = client.post("/v1/runs", json=body, headers=headers)
    assert response.status_code == 202, response.text
    runs: list[dict[str, Any]] = response.json()["runs"]
    return runs


def ended(client: httpx.Client, run_id: str) -> dict[str, Any]:
    def look() -> dict[str, Any]:
        run: dict[str, Any] = client.get(f"/v1/runs/{run_id}").json()
        return run if run["state"] in ENDED else {}

    return eventually(look, 60)


@pytest.fixture(scope="module")
def hello(client: httpx.Client) -> dict[str, Any]:
    """A run that has succeeded."""
    sent = client.post("/v1/inputs", content=packed(greeting__txt="hello world\n"))
    assert sent.status_code == 201, sent.text
    [run] = submit(client, {"task": HELLO, "inputs": sent.json()["id"]})
    assert run["state"] in ("queued", "running")
    done = ended(client, run["id"])
    assert done["state"] == "succeeded", done
    return done


@pytest.fixture
def waiting(client: httpx.Client) -> Iterator[str]:
    """A run that goes on until it is cancelled."""
    [run] = submit(client, {"task": WAITS})
    eventually(lambda: client.get(f"/v1/runs/{run['id']}").json()["stage"] == "watch")
    yield run["id"]
    client.post(f"/v1/runs/{run['id']}/cancel", json={"hard": True})
    ended(client, run["id"])


def frames(text: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]


def test_a_run_from_its_inputs_to_what_it_delivered(client: httpx.Client, hello: dict[str, Any]) -> None:
    result = hello["result"]
    assert (result["state"], result["endedBy"], result["exitCode"], result["score"]) == ("succeeded", "exit", 0, 1.0)
    assert result["stages"].keys() >= {"sandbox", "inputs", "start", "watch", "collect", "verify"}
    [delivered] = result["deliverables"]
    assert (delivered["path"], delivered["size"]) == ("report.md", 12)
    assert hello["task"]["goal"] == "Say hello." and hello["name"] == "hello"
    listed = client.get(f"/v1/runs/{hello['id']}/deliverables").json()
    assert listed["items"] == [delivered] and listed["missing"] == []
    response = client.get(f"/v1/runs/{hello['id']}/deliverables/report.md")
    assert response.content == b"hello world\n"
    assert hashlib.sha256(response.content).hexdigest() == delivered["sha256"]


def test_deliverables_are_never_rendered_as_pages_of_this_server(client: httpx.Client, hello: dict[str, Any]) -> None:
    headers = client.get(f"/v1/runs/{hello['id']}/deliverables/report.md").headers
    assert headers["content-type"] == "application/octet-stream"
    assert headers["content-disposition"].startswith('attachment; filename="report.md"')
    assert headers["x-content-type-options"] == "nosniff"
    log = client.get(f"/v1/runs/{hello['id']}/logs/agent.out").headers
    assert log["content-type"] == "text/plain; charset=utf-8" and log["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    ["../result.json", "..%2fresult.json", "%2e%2e/task.yaml", "/etc/passwd", "%2fetc/passwd", "no", "a%00b", "."],
)
def test_no_path_leads_out_of_the_deliverables(server: Server, hello: dict[str, Any], path: str) -> None:
    connection = http.client.HTTPConnection(server.domain)  # sends paths as they are
    headers = {"Authorization": f"Bearer {server.key}"}
    connection.request("GET", f"/v1/runs/{hello['id']}/deliverables/{path}", headers=headers)
    response = connection.getresponse()
    assert response.status == 404, response.read()
    connection.close()


def test_part_of_a_deliverable_can_be_asked_for(client: httpx.Client, hello: dict[str, Any]) -> None:
    response = client.get(f"/v1/runs/{hello['id']}/deliverables/report.md", headers={"Range": "bytes=6-"})
    assert (response.status_code, response.content) == (206, b"world\n")


def test_logs_are_what_the_entrypoint_wrote(client: httpx.Client, hello: dict[str, Any]) -> None:
    path = f"/v1/runs/{hello['id']}/logs"
    assert client.get(f"{path}/agent.out").text == "written\n"
    assert client.get(f"{path}/agent.err", params={"follow": True}).text == "careful\n"
    assert client.get(f"{path}/agent.out", params={"after": 5}).text == "en\n"
    assert client.get(f"{path}/other").status_code == 400


@pytest.mark.parametrize("form", ["tar", "zip"])
def test_the_whole_folder_as_an_archive(client: httpx.Client, hello: dict[str, Any], form: str) -> None:
    response = client.get(f"/v1/runs/{hello['id']}/archive", params={"format": form})
    assert response.headers["content-disposition"].startswith(f'attachment; filename="{hello["id"]}.{form}"')
    if form == "tar":
        with tarfile.open(fileobj=io.BytesIO(response.content)) as archive:
            names = archive.getnames()
    else:
        names = zipfile.ZipFile(io.BytesIO(response.content)).namelist()
    inside = {name.removeprefix(f"{hello['id']}/") for name in names}
    assert {"task.yaml", "result.json", "deliverables/report.md", "logs/agent.out", "events.jsonl"} <= inside
    assert not any(name.startswith(".") for name in inside)


def test_events_from_the_beginning_and_from_a_place(client: httpx.Client, hello: dict[str, Any]) -> None:
    path = f"/v1/runs/{hello['id']}/events"
    whole = frames(client.get(path).text)
    assert [event["number"] for event in whole] == list(range(1, len(whole) + 1))
    assert whole[0]["type"] == "run.queued" and whole[-1]["type"] == "run.ended"
    assert any(event["type"] == "run.output" and "written" in event["data"]["text"] for event in whole)
    assert frames(client.get(path, headers={"Last-Event-ID": "3"}).text) == whole[3:]
    page = client.get(path, params={"after": 3, "limit": 2}, headers={"Accept": "application/json"}).json()
    assert page["items"] == whole[3:5] and page["next"] == 5


def test_events_come_as_they_happen_until_the_end(client: httpx.Client, waiting: str) -> None:
    seen: list[str] = []
    with client.stream("GET", f"/v1/runs/{waiting}/events") as response:
        for line in response.iter_lines():
            if line.startswith("event: "):
                seen.append(line.removeprefix("event: "))
            if seen and seen[-1] == "run.output" and "run.cancelling" not in seen:
                assert client.post(f"/v1/runs/{waiting}/cancel").status_code == 202
    assert seen[-1] == "run.ended" and "run.cancelling" in seen


def test_a_log_is_followed_to_the_end_of_the_run(client: httpx.Client, waiting: str) -> None:
    text = ""
    with client.stream("GET", f"/v1/runs/{waiting}/logs/agent.out", params={"follow": True}) as response:
        for piece in response.iter_text():
            text += piece
            client.post(f"/v1/runs/{waiting}/cancel", json={"hard": True})
    assert text == "begun\n"


def test_cancelling_says_why(client: httpx.Client, waiting: str) -> None:
    response = client.post(f"/v1/runs/{waiting}/cancel", json={"reason": "enough"})
    assert response.status_code == 202
    done = ended(client, waiting)
    assert (done["state"], done["result"]["endedBy"]) == ("cancelled", "cancel")
    assert "enough" in done["result"]["reason"]


def test_a_run_under_way_cannot_be_removed(client: httpx.Client, waiting: str) -> None:
    response = client.delete(f"/v1/runs/{waiting}")
    assert (response.status_code, response.json()["code"]) == (409, "CONFLICT")


def test_a_retry_is_a_new_run_with_the_same_inputs(client: httpx.Client, hello: dict[str, Any]) -> None:
    response = client.post(f"/v1/runs/{hello['id']}/retry")
    assert response.status_code == 202
    again = ended(client, response.json()["id"])
    assert again["id"] != hello["id"] and again["state"] == "succeeded"
    assert again["result"]["deliverables"] == hello["result"]["deliverables"]
    assert client.delete(f"/v1/runs/{again['id']}").status_code == 204
    assert client.get(f"/v1/runs/{again['id']}").status_code == 404
    assert client.get(f"/v1/runs/{again['id']}/deliverables/report.md").status_code == 404


def test_same_idempotency_key_creates_no_second_run(client: httpx.Client) -> None:
    task: dict[str, Any] = {**HELLO, "name": "once", "entrypoint": "true", "deliverables": [], "verify": []}
    body = {"task": task}
    headers = {"Idempotency-Key": "once"}
    [first], [second] = submit(client, body, **headers), submit(client, body, **headers)
    assert first["id"] == second["id"]
    task["matrix"] = {"models": ["a", "b"]}
    twice = {"Idempotency-Key": "twice"}
    before, after = submit(client, body, **twice), submit(client, body, **twice)
    assert [run["id"] for run in before] == [run["id"] for run in after] and len(before) == 2


def test_matrix_creates_a_run_for_each_cell(client: httpx.Client) -> None:
    task = {"name": "matrix", "goal": "x", "image": "host", "entrypoint": "true", "matrix": {"models": ["a", "b"]}}
    runs = submit(client, {"task": task})
    assert [run["name"] for run in runs] == ["matrix/a", "matrix/b"]
    [group] = {run["group"] for run in runs}
    listed = client.get("/v1/runs", params={"group": group}).json()["items"]
    assert {run["id"] for run in listed} == {run["id"] for run in runs}


def test_matrix_with_an_invalid_cell_starts_no_run(client: httpx.Client) -> None:
    task = {"name": "halves", "goal": "x", "entrypoint": "true", "matrix": {"agents": ["script", "no-image"]}}
    response = client.post("/v1/runs", json={"task": task})
    assert response.status_code == 400 and "image: no recipe named 'nowhere'" in response.json()["message"], (
        response.text
    )
    assert client.get("/v1/runs", params={"name": "halves/script"}).json()["items"] == []


def test_texts_need_no_bundle(client: httpx.Client) -> None:
    task = {**HELLO, "name": "texts", "inputs": [{"content": "hello text\n", "target": "greeting.txt"}]}
    [run] = submit(client, {"task": task})
    assert ended(client, run["id"])["state"] == "succeeded"
    assert client.get(f"/v1/runs/{run['id']}/deliverables/report.md").text == "hello text\n"


def test_a_file_that_the_server_offers(client: httpx.Client) -> None:
    [run] = submit(client, {"file": "hello.yaml"})
    assert ended(client, run["id"])["state"] == "succeeded"
    assert client.get(f"/v1/runs/{run['id']}/deliverables/report.md").text == "hello from a file\n"


def test_lists_are_filtered_and_paged(client: httpx.Client, hello: dict[str, Any]) -> None:
    def asked(**query: Any) -> dict[str, Any]:
        response = client.get("/v1/runs", params=query)
        assert response.status_code == 200, response.text
        document: dict[str, Any] = response.json()
        return document

    assert hello["id"] in [run["id"] for run in asked(name="hello")["items"]]
    assert all(run["state"] == "succeeded" for run in asked(state="succeeded")["items"])
    assert asked(name="nobody")["items"] == []
    page = asked(pageSize=1)
    assert len(page["items"]) == 1 and page["pagination"]["pageSize"] == 1
    assert "task" not in page["items"][0]
    newest = asked(pageSize=200)["items"]
    assert newest == sorted(newest, key=lambda run: run["createdAt"], reverse=True)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "give one of 'task', 'file' and 'template'"),
        ({"task": HELLO, "file": "hello.yaml"}, "give one of 'task', 'file' and 'template'"),
        ({"file": "hello.yaml", "inputs": "x"}, "'inputs' goes with 'task'"),
        ({"task": {**HELLO, "gaol": "x"}}, "did you mean 'goal'"),
        ({"task": {**HELLO, "agent": "claude"}}, "claude"),
        ({"task": {**HELLO, "agent": "script", "entrypoint": None}}, "add an 'entrypoint'"),
        (
            {"task": {**HELLO, "agent": "clade-code"}},
            "the server knows no preset 'clade-code'; did you mean claude-code?",
        ),
        ({"task": {**HELLO, "image": "hots"}}, "image: no recipe named 'hots' (did you mean 'host'?)"),
        ({"task": {**HELLO, "inputs": ["/etc/passwd"]}}, "upload a bundle"),
        ({"task": {**HELLO, "goal": {"file": "/etc/passwd"}}}, "goal"),
        ({"task": {**HELLO, "secrets": ["NOPE"]}}, "NOPE"),
        ({"task": HELLO, "name": "a b"}, "name"),
        ({"task": HELLO, "name": "a", "priority": 1}, "there is no field priority"),
        ({"file": "broken.yaml"}, "gaol"),
    ],
)
def test_errors_are_one_line(client: httpx.Client, body: dict[str, Any], words: str) -> None:
    response = client.post("/v1/runs", json=body)
    assert response.status_code == 400, response.text
    said = response.json()["message"]
    assert words in said and "\n" not in said and "\N{REPLACEMENT CHARACTER}" not in said


@pytest.mark.parametrize("inputs", ["in-0123456789abcdef", "../../paddock.db"])
def test_missing_bundle(client: httpx.Client, inputs: str) -> None:
    response = client.post("/v1/runs", json={"task": HELLO, "inputs": inputs})
    assert response.status_code in (400, 404), response.text


def test_a_file_that_is_not_offered_names_those_that_are(client: httpx.Client) -> None:
    for name in ("nothing.yaml", "../hello.yaml", "/etc/passwd", "notes.txt"):
        response = client.post("/v1/runs", json={"file": name})
        assert response.status_code == 404 and "hello.yaml" in response.json()["message"]


def test_offered_tasks_are_listed_with_what_is_wrong(client: httpx.Client) -> None:
    items = {item["file"]: item for item in client.get("/v1/tasks").json()["items"]}
    assert items.keys() == {"hello.yaml", "broken.yaml"}
    assert (items["hello.yaml"]["name"], items["hello.yaml"]["description"]) == ("hello", "Greets.")
    assert items["broken.yaml"]["error"].startswith("broken.yaml:1: goal: is missing")
    refused = client.post("/v1/runs", json={"file": "broken.yaml"}).json()["message"]
    assert refused.startswith("broken.yaml:1: goal: is missing")
    shown = client.get("/v1/tasks/hello").json()
    assert shown["task"]["entrypoint"] == HELLO["entrypoint"] and shown["runs"] == ["hello"]
    assert client.get("/v1/tasks/nothing").status_code == 404


def test_templates_are_listed_and_carry_their_files(client: httpx.Client) -> None:
    items = {item["name"]: item for item in client.get("/v1/tasks/templates").json()["items"]}
    assert {"hello", "hello-script", "fix-bug", "data-report"} <= items.keys()
    hello = items["hello"]
    assert (hello["agent"], hello["model"], hello["image"]) == ("claude-code", "claude-sonnet-4-5", "agent-claude-code")
    assert hello["scripted"] and not hello["needsKey"]
    assert items["hello-script"]["imageBuilt"] and "model" not in items["hello-script"]
    fix = client.get("/v1/tasks/templates/fix-bug").json()["task"]
    assert [each["target"] for each in fix["inputs"]] == [
        f"/workspace/{name}" for name in ("durations.py", "test_durations.py", "tests.sha256")
    ]
    assert client.post("/v1/tasks/validate", json={"task": fix}).json()["valid"]
    missing = client.get("/v1/tasks/templates/nothing")
    assert missing.status_code == 404 and "hello-script" in missing.json()["message"]


def test_a_template_runs_by_its_name(client: httpx.Client) -> None:
    [run] = submit(client, {"template": "hello-script"})
    assert ended(client, run["id"])["state"] == "succeeded"
    counts = client.get(f"/v1/runs/{run['id']}/deliverables/counts.txt")
    assert counts.text.splitlines()[0] == "1: 6 words"
    assert client.post("/v1/runs", json={"template": "nothing"}).status_code == 404
    assert client.post("/v1/runs", json={"template": "hello", "task": HELLO}).status_code == 400


def test_a_task_is_checked_without_being_run(client: httpx.Client) -> None:
    verdict = client.post("/v1/tasks/validate", json={"task": HELLO}).json()
    assert verdict == {"valid": True, "ready": True, "issues": [], "runs": ["hello"], "models": []}
    verdict = client.post("/v1/tasks/validate", json={"task": {**HELLO, "end": {"timeout": "soon"}}}).json()
    assert not verdict["valid"] and "end.timeout" in verdict["error"]
    verdict = client.post("/v1/tasks/validate", json={"task": {**HELLO, "image": "hots"}}).json()
    assert not verdict["valid"] and "did you mean 'host'?" in verdict["error"]
    [issue] = verdict["issues"]
    assert (issue["code"], issue["field"], issue["params"]) == ("IMAGE_NOT_FOUND", "image", {"image": "hots"})
    schema = client.get("/v1/tasks/schema").json()
    assert "goal" in schema["properties"] and "$schema" in schema


def test_a_check_says_what_a_run_would_lack(client: httpx.Client) -> None:
    def check(**fields: Any) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        verdict = client.post("/v1/tasks/validate", json={"task": {**HELLO, **fields}}).json()
        return verdict, {issue["code"]: issue for issue in verdict["issues"]}

    verdict, issues = check(llm="claude-sonnet-4-5")
    assert verdict["valid"] and not verdict["ready"] and set(issues) == {"MODEL_NOT_FOUND"}
    assert issues["MODEL_NOT_FOUND"]["params"] == {"model": "claude-sonnet-4-5", "known": ""}
    assert "no model is connected" in issues["MODEL_NOT_FOUND"]["message"]
    verdict, issues = check(image="host", agent="claude-code")
    assert not verdict["ready"] and "demo" not in issues["MODEL_NOT_FOUND"]["message"]
    verdict, issues = check(llm={"model": "claude-sonnet-4-5", "script": "turns: [{say: Hello.}]"})
    assert verdict["ready"] and issues["SCRIPT_ANSWERS"]["level"] == "notice"
    verdict, issues = check(image=None, agent="codex", llm={"script": "turns: [{say: Hello.}]"})
    assert verdict["ready"] and issues["IMAGE_NOT_BUILT"]["params"] == {"image": "agent-codex"}
    verdict, issues = check(secrets=["NOPE"], kind=None, agent="nobody")
    assert not verdict["valid"] and not verdict["ready"]
    verdict, issues = check(secrets=["NOPE"], llm="fast")
    assert {"SECRET_MISSING", "MODEL_NOT_FOUND"} == set(issues) and "NOPE" in verdict["error"]


def test_bundles_may_be_larger_than_other_bodies(client: httpx.Client) -> None:
    large = packed(big=" " * (70 * 2**20))
    sent = client.post("/v1/inputs", content=large)
    assert sent.status_code == 201 and sent.json()["size"] == len(large)


def test_bundles_must_be_archives(client: httpx.Client) -> None:
    assert client.post("/v1/inputs", content=b"no archive at all" * 100).status_code == 400


@pytest.fixture(scope="module")
def keyed(server: Server, client: httpx.Client) -> Iterator[dict[str, httpx.Client]]:
    """Clients by the scope of their key, and another tenant's."""
    made: dict[str, httpx.Client] = {}
    for scope in ("runs:read", "runs:write", "sandboxes:write", "llm:use", "llm:read"):
        secret = client.post("/v1/keys", json={"name": scope, "scopes": [scope, "tenant:all"]}).json()["secret"]
        made[scope] = server.client(secret)
    body = {"name": "other", "tenant": "other", "scopes": ["runs:write"]}
    made["other"] = server.client(client.post("/v1/keys", json=body).json()["secret"])
    yield made
    for each in made.values():
        each.close()


@pytest.mark.parametrize("scope", ["sandboxes:write", "llm:use", "llm:read"])
def test_other_scopes_do_not_reach_runs(keyed: dict[str, httpx.Client], hello: dict[str, Any], scope: str) -> None:
    for path in ("", f"/{hello['id']}", f"/{hello['id']}/events", f"/{hello['id']}/deliverables/report.md"):
        assert keyed[scope].get(f"/v1/runs{path}").status_code == 403
    assert keyed[scope].post("/v1/runs", json={"task": HELLO}).status_code == 403
    assert keyed[scope].post("/v1/inputs", content=packed(a="b")).status_code == 403


def test_reading_is_not_writing(keyed: dict[str, httpx.Client], hello: dict[str, Any]) -> None:
    reader = keyed["runs:read"]
    assert reader.get(f"/v1/runs/{hello['id']}").status_code == 200
    for method, path in [
        ("POST", "/v1/runs"),
        ("POST", "/v1/inputs"),
        ("POST", f"/v1/runs/{hello['id']}/cancel"),
        ("POST", f"/v1/runs/{hello['id']}/retry"),
        ("DELETE", f"/v1/runs/{hello['id']}"),
    ]:
        body = {"task": HELLO} if path == "/v1/runs" else None
        assert reader.request(method, path, json=body).status_code == 403
    assert keyed["runs:write"].get(f"/v1/runs/{hello['id']}").status_code == 200


def test_another_tenants_runs_do_not_exist(keyed: dict[str, httpx.Client], hello: dict[str, Any]) -> None:
    other = keyed["other"]
    assert other.get("/v1/runs").json()["items"] == []
    for path in ("", "/events", "/deliverables", "/deliverables/report.md", "/logs/agent.out", "/archive"):
        assert other.get(f"/v1/runs/{hello['id']}{path}").status_code == 404
    for path in ("cancel", "retry"):
        assert other.post(f"/v1/runs/{hello['id']}/{path}").status_code == 404
    assert other.delete(f"/v1/runs/{hello['id']}").status_code == 404


def test_another_tenants_bundle_does_not_exist(client: httpx.Client, keyed: dict[str, httpx.Client]) -> None:
    bundle = client.post("/v1/inputs", content=packed(greeting__txt="secret")).json()["id"]
    response = keyed["other"].post("/v1/runs", json={"task": HELLO, "inputs": bundle})
    assert response.status_code in (400, 404), response.text


def test_run_output_requires_the_runs_read_scope(
    client: httpx.Client, keyed: dict[str, httpx.Client], hello: dict[str, Any]
) -> None:
    def streams(reader: httpx.Client) -> set[str]:
        found: set[str] = set()
        after = 0
        while True:
            query = {"after": after, "limit": 5}
            page = reader.get("/v1/events", params=query, headers={"Accept": "application/json"}).json()
            found |= {event["stream"].partition("/")[0] for event in page["items"]}
            after = page["next"]
            if len(page["items"]) < 5:
                return found

    assert streams(client) >= {"run", "sandbox"}
    assert streams(keyed["sandboxes:write"]) == {"sandbox"}
