"""An agent program that speaks ACP, asks its model through the proxy, and has its tools there too. Runs in a sandbox.

What it is asked to do is a script's; that it keeps a conversation, asks for permissions, runs calls side by side and
stops when it is told to is its own, as it is with real ones.
"""

import http.client
import json
import os
import pathlib
import socket
import sys
import threading
from typing import Any

HOME = pathlib.Path(os.environ["HOME"])
MODEL = sys.argv[1]
OPTIONS = [
    {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
]
SYSTEM = {"role": "system", "content": "You are a program."}
answers: dict[str, Any] = {}
arrived = threading.Condition()
writing = threading.Lock()


class Failed(Exception):
    """The model did not answer."""


class Errand:
    """One prompt; all that it has open is closed when it is cancelled."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()
        self._open: set[http.client.HTTPConnection] = set()
        self._lock = threading.Lock()

    def post(self, **body: Any) -> Any:
        """Ask the proxy, and give what was answered."""
        host = os.environ["PADDOCK_LLM_URL"].partition("://")[2]
        connection = http.client.HTTPConnection(host)
        connection.connect()
        with self._lock:
            if self.cancelled.is_set():
                raise Failed("cancelled")
            self._open.add(connection)
        headers = {"Authorization": f"Bearer {os.environ['PADDOCK_LLM_KEY']}", "Content-Type": "application/json"}
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps({"model": MODEL, **body}), headers)
            response = connection.getresponse()
            told = json.loads(response.read())
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise Failed(str(error)) from None
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()
        if response.status != 200:
            raise Failed(told["error"]["message"])
        return json.loads(told["choices"][0]["message"]["content"])

    def cancel(self) -> None:
        with self._lock:
            self.cancelled.set()
            for connection in self._open:
                if connection.sock is not None:
                    connection.sock.shutdown(socket.SHUT_RDWR)


class Conversation:
    """The conversation on disk, which the program loads after a restart."""

    def __init__(self, session: str) -> None:
        self.session = session
        self._path = HOME / f"{session}.json"
        self.messages: list[Any] = json.loads(self._path.read_text()) if self._path.exists() else [SYSTEM]

    def add(self, *messages: Any) -> None:
        self.messages += messages
        beside = self._path.with_suffix(".new")
        beside.write_text(json.dumps(self.messages))
        beside.replace(self._path)

    def update(self, sort: str, **more: Any) -> None:
        write(method="session/update", params={"sessionId": self.session, "update": {"sessionUpdate": sort, **more}})

    def say(self, text: str, sort: str = "agent_message_chunk") -> None:
        self.update(sort, content={"type": "text", "text": text})


def write(**message: Any) -> None:
    with writing:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def work(number: Any, talk: Conversation, errand: Errand, blocks: list[Any]) -> None:
    talk.add(*({"role": "user", "content": block["text"]} for block in blocks if block["type"] == "text"))
    try:
        while not errand.cancelled.is_set() and step(number, talk, errand):
            pass
    except Failed as error:
        if not errand.cancelled.is_set():
            write(id=number, error={"code": -32603, "message": "Internal error", "data": {"details": str(error)}})
            return
    write(id=number, result={"stopReason": "cancelled" if errand.cancelled.is_set() else "end_turn"})


def step(number: Any, talk: Conversation, errand: Errand) -> bool:
    """Ask the model, say what it says, do what it wants; whether there was something to do."""
    answer = errand.post(messages=talk.messages)
    if answer["thought"]:
        talk.say(answer["thought"], "agent_thought_chunk")
    text, calls = answer["text"], answer["calls"]
    middle = (len(text) + 1) // 2
    for piece in filter(None, (text[:middle], text[middle:])):
        talk.say(piece)
    if answer["hangs"]:
        errand.cancelled.wait()
    said = {"role": "assistant", "content": text or None}
    if not calls:
        talk.add(said)
        return False
    for call in calls:
        talk.update(
            "tool_call", toolCallId=call["tool_call"], title=f"Do {call['name']}", kind=call["kind"], status="pending",
            rawInput=call["input"],
        )  # fmt: skip
    results: dict[str, str] = {}
    # The numbers of permissions must not come again while the process lives.
    requests = {call["id"]: ask(f"ask-{number}-{call['id']}", talk, call) for call in calls if call["asks"]}
    running = [
        threading.Thread(target=carry_out, args=(talk, errand, call, requests.get(call["id"]), results))
        for call in calls
        if call["unfit"] is None
    ]
    for call in calls:
        if call["unfit"] is not None:
            results[call["id"]] = call["unfit"]
            finish(talk, call, "failed", call["unfit"])
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    wanted = [
        {
            "id": call["id"],
            "type": "function",
            "function": {"name": call["name"], "arguments": json.dumps(call["input"])},
        }
        for call in calls
    ]
    told = [
        {"role": "tool", "tool_call_id": call["id"], "content": results.get(call["id"], "It was cancelled.")}
        for call in calls
    ]
    talk.add({**said, "tool_calls": wanted}, *told)
    return True


def ask(request: str, talk: Conversation, call: Any) -> str:
    about = {"toolCallId": call["tool_call"], "title": f"Do {call['name']}", "kind": call["kind"]}
    params = {"sessionId": talk.session, "toolCall": {**about, "rawInput": call["input"]}, "options": OPTIONS}
    write(id=request, method="session/request_permission", params=params)
    return request


def carry_out(talk: Conversation, errand: Errand, call: Any, request: str | None, results: dict[str, str]) -> None:
    if request is not None:
        with arrived:
            arrived.wait_for(lambda: request in answers)
        outcome = answers[request].get("result", {}).get("outcome", {})
        if outcome.get("outcome") != "selected":
            return
        if outcome.get("optionId") != "yes":
            results[call["id"]] = "It was not allowed."
            finish(talk, call, "failed", results[call["id"]])
            return
    talk.update("tool_call_update", toolCallId=call["tool_call"], status="in_progress")
    try:
        done = errand.post(messages=[{"role": "user", "content": call["id"]}], user="tool")
    except Failed:
        return
    results[call["id"]] = done["text"]
    finish(talk, call, "failed" if done["failed"] else "completed", done["text"])


def finish(talk: Conversation, call: Any, status: str, text: str) -> None:
    content = [{"type": "content", "content": {"type": "text", "text": text}}]
    talk.update("tool_call_update", toolCallId=call["tool_call"], status=status, content=content)


def main() -> None:
    talks: dict[str, Conversation] = {}
    errand = Errand()
    for line in sys.stdin:
        message = json.loads(line)
        method, params, number = message.get("method"), message.get("params", {}), message.get("id")
        if method is None:
            with arrived:
                answers[number] = message
                arrived.notify_all()
        elif method == "initialize":
            write(id=number, result={"protocolVersion": 1, "agentCapabilities": {"loadSession": True}})
        elif method == "session/new":
            talk = Conversation(f"session-{len(list(HOME.glob('session-*.json'))) + 1}")
            talk.add()
            talks[talk.session] = talk
            write(id=number, result={"sessionId": talk.session})
        elif method == "session/load":
            talk = talks[params["sessionId"]] = Conversation(params["sessionId"])
            for said in talk.messages:
                if said["role"] == "assistant" and said["content"]:
                    talk.say(said["content"])
            write(id=number, result={})
        elif method == "session/prompt":
            errand = Errand()
            given = (number, talks[params["sessionId"]], errand, params["prompt"])
            threading.Thread(target=work, args=given, daemon=True).start()
        elif method == "session/cancel":
            errand.cancel()


main()
