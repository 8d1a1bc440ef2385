"""``why``: a finding in words, the earliest one that is still about the state, and who wrote that."""

from __future__ import annotations

from engine.events import Event, Place
from inspector.commands.errors import CommandError
from inspector.commands.places import When
from inspector.commands.registry import Args, Context, Result
from inspector.commands.render import note_text, story
from inspector.judging.why import chain, in_order, more, undone_by
from inspector.text import plural, visible
from sessions.finding import Finding

SHOWN = 6


def why(ctx: Context, args: Args) -> Result:
    """The command."""
    debugger = ctx.debugger
    asked = _asked(ctx, args["at"], args["name"])
    if asked is None:
        ctx.say(f"no invariant is broken up to event {debugger.timeline.now}")
        ctx.say(*(f"  note @{note.seq}: {note_text(note)}" for note in story(debugger.timeline)))
        return ctx.result()
    about = chain(debugger.timeline, asked)
    finding = about[0] if args["at"] is None and about else asked
    if args["at"] is not None and args["at"].kind == "event" and asked.seq != debugger.instant(args["at"]).seq:
        ctx.say(f"event {debugger.instant(args['at']).seq} has no finding; the last before it:")
    _tell(ctx, finding)
    _others(ctx, finding, about)
    return ctx.result(data=finding)


def _asked(ctx: Context, at: When | None, name: str | None) -> Finding | None:
    """The finding at an instant (default now), else the last before; None when there is none.

    Raises:
        CommandError: nothing was found there, or not under that name."""
    timeline = ctx.debugger.timeline
    instant = ctx.debugger.here if at is None else ctx.debugger.instant(at)
    if instant.branch != timeline.branch:
        raise CommandError(f"why looks at this branch; go to branch {instant.branch} first")
    found = in_order(timeline.findings(None, instant.seq))
    if not found:
        return None
    here = [finding for finding in found if finding.seq == instant.seq]
    stop = ctx.debugger.last_stop
    if not here and at is None and stop is not None and stop.finding is not None and stop.seq == instant.seq:
        here = [stop.finding]
    newest = here or [finding for finding in found if finding.seq == found[-1].seq]
    chosen = [finding for finding in newest if name in (None, finding.name)]
    if not chosen:
        raise CommandError(f"event {newest[0].seq} has no finding {name}; it has {_names(newest)}")
    return chosen[0]


def _names(found: list[Finding]) -> str:
    return ", ".join(dict.fromkeys(finding.name for finding in found))


def _tell(ctx: Context, finding: Finding) -> None:
    """Expected, found, the rule, who broke it and who wrote the place."""
    debugger = ctx.debugger
    view = debugger.timeline.view_at(finding.seq)
    who = f" of r{finding.req}" if finding.req >= 0 else ""
    ctx.say(f"{finding.name}{who}, since event {finding.seq}" + (f", at {finding.where}" if finding.where else ""))
    ctx.say(f"  {visible(finding.text)}")
    ctx.say(f"  expected {visible(finding.expected) or '-'}, found {visible(finding.found) or '-'}")
    invariant = debugger.invariants.get(finding.name)
    if invariant is not None:
        ctx.say(f"  rule: {invariant.sentence}", f"  usual cause: {invariant.usual_cause}")
    ctx.say(f"  broken by {debugger.describe(debugger.timeline.event(finding.seq), view)}")
    place = _place_of(finding, ctx)
    if place is not None:
        for part in ("h", "conv"):
            writers = writers_of(ctx, place, part, finding.seq, 1)
            if writers:
                ctx.say(f"  {place}.{part} last written by {debugger.describe(writers[0], view)}")
    ctx.say(*more(view, finding))
    notes, told = [note for note in debugger.timeline.notes if note.kind == "note"], story(debugger.timeline)
    ctx.say(*(f"  note: {note_text(note)}" for note in notes if note.seq == finding.seq or note in told))


def _others(ctx: Context, finding: Finding, about: list[Finding]) -> None:
    """What else was found, and how to ask about it."""
    timeline = ctx.debugger.timeline
    every = timeline.findings(None, max(timeline.now, finding.seq))
    beside = [other for other in in_order(every) if other.seq == finding.seq and other != finding]
    if beside:
        ctx.say(f"  also at event {finding.seq}: {_names(beside)} (why @{finding.seq} {beside[0].name} explains it)")
    if about and about[0].seq < finding.seq:
        ctx.say(f"  the first one about this: @{about[0].seq} {about[0].name} (why alone explains it)")
    later = [other for other in about if other.seq > finding.seq]
    if later:
        shown = ", ".join(f"@{other.seq} {other.name}" for other in later[:SHOWN])
        rest = f" and {len(later) - SHOWN:,} more" if len(later) > SHOWN else ""
        ctx.say(f"  later about the same: {shown}{rest} (why @{later[0].seq} explains that one, why now the newest)")
    last = about[-1].seq if about else finding.seq
    undone = undone_by(timeline, finding, last, timeline.now)
    if undone is not None:
        told = ctx.debugger.describe(undone, timeline.view)
        ctx.say(f"  undone since by {told}: that state is from before event {last}")
    if len(every) > 1:
        ctx.say(f"  {plural(len(every), 'finding')} up to now: info findings")


def _place_of(finding: Finding, ctx: Context) -> Place | None:
    """The place a finding is about: named by it, else the live state of its request."""
    try:
        return Place.from_text(finding.where.split(" ")[0]) if finding.where else None
    except ValueError:
        request = ctx.debugger.timeline.view_at(finding.seq).requests.get(finding.req)
        return Place("live", request.slot) if request is not None and request.slot >= 0 else None


def writers_of(ctx: Context, place: Place, part: str, seq: int, most: int) -> list[Event]:
    """The last events that wrote a place, newest first; the ledger says where the newest one is."""
    timeline = ctx.debugger.timeline
    found: list[Event] = []
    at = seq
    while at >= timeline.first and len(found) < most:
        fact = timeline.view_at(at).states.get(place)
        if fact is None:
            break
        writer = {"h": fact.h_writer, "conv": fact.conv_writer}.get(part, max(fact.h_writer, fact.conv_writer))
        if writer <= 0:
            break
        found.append(timeline.event(writer))
        at = writer - 1
    return found
