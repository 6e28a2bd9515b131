"""Joins exchanges into conversations.

A client sends the whole conversation with every request, so an exchange goes on with another when it begins with the
other's messages. Agents also ask on the side: for a title, a summary, or in the name of a sub-agent with a system
prompt of its own; those are conversations of their own, and are told apart from the main one. Who asks the same again
after an answer begins anew; who asks again because there was none goes on.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from paddock.llm.archive.answers import answer_of, as_answered, request_of
from paddock.llm.archive.packing import unpack
from paddock.llm.archive.prepare import usage_of
from paddock.llm.exchange import Exchange, Outcome
from paddock.llm.neutral import Answer, Message, Role, Tool, Usage
from paddock.model.exchanges import Place, Summary, Tree

Kind = Literal["main", "subagent", "branch", "side"]
_ORDER: tuple[Kind, ...] = ("main", "subagent", "branch", "side")
_SHALLOW = 3
"""Messages that a side call has at most."""
_NEAR = 30.0
"""Seconds before and after a conversation in which what its client asks on the side may still belong to it."""
_REMEMBERED = 16
"""Conversations that stand at the same place and are looked at; a thousand may begin with the same words."""
_UNANSWERED = frozenset((Outcome.REFUSED, Outcome.FAILED))
_ALIKE = 0.5
"""The part of their words that two versions of a system prompt share, a clock or a list of files in it aside."""
_WORD = re.compile(rb"[A-Za-z]{3,}")
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder(order="deterministic").encode


@dataclass(slots=True, eq=False)
class Thread:
    """One conversation."""

    id: str
    """The id of its first exchange."""
    kind: Kind = "main"
    parent: str | None = None
    """The conversation that this one left, for a branch."""
    conversation: str | None = None
    """What the client calls it, if it said."""
    exchanges: list[Summary] = field(default_factory=list)
    """Oldest first."""
    latest: Summary | None = None
    """The exchange that says most of it."""
    messages: list[Message] = field(default_factory=list)
    """All that was said, the last answer included. Filled in by `tell`."""
    tools: list[Tool] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def models(self) -> list[str]:
        return list(dict.fromkeys(each.model for each in self.exchanges))

    @property
    def turns(self) -> int:
        """How many of its exchanges were answered."""
        return sum(is_answered(each) for each in self.exchanges)

    @property
    def estimated(self) -> bool:
        """Whether some of its tokens are a guess."""
        return any(each.estimated for each in self.exchanges)

    @property
    def usage(self) -> Usage:
        """Tokens of all its exchanges."""
        total = Usage()
        for each in self.exchanges:
            used = usage_of(each) or Usage()
            total.input += used.input
            total.output += used.output
            total.cache_read += used.cache_read
            total.cache_write += used.cache_write
            total.reasoning += used.reasoning
        return total

    @property
    def cost(self) -> float | None:
        """In US dollars, as far as prices are known."""
        known = [each.cost for each in self.exchanges if each.cost is not None]
        return sum(known) if known else None


@dataclass(slots=True, eq=False)
class _Growing:
    """A thread while exchanges are added to it."""

    thread: Thread
    words: frozenset[bytes]
    tools: bool
    begin: bytes
    end: bytes = b""
    depth: int = 0
    answered: set[bytes] = field(default_factory=set)
    """The places in it that were answered as a whole; to ask there again is no retry."""

    @property
    def larger(self) -> bool:
        """Whether others may have been asked on the side of it."""
        turns = self.thread.turns
        return turns > 1 or (self.tools and turns > 0)

    def near(self, other: _Growing) -> bool:
        """Whether it began while the same client had the other conversation, or about then."""
        first, last = other.thread.exchanges[0], other.thread.exchanges[-1]
        own = self.thread.exchanges[0]
        if not first.at - _NEAR <= own.at <= last.at + last.total + _NEAR:
            return False
        return own.key_id == first.key_id and _product(own) == _product(first)


def is_answered(summary: Summary) -> bool:
    """Whether there was an answer, if only the beginning of one."""
    return summary.outcome not in _UNANSWERED


def find_threads(tree: Tree) -> list[Thread]:
    """The conversations that exchanges belong to, the main one first. Their messages are left out."""
    tops, depths = _prefixes(tree)
    prompts: dict[int, tuple[frozenset[bytes], bool]] = {}
    ends: dict[bytes, list[_Growing]] = {}
    growing: list[_Growing] = []
    for place in tree.places:
        if place.summary.operation != "generate":
            continue
        if place.prompt not in prompts:
            prompts[place.prompt] = _prompt(tree, place.prompt)
        words, tools = prompts[place.prompt]
        found, where = _continued(tree, place, tops, depths, ends, words)
        own = tops[place.thread]
        again = found is not None and where == own and own in found.answered
        if found is None or again or (where != found.end and where != own):
            thread = Thread(place.summary.id, conversation=place.summary.conversation)
            if found is not None and not (again and found.begin == own):
                thread.kind, thread.parent = "branch", found.thread.id
            found = _Growing(thread, words, tools, own)
            growing.append(found)
        _grow(found, place.summary, own, depths[place.thread])
        found.tools = found.tools or tools
        known = ends.setdefault(own, [])
        if found not in known:
            known.append(found)
            del known[:-_REMEMBERED]
    _classify(growing)
    threads = [each.thread for each in growing]
    return sorted(threads, key=lambda thread: (_ORDER.index(thread.kind), thread.id))


def sources(thread: Thread, threads: Mapping[str, Thread]) -> list[Summary]:
    """The exchanges that answers in a conversation came from, oldest first: its own, and those that it branched off."""
    line = [thread]
    while (parent := threads.get(line[-1].parent or "")) is not None and parent not in line:
        line.append(parent)
    return sorted((each for one in line for each in one.exchanges if is_answered(each)), key=lambda each: each.id)


def tell(thread: Thread, exchange: Exchange, answers: Sequence[Answer] = ()) -> None:
    """Fill in what was said, from the thread's latest exchange.

    Clients leave out some of what a model said when they send it back, such as its thoughts; `answers` are those that
    were given before, oldest first, and put it in again.
    """
    request = request_of(exchange)
    if request is None:
        thread.notes.append("the request cannot be shown as messages; ask for it as it came")
        return
    thread.messages = as_answered(request.messages, answers)
    thread.tools = request.tools
    answer = answer_of(exchange)
    if answer is not None:
        thread.notes += answer.notes
        if answer.parts:
            thread.messages.append(Message(Role.ASSISTANT, answer.parts))


def _grow(growing: _Growing, summary: Summary, end: bytes, depth: int) -> None:
    thread = growing.thread
    thread.exchanges.append(summary)
    if summary.outcome == Outcome.OK:
        growing.answered.add(end)
    if depth >= growing.depth:
        growing.end, growing.depth = end, depth
        if thread.latest is None or summary.outcome == Outcome.OK or thread.latest.outcome != Outcome.OK:
            thread.latest = summary


def _continued(
    tree: Tree,
    place: Place,
    tops: dict[int, bytes],
    depths: dict[int, int],
    ends: dict[bytes, list[_Growing]],
    words: frozenset[bytes],
) -> tuple[_Growing | None, bytes]:
    """The thread that an exchange goes on with, and the place in it where it does."""
    turn = place.thread
    own = tops[turn]
    while depths.get(turn, 0) > 0:
        top = tops[turn]
        fitting = [each for each in ends.get(top, ()) if _alike(each.words, words)]
        # Two agents may begin with the same words; the client's own name for a conversation tells them apart.
        same = [each for each in fitting if each.thread.conversation == place.summary.conversation]
        # Who asks again had no answer; who goes on had one.
        ready = [each for each in same or fitting if (top in each.answered) != (top == own)] or same or fitting
        for each in reversed(ready):
            if each.end == top:
                return each, top
        if ready:
            return ready[-1], top
        turn = tree.turns[turn][0]
    return None, b""


def _classify(growing: Sequence[_Growing]) -> None:
    roots = [each for each in growing if each.thread.kind != "branch"]
    if not roots:
        return
    main = max(
        enumerate(roots),
        key=lambda one: (one[1].thread.turns > 0, one[1].tools, one[1].thread.turns, one[1].depth, -one[0]),
    )[1]
    larger = [each for each in roots if each.larger]
    for each in roots:
        thread = each.thread
        small = thread.turns == 1 and each.depth <= _SHALLOW and not each.tools
        if each is main:
            thread.kind = "main"
        elif (not thread.turns and main.thread.turns) or (small and any(each.near(other) for other in larger)):
            thread.kind = "side"
        elif _alike(each.words, main.words) or not main.larger or not each.near(main):
            thread.kind = "main"  # Another task in the same sandbox, or the same after it was summed up.
        else:
            thread.kind = "subagent"


def _product(summary: Summary) -> str:
    """The client without its version and what else it says of itself."""
    return summary.client.partition("/")[0].partition(" ")[0]


def _prefixes(tree: Tree) -> tuple[dict[int, bytes], dict[int, int]]:
    """For each turn, a digest of the conversation up to it, and how many messages that has."""
    senses: dict[int, bytes] = {}
    tops: dict[int, bytes] = {0: b""}
    depths: dict[int, int] = {0: -1}
    for turn in sorted(tree.turns):  # A parent is always older than its children.
        parent, message = tree.turns[turn]
        depths[turn] = depths.get(parent, -1) + 1
        if depths[turn] == 0:
            tops[turn] = b""  # Whose it is: a sandbox may use more than one key.
            continue
        if message not in senses:
            senses[message] = _sense(unpack(tree.messages[message]))
        tops[turn] = hashlib.sha256(tops[parent] + senses[message]).digest()
    return tops, depths


def _sense(raw: bytes) -> bytes:
    """A digest of a message that stays the same when a mark for caching moves on."""
    try:
        message = _decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return hashlib.sha256(raw).digest()
    if isinstance(message, dict) and isinstance(message.get("content"), str):
        message["content"] = [{"type": "text", "text": message["content"]}]
    try:
        return hashlib.sha256(_encode(_unmarked(message, 0))).digest()
    except (RecursionError, UnicodeEncodeError):
        return hashlib.sha256(raw).digest()


def _unmarked(value: Any, depth: int) -> Any:
    if depth > 8:
        return value
    if isinstance(value, dict):
        return {name: _unmarked(inner, depth + 1) for name, inner in value.items() if name != "cache_control"}
    if isinstance(value, list):
        return [_unmarked(inner, depth + 1) for inner in value]
    return value


def _prompt(tree: Tree, turn: int) -> tuple[frozenset[bytes], bool]:
    """The words of a system prompt, and whether there are tools."""
    words: set[bytes] = set()
    tools = False
    for raw in _pieces(tree, turn):
        if raw.startswith(b"["):
            tools = tools or len(raw) > 2
        else:
            words.update(_WORD.findall(raw))
    return frozenset(words), tools


def _pieces(tree: Tree, turn: int) -> Iterator[bytes]:
    """Tools and instructions: all but how the request is put together, which is last, and whose it is, first."""
    parent, _ = tree.turns[turn]
    while parent:
        above, message = tree.turns[parent]
        if above:
            yield unpack(tree.messages[message])
        parent = above


def _alike(one: frozenset[bytes], other: frozenset[bytes]) -> bool:
    if one is other or not one or not other:
        return one == other
    return len(one & other) >= _ALIKE * len(one | other)
