"""A request in flight: its sequence state plus what the scheduler keeps about it."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.drafters import DraftState
from engine.sampler import Sampling
from engine.traits import SequenceState


@dataclass(slots=True)
class ActiveRequest:
    """``seq`` is what the state memory sees. ``hidden`` is the digest of the trunk's newest hidden state that the MTP
    head is to be fed with. ``content_tokens`` counts outputs outside thinking, ``prose_tokens`` those
    since the last tool call; both feed the watchdogs."""

    seq: SequenceState
    sampling: Sampling
    max_tokens: int
    ignore_eos: bool = False
    drafter: str = "none"
    chunk: int = 0
    content_tokens: int = 0
    prose_tokens: int = 0
    inside_tool: bool = False
    finished: bool = False
    hidden: str = ""
    draft: DraftState = field(default_factory=DraftState)

    @property
    def req(self) -> int:
        return self.seq.req

    @property
    def outputs(self) -> list[int]:
        """Generated tokens, the pending one last (a copy)."""
        return self.seq.tokens[self.seq.prompt_len :]

    @property
    def output_len(self) -> int:
        return len(self.seq.tokens) - self.seq.prompt_len

    @property
    def prefilling(self) -> bool:
        return self.seq.cursor < self.seq.prompt_len

    @property
    def remaining(self) -> int:
        return self.max_tokens - self.output_len
