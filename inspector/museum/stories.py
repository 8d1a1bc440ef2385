"""docs/museum.md: the story of each room, from the same notes that the sessions carry."""

from __future__ import annotations

from collections.abc import Iterator

from engine.faults import CLASSES, find_fault
from inspector.museum.rooms import rooms


def stories() -> str:
    """The whole page."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield from (
        "# The museum",
        "",
        "<!-- Made by tools/make_docs.py from inspector/museum/rooms; change the rooms, not this file. -->",
        "",
        "Each room is a fault that a real engine had, as a short session on the bundled model. Open one with",
        "`metrale-inspect museum NAME`: it stands at the first finding, `why` is answered, `judge` says which kind",
        "of difference it is, and `rev step` goes back to before it happened. `metrale-inspect museum --check` plays",
        "all of them, and the healthy run beside each. The sessions are made on first use, because digests depend on",
        "the machine.",
    )
    every = rooms()
    for group, about in CLASSES.items():
        mine = [room for name, room in every.items() if find_fault(name).group == group]
        if not mine:
            continue
        yield from ("", f"## {group}: {about}")
        for room in mine:
            spec = find_fault(room.name)
            verdicts = " or ".join(kind.replace("_", " ") for kind in room.verdicts if kind != "none")
            found = " or ".join(f"`{name}`" for name in room.detectors)
            yield from (
                "",
                f"### {room.title}",
                "",
                f"`metrale-inspect museum {room.name}` · reported in {spec.report}"
                + (" · silent: no event tells of it" if spec.silent else ""),
                "",
                room.happened,
                "",
                f"Look at: {room.look}",
                "",
                f"Found by {found}; judged {verdicts or 'not at all, no state is concerned'}.",
            )
