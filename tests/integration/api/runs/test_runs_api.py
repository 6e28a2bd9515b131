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

END_STATES = ("succeeded", "failed", "timed_out", "cancelled", "lost", "over_budget")
HELLO_TASK = {
    "name": "hello",
    "goal": "Say hello.",
    "image": "host",
    "entrypoint": "cat greeting.txt > report.md; echo written; echo careful >&2",
    "deliverables": ["report.md"],
    "verify": ["grep -q hello report.md"],
}
SECRET = "hunter2-of-the-server"
WAITING_TASK = {"name": "waits", "goal": "Wait.", "image": "host", "entrypoint": "echo begun; sleep 600"}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    tasks = tmp_path_factory.mktemp("offered")
    (tasks / "greeting.txt").write_text("hello from a file\n")
    (tasks / "hello.yaml").write_text(json.dumps({**HELLO_TASK, "inputs": ["greeting.txt"], "description": "Greets."}))
    (tasks / "broken.yaml").write_text("name: broken\ngaol: x\n")
    (tasks / "notes.txt").write_text("no task")
    (tasks / "hello.script.yaml").write_text("turns: [{say: Hello.}]\n")
    presets = tmp_path_factory.mktemp("presets")
    (presets / "no-image.yaml").write_text("command: 'true'\nimage: nowhere\n")
    runs = {"tasks": str(tasks), "grace": "1s", "presets": [str(presets)], "secrets": {"DEPLOY_TOKEN": SECRET}}
    return {"runs": runs}


def pack_archive(**files: str) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name.replace("__", "."))
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return sink.getvalue()


def submit_run(client: httpx.Client, body: dict[str, Any], **headers: str) -> list[dict[str, Any]]:
    response = client.post("/v1/runs", json=body, headers=headers)
    assert response.status_code == 202, response.text
    runs: list[dict[str, Any]] = response.json()["runs"]
    return runs


def wait_for_end(client: httpx.Client, run_id: str) -> dict[str, Any]:
    def look() -> dict[str, Any]:
        run: dict[str, Any] = client.get(f"/v1/runs/{run_id}").json()
        return run if run["state"] in END_STATES else {}

    return eventually(look, 60)


@pytest.fixture(scope="module")
def succeeded_run(client: httpx.Client) -> dict[str, Any]:
    """A succeeded run."""
    sent = client.post("/v1/inputs", content=pack_archive(greeting__txt="hello world\n"))
    assert sent.status_code == 201, sent.text
    [run] = submit_run(client, {"task": HELLO_TASK, "inputs": sent.json()["id"]})
    assert run["state"] in ("queued", "running")
    done = wait_for_end(client, run["id"])
    assert done["state"] == "succeeded", done
    return done


@pytest.fixture
def running_run(client: httpx.Client) -> Iterator[str]:
    """A run that continues until it is cancelled."""
    [run] = submit_run(client, {"task": WAITING_TASK})
    eventually(lambda: client.get(f"/v1/runs/{run['id']}").json()["stage"] == "watch")
    yield run["id"]
    client.post(f"/v1/runs/{run['id']}/cancel", json={"hard": True})
    wait_for_end(client, run["id"])


def parse_sse_frames(text: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]


def test_run_reads_inputs_and_delivers_files(client: httpx.Client, succeeded_run: dict[str, Any]) -> None:
    result = succeeded_run["result"]
    assert (result["state"], result["endedBy"], result["exitCode"], result["score"]) == ("succeeded", "exit", 0, 1.0)
    assert result["stages"].keys() >= {"sandbox", "inputs", "start", "watch", "collect", "verify"}
    [delivered] = result["deliverables"]
    assert (delivered["path"], delivered["size"]) == ("report.md", 12)
    assert succeeded_run["task"]["goal"] == "Say hello." and succeeded_run["name"] == "hello"
    listed = client.get(f"/v1/runs/{succeeded_run['id']}/deliverables").json()
    assert listed["items"] == [delivered] and listed["missing"] == []
    response = client.get(f"/v1/runs/{succeeded_run['id']}/deliverables/report.md")
    assert response.content == b"hello world\n"
    assert hashlib.sha256(response.content).hexdigest() == delivered["sha256"]


