"""Group exchanges into conversations.

A client sends the whole conversation with every request, so an exchange continues another when it begins with the
other's messages. Agents also make side calls: for a title, a summary, or for a sub-agent with its own system prompt;
these are conversations of their own, distinguished from the main one. The same request after an answer starts a new
conversation; the same request without an answer in between is a retry.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from paddock.llm.archive.compression import decompress
from paddock.llm.archive.exchange_encoding import usage_from_summary
from paddock.llm.archive.exchange_parsing import parse_archived_answer, parse_archived_request, restore_model_messages
from paddock.llm.exchange import Exchange, ExchangeOutcome
from paddock.llm.formats.neutral import MessageRole, ModelAnswer, ModelMessage, TokenUsage, ToolDefinition
from paddock.model.exchanges import ConversationTree, ExchangePosition, ExchangeSummary

ConversationKind = Literal["main", "subagent", "branch", "side"]
_ORDER: tuple[ConversationKind, ...] = ("main", "subagent", "branch", "side")
_MAX_SIDE_MESSAGES = 3
"""Maximum number of messages of a side call."""
_NEAR_SECONDS = 30.0
"""Seconds before and after a conversation in which side calls of its client are attributed to it."""
_MAX_CANDIDATES = 16
"""Conversations with the same messages so far that are considered; a thousand may begin with the same words."""
_UNANSWERED = frozenset((ExchangeOutcome.REFUSED, ExchangeOutcome.FAILED))
_MIN_PROMPT_OVERLAP = 0.5
"""Share of common words above which two system prompts count as versions of one."""
_MAX_COMPARED_BYTES = 2**20
"""Bytes of a message or system prompt that are looked into."""
_WORD = re.compile(rb"[A-Za-z]{3,}")
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder(order="deterministic").encode


@dataclass(slots=True, eq=False)
class ConversationThread:
    """One conversation."""

    id: str
    """The id of its first exchange."""
    kind: ConversationKind = "main"
    parent: str | None = None
    """For a branch, the conversation it branched off from."""
    conversation: str | None = None
    """The client's own id of the conversation, if it sent one."""
    exchanges: list[ExchangeSummary] = field(default_factory=list)
    """Oldest first."""
    latest: ExchangeSummary | None = None
    """The exchange with the longest history."""
    messages: list[ModelMessage] = field(default_factory=list)
    """All messages, the last answer included. Set by `set_conversation_messages`."""
    tools: list[ToolDefinition] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def models(self) -> list[str]:
        return list(dict.fromkeys(each.model for each in self.exchanges))

    @property
    def turns(self) -> int:
        """The number of answered exchanges."""
        return sum(is_answered_exchange(each) for each in self.exchanges)

    @property
    def estimated(self) -> bool:
        """True if some token counts are estimates."""
        return any(each.estimated for each in self.exchanges)

    @property
    def usage(self) -> TokenUsage:
        """The sum of tokens of all exchanges."""
        total = TokenUsage()
        for each in self.exchanges:
            used = usage_from_summary(each) or TokenUsage()
            total.input += used.input
            total.output += used.output
            total.cache_read += used.cache_read
            total.cache_write += used.cache_write
            total.reasoning += used.reasoning
        return total

    @property
    def cost(self) -> float | None:
        """The cost in US dollars, as far as prices are known."""
        known = [each.cost for each in self.exchanges if each.cost is not None]
        return sum(known) if known else None


@dataclass(slots=True, eq=False)
class _OpenThread:
    """A conversation while exchanges are added to it."""

    thread: ConversationThread
    words: frozenset[bytes]
    tools: bool
    begin: bytes
    end: bytes = b""
    depth: int = 0
    answered: set[bytes] = field(default_factory=set)
    """Prefix digests with a complete answer; the same request again is not a retry."""

    @property
    def is_larger(self) -> bool:
        """True if side calls may belong to this conversation."""
        turns = self.thread.turns
        return turns > 1 or (self.tools and turns > 0)

    def is_near(self, other: _OpenThread) -> bool:
        """Return whether it began during or close to the other conversation, with the same client."""
        first, last = other.thread.exchanges[0], other.thread.exchanges[-1]
        own = self.thread.exchanges[0]
        if not first.at - _NEAR_SECONDS <= own.at <= last.at + last.total + _NEAR_SECONDS:
            return False
        return own.key_id == first.key_id and _client_product(own) == _client_product(first)


