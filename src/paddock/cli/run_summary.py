"""What came of a run, for people."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from paddock.cli.llm_words import count, money
from paddock.cli.output import Output, plain, size
from paddock.cli.run_evidence import evidence_rows
from paddock.cli.run_progress import STAGES, SUCCEEDED, one_line, tidy
from paddock.cli.run_shapes import STATE_STYLES, number_of, took, words

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_SHOWN_FILES = 12
_WITH_EXIT_CODE = ("exit", "agent_error", "setup")
_FIGURES = ("TURNS", "TOKENS", "COST", "TIME", "SCORE", "FILES")
_ROOM_FOR_FIGURES = 100
_ROOM_FOR_REASONS = 150
"""Columns of a terminal on which reasons stand beside all else, and not below."""
_LEAST_NAME = 12


def console() -> Console:
    from rich.console import Console

    width = None if sys.stdout.isatty() else 100_000
    return Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False)


def print_summary(
    run: Mapping[str, Any],
    *,
    folder: Path | None = None,
    placed: Mapping[str, Path] | None = None,
    full: bool = False,
    said: Sequence[str] = (),
) -> None:
    """State and reason, and then what there is to know, a line each.

    `said` is what the agent said at the end, the latest first.
    """
    from rich.text import Text

    out = console()
    out.print(headline(run))
    found = rows(run, folder, placed or {}, full, said)
    indent = 4 + max(len(name) for name, _ in found)
    for name, value in found:
        # What stands in a path is to be copied, so that is never broken.
        pieces = [value] if value.no_wrap else value.wrap(out, max(20, out.width - indent), overflow="fold")
        for piece in pieces:
            out.print(Text(f"  {name}".ljust(indent), style="bold") + piece, soft_wrap=True)
            name = ""


def headline(run: Mapping[str, Any]) -> Text:
    from rich.text import Text

    state = str(run.get("state"))
    result = run.get("result") or {}
    mark = {SUCCEEDED: "✓", "queued": "…", "running": "…"}.get(state, "✗")
    said = Text(f"{mark} {one_line(str(run.get('name')))} {words(state)}", style=f"bold {STATE_STYLES.get(state, '')}")
    if result:
        said.append(f" after {took(float(result.get('seconds') or 0))}", style="default not bold")
        said.append(f": {one_line(str(result.get('reason') or ''))}", style="default not bold")
    elif run.get("stage"):
        said.append(f" in stage {run['stage']}", style="default not bold")
    return said


def rows(
    run: Mapping[str, Any], folder: Path | None, placed: Mapping[str, Path], full: bool, said: Sequence[str] = ()
) -> Sequence[tuple[str, Text]]:
    from rich.text import Text

    result = run.get("result") or {}
    found: list[tuple[str, Text]] = [("run", Text(str(run.get("id"))))]
    if full:
        for name in ("group", "agent", "sandboxId", "cancelling"):
            if run.get(name) and not (name == "cancelling" and result):
                found.append((name.removesuffix("Id"), Text(one_line(str(run[name])))))
    if int(run.get("attempt") or 1) > 1:
        found.append(("attempt", Text(str(run["attempt"]))))
    if result:
        found += [("ended by", _ended_by(result)), *_checks(result), *_model(run, result, full), *_time(result, full)]
    elif run.get("model"):
        found.append(("model", Text(one_line(str(run["model"])))))
    found += _deliverables(run, result, folder, placed)
    found += [
        (
            "missing",
            Text(
                f"{one_line(str(each['path']))}: {one_line(str(each['reason']))}",
                style="" if not each["required"] else "red",
            ),
        )
        for each in result.get("missing") or []
    ]
    found += evidence_rows(run, said)
    if folder is not None:
        found.append(("folder", Text(short(folder), no_wrap=True)))
    return found


def _ended_by(result: Mapping[str, Any]) -> Text:
    from rich.text import Text

    how = str(result.get("endedBy"))
    # What was ended by us, because a file was there or the time was up, has an exit code that tells nothing.
    code = result.get("exitCode") if how in _WITH_EXIT_CODE else None
    return Text(words(how) if code is None else f"{words(how)}, exit code {code}")


def _checks(result: Mapping[str, Any]) -> list[tuple[str, Text]]:
    from rich.text import Text

    checks = result.get("checks") or []
    if result.get("score") is None:
        return []
    passed = sum(bool(check["passed"]) for check in checks)
    found = [
        ("score", Text(f"{float(result['score']):.2f}".rstrip("0").rstrip(".") + f", {passed} of {len(checks)} checks"))
    ]
    for check in checks:
        mark = Text("✓ ", style="green") if check["passed"] else Text("✗ ", style="red")
        note = "" if check["passed"] else f" (exit code {check.get('exitCode')})"
        found.append(("", mark + Text(f"{one_line(str(check['name']))} {took(float(check['seconds']))}{note}")))
        if not check["passed"] and str(check.get("output") or "").strip():
            tail = tidy(str(check["output"])).strip().splitlines()[-3:]
            found += [("", Text(f"  {line}", style="dim")) for line in tail]
    return found


def _model(run: Mapping[str, Any], result: Mapping[str, Any], full: bool) -> list[tuple[str, Text]]:
    from rich.text import Text

    traffic = result.get("traffic") or {}
    requests = int(traffic.get("requests") or 0)
    if not requests:
        return [("model", Text("not asked"))] if full or run.get("agent") else []
    if traffic.get("scripted"):
        said = Text("a script answered; no model was asked", style="yellow")
    else:
        said = Text(one_line(str(traffic.get("model") or run.get("model") or "")))
    turns = int(result.get("turns") or 0)
    said.append(f"; {number_of(turns, 'turn')}, " if turns else "; ", style="default")
    said.append(
        f"{number_of(requests, 'request')}, {int(traffic.get('inputTokens') or 0):,} tokens in, "
        f"{int(traffic.get('outputTokens') or 0):,} out",
        style="default",
    )
    if traffic.get("cost") is not None:
        said.append(f", {money(float(traffic['cost']))}", style="default")
    if traffic.get("failed"):
        said.append(f"; {traffic['failed']} failed: {one_line(str(traffic.get('lastError') or ''))}", style="red")
    return [("model", said)]


def _time(result: Mapping[str, Any], full: bool) -> list[tuple[str, Text]]:
    from rich.text import Text

    stages = result.get("stages") or {}
    least = 0.0 if full else 0.05
    said = [f"{stage} {took(float(stages[stage]))}" for stage in STAGES if float(stages.get(stage, -1)) >= least]
    return [("time", Text(", ".join(said)))] if said else []


def _deliverables(
    run: Mapping[str, Any], result: Mapping[str, Any], folder: Path | None, placed: Mapping[str, Path]
) -> list[tuple[str, Text]]:
    from rich.text import Text

    items = result.get("deliverables") or []
    found: list[tuple[str, Text]] = []
    for item in items[:_SHOWN_FILES]:
        path = str(item["path"])
        here = placed.get(path) or (folder / "deliverables" / path if folder is not None else None)
        shown = short(here) if here is not None and here.exists() else f"{path}  (paddock runs get {run.get('id')})"
        amount = Text(f"{size(item['size'])}  ", style="dim", no_wrap=True)
        found.append(("" if found else "deliverables", amount + Text(plain(shown), style="default")))
        if item.get("note"):
            found.append(("", Text(one_line(str(item["note"])), style="yellow")))
    if len(items) > _SHOWN_FILES:
        total = sum(int(item["size"]) for item in items)
        found.append(("", Text(f"and {len(items) - _SHOWN_FILES} more; {size(total)} in all", style="dim")))
    return found


def print_table(runs: Sequence[Mapping[str, Any]], wanted: int, places: Sequence[Path] = ()) -> None:
    """Many runs, a row for each, a line about all, and the places where what they made is."""
    from rich.text import Text

    out = console()
    beside = out.width >= _ROOM_FOR_REASONS
    lines = _table_lines(runs, out, beside)
    _write(lines[:1])
    for run, line in zip(runs, lines[1:], strict=True):
        _write([line])
        reason = one_line(str((run.get("result") or {}).get("reason") or ""))
        if reason and not beside and run.get("state") != SUCCEEDED:
            for each in Text(reason, style="dim").wrap(out, max(20, out.width - 2)):
                out.print(Text("  ") + each)
    succeeded = sum(run.get("state") == SUCCEEDED for run in runs)
    scripted = any(((run.get("result") or {}).get("traffic") or {}).get("scripted") for run in runs)
    said = Text(f"{succeeded} of {wanted} succeeded", style="bold green" if succeeded == wanted else "bold red")
    if scripted:
        said.append("; scripts answered, no model was asked", style="yellow")
    out.print(said)
    if places:
        out.print(Text("what they made:", style="dim"))
        for place in places[:_SHOWN_FILES]:
            out.print(Text(f"  {plain(short(place))}"), soft_wrap=True)
        if len(places) > _SHOWN_FILES:
            more = f"  and {len(places) - _SHOWN_FILES} more in {plain(short(places[0].parent))}"
            out.print(Text(more, style="dim"), soft_wrap=True)


def _table_lines(runs: Sequence[Mapping[str, Any]], out: Console, beside: bool) -> list[str]:
    """The header and a line for each run, with as many columns as there is room for; names are cut before ids are."""
    from rich.cells import cell_len
    from rich.table import Table

    cells = [_cells(run) for run in runs]
    titles = ["STATE", "TURNS", "TIME", "RUN"]
    if out.width >= _ROOM_FOR_FIGURES:
        titles = ["STATE", "TURNS", "TOKENS", "COST", "TIME", "SCORE", "FILES", "RUN"]
    taken = sum(2 + max([len(title), *(cell_len(row[title].plain) for row in cells)]) for title in titles)
    titles = ["NAME", *titles, *(["REASON"] if beside else [])]
    room = max(_LEAST_NAME, out.width // 3 if beside else out.width - taken - 2)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in titles:
        side: Literal["left", "right"] = "right" if title in _FIGURES else "left"
        width = room if title == "NAME" else None
        table.add_column(title, no_wrap=True, overflow="ellipsis", max_width=width, justify=side)
    for row in cells:
        table.add_row(*(row[title] for title in titles))
    with out.capture() as capture:
        out.print(table)
    return capture.get().splitlines()


def _cells(run: Mapping[str, Any]) -> dict[str, Text]:
    from rich.text import Text

    state, result = str(run.get("state")), run.get("result") or {}
    traffic, score = result.get("traffic") or {}, result.get("score")
    tokens = int(traffic.get("inputTokens") or 0) + int(traffic.get("outputTokens") or 0)
    return {
        "NAME": Text(one_line(str(run.get("name")))),
        "STATE": Text(words(state), style=STATE_STYLES.get(state, "")),
        "TURNS": Text(str(result.get("turns") or "")),
        "TOKENS": Text(count(tokens) if tokens else ""),
        "COST": Text(money(traffic.get("cost"))),
        "TIME": Text(took(float(result["seconds"])) if "seconds" in result else ""),
        "SCORE": Text("" if score is None else f"{float(score):.2f}"),
        "FILES": Text(str(len(result.get("deliverables") or []) or "")),
        "RUN": Text(str(run.get("id"))),
        "REASON": Text(one_line(str(result.get("reason") or "")), style="dim"),
    }


def _write(lines: Sequence[str]) -> None:
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in lines))
    sys.stdout.flush()


def short(path: Path) -> str:
    """A path as one would type it."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if sys.stdout.isatty() and path.is_relative_to(home) else str(path)


def print_content(out: Output, path: str, text: str) -> None:
    """A short deliverable, in a frame."""
    shown = tidy(text).rstrip("\n")
    if not sys.stdout.isatty():
        out.line(f"--- {path} ---\n{shown}\n---")
        return
    from rich import box
    from rich.panel import Panel
    from rich.text import Text

    console().print(Panel(Text(shown), title=Text(one_line(path)), title_align="left", box=box.ROUNDED, padding=(0, 1)))
