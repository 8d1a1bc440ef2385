# ruff: noqa: E501
"""Hand-made frames for the screen's tests: one healthy instant, one with a broken invariant, and variations."""

from __future__ import annotations

import dataclasses

import numpy as np
from immutables import Map

from engine.events import Decision, Place, Start, StateCopy
from inspector.tui.frame import EventRow, Frame, Marks, PoolSample, Slab, StopRow, TensorRow, TensorTable, VerifyRows
from sessions.finding import Finding
from sessions.view import (
    LedgerView,
    PoolFact,
    PrefixFact,
    RequestFact,
    RingEntry,
    RingFact,
    RoundFact,
    StateFact,
)

TEXT = "<s>|Once| upon| a| time|,| a| small| ring| held| four| entries|.|\n|The| ring| kept| what| the| story| had| said|.| It| could| go| back| to| any| line|.|\n|Then| the| fox| came| and| asked|:| who| owns| the| slot|?|\n|Nobody| knew|,| so| they| verified| it| again| and| again".split(
    "|"
)
HOSTILE = [
    "[bold red]x[/]",
    "[/b]",
    "\x1b[31m",
    "漢字漢字",
    "שלום",
    "👩\u200d💻",
    "\u202e evil",
    "\t",
    "\x00",
    "a\u0301",
    "\n\n",
    "[@click=app.quit]",
]
PROMPT = 14
SLOT = 1
K = 4
RECURRENT = (0, 1, 2, 4, 5, 6)
H_SHAPE, CONV_SHAPE = (8, 32, 32), (256, 4)

START = Start(
    seq=1, model="demo", fingerprint="d3m0", layers=8, recurrent_layers=RECURRENT, h_shape=H_SHAPE,
    conv_shape=CONV_SHAPE, h_bytes=32768, conv_bytes=4096, vocab=512, slots=4, ring_depth=8, k=K, prefix_slots=8,
    blocks=96, block_size=16, dtype="float32", digests=True,
)  # fmt: skip


def marks_for(count: int) -> str:
    """Mark letters of a plausible run: rounds of accepted drafts closed by a bonus; boundaries in upper case."""
    letters = ["p"] * PROMPT
    pattern = "aab" + "b" + "aaab" + "ab"
    letters += [pattern[index % len(pattern)] for index in range(count - PROMPT)]
    for index in range(PROMPT, count):
        if TEXT[index % len(TEXT)] in (".", "\n", "?"):
            letters[index] = letters[index].upper()
    return "".join(letters[:count])


def state(place: Place, position: int | None, writer: int = 900, **more: object) -> StateFact:
    """A state at one position of h and conv alike."""
    fields = {
        "owner": 2, "epoch": 3, "h_position": position, "conv_position": position, "h_writer": writer,
        "conv_writer": writer, "h_owner": 2, "conv_owner": 2, "layout": START.layout, "dtype": "float32",
    }  # fmt: skip
    return StateFact(place, **{**fields, **more})  # type: ignore[arg-type]


def live_view(tokens: int = 52, hostile: bool = False) -> LedgerView:
    """Between two rounds: everything in step."""
    words = [HOSTILE[index % len(HOSTILE)] if hostile else TEXT[index % len(TEXT)] for index in range(tokens + 8)]
    texts = Map(dict(enumerate(words)))
    count = tokens - 1
    rings = tuple(
        RingEntry(label, slot, 600 + 90 * slot, saved=True)
        for slot, label in enumerate((4, 9, 17, 30))
        if label < tokens - PROMPT
    )
    request = RequestFact(
        2, status="decode", slot=SLOT, prompt_len=PROMPT, tokens=tuple(range(tokens)), marks=marks_for(tokens),
        think=" " * tokens, cursor=count, blocks=tuple(range(5, 9)),
        ring=RingFact(8, len(rings) % 8, rings, evictions=2),
        round=RoundFact(57, "verify", tokens - 4, (tokens - 3, tokens - 2, tokens + 4), (tokens - 3, tokens - 2, tokens - 1, 3), 3, K, "mtp"),
        rejected=(tokens + 4,), rollbacks=1, max_tokens=256,
    )  # fmt: skip
    other = RequestFact(
        1, status="decode", slot=0, prompt_len=9, tokens=tuple(range(30)), marks="p" * 9 + "." * 21, cursor=29,
        blocks=(0, 1), round=RoundFact(56, "decode"), ring=RingFact(8),
    )  # fmt: skip
    states = {
        Place("live", SLOT): state(Place("live", SLOT), count, 1041),
        Place("live", 0): state(Place("live", 0), 29, 1020, owner=1, h_owner=1, conv_owner=1, epoch=1),
    }
    states[Place("checkpoint", SLOT)] = state(Place("checkpoint", SLOT), tokens - 4, 1034)
    for row in range(K - 1):
        states[Place("step", SLOT, row)] = state(Place("step", SLOT, row), tokens - 3 + row, 1035 + row)
    for entry in rings:
        place = Place("ring", SLOT, entry.ring_slot)
        states[place] = state(
            place, PROMPT + entry.token_position - 1, entry.recorded + 1, sealed=True, label=entry.token_position
        )
    states[Place("prefix", -1, 0)] = state(Place("prefix", -1, 0), 16, 45, owner=-1, label=16)
    return LedgerView(
        seq=1043, round=57, start=START, requests=Map({1: other, 2: request}), states=Map(states),
        slot_owner=Map({0: 1, 1: 2, 2: -1, 3: -1}), slot_epoch=Map({0: 1, 1: 3, 2: 1}),
        pools=Map({
            "slots": PoolFact("slots", 2, 4, 3), "blocks": PoolFact("blocks", 6, 96, 14),
            "ring": PoolFact("ring", len(rings), 32, 7), "prefix": PoolFact("prefix", 1, 8, 2),
        }),
        block_refs=Map({**dict.fromkeys((1, 5, 6, 7, 8), 1), 0: 2}),
        prefixes=Map({0: PrefixFact(0, 16, "ab12", "chunk", blocks=(0,), saved=45)}),
        texts=texts,
        counters=Map({"accepted_rows": 131, "drafted": 171, "bytes_copied": 9_650_000, "rollbacks": 1, "rounds": 57}),
    )  # fmt: skip