def is_answered_exchange(summary: ExchangeSummary) -> bool:
    """Return whether there was an answer, even a partial one."""
    return summary.outcome not in _UNANSWERED


def group_exchanges_into_conversations(tree: ConversationTree) -> list[ConversationThread]:
    """Group exchanges into conversations, the main one first. Their messages are not loaded."""
    prefix_digests, depths = _prefix_digests(tree)
    prompts: dict[int, tuple[frozenset[bytes], bool]] = {}
    ends: dict[bytes, list[_OpenThread]] = {}
    open_threads: list[_OpenThread] = []
    for position in tree.positions:
        if position.summary.operation != "generate":
            continue
        if position.prompt not in prompts:
            prompts[position.prompt] = _read_prompt(tree, position.prompt)
        words, tools = prompts[position.prompt]
        open_thread, matched_digest = _find_continued(tree, position, prefix_digests, depths, ends, words)
        own_digest = prefix_digests[position.thread]
        is_repeated = open_thread is not None and matched_digest == own_digest and own_digest in open_thread.answered
        if open_thread is None or is_repeated or (matched_digest != open_thread.end and matched_digest != own_digest):
            thread = ConversationThread(position.summary.id, conversation=position.summary.conversation)
            if open_thread is not None and not (is_repeated and open_thread.begin == own_digest):
                thread.kind, thread.parent = "branch", open_thread.thread.id
            open_thread = _OpenThread(thread, words, tools, own_digest)
            open_threads.append(open_thread)
        _append_exchange(open_thread, position.summary, own_digest, depths[position.thread])
        open_thread.tools = open_thread.tools or tools
        known = ends.setdefault(own_digest, [])
        if open_thread not in known:
            known.append(open_thread)
            del known[:-_MAX_CANDIDATES]
    _classify(open_threads)
    threads = [each.thread for each in open_threads]
    return sorted(threads, key=lambda thread: (_ORDER.index(thread.kind), thread.id))


def list_answer_exchanges(
    thread: ConversationThread, threads: Mapping[str, ConversationThread]
) -> list[ExchangeSummary]:
    """Return the exchanges with the answers of a conversation and its parents, oldest first."""
    line = [thread]
    while (parent := threads.get(line[-1].parent or "")) is not None and parent not in line:
        line.append(parent)
    return sorted(
        (each for one in line for each in one.exchanges if is_answered_exchange(each)), key=lambda each: each.id
    )


def set_conversation_messages(
    thread: ConversationThread, exchange: Exchange, answers: Sequence[ModelAnswer] = ()
) -> None:
    """Set the messages from the conversation's latest exchange.

    Clients drop parts of earlier answers, such as thoughts, when they send them back; `answers` are the original ones,
    oldest first, from which these parts are restored.
    """
    request = parse_archived_request(exchange)
    if request is None:
        thread.notes.append("the request cannot be shown as messages; see the raw request")
        return
    thread.messages = restore_model_messages(request.messages, answers)
    thread.tools = request.tools
    answer = parse_archived_answer(exchange)
    if answer is not None:
        thread.notes += answer.notes
        if answer.parts:
            thread.messages.append(ModelMessage(MessageRole.ASSISTANT, answer.parts))


def _append_exchange(growing: _OpenThread, summary: ExchangeSummary, end: bytes, depth: int) -> None:
    thread = growing.thread
    thread.exchanges.append(summary)
    if summary.outcome == ExchangeOutcome.OK:
        growing.answered.add(end)
    if depth >= growing.depth:
        growing.end, growing.depth = end, depth
        if (
            thread.latest is None
            or summary.outcome == ExchangeOutcome.OK
            or thread.latest.outcome != ExchangeOutcome.OK
        ):
            thread.latest = summary


def _find_continued(
    tree: ConversationTree,
    position: ExchangePosition,
    prefix_digests: dict[int, bytes],
    depths: dict[int, int],
    ends: dict[bytes, list[_OpenThread]],
    words: frozenset[bytes],
) -> tuple[_OpenThread | None, bytes]:
    """Return the conversation that an exchange continues, and the prefix digest at which it does."""
    turn = position.thread
    own = prefix_digests[turn]
    while depths.get(turn, 0) > 0:
        top = prefix_digests[turn]
        candidates = [each for each in ends.get(top, ()) if _prompts_alike(each.words, words)]
        # Two agents may begin with the same words; the client's conversation id distinguishes them.
        same_conversation = [each for each in candidates if each.thread.conversation == position.summary.conversation]
        # A retry had no answer before; a continuation had one.
        ready = (
            [each for each in same_conversation or candidates if (top in each.answered) != (top == own)]
            or same_conversation
            or candidates
        )
        for each in reversed(ready):
            if each.end == top:
                return each, top
        if ready:
            return ready[-1], top
        turn = tree.turns[turn][0]
    return None, b""


