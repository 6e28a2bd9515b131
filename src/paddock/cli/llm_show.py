"""One exchange with a model, or a whole conversation, readable."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from paddock.cli.commands import command
from paddock.cli.context import Cli
from paddock.cli.output import moment
from paddock.cli.sandbox import SandboxArgument

if TYPE_CHECKING:
    pass

_KINDS = {"main": "main", "subagent": "sub-agent", "branch": "branch", "side": "side call"}


def register(models: typer.Typer) -> None:
    command(
        models,
        "show",
        server=True,
        examples="""
            paddock llm show last
            paddock llm show 42 --thread
            paddock llm show 42 --raw response
        """,
    )(show)
    command(
        models,
        "conversations",
        server=True,
        examples="paddock llm conversations 3f2a\npaddock llm conversations builder --json",
    )(conversations)


async def show(
    cli: Cli,
    exchange: Annotated[
        str,
        typer.Argument(metavar="EXCHANGE", help="Number, id, or `last` for the newest.", show_default=False),
    ],
    raw: Annotated[
        Literal["request", "response"] | None,
        typer.Option(metavar="request|response", help="The bytes as they came, and nothing else.", show_default=False),
    ] = None,
    thread: Annotated[bool, typer.Option("--thread", help="All of the conversation that it is part of.")] = False,
    full: Annotated[bool, typer.Option("--full", help="All lines of long texts too, as when piped.")] = False,
) -> None:
    """Show what was asked and answered in one exchange."""
    from paddock.cli.llm_filters import exchange_id

    async with cli.reading() as client:
        wanted = await exchange_id(client, exchange)
        if raw:
            async with client.request("GET", f"/v1/exchanges/{wanted}", params={"raw": raw}) as answer:
                async for piece in answer.content.iter_any():
                    sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
            return None
        found = await client.get(f"/v1/exchanges/{wanted}{'/conversation' if thread else ''}")
    if cli.as_json:
        return cli.out.document(found)
    from paddock.cli.llm_speech import Speech

    speech = Speech(full=full or not cli.out.for_people)
    if thread:
        cli.out.facts(_thread_facts(found))
        speech.messages(found["messages"])
    else:
        cli.out.facts(_facts(found))
        speech.messages(found.get("messages") or [])
        if found.get("answer"):
            speech.answer(found["answer"])
        elif not found.get("messages") and cli.out.for_people:
            cli.out.line(f"\nIts bytes: paddock llm show {found['number']} --raw request, or response")
    speech.end()
    return None


async def conversations(cli: Cli, sandbox: SandboxArgument) -> None:
    """List the conversations of a sandbox.

    There is the main one, and there may be some of sub-agents, branches that were given up, and side calls such as
    those for a title.
    """
    from paddock.cli.llm_filters import sandbox_id
    from paddock.cli.llm_words import count, first_line, money

    async with cli.reading() as client:
        found = (await client.get(f"/v1/sandboxes/{await sandbox_id(client, sandbox)}/conversations"))["items"]
    if cli.as_json:
        return cli.out.document(found)
    if not found:
        if cli.out.for_people:
            cli.out.line("Nothing was asked of a model in this sandbox.")
        return None
    rows = [
        [
            str(each["number"]),
            _KINDS.get(each["kind"], each["kind"]),
            _day(each["at"]),
            str(each["turns"]),
            count(each["usage"]["input"]),
            count(each["usage"]["output"]),
            money(each.get("cost")),
            first_line(_opening(each["messages"])),
        ]
        for each in found
    ]
    cli.out.table(["FIRST", "KIND", "BEGAN", "TURNS", "IN", "OUT", "COST", "BEGINS WITH"], rows)
    if cli.out.for_people:
        cli.out.line(f"\nRead one: paddock llm show {found[0]['number']} --thread")
    return None


def _facts(found: dict[str, Any]) -> list[tuple[str, str]]:
    from paddock.cli.llm_words import answered_by, latency, money, outcome_of, tokens

    asked = f"{found['model']}, in {found['format']}" + (", streamed" if found["stream"] else "")
    if found["operation"] != "generate":
        asked += f", to {found['operation'].replace('_', ' ')}"
    answered = answered_by(found)
    if found.get("providerFormat") not in (None, found["format"]):
        answered += f", in {found['providerFormat']}"
    took = f"{latency(found['total'])}"
    if found.get("firstByte") is not None:
        took += f", the first byte after {latency(found['firstByte'])}"
    if found["retries"]:
        took += f", {found['retries']} {'retry' if found['retries'] == 1 else 'retries'}"
    facts = [
        ("exchange", f"{found['number']}  {found['id']}"),
        ("time", _day(found["at"], seconds=True)),
        ("asked for", asked),
        ("answered by" if found["outcome"] in ("ok", "cut") else "provider", answered),
        ("outcome", outcome_of(found)),
    ]
    facts += [(name, str(found[name])) for name in ("sandbox", "run", "session", "user", "client") if found.get(name)]
    if found.get("usage"):
        facts.append(("tokens", tokens(found)))
        facts.append(("cost", money(found.get("cost")) or "unknown; no price is set for it"))
    facts.append(("took", took))
    if found.get("tools"):
        facts.append(("tools", f"{len(found['tools'])}: {', '.join(found['tools'])}"))
    answer = found.get("answer") or {}
    notes = [*found["notes"], *(note for note in answer.get("notes") or [] if note not in found["notes"])]
    return facts + [("note", note) for note in notes]


def _thread_facts(found: dict[str, Any]) -> list[tuple[str, str]]:
    from paddock.cli.llm_words import money, tokens

    turns = found["turns"]
    began, ended = (_day(found[name], seconds=True) for name in ("at", "lastAt"))
    facts = [
        ("conversation", f"{_KINDS.get(found['kind'], found['kind'])}, {turns} {'turn' if turns == 1 else 'turns'}"),
        ("time", began if began == ended else f"{began} to {ended}"),
        ("models", ", ".join(found["models"])),
        ("tokens", tokens(found, part=True)),
    ]
    if found.get("cost") is not None:
        facts.append(("cost", ("~" if found.get("estimated") and found["cost"] else "") + money(found["cost"])))
    return facts + [("note", note) for note in found["notes"]]


def _day(text: str, *, seconds: bool = False) -> str:
    when = moment(text)
    return "" if when is None else f"{when.astimezone():{'%Y-%m-%d %H:%M:%S' if seconds else '%m-%d %H:%M'}}"


def _opening(messages: list[dict[str, Any]]) -> str:
    """What a conversation is about: the first words of whoever began it."""
    for message in messages:
        if message["role"] == "user":
            texts = [part["text"] for part in message["parts"] if part["type"] == "text"]
            # Agents put reminders before what the person wrote.
            said = [text for text in texts if not text.lstrip().startswith("<")] or texts
            if said:
                return str(said[0])
    return ""
