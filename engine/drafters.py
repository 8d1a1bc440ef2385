"""Where draft tokens come from: the MTP head, prompt lookup, or a person.

A drafter only proposes. What it keeps per request (``DraftState``) never touches recurrent state; the MTP head has its
own layer in the paged KV, which lives in the request's blocks and is rewound by the cursor like any attention layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
import xxhash
from torch import Tensor

from engine.seams import Seams

if TYPE_CHECKING:
    from engine.model import HybridModel
    from engine.state.paged_kv import KvTable


@dataclass(slots=True)
class DraftState:
    """``hidden`` [D] and ``token`` are the MTP head's output after the newest true pair: the first draft and what the
    next step is fed with. No hidden: nothing to draft from, the next round is a plain decode.

    ``fed`` counts the rows of its KV that are true (hidden, next token) pairs: between rounds one for each token below
    the cursor. ``position`` is that of the newest pair, ``fed_digest`` the digest of the hidden state it was really fed
    with. ``written`` also counts rows of drafts, which the next feeding cuts off. ``inputs`` [n, D] are the trunk's
    hidden states of the newest feeding, for whoever wants to run it again; images do not carry them."""

    hidden: Tensor | None = None
    token: int = -1
    fed: int = 0
    fed_digest: str = ""
    written: int = 0
    position: int = -1
    inputs: Tensor | None = None

    def forget(self, cursor: int) -> None:
        """Rewound to ``cursor``: pairs before it stay true, the output after the newest one is gone."""
        self.hidden, self.token, self.fed, self.fed_digest = None, -1, min(self.fed, cursor), ""
        self.position, self.inputs = -1, None

    def told(self, newest: str) -> dict[str, Any]:
        """What the end of a round tells of the head; ``newest`` is the digest of the trunk's newest hidden state, ""
        without digests."""
        facts: dict[str, Any] = {"head_rows": self.fed, "fed_position": self.position}
        if self.hidden is not None and newest:
            facts.update(fed=self.fed_digest, hidden=newest, head=digest(self.hidden))
        return facts


def digest(row: Tensor) -> str:
    """xxh3-64 of the bytes of a hidden row, in hex."""
    return str(xxhash.xxh3_64_hexdigest(row.detach().cpu().contiguous().view(torch.uint8).numpy().data))


class Drafter(Protocol):
    """One way to guess the next tokens."""

    def propose(self, tokens: Sequence[int], draft: DraftState, table: KvTable, count: int) -> tuple[int, ...]:
        """Up to ``count`` drafts to follow ``tokens`` (prompt and outputs, pending token last)."""

    def observe(self, draft: DraftState, hidden: Tensor, following: Sequence[int], table: KvTable, start: int) -> None:
        """The trunk absorbed positions ``start``.. with post-final-norm ``hidden`` [n, D]; ``following`` come next."""


class NoDrafter:
    """Never drafts: every round is a plain decode."""

    def propose(self, tokens: Sequence[int], draft: DraftState, table: KvTable, count: int) -> tuple[int, ...]:
        return ()

    def observe(self, draft: DraftState, hidden: Tensor, following: Sequence[int], table: KvTable, start: int) -> None:
        return None


class PromptLookup(NoDrafter):
    """Finds the newest earlier occurrence of the last three (two, one) tokens and proposes what followed it."""

    def propose(self, tokens: Sequence[int], draft: DraftState, table: KvTable, count: int) -> tuple[int, ...]:
        for width in (3, 2, 1):
            tail = tuple(tokens[-width:])
            if len(tail) < width:
                continue
            for end in range(len(tokens) - 1, width - 1, -1):
                if tuple(tokens[end - width : end]) == tail:
                    return tuple(tokens[end : end + count])
        return ()


class MtpDrafter:
    """The checkpoint's multi-token-prediction head, run again on its own output for the second and later drafts.

    Draft i+1 is fed the head's output hidden state (after ``mtp.norm``) and draft i; its KV entries beyond the true
    pairs are overwritten by true ones in the next round.

    Seams: ``mtp.hidden`` the rows [n, D] the head is fed with; ``mtp.rewind`` the row its KV is cut back to before that
    (held= rows there are, room= the last row at which n fit); ``mtp.position`` the position of the first row (room=);
    ``mtp.swapped`` False, True puts the hidden half before the embedding half.
    """

    def __init__(self, model: HybridModel, seams: Seams) -> None:
        self._model = model
        self._seams = seams

    def propose(self, tokens: Sequence[int], draft: DraftState, table: KvTable, count: int) -> tuple[int, ...]:
        if draft.hidden is None or count < 1:
            return ()
        out, hidden = [draft.token], draft.hidden
        first = draft.position + 1
        for position in range(first, first + count - 1):
            rows = self._model.mtp_rows(hidden[None], [out[-1]], table, position, self._seams("mtp.swapped", False))
            out.append(int(rows.logits[-1].argmax()))
            hidden = rows.hidden[-1]
        draft.written = max(draft.written, first + count - 1)
        return tuple(out)

    def observe(self, draft: DraftState, hidden: Tensor, following: Sequence[int], table: KvTable, start: int) -> None:
        if not following:
            return
        count = len(following)
        draft.inputs, room = hidden[:count], table.capacity - count
        fed = self._seams("mtp.hidden", draft.inputs, start=start)
        draft.fed_digest = digest(fed[-1])
        row = self._seams("mtp.rewind", start, held=draft.written, room=room)
        position = self._seams("mtp.position", row, room=room)
        rows = self._model.mtp_rows(fed, following, table, position, self._seams("mtp.swapped", False))
        draft.hidden, draft.token = rows.hidden[-1].clone(), int(rows.logits[-1].argmax())
        draft.fed = draft.written = row + count
        draft.position = position + count - 1


def make_drafters(model: HybridModel, seams: Seams) -> dict[str, Drafter]:
    """Drafters this model has, by name. ``mtp`` only when the checkpoint carries the head."""
    drafters: dict[str, Drafter] = {"none": NoDrafter(), "lookup": PromptLookup()}
    if model.has_mtp:
        drafters["mtp"] = MtpDrafter(model, seams)
    return drafters