def test_deliverables_are_never_rendered_as_pages_of_this_server(
    client: httpx.Client, succeeded_run: dict[str, Any]
) -> None:
    headers = client.get(f"/v1/runs/{succeeded_run['id']}/deliverables/report.md").headers
    assert headers["content-type"] == "application/octet-stream"
    assert headers["content-disposition"].startswith('attachment; filename="report.md"')
    assert headers["x-content-type-options"] == "nosniff"
    log = client.get(f"/v1/runs/{succeeded_run['id']}/logs/agent.out").headers
    assert log["content-type"] == "text/plain; charset=utf-8" and log["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    ["../result.json", "..%2fresult.json", "%2e%2e/task.yaml", "/etc/passwd", "%2fetc/passwd", "no", "a%00b", "."],
)
def test_deliverable_paths_cannot_escape(server: Server, succeeded_run: dict[str, Any], path: str) -> None:
    connection = http.client.HTTPConnection(server.domain)  # sends paths unchanged
    headers = {"Authorization": f"Bearer {server.key}"}
    connection.request("GET", f"/v1/runs/{succeeded_run['id']}/deliverables/{path}", headers=headers)
    response = connection.getresponse()
    assert response.status == 404, response.read()
    connection.close()


def test_deliverable_supports_range_requests(client: httpx.Client, succeeded_run: dict[str, Any]) -> None:
    response = client.get(f"/v1/runs/{succeeded_run['id']}/deliverables/report.md", headers={"Range": "bytes=6-"})
    assert (response.status_code, response.content) == (206, b"world\n")


def test_logs_contain_entrypoint_output(client: httpx.Client, succeeded_run: dict[str, Any]) -> None:
    path = f"/v1/runs/{succeeded_run['id']}/logs"
    assert client.get(f"{path}/agent.out").text == "written\n"
    assert client.get(f"{path}/agent.err", params={"follow": True}).text == "careful\n"
    assert client.get(f"{path}/agent.out", params={"after": 5}).text == "en\n"
    assert client.get(f"{path}/other").status_code == 400


@pytest.mark.parametrize("form", ["tar", "zip"])
def test_run_folder_is_downloaded_as_archive(client: httpx.Client, succeeded_run: dict[str, Any], form: str) -> None:
    response = client.get(f"/v1/runs/{succeeded_run['id']}/archive", params={"format": form})
    assert response.headers["content-disposition"].startswith(f'attachment; filename="{succeeded_run["id"]}.{form}"')
    if form == "tar":
        with tarfile.open(fileobj=io.BytesIO(response.content)) as archive:
            names = archive.getnames()
    else:
        names = zipfile.ZipFile(io.BytesIO(response.content)).namelist()
    inside = {name.removeprefix(f"{succeeded_run['id']}/") for name in names}
    assert {"task.yaml", "result.json", "deliverables/report.md", "logs/agent.out", "events.jsonl"} <= inside
    assert not any(name.startswith(".") for name in inside)


def test_events_are_read_from_start_and_from_cursor(client: httpx.Client, succeeded_run: dict[str, Any]) -> None:
    path = f"/v1/runs/{succeeded_run['id']}/events"
    whole = parse_sse_frames(client.get(path).text)
    assert [event["number"] for event in whole] == list(range(1, len(whole) + 1))
    assert whole[0]["type"] == "run.queued" and whole[-1]["type"] == "run.ended"
    assert any(event["type"] == "run.output" and "written" in event["data"]["text"] for event in whole)
    assert parse_sse_frames(client.get(path, headers={"Last-Event-ID": "3"}).text) == whole[3:]
    page = client.get(path, params={"after": 3, "limit": 2}, headers={"Accept": "application/json"}).json()
    assert page["items"] == whole[3:5] and page["next"] == 5


