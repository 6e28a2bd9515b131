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
answer_arrived = threading.Condition()
write_lock = threading.Lock()


class ModelRequestFailed(Exception):
    """The model did not answer."""


class PromptRun:
    """One prompt; its open connections are closed on cancellation."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()
        self._open: set[http.client.HTTPConnection] = set()
        self._lock = threading.Lock()

    def post(self, **body: Any) -> Any:
        """Send a request to the proxy, and return the content of its response."""
        host = os.environ["PADDOCK_LLM_URL"].partition("://")[2]
        connection = http.client.HTTPConnection(host)
        connection.connect()
        with self._lock:
            if self.cancelled.is_set():
                raise ModelRequestFailed("cancelled")
            self._open.add(connection)
        headers = {"Authorization": f"Bearer {os.environ['PADDOCK_LLM_KEY']}", "Content-Type": "application/json"}
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps({"model": MODEL, **body}), headers)
            response = connection.getresponse()
            document = json.loads(response.read())
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise ModelRequestFailed(str(error)) from None
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()
        if response.status != 200:
            raise ModelRequestFailed(document["error"]["message"])
        return json.loads(document["choices"][0]["message"]["content"])

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
        temporary_path = self._path.with_suffix(".new")
        temporary_path.write_text(json.dumps(self.messages))
        temporary_path.replace(self._path)

    def update(self, update_type: str, **fields: Any) -> None:
        write(
            method="session/update",
            params={"sessionId": self.session, "update": {"sessionUpdate": update_type, **fields}},
        )

    def say(self, text: str, sort: str = "agent_message_chunk") -> None:
        self.update(sort, content={"type": "text", "text": text})


def write(**message: Any) -> None:
    with write_lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def run_prompt(number: Any, conversation: Conversation, prompt_run: PromptRun, blocks: list[Any]) -> None:
    conversation.add(*({"role": "user", "content": block["text"]} for block in blocks if block["type"] == "text"))
    try:
        while not prompt_run.cancelled.is_set() and run_step(number, conversation, prompt_run):
            pass
    except ModelRequestFailed as error:
        if not prompt_run.cancelled.is_set():
            write(id=number, error={"code": -32603, "message": "Internal error", "data": {"details": str(error)}})
            return
    write(id=number, result={"stopReason": "cancelled" if prompt_run.cancelled.is_set() else "end_turn"})


def run_step(number: Any, conversation: Conversation, prompt_run: PromptRun) -> bool:
    """Ask the model, send its reply and run its calls; return whether there were calls."""
    reply = prompt_run.post(messages=conversation.messages)
    if reply["thought"]:
        conversation.say(reply["thought"], "agent_thought_chunk")
    text, calls = reply["text"], reply["calls"]
    middle = (len(text) + 1) // 2
    for piece in filter(None, (text[:middle], text[middle:])):
        conversation.say(piece)
    if reply["hangs"]:
        prompt_run.cancelled.wait()
    assistant_message = {"role": "assistant", "content": text or None}
    if not calls:
        conversation.add(assistant_message)
        return False
    for call in calls:
        conversation.update(
            "tool_call", toolCallId=call["tool_call"], title=f"Do {call['name']}", kind=call["kind"], status="pending",
            rawInput=call["input"],
        )  # fmt: skip
    results: dict[str, str] = {}
    # Ids of permission requests must be unique within the process.
    requests = {
        call["id"]: request_permission(f"ask-{number}-{call['id']}", conversation, call)
        for call in calls
        if call["asks"]
    }
    running = [
        threading.Thread(target=run_call, args=(conversation, prompt_run, call, requests.get(call["id"]), results))
        for call in calls
        if call["unfit"] is None
    ]
    for call in calls:
        if call["unfit"] is not None:
            results[call["id"]] = call["unfit"]
            finish(conversation, call, "failed", call["unfit"])
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    tool_calls = [
        {
            "id": call["id"],
            "type": "function",
            "function": {"name": call["name"], "arguments": json.dumps(call["input"])},
        }
        for call in calls
    ]
    tool_messages = [
        {"role": "tool", "tool_call_id": call["id"], "content": results.get(call["id"], "It was cancelled.")}
        for call in calls
    ]
    conversation.add({**assistant_message, "tool_calls": tool_calls}, *tool_messages)
    return True


def request_permission(request: str, conversation: Conversation, call: Any) -> str:
    tool_call = {"toolCallId": call["tool_call"], "title": f"Do {call['name']}", "kind": call["kind"]}
    params = {
        "sessionId": conversation.session,
        "toolCall": {**tool_call, "rawInput": call["input"]},
        "options": OPTIONS,
    }
    write(id=request, method="session/request_permission", params=params)
    return request


def run_call(
    conversation: Conversation, prompt_run: PromptRun, call: Any, request: str | None, results: dict[str, str]
) -> None:
    if request is not None:
        with answer_arrived:
            answer_arrived.wait_for(lambda: request in answers)
        outcome = answers[request].get("result", {}).get("outcome", {})
        if outcome.get("outcome") != "selected":
            return
        if outcome.get("optionId") != "yes":
            results[call["id"]] = "It was not allowed."
            finish(conversation, call, "failed", results[call["id"]])
            return
    conversation.update("tool_call_update", toolCallId=call["tool_call"], status="in_progress")
    try:
        result = prompt_run.post(messages=[{"role": "user", "content": call["id"]}], user="tool")
    except ModelRequestFailed:
        return
    results[call["id"]] = result["text"]
    finish(conversation, call, "failed" if result["failed"] else "completed", result["text"])


def finish(conversation: Conversation, call: Any, status: str, text: str) -> None:
    content = [{"type": "content", "content": {"type": "text", "text": text}}]
    conversation.update("tool_call_update", toolCallId=call["tool_call"], status=status, content=content)


def main() -> None:
    conversations: dict[str, Conversation] = {}
    prompt_run = PromptRun()
    for line in sys.stdin:
        message = json.loads(line)
        method, params, number = message.get("method"), message.get("params", {}), message.get("id")
        if method is None:
            with answer_arrived:
                answers[number] = message
                answer_arrived.notify_all()
        elif method == "initialize":
            write(id=number, result={"protocolVersion": 1, "agentCapabilities": {"loadSession": True}})
        elif method == "session/new":
            conversation = Conversation(f"session-{len(list(HOME.glob('session-*.json'))) + 1}")
            conversation.add()
            conversations[conversation.session] = conversation
            write(id=number, result={"sessionId": conversation.session})
        elif method == "session/load":
            conversation = conversations[params["sessionId"]] = Conversation(params["sessionId"])
            for stored_message in conversation.messages:
                if stored_message["role"] == "assistant" and stored_message["content"]:
                    conversation.say(stored_message["content"])
            write(id=number, result={})
        elif method == "session/prompt":
            prompt_run = PromptRun()
            arguments = (number, conversations[params["sessionId"]], prompt_run, params["prompt"])
            threading.Thread(target=run_prompt, args=arguments, daemon=True).start()
        elif method == "session/cancel":
            prompt_run.cancel()


main()