def _classify(growing: Sequence[_OpenThread]) -> None:
    roots = [each for each in growing if each.thread.kind != "branch"]
    if not roots:
        return
    main = max(
        enumerate(roots),
        key=lambda one: (one[1].thread.turns > 0, one[1].tools, one[1].thread.turns, one[1].depth, -one[0]),
    )[1]
    larger = [each for each in roots if each.is_larger]
    for each in roots:
        thread = each.thread
        small = thread.turns == 1 and each.depth <= _MAX_SIDE_MESSAGES and not each.tools
        if each is main:
            thread.kind = "main"
        elif (not thread.turns and main.thread.turns) or (small and any(each.is_near(other) for other in larger)):
            thread.kind = "side"
        elif _prompts_alike(each.words, main.words) or not main.is_larger or not each.is_near(main):
            thread.kind = "main"  # Another task in the same sandbox, or the same one after its history was summarised.
        else:
            thread.kind = "subagent"


def _client_product(summary: ExchangeSummary) -> str:
    """Return the client's product name without version and comments."""
    return summary.client.partition("/")[0].partition(" ")[0]


def _prefix_digests(tree: ConversationTree) -> tuple[dict[int, bytes], dict[int, int]]:
    """Return for each turn a digest of the conversation up to it, and the number of its messages."""
    message_digests: dict[int, bytes] = {}
    prefix_digests: dict[int, bytes] = {0: b""}
    depths: dict[int, int] = {0: -1}
    for turn in sorted(tree.turns):  # A parent is always older than its children.
        parent, message = tree.turns[turn]
        depths[turn] = depths.get(parent, -1) + 1
        if depths[turn] == 0:
            prefix_digests[turn] = b""  # The owner's record, which is ignored: a sandbox may use more than one key.
            continue
        if message not in message_digests:
            message_digests[message] = _message_digest(decompress(tree.messages[message]))
        prefix_digests[turn] = hashlib.sha256(prefix_digests[parent] + message_digests[message]).digest()
    return prefix_digests, depths


def _message_digest(raw: bytes) -> bytes:
    """Return a digest of a message that does not depend on cache marks, unless the message is very long."""
    if len(raw) > _MAX_COMPARED_BYTES:
        return hashlib.sha256(raw).digest()
    try:
        message = _decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return hashlib.sha256(raw).digest()
    if isinstance(message, dict) and isinstance(message.get("content"), str):
        message["content"] = [{"type": "text", "text": message["content"]}]
    try:
        return hashlib.sha256(_encode(_without_cache_marks(message, 0))).digest()
    except (RecursionError, UnicodeEncodeError):
        return hashlib.sha256(raw).digest()


def _without_cache_marks(value: Any, depth: int) -> Any:
    if depth > 8:
        return value
    if isinstance(value, dict):
        return {
            name: _without_cache_marks(inner, depth + 1) for name, inner in value.items() if name != "cache_control"
        }
    if isinstance(value, list):
        return [_without_cache_marks(inner, depth + 1) for inner in value]
    return value


def _read_prompt(tree: ConversationTree, turn: int) -> tuple[frozenset[bytes], bool]:
    """Return the words of a system prompt, and whether there are tools."""
    words: set[bytes] = set()
    tools = False
    for raw in _prompt_pieces(tree, turn):
        if raw.startswith(b"["):
            tools = tools or len(raw) > 2
        else:
            words.update(_WORD.findall(raw, 0, _MAX_COMPARED_BYTES))
    return frozenset(words), tools


def _prompt_pieces(tree: ConversationTree, turn: int) -> Iterator[bytes]:
    """Yield tools and instructions, without the skeleton (last) and the owner's record (first)."""
    parent, _ = tree.turns[turn]
    while parent:
        grandparent, message = tree.turns[parent]
        if grandparent:
            yield decompress(tree.messages[message])
        parent = grandparent


def _prompts_alike(one: frozenset[bytes], other: frozenset[bytes]) -> bool:
    if one is other or not one or not other:
        return one == other
    return len(one & other) >= _MIN_PROMPT_OVERLAP * len(one | other)