def test_events_are_streamed_until_the_end(client: httpx.Client, running_run: str) -> None:
    seen: list[str] = []
    with client.stream("GET", f"/v1/runs/{running_run}/events") as response:
        for line in response.iter_lines():
            if line.startswith("event: "):
                seen.append(line.removeprefix("event: "))
            if seen and seen[-1] == "run.output" and "run.cancelling" not in seen:
                assert client.post(f"/v1/runs/{running_run}/cancel").status_code == 202
    assert seen[-1] == "run.ended" and "run.cancelling" in seen


def test_log_is_followed_until_the_run_ends(client: httpx.Client, running_run: str) -> None:
    text = ""
    with client.stream("GET", f"/v1/runs/{running_run}/logs/agent.out", params={"follow": True}) as response:
        for piece in response.iter_text():
            text += piece
            client.post(f"/v1/runs/{running_run}/cancel", json={"hard": True})
    assert text == "begun\n"


def test_cancellation_has_a_reason(client: httpx.Client, running_run: str) -> None:
    response = client.post(f"/v1/runs/{running_run}/cancel", json={"reason": "enough"})
    assert response.status_code == 202
    done = wait_for_end(client, running_run)
    assert (done["state"], done["result"]["endedBy"]) == ("cancelled", "cancel")
    assert "enough" in done["result"]["reason"]


def test_active_run_cannot_be_removed(client: httpx.Client, running_run: str) -> None:
    response = client.delete(f"/v1/runs/{running_run}")
    assert (response.status_code, response.json()["code"]) == (409, "CONFLICT")


def test_retry_is_a_new_run_with_the_same_inputs(client: httpx.Client, succeeded_run: dict[str, Any]) -> None:
    response = client.post(f"/v1/runs/{succeeded_run['id']}/retry")
    assert response.status_code == 202
    again = wait_for_end(client, response.json()["id"])
    assert again["id"] != succeeded_run["id"] and again["state"] == "succeeded"
    assert again["result"]["deliverables"] == succeeded_run["result"]["deliverables"]
    assert client.delete(f"/v1/runs/{again['id']}").status_code == 204
    assert client.get(f"/v1/runs/{again['id']}").status_code == 404
    assert client.get(f"/v1/runs/{again['id']}/deliverables/report.md").status_code == 404


def test_same_idempotency_key_creates_no_second_run(client: httpx.Client) -> None:
    task: dict[str, Any] = {**HELLO_TASK, "name": "once", "entrypoint": "true", "deliverables": [], "verify": []}
    body = {"task": task}
    headers = {"Idempotency-Key": "once"}
    [first], [second] = submit_run(client, body, **headers), submit_run(client, body, **headers)
    assert first["id"] == second["id"]
    task["matrix"] = {"models": ["a", "b"]}
    twice = {"Idempotency-Key": "twice"}
    before, after = submit_run(client, body, **twice), submit_run(client, body, **twice)
    assert [run["id"] for run in before] == [run["id"] for run in after] and len(before) == 2


def test_matrix_creates_a_run_for_each_cell(client: httpx.Client) -> None:
    task = {"name": "matrix", "goal": "x", "image": "host", "entrypoint": "true", "matrix": {"models": ["a", "b"]}}
    runs = submit_run(client, {"task": task})
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


def test_text_inputs_need_no_bundle(client: httpx.Client) -> None:
    task = {**HELLO_TASK, "name": "texts", "inputs": [{"content": "hello text\n", "target": "greeting.txt"}]}
    [run] = submit_run(client, {"task": task})
    assert wait_for_end(client, run["id"])["state"] == "succeeded"
    assert client.get(f"/v1/runs/{run['id']}/deliverables/report.md").text == "hello text\n"


def test_run_uses_a_file_offered_by_the_server(client: httpx.Client) -> None:
    [run] = submit_run(client, {"file": "hello.yaml"})
    assert wait_for_end(client, run["id"])["state"] == "succeeded"
    assert client.get(f"/v1/runs/{run['id']}/deliverables/report.md").text == "hello from a file\n"


