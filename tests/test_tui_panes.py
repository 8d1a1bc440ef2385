"""Panes as functions of a frame: what stands in their lines. No terminal, no worker."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tui_samples as samples

from engine.events import Place, StateCopy
from inspector.tui.frame import Frame, difference
from inspector.tui.panes.blocks import BlocksPane
from inspector.tui.panes.cursors import CursorsPane
from inspector.tui.panes.events import EventsPane
from inspector.tui.panes.ring import RingPane
from inspector.tui.panes.slots import SlotsPane
from inspector.tui.panes.stops import StopsPane
from inspector.tui.panes.streams import StreamsPane
from inspector.tui.panes.tensors import TensorsPane, number, profile_bar
from inspector.tui.panes.tokens import TokensPane, anchors, first_draft
from inspector.tui.text import Line, line_width, plain
from inspector.tui.widgets.bars import CursorsBar, StatusBar, StopBar, TimelineBar
from inspector.tui.widgets.heat import LEVELS, NAN_LEVEL, difference_levels, enlarge, pool, signs, value_levels
from inspector.tui.widgets.pane import Content, Pane, highlight

PANES = [TokensPane, RingPane, SlotsPane, CursorsPane, StopsPane, EventsPane, StreamsPane, BlocksPane, TensorsPane]
FRAMES = {
    "live": samples.live_frame,
    "dirty": samples.dirty_frame,
    "broken": samples.broken_frame,
    "branch": samples.branch_frame,
    "empty": samples.empty_frame,
    "hostile": samples.hostile_frame,
    "nothing": Frame,
}


def built(pane: Pane, frame: Frame, width: int = 60, height: int = 20) -> Content:
    pane.view = frame
    return pane.build(frame, width, height)


def lines(content: Content) -> list[str]:
    return [plain(line) for line in (*content.head, *(row.spans for row in content.rows), *content.foot)]


def row_with(content: Content, text: str) -> Line:
    return next(row.spans for row in content.rows if text in plain(row.spans))


@pytest.mark.parametrize("kind", PANES, ids=lambda kind: kind.NAME)
@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.parametrize("size", [(20, 3), (38, 8), (120, 40)], ids=str)
def test_every_pane_draws_every_frame_at_every_size(kind: type[Pane], name: str, size: tuple[int, int]) -> None:
    content = built(kind(), FRAMES[name](), *size)
    assert content.rows
    assert all("\n" not in text and "\x1b" not in text for text in lines(content))


# ----------------------------------------------------------------------------------------------------------- tokens


def test_tokens_show_text_mark_draft_and_where_states_stand() -> None:
    content = built(TokensPane(), samples.live_frame(), 116, 5)
    token, mark, draft, state = lines(content)[1:5]
    assert "▸·it" in token and "·verified" in token
    assert mark.rstrip(" │").endswith("b") and "B" in mark
    assert "·they✓" in draft and "Once✗" in draft
    assert "▲" in state and "◆3" in state


def test_with_four_lines_the_states_stay_and_drafts_are_shown_while_they_are_undecided() -> None:
    def labels(frame: Frame) -> list[str]:
        return [line.split()[0] for line in lines(built(TokensPane(), frame, 78, 4))]

    assert labels(samples.live_frame()) == ["pos", "token", "mark", "state"]
    assert labels(samples.dirty_frame()) == ["pos", "token", "draft", "state"]
    content = built(TokensPane(), samples.live_frame(), 78, 4)
    assert "▲" in lines(content)[3] and "B" in lines(content)[2]


def test_the_draft_row_stands_under_the_tokens_it_became() -> None:
    frame = samples.live_frame()
    request = frame.request
    assert request is not None
    # three of four rows accepted: two drafts and the correction are the last three tokens
    assert first_draft(frame, request) == len(request.tokens) - 3


def test_a_commit_that_waits_on_a_stream_moves_no_draft() -> None:
    frame = samples.live_frame()
    request = frame.request
    assert request is not None
    place = Place("live", 1)
    waiting = dataclasses.replace(frame.view.states[place], dirty=True, queued=True)
    view = dataclasses.replace(frame.view, states=frame.view.states.set(place, waiting))
    frame = dataclasses.replace(frame, view=view)
    request = dataclasses.replace(request, round=dataclasses.replace(request.round, open=True))
    assert first_draft(frame, request) == len(request.tokens) - 3


def test_drafts_of_a_round_that_waits_stand_after_the_pending_token() -> None:
    frame = samples.dirty_frame()
    request = frame.request
    assert request is not None
    assert first_draft(frame, request) == len(request.tokens)
    assert "?" in lines(built(TokensPane(), frame, 116, 5))[3]


def test_states_that_differ_are_named_where_they_stand() -> None:
    frame = samples.broken_frame()
    request = frame.request
    assert request is not None
    where = anchors(frame, request)
    assert where[request.cursor - 1] == ["▲h", "▲kv"]
    assert where[request.cursor + 1] == ["▲conv"]
    assert any("◆3!" in signs_ for signs_ in where.values())


def test_the_dirty_window_is_named_in_the_border() -> None:
    assert "DIRTY" in plain(built(TokensPane(), samples.dirty_frame()).note)
    assert "DIRTY" in plain(StatusBar().line(samples.dirty_frame(), 120))
    assert "DIRTY" not in plain(StatusBar().line(samples.live_frame(), 120))


def test_tokens_wrap_into_bands_when_there_is_room() -> None:
    content = built(TokensPane(), samples.live_frame(), 100, 23)
    assert sum("token" in text for text in lines(content)) == 4


# -------------------------------------------------------------------------------------------------- ring and slots


def test_the_ring_shows_label_slot_state_and_age() -> None:
    content = built(RingPane(), samples.live_frame(), 44, 10)
    entry = plain(row_with(content, " 871"))
    assert entry.split() == ["30", "3", "43", "h", "conv", "871", "8"]
    assert "■" in lines(content)[0] and "▸" in lines(content)[0]


def test_a_ring_entry_without_conv_is_called_wrong() -> None:
    entry = plain(row_with(built(RingPane(), samples.broken_frame(), 44, 10), "43/–"))
    assert entry.startswith("!") and "h –" in entry


def test_slots_mark_what_the_last_step_changed_and_what_is_broken() -> None:
    live = plain(row_with(built(SlotsPane(), samples.live_frame()), "r2"))
    assert live.startswith("*") and "51" in live
    broken = plain(row_with(built(SlotsPane(), samples.broken_frame()), "r2"))
    assert broken.startswith("!") and "51/53" in broken


def test_slots_list_every_place_and_the_free_ones() -> None:
    content = built(SlotsPane(), samples.live_frame())
    targets = [row.target[1] for row in content.rows if row.target is not None]
    assert Place("checkpoint", 1) in targets and Place("step", 1, 2) in targets and Place("prefix", -1, 0) in targets
    assert sum("free" in text for text in lines(content)) == 2


def test_a_stale_state_is_called_stale() -> None:
    frame = samples.live_frame()
    place = Place("live", 1)
    states = frame.view.states.set(place, dataclasses.replace(frame.view.states[place], epoch=2))
    frame = dataclasses.replace(frame, view=dataclasses.replace(frame.view, states=states))
    assert "stale" in plain(row_with(built(SlotsPane(), frame), "r2"))


def test_many_slots_are_shown_as_a_map() -> None:
    start = dataclasses.replace(samples.START, slots=200)
    frame = samples.live_frame()
    frame = dataclasses.replace(frame, view=dataclasses.replace(frame.view, start=start))
    assert "200 slots" in lines(built(SlotsPane(), frame, 60, 10))[0]


# ------------------------------------------------------------------------------------------------ cursors and pools


def test_cursors_in_step_and_out_of_step() -> None:
    assert plain(built(CursorsPane(), samples.live_frame()).note) == "in step"
    assert plain(built(CursorsPane(), samples.broken_frame()).note) == "skew +2 !"
    assert plain(built(CursorsPane(), samples.dirty_frame()).note) == "4 rows ahead"
    assert "53 +2 !" in plain(row_with(built(CursorsPane(), samples.broken_frame()), "conv"))


def test_a_difference_on_its_way_reads_otherwise_than_a_broken_one() -> None:
    frame = samples.dirty_frame()
    place, request = Place("live", 1), frame.request
    assert request is not None
    view = frame.view
    states = view.states.set(place, dataclasses.replace(view.states[place], conv_position=request.cursor + 2))
    view = dataclasses.replace(view, states=states)
    plain_ = plain(row_with(built(CursorsPane(), dataclasses.replace(frame, view=view)), "conv"))
    assert "dirty, 2 rows to roll back" in plain_ and "!" not in plain_
    copy = StateCopy(seq=1042, src=Place("step", 1, 1), dst=place, parts="h+conv", stream="secondary")
    view = dataclasses.replace(view, queued=(copy,))
    content = built(CursorsPane(), dataclasses.replace(frame, view=view), 38)
    assert "← step 1 queued" in plain(row_with(content, "conv"))
    assert "queued" not in plain(row_with(content, "kv "))


def test_the_block_pool_is_called_blocks() -> None:
    labels = [text.split()[0] for text in lines(built(CursorsPane(), samples.live_frame())) if text.strip()]
    assert labels.count("kv") == 1 and "blocks" in labels


def test_the_cursors_are_not_in_step_while_h_or_conv_has_no_state() -> None:
    frame = samples.live_frame()
    place = Place("live", samples.SLOT)
    assert "in step" in plain(built(CursorsPane(), frame).note)
    for missing in ({"h_position": None}, {"conv_position": None}, {"h_position": None, "conv_position": None}):
        states = frame.view.states.set(place, dataclasses.replace(frame.view.states[place], **missing))
        content = built(CursorsPane(), dataclasses.replace(frame, view=dataclasses.replace(frame.view, states=states)))
        assert "in step" not in plain(content.note) and any("no state" in text for text in lines(content))


def test_the_scale_of_the_ruler_says_what_it_counts() -> None:
    assert lines(built(CursorsPane(), samples.live_frame(), 60, 12))[0].split()[:2] == ["tokens", "0"]


@pytest.mark.parametrize("writer", ["prefill", "ring_restore", "landed"])
def test_who_wrote_a_place_is_told_whole_in_the_overview(writer: str) -> None:
    frame = samples.live_frame()
    at = frame.view.states[Place("live", samples.SLOT)].h_writer
    rows = tuple(dataclasses.replace(row, kind=writer) if row.seq == at else row for row in frame.events)
    told = f"{at} {'restore' if writer == 'ring_restore' else writer}"
    assert any(told in text for text in lines(built(SlotsPane(), dataclasses.replace(frame, events=rows), 38, 9)))


def test_pools_show_use_total_peak_and_history() -> None:
    line = plain(row_with(built(CursorsPane(), samples.live_frame(), 60, 12), "6/96"))
    assert "▴14" in line and "*" in line and "▁" in line


def test_a_full_pool_is_marked() -> None:
    frame = samples.live_frame()
    pools = frame.view.pools.set("slots", dataclasses.replace(frame.view.pools["slots"], used=4))
    frame = dataclasses.replace(frame, view=dataclasses.replace(frame.view, pools=pools))
    assert any(role == "bad" for _, role in row_with(built(CursorsPane(), frame), "4/4"))


# ---------------------------------------------------------------------------------------------------- other panes


def test_stops_tell_what_was_expected_and_what_was_found() -> None:
    content = built(StopsPane(), samples.broken_frame())
    assert "positions agree" in lines(content)[0] and "@1043" in lines(content)[0]
    assert lines(content)[1].strip() == "conv is 2 tokens ahead of h and KV (53 vs 51)"
    assert "expected" in lines(content)[2] and "found" in lines(content)[3]
    assert content.rows[0].target == ("event", 1043)
    assert any(text.startswith("▸b3") for text in lines(content))


def test_a_watch_shows_its_value_before_the_change() -> None:
    assert "52 (was 49) *" in plain(row_with(built(StopsPane(), samples.live_frame()), "d1"))


def test_events_after_the_present_are_called_recorded() -> None:
    content = built(EventsPane(), samples.broken_frame(), 80, 8)
    assert plain(row_with(content, "1043 ")).startswith("▸")
    assert "recorded" in plain(row_with(content, "1044 "))
    assert all(role in ("faint", "", "bad") for _, role in row_with(content, "1045 "))


def test_streams_list_what_waits() -> None:
    content = built(StreamsPane(), samples.busy_streams(samples.live_frame()))
    assert "live:1 → checkpoint:0" in lines(content)[0]
    assert plain(content.note) == "2 queued"


def test_blocks_show_holders_and_the_table() -> None:
    text = lines(built(BlocksPane(), samples.live_frame(), 44, 8))
    assert "▸8" in text[0]
    assert "▣" in text[1] and "■" in text[1]


def test_tensors_show_the_difference_from_the_base() -> None:
    pane = TensorsPane()
    pane.table = samples.tensor_table(wrong=True)
    content = built(pane, samples.live_frame(), 56, 20)
    bad = next(row.spans for row in content.rows if row.target == ("tensor", (1, "conv")))
    assert "NO" in plain(bad) and "2.800" in plain(bad)
    assert "2 tokens ahead" in lines(content)[-1]


def test_numbers_of_a_difference() -> None:
    assert [number(value) for value in (None, 0.0, 3.1e-7, 2.8)] == ["–", "0", "3.1e-07", "2.800"]
    assert profile_bar(0.0, 1.0) == "·" and profile_bar(1e-7, 1.0) == "▁" and profile_bar(2.0, 1.0) == "█"


# ------------------------------------------------------------------------------------------------------------- bars


@pytest.mark.parametrize("cells", [40, 80, 120, 200])
@pytest.mark.parametrize("name", FRAMES)
def test_bars_never_exceed_their_width(name: str, cells: int) -> None:
    frame = FRAMES[name]()
    for bar in (StatusBar(), CursorsBar(), StopBar(), TimelineBar()):
        assert line_width(bar.line(frame, cells)) <= cells


def test_the_first_line_answers_where_am_i() -> None:
    text = plain(StatusBar().line(samples.broken_frame(), 120))
    for word in ("HISTORY", "demo", "1,043", "1,877", "r2", "len 52", "round 57", "13/14 !"):
        assert word in text
    assert "BRANCH" in plain(StatusBar().line(samples.branch_frame(), 120))


@pytest.mark.parametrize("cells", [60, 80, 120])
def test_the_first_line_drops_words_before_any_of_them_touch(cells: int) -> None:
    frame = dataclasses.replace(samples.broken_frame(), recording="rec x.mtl", title="a long name of a model")
    text = plain(StatusBar().line(frame, cells))
    assert "1,043" in text and "13/14 !" in text and "  " in text[: text.index("13/14")].lstrip()
    if cells == 120:
        assert "REC x.mtl" in text and "verify 3/4  " in text
    else:
        assert "a long" not in text


def test_the_stop_line_tells_the_broken_invariant() -> None:
    for cells in (80, 120):
        text = plain(StopBar().line(samples.broken_frame(), cells))
        assert "conv is 2 tokens ahead of h and KV (53 vs 51)" in text and ":why" in text
    assert "how many of 4 rows" in plain(StopBar().line(samples.dirty_frame(), 120))


def test_the_timeline_never_hides_a_finding_behind_another_mark() -> None:
    frame = samples.broken_frame()
    marks = dataclasses.replace(frame.marks, keyframes=tuple(range(1, 1878, 10)), findings=(200,))
    text = plain(TimelineBar().line(dataclasses.replace(frame, marks=marks), 120))
    assert text.count("!") == 1 and "[1,043]" in text


# ------------------------------------------------------------------------------------------------------------- heat


def test_pooling_keeps_the_worst_value_of_each_block() -> None:
    values = np.zeros((6, 10), np.float32)
    values[5, 9], values[0, 0], values[2, 3] = -7, 1, np.nan
    picture, down, across = pool(values, 3, 5)
    assert (down, across) == (2, 2)
    assert picture[2, 4] == -7 and picture[0, 0] == 1 and np.isnan(picture[1, 1])


def test_levels_are_centred_clipped_and_keep_nan_apart() -> None:
    levels = value_levels(np.array([[0.0, 9.0, -9.0, np.nan]], np.float32), 3.0)
    assert levels.tolist() == [[LEVELS // 2, LEVELS - 1, 0, NAN_LEVEL]]


def test_an_exact_zero_difference_is_the_only_level_zero() -> None:
    levels = difference_levels(np.array([[0.0, 1e-30, 1e-3, 100.0]], np.float64))
    assert levels[0, 0] == 0 and levels[0, 1] == 1 and 1 < levels[0, 2] < LEVELS - 1 and levels[0, 3] == LEVELS - 1


def test_small_pictures_grow_by_a_whole_factor() -> None:
    grown, factor = enlarge(np.arange(4).reshape(2, 2), 8, 20)
    assert factor == 4 and grown.shape == (8, 8)


def test_signs_tell_the_sign_without_colour() -> None:
    text = signs(value_levels(np.array([-3.0, 0.0, 3.0, np.nan], np.float32), 3.0), "value")
    assert text == "i #N"


# ------------------------------------------------------------------------------------------------------------ frame


def test_the_difference_of_two_views_names_what_changed() -> None:
    before, after = samples.live_frame().view, samples.dirty_frame().view
    changed = difference(before, after)
    assert ("state", Place("live", 1)) in changed and ("request", 2) in changed
    assert ("state", Place("live", 0)) not in changed
    assert difference(before, before) == frozenset()


def test_highlight_marks_every_occurrence() -> None:
    assert [text for text, role in highlight((("commit and Commit", "dim"),), "commit") if role == "found"] == [
        "commit",
        "Commit",
    ]
