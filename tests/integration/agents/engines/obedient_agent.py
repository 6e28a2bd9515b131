"""An ACP agent program that executes its prompt line by line. Runs in a sandbox that has only Python."""

import json
import os
import pathlib
import sys
import threading
import time
from typing import Any

HOME = pathlib.Path(os.environ["HOME"])
SESSIONS_FILE = HOME / "sessions.json"
LOG = HOME / "log.jsonl"
answers: dict[str, Any] = {}
answer_arrived = threading.Condition()
cancelled = threading.Event()
write_lock = threading.Lock()
permission_count = 0


def write(**message: Any) -> None:
    with write_lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def log(**entry: Any) -> None:
    with LOG.open("a") as file:
        file.write(json.dumps(entry) + "\n")


def update(session: str, update_type: str, /, **fields: Any) -> None:
    write(method="session/update", params={"sessionId": session, "update": {"sessionUpdate": update_type, **fields}})


def say(session: str, text: str, kind: str = "agent_message_chunk") -> None:
    update(session, kind, content={"type": "text", "text": text})


OPTIONS = [
    {"optionId": "always", "name": "Always", "kind": "allow_always"},
    {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
]


def request_permission(session: str, name: str) -> str:
    """Ask for a permission, without waiting for it."""
    global permission_count
    permission_count += 1
    number = f"ask-{permission_count}"
    call = {"toolCallId": name, "title": f"Run {name}", "kind": "execute", "rawInput": {"command": name}}
    write(
        id=number,
        method="session/request_permission",
        params={"sessionId": session, "toolCall": call, "options": OPTIONS},
    )
    return number


def wait_for_outcome(number: str) -> Any:
    with answer_arrived:
        answer_arrived.wait_for(lambda: number in answers)
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


def run_command_line(session: str, line: str) -> None:
    command, _, rest = line.partition(" ")
    if command == "say":
        for word in rest.split(" "):
            say(session, word + " ")
    elif command == "think":
        say(session, rest, "agent_thought_chunk")
    elif command == "run":
        update(session, "tool_call", toolCallId=rest, title="Terminal", kind="execute", status="pending", rawInput={})
        update(session, "tool_call_update", toolCallId=rest, rawInput={"command": rest}, title=f"Run {rest}")
        outcome = wait_for_outcome(request_permission(session, rest))
        log(answer=outcome)
        finish(session, rest, outcome.get("optionId") in ("yes", "always"))
    elif command == "both":
        names = rest.split(" ")
        for name, number in [(name, request_permission(session, name)) for name in names]:
            outcome = wait_for_outcome(number)
            log(answer=outcome)
            finish(session, name, outcome.get("optionId") in ("yes", "always"))
    elif command == "quiet":
        update(session, "tool_call", toolCallId=rest, title=f"Read {rest}", kind="read", status="in_progress")
        finish(session, rest, True)
    elif command == "plan":
        entries = [{"content": each, "priority": "low", "status": "in_progress"} for each in rest.split(" ")]
        update(session, "plan", entries=entries)
    elif command == "wait":
        log(waiting=rest)
        while not pathlib.Path("/workspace", rest).exists() and not cancelled.is_set():
            time.sleep(0.01)
    elif command == "files":
        write(id="read-1", method="fs/read_text_file", params={"sessionId": session, "path": "/etc/passwd"})
        with answer_arrived:
            answer_arrived.wait_for(lambda: "read-1" in answers)
        say(session, str(answers["read-1"].get("error", {}).get("code")))
    elif command == "odd":
        deep = json.loads('{"a":' * 300 + "1" + "}" * 300)
        odd = {"half": "\ud800", "number": float("nan")}
        for name, outcome in (("deep", deep), ("odd", odd)):
            update(
                session,
                "tool_call",
                toolCallId=name,
                title="\ud800",
                kind="read",
                status="in_progress",
                rawInput=outcome,
            )
            finish(session, name, True, "\ud800")
        call = {"toolCallId": "deeper", "title": "Run", "kind": "execute", "rawInput": deep}
        params = {"sessionId": session, "toolCall": call, "options": OPTIONS}
        write(id="odd-1", method="session/request_permission", params=params)
        with answer_arrived:
            answer_arrived.wait_for(lambda: "odd-1" in answers)
        log(refused=answers["odd-1"].get("error", {}).get("code"))
    elif command == "error":
        raise ValueError(rest)
    elif command == "die":
        sys.stderr.write("I have had enough\n")
        sys.stderr.flush()
        os._exit(3)
    elif command == "deaf":
        time.sleep(60)
    elif command == "child":
        os.spawnlp(os.P_NOWAIT, "sleep", "sleep", rest)


def prompt(number: Any, params: Any) -> None:
    session = params["sessionId"]
    blocks = params["prompt"]
    text = "\n".join(block["text"] for block in blocks if block["type"] == "text")
    log(prompt=text, images=[block["mimeType"] for block in blocks if block["type"] == "image"])
    try:
        for line in text.splitlines():
            run_command_line(session, line)
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
        capabilities = {"loadSession": True, "promptCapabilities": {"image": True}}
        write(id=number, result={"protocolVersion": 1, "agentCapabilities": capabilities})
    elif method == "session/new":
        sessions = json.loads(SESSIONS_FILE.read_text()) if SESSIONS_FILE.exists() else []
        name = f"session-{len(sessions) + 1}"
        SESSIONS_FILE.write_text(json.dumps([*sessions, name]))
        log(new=name)
        write(id=number, result={"sessionId": name})
    elif method == "session/load":
        if params["sessionId"] in (json.loads(SESSIONS_FILE.read_text()) if SESSIONS_FILE.exists() else []):
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
        with answer_arrived:
            answers[message["id"]] = message
            answer_arrived.notify_all()
