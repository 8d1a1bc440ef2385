"""A whole trace, parsed, with the questions that only later lines answer: which token comes next, how many rows were
accepted, how long the prompt is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from sessions.importers.errors import FormatError
from sessions.importers.trace_lines import TICK, Call, Note, Served, TraceSyntax, call, name_of, served

Fed = Iterator[tuple[Note, int]]

VERIFIES = (
    "decode_verify",
    "decode_verify_graphed",
    "decode_verify_graphed_k3",
    "decode_verify_graphed_k4",
    "decode_verify_graphed_kgamma",
    "decode_verify_dflash",
    "decode_and_verify_fused",
)


def batch_rows(item: Call) -> Iterator[tuple[Note, tuple[int, ...], tuple[int, ...]]]:
    """(note, tokens, picks) of each sequence of a batched verify. Raises TraceSyntax when the widths do not add up."""
    notes, widths = item.notes("seqs"), item.numbers("ks")
    tokens, picks = item.numbers("tokens"), item.results()
    if (
        len(widths) != len(notes)
        or sum(widths) != len(tokens)
        or len(picks) != len(tokens)
        or min(widths, default=1) < 1
    ):
        raise TraceSyntax(
            f"{len(notes)} seqs, ks {list(widths)}, {len(tokens)} tokens", "one width per seq, their sum tokens"
        )
    at = 0
    for note, width in zip(notes, widths, strict=True):
        yield note, tokens[at : at + width], picks[at : at + width]
        at += width


def _one(item: Call) -> Fed:
    yield item.note(), item.number("token")


def _listed(key: str) -> Callable[[Call], Fed]:
    def fed(item: Call) -> Fed:
        notes, tokens = item.notes("seqs"), item.numbers(key)
        if len(notes) != len(tokens):
            raise TraceSyntax(f"{len(notes)} seqs and {len(tokens)} {key}", "as many of both")
        yield from zip(notes, tokens, strict=True)

    return fed


def _first(item: Call) -> Fed:
    tokens = item.numbers("tokens")
    if not tokens or len(item.results()) != len(tokens):
        raise TraceSyntax(f"{len(tokens)} tokens, {len(item.results())} results", "one result for each token")
    yield item.note(), tokens[0]


def _batch(item: Call) -> Fed:
    for note, tokens, _ in batch_rows(item):
        yield note, tokens[0]


FEEDS: dict[str, Callable[[Call], Fed]] = {
    "decode": _one,
    "run_mtp_propose": _one,
    "run_mtp_propose_multi": _one,
    "decode_batch": _listed("tokens"),
    "decode_batch_fed": _listed("inputs"),
    **dict.fromkeys(VERIFIES, _first),
    "decode_verify_batched": _batch,
}
"""Pending tokens that a call names, with their sequences. Proposals name them too, and change nothing else."""

PREFILLS = ("prefill", "prefill_chunk", "prefill_twophase", "prefill_batch_chunk", "prefill_batch_chunk_rows")
MIXED = ("mixed_forward", "mixed_forward_batch")
FORWARDS = frozenset(
    (
        "decode",
        "decode_batch",
        "decode_batch_fed",
        "decode_draft",
        "decode_verify_batched",
        *VERIFIES,
        *PREFILLS,
        *MIXED,
    )
)
PICKS = ("argmax_on_device", "argmax_batch", "argmax_batch_to_feed")
VERDICTS: dict[str, tuple[str, int]] = {
    "commit_accepted_prefix": ("na", 0),
    "start_rollback_and_checkpoint_async": ("na", 0),
    "rollback_ssm_states": ("n", 0),
    "trim_proposer_state": ("na", 1),
}
"""Where a trace tells the accepted rows: commits print rows, the proposer's trim prints drafts."""


@dataclass(frozen=True, slots=True)
class Item:
    """One line of the file. ``tick`` is its number when it begins an iteration, -1 otherwise."""

    line: int
    text: str
    call: Call | None = None
    tick: int = -1