def test_lists_are_filtered_and_paged(client: httpx.Client, succeeded_run: dict[str, Any]) -> None:
    def list_runs(**query: Any) -> dict[str, Any]:
        response = client.get("/v1/runs", params=query)
        assert response.status_code == 200, response.text
        document: dict[str, Any] = response.json()
        return document

    assert succeeded_run["id"] in [run["id"] for run in list_runs(name="hello")["items"]]
    assert all(run["state"] == "succeeded" for run in list_runs(state="succeeded")["items"])
    assert list_runs(name="nobody")["items"] == []
    page = list_runs(pageSize=1)
    assert len(page["items"]) == 1 and page["pagination"]["pageSize"] == 1
    assert "task" not in page["items"][0]
    newest = list_runs(pageSize=200)["items"]
    assert newest == sorted(newest, key=lambda run: run["createdAt"], reverse=True)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "give one of 'task', 'file' and 'template'"),
        ({"task": HELLO_TASK, "file": "hello.yaml"}, "give one of 'task', 'file' and 'template'"),
        ({"file": "hello.yaml", "inputs": "x"}, "'inputs' goes with 'task'"),
        ({"task": {**HELLO_TASK, "gaol": "x"}}, "did you mean 'goal'"),
        ({"task": {**HELLO_TASK, "agent": "claude"}}, "claude"),
        ({"task": {**HELLO_TASK, "agent": "script", "entrypoint": None}}, "add an 'entrypoint'"),
        (
            {"task": {**HELLO_TASK, "agent": "clade-code"}},
            "the server knows no preset 'clade-code'; did you mean claude-code?",
        ),
        ({"task": {**HELLO_TASK, "image": "hots"}}, "image: no recipe named 'hots' (did you mean 'host'?)"),
        ({"task": {**HELLO_TASK, "inputs": ["/etc/passwd"]}}, "upload a bundle"),
        ({"task": {**HELLO_TASK, "goal": {"file": "/etc/passwd"}}}, "goal"),
        ({"task": {**HELLO_TASK, "secrets": ["NOPE"]}}, "NOPE"),
        ({"task": HELLO_TASK, "name": "a b"}, "name"),
        ({"task": HELLO_TASK, "name": "a", "priority": 1}, "there is no field priority"),
        ({"file": "broken.yaml"}, "gaol"),
    ],
)
def test_run_errors_are_one_line(client: httpx.Client, body: dict[str, Any], words: str) -> None:
    response = client.post("/v1/runs", json=body)
    assert response.status_code == 400, response.text
    message = response.json()["message"]
    assert words in message and "\n" not in message and "\N{REPLACEMENT CHARACTER}" not in message


def test_secrets_repeated_in_a_task_are_masked(client: httpx.Client) -> None:
    """Also in variables with names that do not suggest a secret."""
    env = {"MODE": SECRET, "ADDRESS": f"https://a.example/{SECRET}/b", "LEVEL": "3"}
    task = {**WAITING_TASK, "entrypoint": "true", "env": env, "secrets": ["DEPLOY_TOKEN"]}
    [run] = submit_run(client, {"task": task})
    wait_for_end(client, run["id"])
    response = client.get(f"/v1/runs/{run['id']}")
    assert SECRET not in response.text and SECRET not in json.dumps(run)
    hidden = "*" * len(SECRET)
    shown = response.json()["task"]
    assert shown["env"] == {"MODE": hidden, "ADDRESS": f"https://a.example/{hidden}/b", "LEVEL": "3"}
    assert shown["secrets"] == ["DEPLOY_TOKEN"]


@pytest.mark.parametrize("inputs", ["in-0123456789abcdef", "../../paddock.db"])
def test_missing_bundle_is_rejected(client: httpx.Client, inputs: str) -> None:
    response = client.post("/v1/runs", json={"task": HELLO_TASK, "inputs": inputs})
    assert response.status_code in (400, 404), response.text


