"""The expression language: what it gives, what it refuses, and that nothing in it can run away."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from engine.events import Accept, Place, RingSave, Start, TensorRef
from inspector.commands.errors import ExpressionError
from inspector.commands.expressions import MAX_DEPTH, MAX_LENGTH, compile_expression
from inspector.commands.functions import FUNCTIONS
from inspector.commands.names import NAMES
from inspector.commands.values import Scope
from sessions.finding import Finding
from sessions.view import LedgerView, PoolFact, RequestFact, RingEntry, RingFact, RoundFact, StateFact

LIVE = Place("live", 1)
H = {3: np.arange(8, dtype=np.float32).reshape(2, 2, 2), 5: np.zeros((2, 2, 2), np.float32)}
CONV = {3: np.ones((3, 4), np.float32), 5: np.full((3, 4), np.nan, np.float32)}


def tensors(ref: TensorRef, seq: int) -> Any:
    array = {"h": H, "conv": CONV}[ref.part][ref.layer]
    return array + 1 if ref.place.kind == "ring" else array


def scope(**extras: Any) -> Scope:
    request = RequestFact(
        2,
        status="running",
        slot=1,
        prompt_len=3,
        tokens=(7, 8, 9, 4, 5),
        cursor=6,
        ring=RingFact(4, 2, (RingEntry(1, 0, 40, True), RingEntry(2, 1, 44, True)), 3),
        round=RoundFact(9, "verify", drafts=(5, 6), accepted=2, k=3),
    )
    view = LedgerView(
        seq=50,
        round=9,
        start=Start(recurrent_layers=(3, 5), h_shape=(2, 2, 2), conv_shape=(3, 4)),
        requests=Map({2: request, 4: RequestFact(4)}),
        states=Map(
            {
                LIVE: StateFact(LIVE, 2, 7, 6, 8, 48, 49, digests=(("aa", "bb"), ("cc", "dd"))),
                Place("ring", 1, 0): StateFact(Place("ring", 1, 0), 2, 7, 3, 3, label=1),
            }
        ),
        slot_epoch=Map({1: 7}),
        pools=Map({"slots": PoolFact("slots", 1, 4, 2)}),
        queued=(RingSave(copy=1),),
        texts=Map({4: "ring ", 5: "holds"}),
        boundaries=Map({5: True}),
        counters=Map({"accepted.1": 12}),
    )
    findings = (Finding("position", 40), Finding("seal", 50))
    event = Accept(seq=50, req=2, accepted=2, k=3)
    return Scope(view, event, 2, tensors, lambda view: findings, extras)


def value(source: str, **extras: Any) -> Any:
    return compile_expression(source).plain(scope(**extras))


VALUES = {
    "1 + 2 * 3": 7,
    "7 // 2 - 7 % 4": 0,
    "-3 + +1": -2,
    "1 / 4": 0.25,
    "'a' + 'b'": "ab",
    "(1, 2) + (3,)": (1, 2, 3),
    "now": 50,
    "round": 9,
    "event.kind": "accept",
    "event.accepted": 2,
    "cursor": 6,
    "h_position": 6,
    "conv_position": 8,
    "position": None,
    "skew": 2,
    "h_skew": 0,
    "conv_skew": 2,
    "prompt": 3,
    "outputs": 2,
    "length": 5,
    "expected": 4,
    "pending": 5,
    "text": "ring holds",
    "slot": 1,
    "epoch": 7,
    "accepted": 2,
    "k": 3,
    "drafts": (5, 6),
    "len(drafts)": 2,
    "drafts[0]": 5,
    "drafts[-1]": 6,
    "drafts[9]": None,
    "tokens[3:]": (4, 5),
    "text[:4]": "ring",
    "len(ring)": 2,
    "ring.positions": (1, 2),
    "ring.slots": (0, 1),
    "ring.next": 2,
    "ring.evictions": 3,
    "pools.slots.free": 3,
    "pools['slots'].peak": 2,
    "pool('slots')": 1,
    "counters['accepted.1']": 12,
    "counters['accepted.2']": 0,
    "live.epoch": 7,
    "live.writer": 49,
    "ring(0).label": 1,
    "ring(1).label": None,
    "live(2).owner": 2,
    "checkpoint.position": None,
    "place('ring:1.0').position": 3,
    "request(4).slot": -1,
    "req": 2,
    "requests": (2, 4),
    "req == 2": True,
    "len(queued)": 1,
    "queued[0].copy": 1,
    "findings": ("position", "seal"),
    "finding": "seal",
    "'seal' in findings": True,
    "text(4)": "ring ",
    "boundary(pending)": True,
    "min(3, cursor)": 3,
    "max(drafts)": 6,
    "sum(drafts)": 11,
    "any((0, none, 1))": True,
    "all(())": True,
    "count(drafts, 5)": 1,
    "abs(-2.5)": 2.5,
    "int(7.9)": 7,
    "1 if skew else 2": 1,
    "1 < 2 < 3": True,
    "1 < 2 < 2": False,
    "5 in drafts and not 7 in drafts": True,
    "5 not in drafts": False,
    "digest(live.h[3])": "aa",
    "digest(live.conv[5])": "dd",
    "live.h[3][1, 0, 1]": 5.0,
    "live.h[3, 1][0, 1] + 1": 6.0,
    "norm(live.h[3])": float(np.sqrt(140.0)),
    "rms(live.conv[3])": 1.0,
    "mean(live.h[3])": 3.5,
    "nan(live.conv)": 12,
    "zero(live.h[5])": True,
    "maxdiff(live.h, ring(0).h)": 1.0,
    "rel(live.h, live.h)": 0.0,
}


@pytest.mark.parametrize("source", VALUES, ids=str)
def test_value(source: str) -> None:
    found = value(source)
    expected = VALUES[source]
    assert found == (pytest.approx(expected) if isinstance(expected, float) else expected)
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    "source",
    ["position < 3", "position > 3", "position == 3", "position != 3", "position + 1 == 4", "3 in event.tokens"],
)
def test_a_comparison_with_something_unknown_is_false(source: str) -> None:
    assert value(source) is False


def test_none_is_asked_for_by_its_name() -> None:
    assert value("position == none") is True
    assert value("position is none") is True
    assert value("cursor == none") is False
    assert value("cursor != none") is True
    assert value("event.token is not none") is False


def test_a_field_that_this_kind_of_event_lacks_is_none() -> None:
    assert value("event.ring_slot") is None


def test_conditions_see_hits_old_and_new() -> None:
    assert value("hits % 10 == 0", hits=20) is True
    assert value("new > old", old=1, new=2) is True


REFUSED = {
    "": "missing",
    "   ": "missing",
    "1 +": "not an expression",
    "(1, 2": "never closed",
    "curser": 'Did you mean "cursor"',
    "req.cursr": 'Did you mean "cursor"',
    "event.tokn": 'Did you mean "token"',
    "leng(drafts)": 'Did you mean "len"',
    "len": "is a function",
    "cursor()": "not a function",
    "len(1, 2)": "called as len(list)",
    "len(x=1)": "by place",
    "2 ** 99": "powers",
    "1 << 99": "shifts",
    "~1": "bit",
    "1 & 2": "bit",
    "lambda: 1": "defined",
    "[x for x in drafts]": "loops",
    "(x := 1)": "assigned",
    "f'{cursor}'": "formatted",
    "{1: 2}": "maps",
    "{1}": "sets",
    "b'x'": "bytes",
    "1j": "complex",
    "...": "ellipsis",
    "99999999999999999999": "too large",
    "().__class__": "no field",
    "text.__class__": "no field",
    "event.__init__": "no event has a field",
    "__import__('os')": "no function",
    "req.round.number": "no field",
    "a; b": "not an expression",
    "x = 1": "not an expression",
    "*drafts": "not an expression",
    "import os": "not an expression",
    "é": "no name",
    "\x00": "not an expression",
    "drafts[0:1:2]": "step",
    "live.h[3](1)": "only the functions",
}


@pytest.mark.parametrize("source", REFUSED, ids=repr)
def test_refused_before_it_runs(source: str) -> None:
    with pytest.raises(ExpressionError) as error:
        compile_expression(source)
    assert REFUSED[source].lower() in str(error.value).lower()
    assert "column" in str(error.value)


FAILING = {
    "cursor / (k - 3)": ("division by zero: 6 / 0", 1),
    "1 + cursor % 0": ("division by zero", 5),
    "cursor + 'a'": ("needs two numbers", 1),
    "'a' < 1": ("cannot order a text and a number", 1),
    "drafts * 1000": ("needs two numbers", 1),
    "'ab' * 100000": ("needs two numbers", 1),
    "9223372036854775807 * 2": ("too large", 1),
    "1 in cursor": ("looks into a list", 1),
    "cursor[0]": ("has no entries", 1),
    "drafts['a']": ("whole number", 1),
    "len(cursor)": ("len() takes", 1),
    "abs('x')": ("abs() takes numbers", 1),
    "-text": ("a sign needs a number", 1),
    "pools.slot": ('Did you mean "slots"', 1),
    "pool('nope')": ("there is no pool", 1),
    "request(9)": ("no request 9 now; requests: 2, 4", 1),
    "cursor.next": ('has no field "next"', 1),
    "place('ring')": ("expected a place such as", 1),
    "norm(cursor)": ("takes a place or a tensor", 1),
    "norm(live.h[4])": ("layer 4 has no recurrent state; the layers that have: 3, 5", 1),
    "live.h[3][2, 0, 0] > 1": ("outside h of shape 2x2x2", 1),
    "live(4).h": ("no slot", 1),
    "rel(live.h[3], live.conv[3])": ("same shape", 1),
    "live.h['a']": ("indexed by whole numbers", 1),
    "1 is 2": ('"is" compares with none only', 1),
    "int(1e999)": ("no integer part", 1),
    "cursor['a':]": ("cannot be cut", 1),
}  # fmt: skip


@pytest.mark.parametrize("source", FAILING, ids=repr)
def test_fails_with_a_sentence_and_a_column(source: str) -> None:
    expression = compile_expression(source)
    with pytest.raises(ExpressionError) as error:
        expression.plain(scope())
    sentence, column = FAILING[source]
    assert sentence in str(error.value)
    assert f"column {column} " in str(error.value)


def test_tensors_without_a_source_of_tensors_say_so() -> None:
    facts = Scope(scope().view, None, 2)
    with pytest.raises(ExpressionError, match="facts only"):
        compile_expression("norm(live.h[3])").value(facts)
    assert compile_expression("digest(live.h[3])").value(facts) == "aa"


@pytest.mark.parametrize(
    "source",
    ["(" * (MAX_DEPTH + 1) + "1" + ")" * (MAX_DEPTH + 1), "-" * 900 + "1", "not " * 200 + "1", "1" + "+1" * 450,
     "1," * 450,
     "a" * (MAX_LENGTH + 1), "(" * 900],
)  # fmt: skip
def test_too_deep_or_too_long_is_refused(source: str) -> None:
    with pytest.raises(ExpressionError, match=r"deeper|too large|at most"):
        compile_expression(source)


def test_a_column_counts_characters_not_bytes() -> None:
    with pytest.raises(ExpressionError) as error:
        compile_expression("'éé€' + curser")
    assert error.value.column == 8


def test_both_sides_of_a_comparison_are_told() -> None:
    expression = compile_expression("skew == 0 and cursor <= k * 2")
    assert expression.sides(scope()) == [("skew", "2"), ("cursor", "6"), ("k * 2", "6")]


def test_whether_tensors_are_read_is_known_beforehand() -> None:
    assert compile_expression("norm(live.h[3]) > 1").heavy
    assert compile_expression("live.h[3][0, 0, 0]").heavy
    assert not compile_expression("skew > 0 and digest(live) != 'x'").heavy


def test_every_name_can_be_read_in_an_empty_run() -> None:
    empty = Scope(LedgerView())
    for name in NAMES:
        assert isinstance(compile_expression(name).show(empty), str)


def test_shown_values_are_one_line_with_control_characters_visible() -> None:
    nasty = scope()
    view = LedgerView(texts=Map({1: "\x1b[31m\n\u202e"}), requests=Map({2: RequestFact(2, tokens=(1,))}))
    shown = compile_expression("text").show(Scope(view, None, 2))
    assert shown == '"\\e[31m\\n\\u202e"'
    for name in (*NAMES, "live", "ring", "req", "event", "pools.slots", "queued"):
        assert "\n" not in compile_expression(name).show(nasty)


def test_every_function_tells_its_form() -> None:
    for name, function in FUNCTIONS.items():
        assert function.form.startswith(name + "(")


@given(st.text(max_size=60))
def test_any_text_gives_a_value_or_an_expression_error(source: str) -> None:
    try:
        compile_expression(source).show(scope())
    except ExpressionError as error:
        assert "\n" not in str(error)


@given(st.text("0123456789.+-*/%()<>=! andotriskew,[]'", max_size=40))
def test_any_arithmetic_gives_a_value_or_an_expression_error(source: str) -> None:
    try:
        compile_expression(source).plain(scope())
    except ExpressionError as error:
        assert str(error)