class Index:
    """The lines of a trace. ``known`` are the names of calls that are parsed; ``trouble`` says what a cut-off last line
    held ("" when the file is whole)."""

    def __init__(self, path: object, lines: Sequence[str], known: Iterable[str], complete: bool = True) -> None:
        self.path, self._known = path, frozenset((*known, *FEEDS, *PICKS, *VERDICTS))
        self.items: list[Item] = []
        self.served: dict[int, Served] = {}
        self.scenario, self.trouble = "", ""
        for number, text in enumerate(lines, start=1):
            last = number == len(lines) and not complete
            if last and text[-1:] not in (")", "]"):
                self.trouble = f"the file ends in the middle of line {number}: {text!r:.80}"
                break
            try:
                self._read(number, text)
            except TraceSyntax as error:
                if last:
                    self.trouble = f"the file ends in the middle of line {number}: {text!r:.80}"
                    break
                raise FormatError(path, number, error.found, error.expected) from None

    def _read(self, number: int, text: str) -> None:
        tick = TICK.fullmatch(text)
        if tick is not None:
            if not tick.group(1).isdecimal() or len(tick.group(1)) > 9:
                raise TraceSyntax(f"{text!r:.80}", "-- tick NUMBER")
            self.items.append(Item(number, text, tick=int(tick.group(1))))
            return
        if number == 1 and text.startswith("# scenario "):
            self.scenario = text.removeprefix("# scenario ")
        told = served(text)
        if told is not None:
            self.served[told.id] = told
        known = name_of(text) in self._known or text.split("(")[0] in self._known
        item = Item(number, text, call(text) if known else None)
        if item.call is not None:
            self._check(item.call)
        self.items.append(item)

    def _check(self, item: Call) -> None:
        """Ask a call for what the importer will ask it, so that a wrong number is reported before anything else."""
        if item.error:
            return
        feed, verdict = FEEDS.get(item.name), VERDICTS.get(item.name)
        if feed is not None:
            for _ in feed(item):
                pass
        if verdict is not None:
            item.note()
            item.number(verdict[0])
        if item.name in PICKS:
            item.results()

    # --------------------------------------------------------------------------------------------------- numbers

    def widest(self) -> int:
        """The largest verify width."""
        widths = [1]
        for item in self.items:
            if item.call is None or item.call.error:
                continue
            if item.call.name in VERIFIES:
                widths.append(len(item.call.numbers("tokens")))
            elif item.call.name == "decode_verify_batched":
                widths += item.call.numbers("ks")
        return max(widths)

    def slots(self) -> int:
        """Slots that are seen."""
        slots = [note.slot for item in self.items if item.call is not None for note in item.call.all_notes()]
        return max(slots, default=-1) + 1

    def first_free(self) -> int:
        """Free blocks before anything was allocated, 0 when the trace does not say."""
        for item in self.items:
            if item.call is not None and item.call.name == "num_free_blocks":
                return item.call.results()[0]
        return 0

    # ------------------------------------------------------------------------------------------------- questions

    def _calls(self, at: int) -> Iterator[Call]:
        for item in self.items[at + 1 :]:
            if item.call is not None and not item.call.error:
                yield item.call

    def who(self, at: int, slot: int) -> int | None:
        """Trace id of the sequence that the slot allocated at item ``at`` is for; None when no later line says."""
        for item in self._calls(at):
            if item.name in ("alloc_sequence", "alloc_sequence_for") and item.result == slot:
                return None
            for note in item.all_notes():
                if note.slot == slot:
                    return note.id
        return None

    def prompt_length(self, at: int, id_: int, slot: int) -> int:
        """Tokens of the prompt of a sequence: the end of its last prefill chunk."""
        length = 0
        for item in self._calls(at):
            for note in item.all_notes():
                if not _same(note, id_, slot):
                    continue
                if item.name == "free_sequence":
                    return length
                if item.name in PREFILLS or item.name in MIXED:
                    length = note.length
                    if note.last and item.named.get("last") is not False:
                        return length
        return length

    def next_fed(self, at: int, id_: int, slot: int) -> int:
        """The token that the sequence is fed next, which is the one it chose last; -1 when it is fed no more."""
        for item in self._calls(at):
            if item.name == "free_sequence" and _same(item.note(), id_, slot):
                return -1
            feed = FEEDS.get(item.name)
            if feed is not None:
                for note, token in feed(item):
                    if _same(note, id_, slot):
                        return token
        return -1

    def picks(self, at: int) -> dict[int, int]:
        """Tokens chosen from the logits of the forward at item ``at``, by row."""
        found: dict[int, int] = {}
        for item in self.items[at + 1 :]:
            name = item.call.name if item.call is not None else ""
            if name in FORWARDS or item.tick >= 0:
                break
            if item.call is not None and name in PICKS:
                first = item.call.named.get("row")
                row = first if isinstance(first, int) else 0
                found.update({row + index: token for index, token in enumerate(item.call.results())})
        return found

    def verdict(self, at: int, id_: int, slot: int) -> int:
        """Rows accepted of the verify at item ``at``, as a later call prints them; 0 when none does."""
        for item in self._calls(at):
            if item.name == "gdn_fold_accepted":
                rows = dict(zip(item.numbers("slots"), item.numbers("accepted"), strict=False))
                if slot in rows:
                    return rows[slot]
            if item.name in FORWARDS and any(_same(note, id_, slot) for note in item.all_notes()):
                return 0
            told = VERDICTS.get(item.name)
            if told is not None and _same(item.note(), id_, slot):
                return item.number(told[0]) + told[1]
            if item.name == "free_sequence" and _same(item.note(), id_, slot):
                return 0
        return 0


def _same(note: Note, id_: int, slot: int) -> bool:
    """A sequence that was swapped in again is spelled s0; then its slot tells who it is."""
    return note.id == id_ if note.id else note.slot == slot
