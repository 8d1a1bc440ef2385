"""What the metadata of our own exports tells of a place: whose it is, at which position, and whether it was settled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from inspector.analysis.tensorfile import TensorFile, json_metadata


@dataclass(frozen=True, slots=True)
class PlaceFact:
    """``h`` and ``conv`` are positions in tokens after ``event``; None is what is not told. ``queued``: (source, parts)
    of copies into the place that were still on their way then, so that its bytes were about to change."""

    file: str
    place: str
    owner: int | None = None
    h: int | None = None
    conv: int | None = None
    event: int | None = None
    dirty: bool = False
    queued: tuple[tuple[str, str], ...] = ()

    @property
    def position(self) -> int | None:
        """The position of the parts that have one; None when they differ. Parts without one are not in the file."""
        told = {at for at in (self.h, self.conv) if at is not None}
        return told.pop() if len(told) == 1 else None

    def text(self) -> str:
        """live:0 (position 41, r1, event 152, dirty: it has absorbed drafts) of a.safetensors"""
        words = [f"position {self.position}"] if self.position is not None else []
        if self.h is not None and self.conv is not None and self.h != self.conv:
            words = [f"h at {self.h}, conv at {self.conv}"]
        words += [f"r{self.owner}"] if self.owner is not None and self.owner >= 0 else []
        words += [f"event {self.event}"] if self.event is not None else []
        words += ["dirty: it has absorbed drafts"] if self.dirty else []
        words += [f"a copy of {parts} from {source} into it was queued" for source, parts in self.queued]
        told = f" ({', '.join(words)})" if words else ""
        return f"{self.place or 'the states'}{told} of {self.file}"


def place_fact(file: TensorFile, place: str) -> PlaceFact:
    """The fact of one place; all unknown where the metadata tells nothing, or nothing of this form."""
    facts = json_metadata(file.metadata, "places")
    fact = facts.get(place) if isinstance(facts, dict) else None
    if not isinstance(fact, dict):
        return PlaceFact(file.path.name, place)
    owner, h, conv = (_whole(fact.get(key)) for key in ("owner", "h", "conv"))
    queued = fact.get("queued")
    copies = [_copy(told) for told in queued[:8]] if isinstance(queued, list) else []
    return PlaceFact(
        file.path.name,
        place,
        owner,
        h,
        conv,
        event=_whole(json_metadata(file.metadata, "event")),
        dirty=fact.get("dirty") is True,
        queued=tuple(copy for copy in copies if all(copy)),
    )


def _whole(value: Any) -> int | None:
    return value if type(value) is int else None


def _copy(told: Any) -> tuple[str, str]:
    src, parts = (told.get("src"), told.get("parts")) if isinstance(told, dict) else ("", "")
    return (src[:40], parts[:16]) if isinstance(src, str) and isinstance(parts, str) else ("", "")
