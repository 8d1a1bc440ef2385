"""State layouts of other engines: conversion, parsing, transposition."""

from __future__ import annotations

import numpy as np
import pytest

from inspector.analysis.arrays import TensorError, tensor_data
from inspector.analysis.layout import (
    LAYOUTS,
    OURS,
    LayoutError,
    common_window,
    conv_to_ours,
    h_to_ours,
    parse_layout,
    transposition,
)

RNG = np.random.default_rng(0)
H = RNG.standard_normal((3, 4, 5)).astype(np.float32)
CONV = RNG.standard_normal((7, 4)).astype(np.float32)


def stored(part: np.ndarray, axes: tuple[str, ...], ours: tuple[str, ...], sizes: dict[str, int]) -> np.ndarray:
    """``part`` the way an engine with these axes keeps it, at index 1 of every leading axis that has two entries."""
    inner = [axis for axis in axes if axis in ours]
    array = part.transpose([ours.index(axis) for axis in inner])
    for axis in reversed([axis for axis in axes if axis not in ours]):
        fill = np.zeros((sizes.get(axis, 1), *array.shape), part.dtype)
        fill[min(1, len(fill) - 1)] = array
        array = fill
    return array


@pytest.mark.parametrize("name", sorted(LAYOUTS))
def test_every_named_layout_converts_to_ours(name: str) -> None:
    layout = LAYOUTS[name]
    h = stored(H, layout.h, OURS.h, {"slot": 2})
    conv = stored(CONV, layout.conv, OURS.conv, {"slot": 2})
    pick = {"slot": 1} if "slot" in layout.h else {}
    assert np.array_equal(h_to_ours(h, layout, **pick), H)
    assert np.array_equal(conv_to_ours(tensor_data(conv), layout, **pick), CONV)


def test_leading_axes_may_be_missing() -> None:
    vllm = LAYOUTS["vllm"]
    assert np.array_equal(h_to_ours(H.transpose(0, 2, 1), vllm), H)
    assert np.array_equal(conv_to_ours(CONV.T, vllm), CONV)


def test_extra_columns_of_a_speculative_window() -> None:
    """vLLM keeps 3 + num_spec columns; after two accepted rows the running window starts at column 1."""
    stream = RNG.standard_normal((7, 6)).astype(np.float32)
    window = conv_to_ours(stream.T, LAYOUTS["vllm"], kernel=3, offset=1)
    assert np.array_equal(window, stream[:, 1:4])
    with pytest.raises(LayoutError, match="no 3 columns from column 4"):
        conv_to_ours(stream.T, LAYOUTS["vllm"], kernel=3, offset=4)


def test_windows_of_different_width_share_the_newest_columns() -> None:
    a, b = common_window(CONV, CONV[:, 1:])
    assert np.array_equal(a, b)
    assert a.shape == (7, 3)


def test_layouts_are_written_as_the_engine_writes_its_own() -> None:
    assert parse_layout("h[head,key,value] conv[channel,time]") == OURS
    assert parse_layout(str(LAYOUTS["vllm-ds"])) == LAYOUTS["vllm-ds"]
    assert parse_layout("SGLang") == LAYOUTS["sglang"]


@pytest.mark.parametrize(
    "text",
    [
        "vlm",
        "h[head,key] conv[channel,time]",
        "h[head,key,value,value] conv[channel,time]",
        "h[head,key,value] conv[channel,tim]",
        "h[row,head,key,value] conv[channel,time]",
        "",
        "h[" + "a," * 1000 + "] conv[channel,time]",
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(LayoutError, match="layout"):
        parse_layout(text)


def test_a_tensor_of_another_rank_is_refused_with_its_shape() -> None:
    with pytest.raises(LayoutError, match=r"\[3, 4\]"):
        h_to_ours(H[:, :, 0], OURS)
    with pytest.raises(LayoutError, match="axis slot has 2 entries"):
        h_to_ours(np.stack([H, H]), LAYOUTS["vllm"])
    with pytest.raises(LayoutError, match="from 0 to 1"):
        h_to_ours(np.stack([H, H]), LAYOUTS["vllm"], slot=5)


SQUARE = RNG.standard_normal((2, 6, 6)).astype(np.float32)


def rotated() -> np.ndarray:
    turn, _ = np.linalg.qr(RNG.standard_normal((6, 6)))
    return (turn @ SQUARE).astype(np.float32)


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (SQUARE, "none"),
        (SQUARE.transpose(0, 2, 1), "transposed"),
        (SQUARE * np.float32(1 + 1e-7), "none"),
        (SQUARE[:, ::-1], "similar"),
        (rotated(), "similar"),
        (SQUARE * np.float32(1.1), "different"),
        (RNG.standard_normal((2, 6, 6)).astype(np.float32), "different"),
        (np.zeros_like(SQUARE), "different"),
    ],
)
def test_a_transpose_is_told_from_other_changes(found: np.ndarray, kind: str) -> None:
    result = transposition(np.ascontiguousarray(found), SQUARE)
    assert result.kind == kind
    assert (result.singular < 1e-4) == (kind == "similar")


def test_a_transposed_shape_is_enough_when_the_head_is_not_square() -> None:
    assert transposition(np.ascontiguousarray(H.transpose(0, 2, 1)), H).kind == "transposed"
    with pytest.raises(TensorError, match="two h"):
        transposition(H, SQUARE)
