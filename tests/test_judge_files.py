"""Two files of tensors: pairing by name, layouts, exit status, and files that are not what they should be."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from gdn_toy import State, Toy
from typer.testing import CliRunner

from engine.errors import UserError
from inspector import cli_judge
from inspector.analysis.arrays import float32_to_bf16, through
from inspector.analysis.judge_files import Side, judge_files, open_states, report
from inspector.analysis.layout import parse_layout
from inspector.analysis.tensorfile import TensorFile
from inspector.analysis.verdict import Verdict

DEPTH = 4
TOY = Toy(0, DEPTH)
PAST = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]
NOW = TOY.run(PAST)
LATER = TOY.run([9, 7], NOW)
OTHER = TOY.run([20, 30, 40, 50, 33, 22, 11])


def verdict_of(a: Path, b: Path, *sides: Side, **options: Any) -> Verdict:
    return judge_files(a, b, *sides, **options).verdict


Tensors = dict[str, tuple[str, np.ndarray]]


def write(path: Path, tensors: Tensors, metadata: dict[str, str] | None = None) -> Path:
    """A safetensors file, written by hand so that bfloat16 needs no library."""
    header: dict[str, object] = {"__metadata__": metadata} if metadata else {}
    data = b""
    for name, (dtype, array) in tensors.items():
        raw = float32_to_bf16(array).tobytes() if dtype == "BF16" else np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def ours(state: State, place: str = "live:0", h_dtype: str = "F32") -> Tensors:
    named: Tensors = {}
    for i in range(DEPTH):
        prefix = f"{place}." if place else ""
        named[f"{prefix}L{i:02d}.h"] = (h_dtype, state.h[i])
        named[f"{prefix}L{i:02d}.conv"] = ("F32", state.conv[i])
    return named


def test_equal_files_are_bitwise(tmp_path: Path) -> None:
    a = write(tmp_path / "a.safetensors", ours(NOW), {"note": "x"})
    b = write(tmp_path / "b.safetensors", dict(reversed(ours(NOW).items())))
    assert verdict_of(a, b).kind == "bitwise"


def test_places_that_are_not_compared_are_candidates(tmp_path: Path) -> None:
    a = write(tmp_path / "a.safetensors", ours(NOW, "live:2"))
    b = write(tmp_path / "b.safetensors", ours(LATER, "live:2") | ours(NOW, "checkpoint:2") | ours(OTHER, "ring:2.1"))
    verdict = verdict_of(a, b)
    assert (verdict.kind, verdict.match) == ("wrong_position", "checkpoint:2 of b.safetensors")
    chosen = verdict_of(a, b, right=Side(place="checkpoint:2"))
    assert chosen.kind == "bitwise"


def test_a_mixture_of_two_places_is_told_by_heads_channels_and_owner(tmp_path: Path) -> None:
    found = NOW.copy()
    channels = [*range(16, 32), *range(48, 64), *range(96, 128)]
    found.h[:, 2:], found.conv[:, channels] = OTHER.h[:, 2:], OTHER.conv[:, channels]
    a = write(tmp_path / "a.safetensors", *exported({"live:0": (found, 1, 12)}))
    b = write(tmp_path / "b.safetensors", *exported({"live:0": (NOW, 1, 12), "live:1": (OTHER, 2, 7)}))
    judged = judge_files(a, b, right=Side(place="live:0"))
    verdict = judged.verdict
    assert (verdict.kind, verdict.heads, verdict.channels) == ("partial_heads", (2, 3), tuple(channels))
    assert (verdict.inner, verdict.owner, verdict.match) == ("wrong_owner", "r2", "live:1 of b.safetensors")
    assert "those of these heads" in verdict.evidence and report(judged)["heads"] == (2, 3)


def test_torn_conv_in_another_engines_layout(tmp_path: Path) -> None:
    torn = NOW.copy()
    torn.conv[:, 64:, :-1] = NOW.conv[:, 64:, 1:]
    a = vllm_dump(tmp_path / "vllm.safetensors", torn, slot=1)
    b = write(tmp_path / "b.safetensors", ours(NOW))
    patterns = {"h_pattern": r"layers\.(\d+)\..*ssm_state", "conv_pattern": r"layers\.(\d+)\..*conv_state"}
    verdict = verdict_of(a, b, Side(layout=parse_layout("vllm"), slot=1, columns=3, **patterns))
    assert (verdict.kind, verdict.tokens, verdict.channels) == ("torn_conv", 1, tuple(range(64, 128)))
    assert "64 of 128 conv channels (64-127) differ by 1 column" in verdict.evidence


@pytest.mark.parametrize("order", ["ours", "h[head,value,key] conv[channel,time]"])
def test_swapped_parts_in_any_order(tmp_path: Path, order: str) -> None:
    swapped = State(np.resize(NOW.conv, NOW.h.shape), NOW.conv)
    for i in range(DEPTH):
        swapped.h[i] = np.resize(NOW.conv[i], NOW.h[i].shape)
    a = write(tmp_path / "a.safetensors", ours(swapped))
    b = write(tmp_path / "b.safetensors", ours(NOW))
    verdict = verdict_of(a, b, Side(layout=parse_layout(order)))
    assert (verdict.kind, verdict.parts) == ("swapped_parts", "h"), verdict.evidence
    assert verdict.evidence.startswith("h of layers 0-3 consists of values of the expected conv")


def test_whole_differences_of_two_files_are_neither_mixtures_nor_swaps(tmp_path: Path) -> None:
    layer = NOW.copy()
    layer.h[2], layer.conv[2] = OTHER.h[2], OTHER.conv[2]
    cases = {
        "wrong_owner": OTHER,
        "partial_layers": layer,
        "zero": TOY.fresh(),
        "rounding": TOY.run(PAST, split=2),
        "transposed": State(np.ascontiguousarray(NOW.h.transpose(0, 1, 3, 2)), NOW.conv),
        "stale_conv": State(NOW.h, LATER.conv),
    }
    b = write(tmp_path / "b.safetensors", ours(NOW))
    for kind, state in cases.items():
        verdict = verdict_of(write(tmp_path / "a.safetensors", ours(state)), b)
        assert (verdict.kind, verdict.heads, verdict.channels) == (kind, (), ()), verdict.evidence


def exported(states: dict[str, tuple[State, int, int]]) -> tuple[Tensors, dict[str, str]]:
    """As ``export`` writes them: place -> (state, owner, position)."""
    named: Tensors = {}
    for place, (state, _, _) in states.items():
        for i in range(DEPTH):
            named[f"{place}/layer.{i}/h"] = ("F32", state.h[i])
            named[f"{place}/layer.{i}/conv"] = ("F32", state.conv[i])
    facts = {place: {"owner": owner, "epoch": 1, "h": at, "conv": at} for place, (_, owner, at) in states.items()}
    return named, {"places": json.dumps(facts), "layout": "h[head,key,value] conv[channel,time]"}


def test_exports_of_this_tool_say_whose_states_they_hold(tmp_path: Path) -> None:
    places = {"live:0": (LATER, 1, 14), "checkpoint:0": (NOW, 1, 12), "live:1": (OTHER, 2, 7)}
    b = write(tmp_path / "b.safetensors", *exported(places))
    for found, kind, tokens, owner in ((NOW, "wrong_position", -2, ""), (OTHER, "wrong_owner", None, "r2")):
        a = write(tmp_path / "a.safetensors", *exported({"live:0": (found, 1, 14)}))
        verdict = verdict_of(a, b, right=Side(place="live:0"))
        assert (verdict.kind, verdict.tokens, verdict.owner, verdict.confidence) == (kind, tokens, owner, 1.0)


def stepped(live: State) -> tuple[Tensors, dict[str, str]]:
    """An export as the product writes it: the last row of a verify keeps conv only, and that of live."""
    places = {"live:0": (live, 1, 12), "ring:0.1": (TOY.run(PAST[:10]), 1, 10), "step:0.3": (NOW, 1, 12)}
    named, metadata = exported(places)
    facts = json.loads(metadata["places"])
    facts["step:0.3"]["h"] = None
    named = {name: value for name, value in named.items() if not (name.startswith("step") and name.endswith("/h"))}
    return named, {**metadata, "places": json.dumps(facts), "event": "152"}


BEFORE = TOY.run(PAST[:10])
ALL = tuple(range(DEPTH))
STALE = [
    ((2,), slice(None), OTHER, "partial_layers", "stale h, layer 2", (), 0.8),
    (ALL, slice(2, None), OTHER, "partial_heads", "stale h, heads 2-3", (2, 3), 0.8),
    ((2,), slice(2, None), OTHER, "partial_heads", "stale h, heads 2-3", (2, 3), 0.8),
    (ALL, slice(None), BEFORE, "stale_h", "2 tokens behind, equals ring:0.1 of a.safetensors", (), 1.0),
]


@pytest.mark.parametrize(("layers", "heads", "source", "kind", "detail", "few", "confidence"), STALE)
def test_a_place_without_h_matches_no_stale_h(
    tmp_path: Path,
    layers: tuple[int, ...],
    heads: slice,
    source: State,
    kind: str,
    detail: str,
    few: tuple[int, ...],
    confidence: float,
) -> None:
    live = NOW.copy()
    for layer in layers:
        live.h[layer, heads] = source.h[layer, heads]
    a, b = write(tmp_path / "a.safetensors", *stepped(live)), write(tmp_path / "b.safetensors", *stepped(NOW))
    verdict = verdict_of(a, b)
    assert (verdict.kind, verdict.detail, verdict.heads) == (kind, detail, few), verdict.evidence
    assert verdict.confidence == confidence and "step:0.3" not in verdict.match + verdict.evidence


def test_conv_of_a_place_without_h_is_still_recognised_with_its_position(tmp_path: Path) -> None:
    live = State(LATER.h, NOW.conv)
    a = write(tmp_path / "a.safetensors", *stepped(live))
    b = write(tmp_path / "b.safetensors", *exported({"live:0": (LATER, 1, 14)}))
    verdict = verdict_of(a, b)
    assert (verdict.kind, verdict.match, verdict.tokens) == ("stale_conv", "step:0.3 of a.safetensors", -2)


def test_which_places_were_compared_is_said_with_what_the_file_tells_of_them(tmp_path: Path) -> None:
    named, metadata = stepped(NOW)
    facts = json.loads(metadata["places"])
    facts["live:0"] |= {"conv": 13, "dirty": True, "queued": [{"src": "step:0.1", "parts": "h+conv"}]}
    a = write(tmp_path / "a.safetensors", named, {**metadata, "places": json.dumps(facts)})
    b = write(tmp_path / "b.safetensors", *exported({"live:0": (NOW, 1, 12)}))
    plain = write(tmp_path / "c.safetensors", ours(NOW, ""))
    assert judge_files(a, b).text() == (
        "live:0 (h at 12, conv at 13, r1, event 152, dirty: it has absorbed drafts, a copy of h+conv from step:0.1 "
        "into it was queued) of a.safetensors (1 of 3 places) against live:0 (position 12, r1) of b.safetensors"
    )
    told = report(judge_files(a, b))
    assert told["compared"] == judge_files(a, b).text()
    assert (told["found"]["place"], told["found"]["conv"], told["found"]["dirty"]) == ("live:0", 13, True)
    assert told["expected"] == {
        "file": "b.safetensors", "place": "live:0", "owner": 1, "h": 12, "conv": 12, "event": None, "dirty": False,
        "queued": (),
    }  # fmt: skip
    assert judge_files(plain, b).text().startswith("the states of c.safetensors against live:0 ")
    picked = judge_files(a, b, Side(place="step:0.3"))
    assert picked.text().startswith("step:0.3 (position 12, r1, event 152) of a.safetensors (1 of 3 places)")


@pytest.mark.parametrize("queued", [7, {"src": 1}, [7], [{"src": 1, "parts": []}], [{"src": "x"}], "step:0.1"])
def test_metadata_of_another_form_tells_nothing(tmp_path: Path, queued: object) -> None:
    facts = {"live:0": {"owner": "r1", "h": [1], "conv": True, "dirty": 1, "queued": queued}}
    a = write(tmp_path / "a.safetensors", ours(NOW), {"places": json.dumps(facts), "event": "[]"})
    assert judge_files(a, a).text() == "live:0 of a.safetensors against live:0 of a.safetensors"


def test_a_part_that_one_file_lacks_is_shown_as_such(tmp_path: Path) -> None:
    named = {name: value for name, value in ours(NOW).items() if name != "live:0.L02.h"}
    a, b = write(tmp_path / "a.safetensors", named), write(tmp_path / "b.safetensors", ours(NOW))
    judged = judge_files(a, b)
    assert judged.verdict.evidence == "h of layers 0-1, 3 and conv of layers 0-3 are bit-equal"
    assert judged.verdict.flags == ("h of layer 2 was not compared: not both sides have it",)
    assert [line["h"] for line in report(judged)["profile"]] == [0.0, 0.0, None, 0.0]
    assert cli_judge.lines(judged)[-2].split() == ["2", "-", "="]
    h_only = write(tmp_path / "h.safetensors", {n: v for n, v in ours(NOW).items() if n.endswith("h")})
    conv_only = write(tmp_path / "conv.safetensors", {n: v for n, v in ours(NOW).items() if n.endswith("conv")})
    with pytest.raises(UserError, match="no part in common"):
        judge_files(h_only, conv_only)


def test_bfloat16_words_of_an_export_are_decoded(tmp_path: Path) -> None:
    named, metadata = exported({"live:0": (NOW, 1, 12)})
    words = {name: value for name, value in named.items() if name.endswith("/h")}
    for name, (_, array) in words.items():
        named[name] = ("U16", float32_to_bf16(array))
    a = write(tmp_path / "a.safetensors", named, {**metadata, "bfloat16": json.dumps(sorted(words))})
    b = write(tmp_path / "b.safetensors", *exported({"live:0": (NOW, 1, 12)}))
    verdict = verdict_of(a, b)
    assert (verdict.kind, verdict.dtype) == ("dtype_drift", "bfloat16")
    plain = write(tmp_path / "c.safetensors", named, metadata)
    with pytest.raises(UserError, match="dtype U16"):
        verdict_of(plain, b)


@pytest.mark.parametrize(
    "metadata",
    [
        {"places": "{"},
        {"places": "[1]"},
        {"places": '{"live:0": 3, "checkpoint:0": {"owner": "x", "h": 1e99, "conv": null}}'},
        {"places": "[" * 50_000},
        {"bfloat16": '{"a": 1}'},
    ],
)
def test_metadata_that_makes_no_sense_is_not_used(tmp_path: Path, metadata: dict[str, str]) -> None:
    named, _ = exported({"live:0": (LATER, 1, 14), "checkpoint:0": (NOW, 1, 12)})
    a = write(tmp_path / "a.safetensors", exported({"live:0": (NOW, 1, 12)})[0])
    verdict = verdict_of(a, write(tmp_path / "b.safetensors", named, metadata))
    assert (verdict.kind, verdict.match, verdict.tokens) == ("wrong_position", "checkpoint:0 of b.safetensors", None)


def test_the_layout_in_the_metadata_is_followed_unless_another_is_given(tmp_path: Path) -> None:
    turned = State(np.ascontiguousarray(NOW.h.transpose(0, 1, 3, 2)), NOW.conv)
    told = {"layout": "h[head,value,key] conv[channel,time]"}
    a = write(tmp_path / "a.safetensors", ours(turned), told)
    b = write(tmp_path / "b.safetensors", ours(NOW))
    assert verdict_of(a, b).kind == "bitwise"
    assert verdict_of(a, b, Side(layout=parse_layout("ours"))).kind == "transposed"
    odd = write(tmp_path / "odd.safetensors", ours(NOW), {"layout": "blocks"})
    with pytest.raises(UserError, match=r"metadata: unknown layout 'blocks'.*--layout"):
        verdict_of(odd, b)


def test_names_without_a_place(tmp_path: Path) -> None:
    a = write(tmp_path / "a.safetensors", ours(LATER, ""))
    b = write(tmp_path / "b.safetensors", ours(NOW, "live"))
    verdict = verdict_of(a, b)
    assert (verdict.kind, verdict.tokens) == ("wrong_position", 2)


def test_bfloat16_tensors_are_decoded(tmp_path: Path) -> None:
    a = write(tmp_path / "a.safetensors", ours(NOW, h_dtype="BF16"))
    b = write(tmp_path / "b.safetensors", ours(NOW))
    verdict = verdict_of(a, b)
    assert (verdict.kind, verdict.dtype, verdict.confidence) == ("dtype_drift", "bfloat16", 1.0)
    states, _ = open_states(a)
    h = states[0].h
    assert h is not None and h.dtype == "bfloat16"
    assert np.array_equal(through(NOW.h[0], "bfloat16"), _decoded(a, "live:0.L00.h"))


def _decoded(path: Path, name: str) -> np.ndarray:
    from inspector.analysis.arrays import as_floats

    return as_floats(TensorFile(path).read(name))


def vllm_dump(path: Path, state: State, slot: int) -> Path:
    """The way vLLM keeps states: [blocks, heads, value, key] and [blocks, columns, channels] with one spare column."""
    tensors: Tensors = {}
    for i in range(DEPTH):
        h = np.full((3, *state.h[i].transpose(0, 2, 1).shape), 7.0, np.float32)
        h[slot] = state.h[i].transpose(0, 2, 1)
        conv = np.full((3, 4, state.conv[i].shape[0]), 7.0, np.float32)
        conv[slot, :3] = state.conv[i][:, 1:].T
        tensors[f"model.layers.{i}.mixer.ssm_state"] = ("F32", h)
        tensors[f"model.layers.{i}.mixer.conv_state"] = ("F32", conv)
    return write(path, tensors)


def test_a_dump_of_another_engine_in_its_own_layout(tmp_path: Path) -> None:
    a = vllm_dump(tmp_path / "vllm.safetensors", NOW, slot=1)
    b = write(tmp_path / "b.safetensors", ours(NOW))
    side = Side(
        layout=parse_layout("vllm"),
        h_pattern=r"layers\.(\d+)\..*ssm_state",
        conv_pattern=r"layers\.(?P<layer>\d+)\..*conv_state",
        slot=1,
    )
    # Read whole, the spare column counts as the newest input and nothing fits.
    assert verdict_of(a, b, side).kind == "stale_conv"
    assert verdict_of(a, b, replace(side, columns=3)).kind == "bitwise"
    ahead = verdict_of(a, b, replace(side, columns=2, offset=1))
    assert ahead.kind == "bitwise"
    behind = verdict_of(a, b, replace(side, columns=2))
    assert (behind.kind, behind.tokens) == ("stale_conv", -1), behind.evidence


def test_a_transposed_dump_read_in_our_layout_is_named(tmp_path: Path) -> None:
    turned = State(np.ascontiguousarray(NOW.h.transpose(0, 1, 3, 2)), NOW.conv)
    a = write(tmp_path / "a.safetensors", ours(turned))
    b = write(tmp_path / "b.safetensors", ours(NOW))
    assert verdict_of(a, b).kind == "transposed"
    right = parse_layout("h[head,value,key] conv[channel,time]")
    assert verdict_of(a, b, Side(layout=right)).kind == "bitwise"


def test_flat_rows_take_a_shape(tmp_path: Path) -> None:
    rows: Tensors = {}
    for i in range(DEPTH):
        rows[f"cache_s_l{i}"] = ("F32", NOW.h[i].reshape(-1))
        rows[f"cache_r_l{i}"] = ("F32", NOW.conv[i].reshape(-1))
    a = write(tmp_path / "a.safetensors", rows)
    b = write(tmp_path / "b.safetensors", ours(NOW))
    side = Side(
        h_pattern=r"cache_s_l(\d+)",
        conv_pattern=r"cache_r_l(\d+)",
        h_shape=NOW.h[0].shape,
        conv_shape=NOW.conv[0].shape,
    )
    assert verdict_of(a, b, side).kind == "bitwise"
    with pytest.raises(UserError, match="cannot take the shape"):
        verdict_of(a, b, Side(h_pattern=side.h_pattern, conv_pattern=side.conv_pattern, h_shape=(3, 3, 3)))


def test_layers_of_one_file_only_are_mentioned(tmp_path: Path) -> None:
    fewer = {name: value for name, value in ours(NOW).items() if ".L03." not in name}
    a = write(tmp_path / "a.safetensors", fewer)
    b = write(tmp_path / "b.safetensors", ours(NOW))
    verdict = verdict_of(a, b)
    assert verdict.kind == "bitwise"
    assert any(flag == "in one file only: layer 3" for flag in verdict.flags)


def test_what_the_names_do_not_tell_is_asked_for(tmp_path: Path) -> None:
    odd = write(tmp_path / "odd.safetensors", {"something": ("F32", np.ones((2, 2), np.float32))})
    fine = write(tmp_path / "b.safetensors", ours(NOW))
    with pytest.raises(UserError, match=r"odd.safetensors.*'something'.*--h-pattern"):
        verdict_of(odd, fine)
    two = write(tmp_path / "two.safetensors", ours(NOW, "live:0") | ours(NOW, "live:1"))
    with pytest.raises(UserError, match=r"2 places.*live:0, live:1"):
        verdict_of(two, fine)
    assert verdict_of(two, fine, Side(place="live:1")).kind == "bitwise"
    with pytest.raises(UserError, match="no place 'live:7'"):
        verdict_of(two, fine, Side(place="live:7"))
    with pytest.raises(UserError, match="pattern"):
        verdict_of(fine, fine, Side(h_pattern="("))
    with pytest.raises(UserError, match="no group"):
        verdict_of(fine, fine, Side(h_pattern="h$"))
    with pytest.raises(UserError, match="both claim h of layer 0"):
        verdict_of(fine, fine, Side(h_pattern=r"L(0)\d\.h"))


def header(tensors: dict[str, object]) -> bytes:
    text = json.dumps(tensors).encode()
    return struct.pack("<Q", len(text)) + text


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
DAMAGED = {
    "empty": b"",
    "short": b"\x01\x02",
    "zip": b"PK\x03\x04" + b"\0" * 60,
    "huge header": struct.pack("<Q", 1 << 62) + b"{}",
    "no JSON": struct.pack("<Q", 4) + b"abcd",
    "a list": struct.pack("<Q", 2) + b"[]",
    "deep": struct.pack("<Q", 40_000) + b"[" * 40_000,
    "cut off": header({"L00.h": ENTRY}) + b"\0" * 4,
    "overlap": header({"L00.h": ENTRY, "L01.h": {**ENTRY, "data_offsets": [4, 12]}}) + b"\0" * 12,
    "wrong size": header({"L00.h": {**ENTRY, "shape": [3]}}) + b"\0" * 8,
    "negative": header({"L00.h": {**ENTRY, "shape": [-2]}}) + b"\0" * 8,
    "overflow": header({"L00.h": {**ENTRY, "shape": [1 << 40, 1 << 40]}}) + b"\0" * 8,
    "dtype": header({"L00.h": {**ENTRY, "dtype": "F33"}}) + b"\0" * 8,
    "rank": header({"L00.h": ENTRY, "L00.conv": {**ENTRY, "data_offsets": [8, 16]}}) + b"\0" * 16,
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_refused_with_their_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(DAMAGED[name])
    with pytest.raises(UserError, match=r"bad\.safetensors"):
        verdict_of(path, path)


def test_a_dtype_that_cannot_be_compared_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(header({"L00.h": {"dtype": "F8_E4M3", "shape": [1, 2, 2], "data_offsets": [0, 4]}}) + b"\0" * 4)
    with pytest.raises(UserError, match="F8_E4M3"):
        verdict_of(path, path)


def test_a_file_that_shrinks_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.safetensors", ours(NOW))
    file = TensorFile(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match="the file changed"):
        file.read("live:0.L03.conv")


class TestCommand:
    """``metrale-inspect judge``."""

    APP = typer.Typer()
    cli_judge.register(APP)

    def run(self, *args: object) -> tuple[int, str, str]:
        result = CliRunner().invoke(self.APP, [str(arg) for arg in args])
        return result.exit_code, result.stdout, result.stderr

    @pytest.fixture
    def files(self, tmp_path: Path) -> dict[str, Path]:
        states = {"now": NOW, "later": LATER, "again": TOY.run(PAST), "noisy": TOY.run(PAST, split=2)}
        return {name: write(tmp_path / f"{name}.safetensors", ours(state)) for name, state in states.items()}

    def test_bitwise_and_rounding_leave_with_zero(self, files: dict[str, Path]) -> None:
        status, out, _ = self.run(files["again"], files["now"])
        assert (status, out.splitlines()[1]) == (0, "bitwise")
        status, out, _ = self.run(files["noisy"], files["now"])
        assert (status, out.splitlines()[1]) == (0, "rounding")

    def test_anything_else_leaves_with_one_and_says_why(self, files: dict[str, Path]) -> None:
        status, out, err = self.run(files["later"], files["now"])
        assert (status, err) == (1, "")
        assert out.splitlines()[0] == "live:0 of later.safetensors against live:0 of now.safetensors:"
        assert out.splitlines()[1] == "wrong position: 2 tokens ahead"
        assert "found[t-3] == expected[t-1]" in out
        assert len(out.splitlines()) == 5 + DEPTH

    def test_json(self, files: dict[str, Path]) -> None:
        status, out, _ = self.run(files["later"], files["now"], "--json")
        data = json.loads(out)
        assert status == 1
        assert (data["kind"], data["tokens"], data["parts"]) == ("wrong_position", 2, "h+conv")
        assert [line["layer"] for line in data["profile"]] == list(range(DEPTH))
        assert all(0 < line["h"] < 2 for line in data["profile"])

    def test_json_has_no_infinities(self, tmp_path: Path) -> None:
        zero = write(tmp_path / "zero.safetensors", ours(TOY.fresh()))
        now = write(tmp_path / "now.safetensors", ours(NOW))
        status, out, _ = self.run(now, zero, "--json")
        assert status == 1
        assert json.loads(out)["profile"][0]["h"] == "inf"

    def test_an_unreadable_file_leaves_with_three(self, files: dict[str, Path], tmp_path: Path) -> None:
        status, out, err = self.run(tmp_path / "none.safetensors", files["now"])
        assert (status, out) == (3, "")
        assert "none.safetensors" in err

    @pytest.mark.parametrize(
        "options", [["--layout", "vlm"], ["--arithmetic", "int4"], ["--h-shape", "3,x"], ["--conv-offset-a", "-1"]]
    )
    def test_wrong_options_leave_with_two(self, files: dict[str, Path], options: list[str]) -> None:
        assert self.run(files["now"], files["now"], *options)[0] == 2

    def test_layouts_by_side(self, files: dict[str, Path], tmp_path: Path) -> None:
        turned = State(np.ascontiguousarray(NOW.h.transpose(0, 1, 3, 2)), NOW.conv)
        a = write(tmp_path / "turned.safetensors", ours(turned))
        assert self.run(a, files["now"])[0] == 1
        assert self.run(a, files["now"], "--layout-a", "h[head,value,key] conv[channel,time]")[0] == 0
        assert self.run(a, a, "--layout", "h[head,value,key] conv[channel,time]")[0] == 0

    def test_importing_the_command_loads_neither_torch_nor_numpy(self) -> None:
        code = "import sys, inspector.cli_judge as c; print(sorted({'torch', 'numpy', 'textual'} & set(sys.modules)))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]"

    def test_judging_loads_no_torch(self, files: dict[str, Path]) -> None:
        code = (
            "import sys; from inspector.analysis.judge_files import judge_files;"
            f"judge_files({str(files['now'])!r}, {str(files['later'])!r}); print('torch' in sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "False"
