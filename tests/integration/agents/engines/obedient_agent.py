"""An ACP agent program that executes its prompt line by line. Runs in a sandbox that has only Python."""

import json
import os
import pathlib
import sys
import threading
import time
from typing import Any

HOME = pathlib.Path(os.environ["HOME"])
NOTES = HOME / "sessions.json"
LOG = HOME / "log.jsonl"
answers: dict[str, Any] = {}
arrived = threading.Condition()
cancelled = threading.Event()
writing = threading.Lock()
asked = 0


def write(**message: Any) -> None:
    with writing:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def log(**entry: Any) -> None:
    with LOG.open("a") as file:
        file.write(json.dumps(entry) + "\n")


def update(session: str, sort: str, /, **more: Any) -> None:
    write(method="session/update", params={"sessionId": session, "update": {"sessionUpdate": sort, **more}})


def say(session: str, text: str, kind: str = "agent_message_chunk") -> None:
    update(session, kind, content={"type": "text", "text": text})


OPTIONS = [
    {"optionId": "always", "name": "Always", "kind": "allow_always"},
    {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
]


def ask(session: str, name: str) -> str:
    """Ask for a permission, without waiting for it."""
    global asked
    asked += 1
    number = f"ask-{asked}"
    call = {"toolCallId": name, "title": f"Run {name}", "kind": "execute", "rawInput": {"command": name}}
    write(
        id=number,
        method="session/request_permission",
        params={"sessionId": session, "toolCall": call, "options": OPTIONS},
    )
    return number


def outcome(number: str) -> Any:
    with arrived:
        arrived.wait_for(lambda: number in answers)
    return answers[number].get("result", {}).get("outcome", {})


def finish(session: str, name: str, allowed: bool, text: str = "ran") -> None:
    content = [{"type": "content", "content": {"type": "text", "text": f"{name}: {text}"}}]
    update(
        session,
        "tool_call_update",
        toolCallId=name,
        status="completed" if allowed else "failed",
        content=content,
    )


def obey(session: str, line: str) -> None:
    verb, _, rest = line.partition(" ")
    if verb == "say":
        for word in rest.split(" "):
            say(session, word + " ")
    elif verb == "think":
        say(session, rest, "agent_thought_chunk")
    elif verb == "run":
        update(session, "tool_call", toolCallId=rest, title="Terminal", kind="execute", status="pending", rawInput={})
        update(session, "tool_call_update", toolCallId=rest, rawInput={"command": rest}, title=f"Run {rest}")
        given = outcome(ask(session, rest))
        log(answer=given)
        finish(session, rest, given.get("optionId") in ("yes", "always"))
    elif verb == "both":
        names = rest.split(" ")
        for name, number in [(name, ask(session, name)) for name in names]:
            given = outcome(number)
            log(answer=given)
            finish(session, name, given.get("optionId") in ("yes", "always"))
    elif verb == "quiet":
        update(session, "tool_call", toolCallId=rest, title=f"Read {rest}", kind="read", status="in_progress")
        finish(session, rest, True)
    elif verb == "plan":
        entries = [{"content": each, "priority": "low", "status": "in_progress"} for each in rest.split(" ")]
        update(session, "plan", entries=entries)
    elif verb == "wait":
        log(waiting=rest)
        while not pathlib.Path("/workspace", rest).exists() and not cancelled.is_set():
            time.sleep(0.01)
    elif verb == "files":
        write(id="read-1", method="fs/read_text_file", params={"sessionId": session, "path": "/etc/passwd"})
        with arrived:
            arrived.wait_for(lambda: "read-1" in answers)
        say(session, str(answers["read-1"].get("error", {}).get("code")))
    elif verb == "odd":
        deep = json.loads('{"a":' * 300 + "1" + "}" * 300)
        odd = {"half": "\ud800", "number": float("nan")}
        for name, given in (("deep", deep), ("odd", odd)):
            update(
                session, "tool_call", toolCallId=name, title="\ud800", kind="read", status="in_progress", rawInput=given
            )
            finish(session, name, True, "\ud800")
        call = {"toolCallId": "deeper", "title": "Run", "kind": "execute", "rawInput": deep}
        params = {"sessionId": session, "toolCall": call, "options": OPTIONS}
        write(id="odd-1", method="session/request_permission", params=params)
        with arrived:
            arrived.wait_for(lambda: "odd-1" in answers)
        log(refused=answers["odd-1"].get("error", {}).get("code"))
    elif verb == "error":
        raise ValueError(rest)
    elif verb == "die":
        sys.stderr.write("I have had enough\n")
        sys.stderr.flush()
        os._exit(3)
    elif verb == "deaf":
        time.sleep(60)
    elif verb == "child":
        os.spawnlp(os.P_NOWAIT, "sleep", "sleep", rest)


def prompt(number: Any, params: Any) -> None:
    session = params["sessionId"]
    blocks = params["prompt"]
    text = "\n".join(block["text"] for block in blocks if block["type"] == "text")
    log(prompt=text, images=[block["mimeType"] for block in blocks if block["type"] == "image"])
    try:
        for line in text.splitlines():
            obey(session, line)
            if cancelled.is_set():
                break
    except ValueError as error:
        write(id=number, error={"code": -32603, "message": "Internal error", "data": {"details": str(error)}})
        return
    write(id=number, result={"stopReason": "cancelled" if cancelled.is_set() else "end_turn"})


def request(message: Any) -> None:
    method, params, number = message["method"], message.get("params", {}), message.get("id")
    if method == "initialize":
        log(started=os.getpid())
        able = {"loadSession": True, "promptCapabilities": {"image": True}}
        write(id=number, result={"protocolVersion": 1, "agentCapabilities": able})
    elif method == "session/new":
        sessions = json.loads(NOTES.read_text()) if NOTES.exists() else []
        name = f"session-{len(sessions) + 1}"
        NOTES.write_text(json.dumps([*sessions, name]))
        log(new=name)
        write(id=number, result={"sessionId": name})
    elif method == "session/load":
        if params["sessionId"] in (json.loads(NOTES.read_text()) if NOTES.exists() else []):
            log(loaded=params["sessionId"])
            say(params["sessionId"], "this was said before")
            write(id=number, result={})
        else:
            write(id=number, error={"code": -32602, "message": "there is no such session"})
    elif method == "session/prompt":
        cancelled.clear()
        threading.Thread(target=prompt, args=(number, params), daemon=True).start()
    elif method == "session/cancel":
        log(cancel=True)
        cancelled.set()
    else:
        write(id=number, error={"code": -32601, "message": "no such method"})


for line in sys.stdin:
    message = json.loads(line)
    if "method" in message:
        request(message)
    else:
        with arrived:
            answers[message["id"]] = message
            arrived.notify_all()