def test_unknown_file_error_lists_offered_files(client: httpx.Client) -> None:
    for name in ("nothing.yaml", "../hello.yaml", "/etc/passwd", "notes.txt"):
        response = client.post("/v1/runs", json={"file": name})
        assert response.status_code == 404 and "hello.yaml" in response.json()["message"]


def test_offered_tasks_are_listed_with_their_errors(client: httpx.Client) -> None:
    items = {item["file"]: item for item in client.get("/v1/tasks").json()["items"]}
    assert items.keys() == {"hello.yaml", "broken.yaml"}
    assert (items["hello.yaml"]["name"], items["hello.yaml"]["description"]) == ("hello", "Greets.")
    assert items["broken.yaml"]["error"].startswith("broken.yaml:1: goal: is missing")
    refused = client.post("/v1/runs", json={"file": "broken.yaml"}).json()["message"]
    assert refused.startswith("broken.yaml:1: goal: is missing")
    shown = client.get("/v1/tasks/hello").json()
    assert shown["task"]["entrypoint"] == HELLO_TASK["entrypoint"] and shown["runs"] == ["hello"]
    assert client.get("/v1/tasks/nothing").status_code == 404


def test_templates_are_listed_and_carry_their_files(client: httpx.Client) -> None:
    items = {item["name"]: item for item in client.get("/v1/tasks/templates").json()["items"]}
    assert {"hello", "hello-script", "fix-bug", "data-report"} <= items.keys()
    template = items["hello"]
    assert (template["agent"], template["model"], template["image"]) == (
        "claude-code",
        "claude-sonnet-4-5",
        "agent-claude-code",
    )
    assert template["scripted"] and not template["needsKey"]
    assert items["hello-script"]["imageBuilt"] and "model" not in items["hello-script"]
    fix = client.get("/v1/tasks/templates/fix-bug").json()["task"]
    assert [each["target"] for each in fix["inputs"]] == [
        f"/workspace/{name}" for name in ("durations.py", "test_durations.py", "tests.sha256")
    ]
    assert client.post("/v1/tasks/validate", json={"task": fix}).json()["valid"]
    missing = client.get("/v1/tasks/templates/nothing")
    assert missing.status_code == 404 and "hello-script" in missing.json()["message"]


def test_template_runs_by_name(client: httpx.Client) -> None:
    [run] = submit_run(client, {"template": "hello-script"})
    assert wait_for_end(client, run["id"])["state"] == "succeeded"
    counts = client.get(f"/v1/runs/{run['id']}/deliverables/counts.txt")
    assert counts.text.splitlines()[0] == "1: 6 words"
    assert client.post("/v1/runs", json={"template": "nothing"}).status_code == 404
    assert client.post("/v1/runs", json={"template": "hello", "task": HELLO_TASK}).status_code == 400


def test_task_is_validated_without_a_run(client: httpx.Client) -> None:
    verdict = client.post("/v1/tasks/validate", json={"task": HELLO_TASK}).json()
    assert verdict == {"valid": True, "ready": True, "issues": [], "runs": ["hello"], "models": []}
    verdict = client.post("/v1/tasks/validate", json={"task": {**HELLO_TASK, "end": {"timeout": "soon"}}}).json()
    assert not verdict["valid"] and "end.timeout" in verdict["error"]
    verdict = client.post("/v1/tasks/validate", json={"task": {**HELLO_TASK, "image": "hots"}}).json()
    assert not verdict["valid"] and "did you mean 'host'?" in verdict["error"]
    [issue] = verdict["issues"]
    assert (issue["code"], issue["field"], issue["params"]) == ("IMAGE_NOT_FOUND", "image", {"image": "hots"})
    schema = client.get("/v1/tasks/schema").json()
    assert "goal" in schema["properties"] and "$schema" in schema


def test_validation_lists_missing_requirements(client: httpx.Client) -> None:
    def check(**fields: Any) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        verdict = client.post("/v1/tasks/validate", json={"task": {**HELLO_TASK, **fields}}).json()
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
    large = pack_archive(big=" " * (70 * 2**20))
    sent = client.post("/v1/inputs", content=large)
    assert sent.status_code == 201 and sent.json()["size"] == len(large)


