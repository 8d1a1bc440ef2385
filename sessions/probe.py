"""Paste-in recorder for other engines: each call writes one line of JSON that ``metrale-inspect check FILE`` reads.

    probe = Probe("run.jsonl", slots=4, k=4, ring_depth=8)
    probe.claim(slot=0, req=1, prompt=[5, 6, 7])
    with probe.round(1, "prefill"):
        probe.write("live:0", 1, tokens=[5, 6, 7], start=0)
    with probe.round(1, "verify"):
        for row, token in enumerate(rows):
            probe.write(f"step:0.{row}", 1, tokens=[token])
        probe.accept(0, 1, accepted=2, k=4)
        probe.rewind(1, cursor=5)
        probe.restore("step:0.1", "live:0", 1)

A probe only repeats what the engine says. Positions and cursors follow from it later; those you give are compared.
Hashing is off until you hand tensors over; nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import xxhash

from engine import events as ev
from engine.events import Digests, Event, Place
from sessions.importers.jsonl import HEADER, line


def digest(data: Any) -> str:
    """xxh3-64 of anything with the buffer protocol (bytes, numpy), or of what ``numpy.asarray`` makes of it."""
    try:
        view = memoryview(data)
    except TypeError:
        import numpy

        view = numpy.asarray(data).data
    return xxhash.xxh3_64_hexdigest(view if view.contiguous else view.tobytes())


class Probe:
    """Writes to ``path`` from the first call on. ``start`` are fields of the ``Start`` event (slots, k, ring_depth).
    Places are written ``live:SLOT``, ``checkpoint:SLOT``, ``step:SLOT.ROW``, ``ring:SLOT.INDEX``, ``prefix:INDEX``."""

    def __init__(self, path: str | PathLike[str], **start: Any) -> None:
        self._file = Path(path).open("w", encoding="utf-8")  # noqa: SIM115 - closed by close()
        self._file.write(HEADER + "\n")
        self._round = self._copies = 0
        self._accepted: dict[int, tuple[int, int]] = {}
        self._queued: list[ev.StateCopy] = []
        self.event(ev.Start, source="probe", **start)

    def event(self, cls: type[Event], req: int = -1, **fields: Any) -> Event:
        """Write any event of ``engine.events``; the calls below are shorthand for the common ones."""
        event = cls(req=req, round=self._round, **fields)
        self._file.write(line(event) + "\n")
        self._file.flush()
        return event

    def claim(self, slot: int, req: int, prompt: Sequence[int] | int = (), zeroed: bool = True) -> None:
        """``req`` owns ``slot`` now; ``prompt`` are its tokens or their number. ``zeroed``: live was reset."""
        ids = () if isinstance(prompt, int) else tuple(prompt)
        self.event(ev.Request, req, prompt=ids, prompt_len=prompt if isinstance(prompt, int) else len(ids))
        self.event(ev.Claim, req, slot=slot)
        if zeroed:
            self.event(ev.Zero, req, place=Place("live", slot), bytes=-1)

    def release(self, slot: int, req: int, reason: str = "stop") -> None:
        """``req`` has ended and gave ``slot`` back."""
        self.event(ev.Finish, req, reason=reason)
        self.event(ev.Release, req, slot=slot)

    @contextmanager
    def round(self, req: int, mode: str = "decode") -> Iterator[None]:
        """What happens inside belongs to one round (prefill, decode, verify); positions are checked at its end."""
        self._round += 1
        self.event(ev.RoundBegin, req, mode=mode)
        yield
        self.event(ev.RoundEnd, req)

    def write(
        self, place: str, req: int, tokens: Sequence[int] | int = 1, start: int = -1, position: int = 0, parts: str = ""
    ) -> None:
        """``tokens`` were absorbed into live; for a step place: one verify row was, and the state kept there (``parts``
        of it, h+conv unless said). ``start`` and ``position`` are tokens before and after, when the engine knows."""
        where = Place.from_text(place)
        ids = (-1,) * tokens if isinstance(tokens, int) else tuple(tokens)
        if where.kind == "step":
            fields = {"row": where.index, "token": ids[0], "step_parts": parts or "h+conv"}
            self.event(ev.VerifyRow, req, slot=where.slot, position=position, **fields)
        elif len(ids) == 1 and start < 0:
            self.event(ev.Decode, req, slot=where.slot, token=ids[0], position=position)
        else:
            known = ids if -1 not in ids else ()
            counts = {"start": start, "count": len(ids), "position": position}
            self.event(ev.Prefill, req, slot=where.slot, tokens=known, **counts)

    def accept(self, slot: int, req: int, accepted: int, k: int) -> None:
        """``accepted`` rows (accepted drafts + 1) of ``k`` are confirmed."""
        self._accepted[slot] = (accepted, k)
        self.event(ev.Verify, req, slot=slot, k=k)
        self.event(ev.Accept, req, slot=slot, accepted=accepted, k=k, natural=accepted)

    def output(self, req: int, token: int, index: int) -> None:
        """Output number ``index`` (from 0) is ``token``; it is the pending input now."""
        self.event(ev.Emit, req, token=token, index=index)

    def rewind(self, req: int, cursor: int) -> None:
        """The KV cursor was lowered."""
        self.event(ev.KvRewind, req, cursor=cursor)

    def read(self, place: str, req: int, position: int = -1, parts: str = "h+conv") -> None:
        """The state at ``place`` is about to be used; ``position`` is what the engine takes it for."""
        where = Place.from_text(place)
        self.event(ev.StateCopy, req, src=where, dst=where, parts=parts, bytes=-1, position=position)

    def restore(
        self,
        src: str,
        dst: str,
        req: int,
        label: int = 0,
        parts: str = "h+conv",
        nbytes: int = -1,
        queued: bool = False,
    ) -> None:
        """State bytes went from ``src`` to ``dst``, any two places: commit, checkpoint, ring or prefix save, restore.
        ``label``: outputs for a ring entry, tokens for a prefix. ``queued``: on the second stream, until ``sync``."""
        a, b = Place.from_text(src), Place.from_text(dst)
        cls, fields = self._meaning(a, b, label)
        if cls is ev.RingSave:
            self.event(ev.RingRecord, req, slot=b.slot, ring_slot=b.index, token_position=label, next_slot=-1)
        self._copies += 1
        stream = "secondary" if queued else "default"
        moved = {"copy": self._copies, "parts": parts, "bytes": nbytes, "stream": stream, "landed": not queued}
        event = self.event(cls, req, src=a, dst=b, **moved, **fields)
        if queued and isinstance(event, ev.StateCopy):
            self._queued.append(event)

    save = restore

    def evict(self, place: str, req: int, label: int) -> None:
        """The ring or prefix snapshot at ``place`` cannot be found any more; tell it before the place is reused."""
        where = Place.from_text(place)
        if where.kind == "prefix":
            self.event(ev.PrefixEvict, req, index=where.index, tokens=label)
        else:
            self.event(ev.RingEvict, req, slot=where.slot, ring_slot=where.index, token_position=label)

    def _meaning(self, src: Place, dst: Place, label: int) -> tuple[type[ev.StateCopy], dict[str, Any]]:
        """Which event a copy between two kinds of places is; a destination alone decides what the table does not."""
        accepted, k = self._accepted.get(dst.slot, (src.index + 1, src.index + 2))
        table: dict[tuple[str, str], tuple[type[ev.StateCopy], dict[str, Any]]] = {
            ("live", "checkpoint"): (ev.Checkpoint, {}),
            ("checkpoint", "live"): (ev.StateRollback, {"accepted": 0}),
            ("step", "live"): (ev.Commit, {"accepted": accepted, "k": k}),
            ("ring", "live"): (ev.RingRestore, {"token_position": label}),
            ("prefix", "live"): (ev.PrefixHit, {"tokens": label, "matched": label}),
            ("", "ring"): (ev.RingSave, {"token_position": label}),
            ("", "prefix"): (ev.PrefixSave, {"tokens": label}),
        }
        return table.get((src.kind, dst.kind)) or table.get(("", dst.kind)) or (ev.StateCopy, {})

    def sync(self) -> None:
        """The main stream waits for the second one: queued copies are there now."""
        for copy in self._queued:
            route = {"src": copy.src, "dst": copy.dst, "parts": copy.parts, "bytes": copy.bytes}
            self.event(ev.Landed, copy.req, copy=copy.copy, **route)
        self.event(ev.Sync, count=len(self._queued))
        self._queued.clear()

    def tensor(self, place: str, req: int, h: Sequence[Any] = (), conv: Sequence[Any] = ()) -> None:
        """What is at ``place`` now, one array per recurrent layer: hashed, and compared with what was there before."""
        where, layers = Place.from_text(place), max(len(h), len(conv))
        hashes: Digests = tuple(
            (digest(h[i]) if i < len(h) else "", digest(conv[i]) if i < len(conv) else "") for i in range(layers)
        )
        self.event(ev.StateCopy, req, src=where, dst=where, bytes=-1, digests=hashes)

    def close(self) -> None:
        """Close the file. Lines are complete without it."""
        self._file.close()
