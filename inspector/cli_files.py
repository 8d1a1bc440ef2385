"""Recordings as files: ``replay``, ``check``, ``diff``, ``dump``, ``pack``, ``export``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inspector import cli_options as options
from inspector.cli_options import loading_bar, remark

if TYPE_CHECKING:
    from inspector.opening import Source
    from sessions.record import Record

Recording = Annotated[Path, typer.Argument(metavar="FILE", help="A session, JSON lines or a trace.")]
Session = Annotated[Path, typer.Argument(metavar="SESSION", help="A session file.")]
BranchNumber = Annotated[int, typer.Option("--branch", min=0, help="Line of history; 0 is the main one.")]


def register(app: typer.Typer) -> None:
    app.command("replay", help="Execute a recording again and compare every event and digest.")(_replay)
    app.command("check", help="Look at every invariant over a recording; exit status 1 when one is broken.")(_check)
    app.command("diff", help="The first event, layer and place in which two recordings differ.")(_diff)
    app.command("dump", help="Write the events of a recording as canonical JSON lines.")(_dump)
    app.command("pack", help="Write a clean, closed copy of a session file.")(_pack)
    app.command("export", help="Write a recording as JSON lines, Chrome trace, tensors of an instant, or a test.")(
        _export
    )


def _replay(
    file: Session,
    model: options.OtherModel = None,
    tolerance: Annotated[
        float | None, typer.Option("--tolerance", min=0.0, help="Compare numbers within this instead of bitwise.")
    ] = None,
    device: options.Device = "auto",
    dtype: options.Dtype = None,
    threads: options.Threads = None,
) -> None:
    from inspector.opening import (
        BUNDLED,
        environment,
        is_bundled,
        open_engine,
        recorded_config,
        recorded_start,
        sniff,
        warnings_of,
    )
    from inspector.text import plural
    from sessions.meta import MODEL
    from sessions.replay import replay

    source = sniff(file)
    if source.kind != "session":
        raise ValueError(
            f"{file}: found {source.kind}, expected a session file: only those hold the actions to run again."
        )
    start, meta = recorded_start(file)
    if model is None and not is_bundled(start.fingerprint):
        place = meta.get(MODEL)
        raise ValueError(
            f"{file}: it was recorded with {start.model or 'a model'} (fingerprint {start.fingerprint}"
            f"{', then at ' + place if place else ''}), which is not the bundled model. Give its checkpoint with "
            "--model FILE."
        )
    config = recorded_config(start, meta, device=device, dtype=dtype, threads=threads)
    engine = open_engine(None if model is None or model in BUNDLED else Path(model), config, loading_bar())
    for line in warnings_of(engine):
        remark(line)
    report = replay(file, engine, tolerance, environment=environment(config))
    for line in report.remarks:
        remark(line)
    branches = plural(report.branches, "branch", "branches")
    sys.stdout.write(
        f"{plural(report.events, 'event')} on {branches}, {plural(report.digests, 'digest')}; {report.compared}\n"
    )
    if report.worst_place:
        sys.stdout.write(f"largest relative difference of a stored tensor: {report.worst:.3g}, {report.worst_place}\n")
    if report.difference is None:
        sys.stdout.write("the same\n")
        return
    on = f" (branch {report.branch})" if report.branch else ""
    sys.stdout.write(f"{report.difference}{on}\n")
    raise typer.Exit(1)


def _check(
    file: Recording,
    off: Annotated[
        list[str] | None, typer.Option("--off", help="An invariant not to look at; may be given again.")
    ] = None,
    first: Annotated[bool, typer.Option("--first", help="Only the first finding of each invariant.")] = False,
) -> None:
    from inspector.text import plural, visible
    from sessions.invariants import ORACLES, Checker
    from sessions.opening import open_source

    try:
        checker = Checker(off or ())
    except (LookupError, ValueError) as error:
        raise typer.BadParameter(f"--off: {error.args[0]}") from None
    sniff_recording(file)
    opened = open_source(file, checker, write=False)
    found = 0
    try:
        for line in opened.remarks:
            remark(line)
        record = opened.history.record
        events = 0
        seen: set[tuple[int, str, int]] = set()
        names: set[str] = set()
        for branch in record.branches:
            events += branch.last - branch.at
            # oracles need a model: theirs are as they were found when it ran
            told = [found for found in opened.history.findings(branch.id) if found.name in ORACLES]
            for finding in sorted([*opened.history.check(checker, branch.id), *told], key=lambda one: one.seq):
                owner = record.owner(branch.id, finding.seq)
                key = (owner, f"{finding.name} {finding.req} {finding.where} {finding.text}", finding.seq)
                if key in seen or (first and finding.name in names):
                    continue
                seen.add(key)
                names.add(finding.name)
                found += 1
                event = opened.history.event(branch.id, finding.seq)
                on = f" branch {owner}" if owner else ""
                who = f" r{finding.req}" if finding.req >= 0 else ""
                where = f" round {event.round}" if event.round else ""
                sys.stdout.write(f"@{finding.seq}{on}{where}{who} {finding.name}: {visible(finding.text)}\n")
        sys.stdout.write(f"{plural(events, 'event')}: {plural(found, 'finding') if found else 'no finding'}\n")
    finally:
        if opened.store is not None:
            opened.store.close()
    if found:
        raise typer.Exit(1)


def _diff(
    a: Annotated[Path, typer.Argument(metavar="A", help="A session, JSON lines or a trace.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="What it is compared with; A itself for two branches of it.")],
    branch_a: Annotated[int, typer.Option("--branch-a", min=0, help="Line of history in A.")] = 0,
    branch_b: Annotated[int, typer.Option("--branch-b", min=0, help="Line of history in B.")] = 0,
) -> None:
    from inspector.describe import body
    from inspector.text import visible
    from sessions.compare import compare
    from sessions.errors import NotAvailable
    from sessions.view import LedgerView

    sniff_recording(a), sniff_recording(b)
    try:
        difference = compare(a, b, branch_a, branch_b)
    except NotAvailable as error:
        raise typer.BadParameter(f"--branch-a, --branch-b: {error}") from None
    for line in difference.settings:
        remark(f"settings differ: {line}")
    sys.stdout.write(f"{visible(difference.text)}\n")
    if difference.same:
        return
    for name, event in (("A", difference.a), ("B", difference.b)):
        shown = f"{event.kind} {body(event, LedgerView())}" if event is not None else "nothing more"
        sys.stdout.write(f"  {name}: {shown}\n")
    raise typer.Exit(1)


def _dump(file: Recording, branch: BranchNumber = 0) -> None:
    from sessions.canonical import canonical
    from sessions.invariants import Checker
    from sessions.opening import open_source

    sniff_recording(file)
    opened = open_source(file, Checker(), write=False)
    try:
        for line in opened.remarks:
            remark(line)
        record = opened.history.record
        last = record.last(_known(record, branch))
        for low in range(1, last + 1, 256):
            events = record.events(branch, low, min(last, low + 255))
            sys.stdout.write("".join(f"{canonical(event)}\n" for event in events))
    finally:
        if opened.store is not None:
            opened.store.close()


def _pack(file: Session, out: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write.")]) -> None:
    from inspector.text import byte_size
    from sessions.store import Store

    sniff_recording(file, only_session=True)
    with Store(file, "r") as store:
        for line in store.remarks:
            remark(line)
        store.pack(out)
    remark(f"{out}: {byte_size(out.stat().st_size)}")


def _export(
    file: Recording,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write.")],
    to: Annotated[str, typer.Option("--to", help="json, trace (opens in Perfetto), tensors or test.")] = "json",
    at: Annotated[str, typer.Option("--at", help="The instant for tensors and test: @1043, 'a, start or end.")] = "end",
    model: options.OtherModel = None,
) -> None:
    from inspector.exporting import FORMATS, export
    from inspector.opening import open_recorded

    if to not in FORMATS:
        raise typer.BadParameter(f"--to: found {to!r}, expected one of {', '.join(FORMATS)}")
    debugger = open_recorded(sniff_recording(file), model, write=False)
    try:
        result = debugger.execute(f"goto {at}")
        if not result.ok:
            raise ValueError(f"--at: {result.lines[-1]}")
        remark(f"{out}: {export(debugger, to, out)}")
    finally:
        debugger.close()


def _known(record: Record, branch: int) -> int:
    """``branch``; one that is not there is a mistake of whoever typed it."""
    from sessions.errors import NotAvailable

    try:
        return record.branch(branch).id
    except NotAvailable as error:
        raise typer.BadParameter(f"--branch: {error}") from None


def sniff_recording(file: Path, only_session: bool = False) -> Source:
    """What a recording is. Raises UserError for anything else."""
    from inspector.opening import KINDS, sniff

    source = sniff(file)
    wanted = ("session",) if only_session else ("session", "jsonl", "trace")
    if source.kind not in wanted:
        raise ValueError(f"{file}: found {KINDS[source.kind]}, expected {' or '.join(KINDS[kind] for kind in wanted)}.")
    return source