def test_bundles_must_be_archives(client: httpx.Client) -> None:
    assert client.post("/v1/inputs", content=b"no archive at all" * 100).status_code == 400


@pytest.fixture(scope="module")
def clients_by_scope(server: Server, client: httpx.Client) -> Iterator[dict[str, httpx.Client]]:
    """Clients by the scope of their key, and one of another tenant."""
    clients: dict[str, httpx.Client] = {}
    for scope in ("runs:read", "runs:write", "sandboxes:write", "llm:use", "llm:read"):
        secret = client.post("/v1/keys", json={"name": scope, "scopes": [scope, "tenant:all"]}).json()["secret"]
        clients[scope] = server.client(secret)
    body = {"name": "other", "tenant": "other", "scopes": ["runs:write"]}
    clients["other"] = server.client(client.post("/v1/keys", json=body).json()["secret"])
    yield clients
    for each in clients.values():
        each.close()


@pytest.mark.parametrize("scope", ["sandboxes:write", "llm:use", "llm:read"])
def test_other_scopes_do_not_reach_runs(
    clients_by_scope: dict[str, httpx.Client], succeeded_run: dict[str, Any], scope: str
) -> None:
    for path in (
        "",
        f"/{succeeded_run['id']}",
        f"/{succeeded_run['id']}/events",
        f"/{succeeded_run['id']}/deliverables/report.md",
    ):
        assert clients_by_scope[scope].get(f"/v1/runs{path}").status_code == 403
    assert clients_by_scope[scope].post("/v1/runs", json={"task": HELLO_TASK}).status_code == 403
    assert clients_by_scope[scope].post("/v1/inputs", content=pack_archive(a="b")).status_code == 403


def test_read_scope_cannot_write_runs(clients_by_scope: dict[str, httpx.Client], succeeded_run: dict[str, Any]) -> None:
    reader = clients_by_scope["runs:read"]
    assert reader.get(f"/v1/runs/{succeeded_run['id']}").status_code == 200
    for method, path in [
        ("POST", "/v1/runs"),
        ("POST", "/v1/inputs"),
        ("POST", f"/v1/runs/{succeeded_run['id']}/cancel"),
        ("POST", f"/v1/runs/{succeeded_run['id']}/retry"),
        ("DELETE", f"/v1/runs/{succeeded_run['id']}"),
    ]:
        body = {"task": HELLO_TASK} if path == "/v1/runs" else None
        assert reader.request(method, path, json=body).status_code == 403
    assert clients_by_scope["runs:write"].get(f"/v1/runs/{succeeded_run['id']}").status_code == 200


def test_runs_of_another_tenant_do_not_exist(
    clients_by_scope: dict[str, httpx.Client], succeeded_run: dict[str, Any]
) -> None:
    other = clients_by_scope["other"]
    assert other.get("/v1/runs").json()["items"] == []
    for path in ("", "/events", "/deliverables", "/deliverables/report.md", "/logs/agent.out", "/archive"):
        assert other.get(f"/v1/runs/{succeeded_run['id']}{path}").status_code == 404
    for path in ("cancel", "retry"):
        assert other.post(f"/v1/runs/{succeeded_run['id']}/{path}").status_code == 404
    assert other.delete(f"/v1/runs/{succeeded_run['id']}").status_code == 404


def test_bundle_of_another_tenant_does_not_exist(
    client: httpx.Client, clients_by_scope: dict[str, httpx.Client]
) -> None:
    bundle = client.post("/v1/inputs", content=pack_archive(greeting__txt="secret")).json()["id"]
    response = clients_by_scope["other"].post("/v1/runs", json={"task": HELLO_TASK, "inputs": bundle})
    assert response.status_code in (400, 404), response.text


def test_run_output_requires_the_runs_read_scope(
    client: httpx.Client, clients_by_scope: dict[str, httpx.Client], succeeded_run: dict[str, Any]
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
    assert streams(clients_by_scope["sandboxes:write"]) == {"sandbox"}