def rows(now: int, last: int) -> tuple[EventRow, ...]:
    """Event rows around ``now``."""
    story = (
        ("round", "verify round"), ("draft", '3 tokens by mtp: " so" " they" " ran"'), ("checkpoint", "live:1 -> checkpoint:1, h+conv, 216.00 KiB"),
        ("verify_row", 'row 0: "," at 49, pick " so"'), ("verify_row", 'row 1: " so" at 50, pick " they"'),
        ("verify_row", 'row 2: " they" at 51, pick " verified"'), ("verify", "4 rows absorbed, cursor 52"),
        ("decision", "accept: 3 by default, 1..4"), ("accept", "3 of 4 rows"), ("commit", "step:1.2 -> live:1, h+conv, 216.00 KiB"),
        ("emit", 'output 36: " they"'), ("round_end", ""),
    )  # fmt: skip
    first = max(1, now - 60)
    return tuple(
        EventRow(seq, *((story[seq % len(story)][0], 2, story[seq % len(story)][1])))
        for seq in range(first, min(last, now + 60) + 1)
    )


def live_frame(**more: object) -> Frame:
    """The healthy instant."""
    view = live_view()
    fields = {
        "view": view, "mode": "LIVE", "title": "demo", "first": 1, "last": 1043, "req": 2, "layer": 4,
        "invariants": 14, "stop": "1043 accept r2: 3 of 4 rows", "stop_kind": "step", "events": rows(1043, 1043),
        "marks": Marks(keyframes=(1, 200, 600, 900, 1000), bookmarks=((512, "a"),), rollbacks=(430,)),
        "history": tuple(PoolSample(seq, (("blocks", 4 + seq // 20 % 30, 96), ("slots", 1 + seq // 300 % 3, 4), ("ring", seq // 30 % 32, 32), ("prefix", 1, 8))) for seq in range(100, 1040, 20)),
        "stops": (StopRow("b1", "break accept if accepted < 2", 3), StopRow("w2", "watch skew", 0, "0", ""), StopRow("d1", "len(req.tokens)", value="52", before="49")),
        "changed": frozenset({("state", Place("live", SLOT)), ("state", Place("step", SLOT, 2)), ("request", 2), ("pool", "blocks"), ("block", 8)}),
    }  # fmt: skip
    return Frame(**{**fields, **more})  # type: ignore[arg-type]


def empty_frame() -> Frame:
    """A model is open, nothing was asked of it yet."""
    view = LedgerView(
        seq=1,
        start=START,
        pools=Map(
            {
                "slots": PoolFact("slots", 0, 4),
                "blocks": PoolFact("blocks", 0, 96),
                "ring": PoolFact("ring", 0, 32),
                "prefix": PoolFact("prefix", 0, 8),
            }
        ),
    )
    return Frame(view=view, title="demo", first=1, last=1, invariants=14, events=rows(1, 1)[:0])


def dirty_frame() -> Frame:
    """Paused at the accept decision: live has absorbed all drafts."""
    frame = live_frame()
    view = frame.view
    request = view.requests[2]
    tokens = len(request.tokens)
    states = view.states
    states = states.set(Place("live", SLOT), state(Place("live", SLOT), tokens + 3, 1042, dirty=True))
    states = states.set(Place("checkpoint", SLOT), state(Place("checkpoint", SLOT), tokens - 1, 1036))
    for row in range(K - 1):
        states = states.set(Place("step", SLOT, row), state(Place("step", SLOT, row), tokens + row, 1037 + row))
    facts = RoundFact(
        58,
        "verify",
        tokens - 1,
        (tokens, tokens + 1, tokens + 2),
        (tokens, tokens + 1, 5, 6),
        0,
        K,
        "mtp",
        True,
        "accept",
    )
    request = dataclasses.replace(request, round=facts, rejected=(), cursor=tokens + 3)
    view = dataclasses.replace(view, states=states, requests=view.requests.set(2, request), round=58)
    waiting = Decision(seq=1043, round=58, req=2, what="accept", default=3, low=1, high=K)
    inputs = (request.pending, *facts.drafts)
    told = tuple((token, view.texts.get(token, "?")) for token in sorted({*inputs, *facts.picks}))
    known = VerifyRows(58, tuple(zip(inputs, facts.picks, strict=True)), told, 1043, True)
    return dataclasses.replace(frame, view=view, waiting=waiting, verify=known, stop="", stop_kind="hit")


def broken_frame() -> Frame:
    """A rollback restored h but not conv: conv is two tokens ahead."""
    frame = live_frame(mode="HISTORY", last=1877)
    view = frame.view
    request = view.requests[2]
    place = Place("live", SLOT)
    states = view.states.set(
        place, dataclasses.replace(view.states[place], conv_position=request.cursor + 2, conv_writer=1041)
    )
    ring = Place("ring", SLOT, 3)
    states = states.set(ring, dataclasses.replace(states[ring], conv_position=None, conv_writer=0))
    finding = Finding(
        "positions agree", 1043, 2, place.to_text(), "h = conv = cursor", f"h {request.cursor} conv {request.cursor + 2} kv {request.cursor}",
        "the convolution window of r2 is 2 tokens ahead of h and of the KV cursor",
    )  # fmt: skip
    return dataclasses.replace(
        frame, view=dataclasses.replace(view, states=states), findings=(finding,), known_findings=1, stop_kind="finding",
        events=rows(1043, 1877), marks=dataclasses.replace(frame.marks, findings=(1043,), keyframes=(*frame.marks.keyframes, 1400)),
        stops=(*frame.stops, StopRow("b3", "break invariant", 1, hit=True)), branches=1,
    )  # fmt: skip


def branch_frame() -> Frame:
    """Acting in the past made a branch."""
    return live_frame(mode="BRANCH", branch=1, branches=2, stop="1043 accept r2: 1 of 4 rows, by hand")


def hostile_frame() -> Frame:
    """Token texts full of markup, control characters, wide and right-to-left letters; names that are no better."""
    frame = live_frame()
    events = tuple(dataclasses.replace(row, text="[bold]" + HOSTILE[row.seq % len(HOSTILE)]) for row in frame.events)
    return dataclasses.replace(frame, view=live_view(hostile=True), title="[red]\x1b[2Jname", events=events)


def busy_streams(frame: Frame) -> Frame:
    """Two copies wait on the secondary stream."""
    queued = tuple(
        StateCopy(seq=1000 + n, copy=40 + n, src=Place("live", SLOT), dst=Place("checkpoint", n), bytes=221184, layers=6, stream="secondary", landed=False)
        for n in range(2)
    )  # fmt: skip
    return dataclasses.replace(frame, view=dataclasses.replace(frame.view, queued=queued))


def tensor_table(seq: int = 1043, wrong: bool = False) -> TensorTable:
    """Statistics of six layers."""
    out = []
    for number, layer in enumerate(RECURRENT):
        out.append(TensorRow(layer, "h", H_SHAPE, 0.38 + 0.01 * number, -1.9, 2.2, 3.1e-7 * (number + 1), 4e-14, False))
        bad = wrong and layer > 0
        out.append(
            TensorRow(layer, "conv", CONV_SHAPE, 0.97, -3.1, 2.8, 2.8 if bad else 0.0, 0.77 if bad else 0.0, not bad, "NO" if bad else "")
        )  # fmt: skip
    return TensorTable(
        seq, "live:1", "ring 3", tuple(out), "h within tolerance, conv differs: live is 2 tokens ahead" if wrong else ""
    )


def slab(seq: int = 1043) -> Slab:
    """A head of h with a hot spot in the difference."""
    random = np.random.default_rng(7)
    y, x = np.mgrid[0:32, 0:32].astype(np.float32)
    values = np.stack(
        [np.sin(x / (3 + head)) * np.cos(y / 5) + 0.2 * random.standard_normal((32, 32)) for head in range(8)]
    )
    base = values + 1e-6 * random.standard_normal(values.shape)
    base[:, 10:14, 18:26] += 0.5
    return Slab(seq, "live:1", 4, "h", values.astype(np.float32), base.astype(np.float32), "ring 3")


def small_slab(seq: int = 1043) -> Slab:
    """A tensor of few, large pixels: pictures of it stay small."""
    values = np.array([[[0.0, 1.0, -1.0, 2.0], [0.5, -0.5, 0.0, -2.0], [1.5, 0.0, 0.0, 0.0], [0.0, 0.0, np.nan, 1.0]]])
    base = np.where(np.isnan(values), 0.0, values)
    base[0, 0, 3] = 0.0
    return Slab(seq, "live:1", 4, "h", values.astype(np.float32), base.astype(np.float32), "ring 3")
