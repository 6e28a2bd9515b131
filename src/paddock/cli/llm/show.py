"""`paddock llm show` and `conversations`: prints an exchange, a conversation, or a sandbox's conversations."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from paddock.cli.framework.command_registration import register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.output.formatting import parse_time
from paddock.cli.sandbox.sandbox_lookup import SandboxArgument

if TYPE_CHECKING:
    pass

_CONVERSATION_KINDS = {"main": "main", "subagent": "sub-agent", "branch": "branch", "side": "side call"}


def register_commands(models: typer.Typer) -> None:
    register_command(
        models,
        "show",
        server=True,
        examples="""
            paddock llm show last
            paddock llm show 42 --thread
            paddock llm show 42 --raw response
        """,
    )(show_exchange)
    register_command(
        models,
        "conversations",
        server=True,
        examples="paddock llm conversations 3f2a\npaddock llm conversations builder --json",
    )(list_conversations)


async def show_exchange(
    cli: CliContext,
    exchange: Annotated[
        str,
        typer.Argument(metavar="EXCHANGE", help="Number, ID, or `last`.", show_default=False),
    ],
    raw: Annotated[
        Literal["request", "response"] | None,
        typer.Option(metavar="request|response", help="Print only the raw bytes.", show_default=False),
    ] = None,
    thread: Annotated[bool, typer.Option("--thread", help="Show the whole conversation.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Print long texts in full, as in a pipe.")] = False,
) -> None:
    """Show the request and the answer of one exchange."""
    from paddock.cli.llm.exchange_filters import find_exchange_id

    async with cli.open_read_client() as client:
        exchange_id = await find_exchange_id(client, exchange)
        if raw:
            async with client.request("GET", f"/v1/exchanges/{exchange_id}", params={"raw": raw}) as answer:
                async for piece in answer.content.iter_any():
                    sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
            return None
        found = await client.get(f"/v1/exchanges/{exchange_id}{'/conversation' if thread else ''}")
    if cli.as_json:
        return cli.out.print_json(found)
    from paddock.cli.llm.conversation_text import ConversationPrinter

    printer = ConversationPrinter(full=full or not cli.out.is_interactive)
    if thread:
        cli.out.print_facts(_conversation_facts(found))
        printer.print_messages(found["messages"])
    else:
        cli.out.print_facts(_exchange_facts(found))
        printer.print_messages(found.get("messages") or [])
        if found.get("answer"):
            printer.print_answer(found["answer"])
        elif not found.get("messages") and cli.out.is_interactive:
            cli.out.print_line(f"\nRaw bytes: paddock llm show {found['number']} --raw request (or response)")
    printer.print_cut_note()
    return None


async def list_conversations(cli: CliContext, sandbox: SandboxArgument) -> None:
    """List the conversations of a sandbox.

    Besides the main conversation there may be those of sub-agents, abandoned branches, and side calls such as the one
    for a title.
    """
    from paddock.cli.llm.exchange_filters import find_sandbox_id
    from paddock.cli.llm.exchange_text import join_text_lines
    from paddock.cli.output.formatting import format_cost, format_count

    async with cli.open_read_client() as client:
        found = (await client.get(f"/v1/sandboxes/{await find_sandbox_id(client, sandbox)}/conversations"))["items"]
    if cli.as_json:
        return cli.out.print_json(found)
    if not found:
        if cli.out.is_interactive:
            cli.out.print_line("No model requests in this sandbox.")
        return None
    rows = [
        [
            str(each["number"]),
            _CONVERSATION_KINDS.get(each["kind"], each["kind"]),
            _format_time(each["at"]),
            str(each["turns"]),
            format_count(each["usage"]["input"]),
            format_count(each["usage"]["output"]),
            format_cost(each.get("cost")),
            join_text_lines(_first_user_text(each["messages"])),
        ]
        for each in found
    ]
    cli.out.print_table(["FIRST", "KIND", "STARTED", "TURNS", "IN", "OUT", "COST", "FIRST MESSAGE"], rows)
    if cli.out.is_interactive:
        cli.out.print_line(f"\nShow one: paddock llm show {found[0]['number']} --thread")
    return None


def _exchange_facts(found: dict[str, Any]) -> list[tuple[str, str]]:
    from paddock.cli.llm.exchange_text import format_answered_by, format_exchange_outcome, format_token_counts
    from paddock.cli.output.formatting import format_cost, format_latency

    request_text = f"{found['model']}, in {found['format']}" + (", streamed" if found["stream"] else "")
    if found["operation"] != "generate":
        request_text += f", to {found['operation'].replace('_', ' ')}"
    answered = format_answered_by(found)
    if found.get("providerFormat") not in (None, found["format"]):
        answered += f", in {found['providerFormat']}"
    duration = f"{format_latency(found['total'])}"
    if found.get("firstByte") is not None:
        duration += f", first byte after {format_latency(found['firstByte'])}"
    if found["retries"]:
        duration += f", {found['retries']} {'retry' if found['retries'] == 1 else 'retries'}"
    facts = [
        ("exchange", f"{found['number']}  {found['id']}"),
        ("time", _format_time(found["at"], seconds=True)),
        ("requested", request_text),
        ("answered by" if found["outcome"] in ("ok", "cut") else "provider", answered),
        ("outcome", format_exchange_outcome(found)),
    ]
    facts += [(name, str(found[name])) for name in ("sandbox", "run", "session", "user", "client") if found.get(name)]
    if found.get("usage"):
        facts.append(("tokens", format_token_counts(found)))
        facts.append(("cost", format_cost(found.get("cost")) or "unknown; no price is configured"))
    facts.append(("took", duration))
    if found.get("tools"):
        facts.append(("tools", f"{len(found['tools'])}: {', '.join(found['tools'])}"))
    answer = found.get("answer") or {}
    notes = [*found["notes"], *(note for note in answer.get("notes") or [] if note not in found["notes"])]
    return facts + [("note", note) for note in notes]


def _conversation_facts(found: dict[str, Any]) -> list[tuple[str, str]]:
    from paddock.cli.llm.exchange_text import format_token_counts
    from paddock.cli.output.formatting import format_cost

    turns = found["turns"]
    began, ended = (_format_time(found[name], seconds=True) for name in ("at", "lastAt"))
    facts = [
        (
            "conversation",
            f"{_CONVERSATION_KINDS.get(found['kind'], found['kind'])}, {turns} {'turn' if turns == 1 else 'turns'}",
        ),
        ("time", began if began == ended else f"{began} to {ended}"),
        ("models", ", ".join(found["models"])),
        ("tokens", format_token_counts(found, part=True)),
    ]
    if found.get("cost") is not None:
        facts.append(("cost", ("~" if found.get("estimated") and found["cost"] else "") + format_cost(found["cost"])))
    return facts + [("note", note) for note in found["notes"]]


def _format_time(text: str, *, seconds: bool = False) -> str:
    when = parse_time(text)
    return "" if when is None else f"{when.astimezone():{'%Y-%m-%d %H:%M:%S' if seconds else '%m-%d %H:%M'}}"


def _first_user_text(messages: list[dict[str, Any]]) -> str:
    """Return the first user message of a conversation, which describes its subject."""
    for message in messages:
        if message["role"] == "user":
            texts = [part["text"] for part in message["parts"] if part["type"] == "text"]
            # Agents put reminders before the user's own text.
            own_texts = [text for text in texts if not text.lstrip().startswith("<")] or texts
            if own_texts:
                return str(own_texts[0])
    return ""
