"""Opening checkpoints: every published form, and every way a file can be wrong."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.checkpoint import INDEX, inspect_checkpoint, load_checkpoint
from engine.errors import UserError
from engine.safetensors_header import read_header
from engine.weights import LinearWeights
from tests.model_helpers import EOS, VOCAB, make_bed, make_checkpoint, make_single_file


def flat(path: Path) -> dict[str, Tensor]:
    return dict(load_checkpoint(path).weights.tensors())


def same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def rewritten(folder: Path, change: Any) -> Path:
    """The folder with its tensors replaced by ``change(tensors)``."""
    file = folder / "model.safetensors"
    save_file(change(load_file(file)), str(file))
    return folder


def shard(folder: Path) -> Path:
    """Split model.safetensors over two files with an index."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    names = sorted(tensors)
    weight_map = {}
    for number, part in enumerate((names[::2], names[1::2]), 1):
        shard_name = f"model-0000{number}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, str(folder / shard_name))
        weight_map |= dict.fromkeys(part, shard_name)
    file.unlink()
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


# ----------------------------------------------------------------------------------------------------- good files


def test_folder_file_index_and_self_contained_file_give_the_same_model(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path)
    expected = flat(folder)
    assert same(flat(folder / "model.safetensors"), expected)
    assert same(flat(make_single_file(tmp_path / "single")), expected)
    sharded = shard(make_checkpoint(tmp_path))
    assert same(flat(sharded), expected)
    assert same(flat(sharded / INDEX), expected)


def test_a_self_contained_file_carries_config_tokenizer_and_eos(tmp_path: Path) -> None:
    loaded = load_checkpoint(make_single_file(tmp_path))
    assert loaded.tokenizer is not None and loaded.tokenizer.encode("a<think>")[-1] == 3
    assert loaded.config.eos == (EOS,) and loaded.name == "tiny"


@pytest.mark.parametrize("prefix", ["model.", "language_model.model.", "language_model.", ""])
def test_every_prefix_in_use_is_accepted(tmp_path: Path, prefix: str) -> None:
    folder = make_checkpoint(tmp_path)
    expected = flat(folder)

    def rename(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name.replace("model.language_model.", prefix): tensor for name, tensor in tensors.items()}

    assert same(flat(rewritten(folder, rename)), expected)


def test_vision_tensors_are_skipped_and_the_mtp_head_is_taken_whatever_the_config_says(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["mtp_num_hidden_layers"] = 0
    (folder / "config.json").write_text(json.dumps(config))
    info = inspect_checkpoint(folder)
    assert info.has_mtp and info.skipped == 1 and not any("visual" in name for name in info.tensors)
    config["text_config"]["mtp_num_hidden_layers"] = 1
    bare = make_checkpoint(tmp_path, mtp=False)
    (bare / "config.json").write_text(json.dumps(config))
    assert not inspect_checkpoint(bare).has_mtp and load_checkpoint(bare).weights.mtp is None


def test_mlx_convolution_layout_is_accepted(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path)
    expected = flat(folder)

    def turn(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {n: t.transpose(1, 2).contiguous() if "conv1d" in n else t for n, t in tensors.items()}

    assert same(flat(rewritten(folder, turn)), expected)


def test_fused_and_single_expert_tensors_give_the_same_model(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path, "qwen3_5_moe")
    expected = flat(folder)

    def split(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        out = dict(tensors)
        for name in tensors:
            if name.endswith("experts.gate_up_proj"):
                stem = name.removesuffix("gate_up_proj")
                gate_up, down = out.pop(name), out.pop(f"{stem}down_proj")
                for e in range(len(down)):
                    gate, up = gate_up[e].chunk(2)
                    for kind, part in (("gate", gate), ("up", up), ("down", down[e])):
                        out[f"{stem}{e}.{kind}_proj.weight"] = part.contiguous()
        return out

    assert same(flat(rewritten(folder, split)), expected)


def test_interleaved_rows_are_permuted_to_heads_in_order(tmp_path: Path) -> None:
    """Against the definition: row r of each part of key head g."""
    folder = make_checkpoint(tmp_path, "qwen3_next", ratio=3)
    mixer = load_checkpoint(folder).weights.layers[0].mixer
    assert isinstance(mixer, LinearWeights)
    raw = load_file(folder / "model.safetensors")
    qkvz, ba = (raw[f"model.layers.0.linear_attn.in_proj_{name}.weight"] for name in ("qkvz", "ba"))
    heads, ratio, dk, dv = 2, 3, 8, 8
    group = 2 * dk + 2 * ratio * dv
    rows = [qkvz[g * group + r] for g in range(heads) for r in range(dk)]
    rows += [qkvz[g * group + dk + r] for g in range(heads) for r in range(dk)]
    rows += [qkvz[g * group + 2 * dk + r] for g in range(heads) for r in range(ratio * dv)]
    rows += [qkvz[g * group + 2 * dk + ratio * dv + r] for g in range(heads) for r in range(ratio * dv)]
    rows += [ba[g * 2 * ratio + r] for g in range(heads) for r in range(ratio)]
    rows += [ba[g * 2 * ratio + ratio + r] for g in range(heads) for r in range(ratio)]
    assert torch.equal(mixer.in_proj, torch.stack(rows))


def test_tied_embeddings_ignore_an_output_matrix_in_the_file(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path)
    rewritten(folder, lambda tensors: {**tensors, "lm_head.weight": torch.zeros(VOCAB, 32)})
    weights = load_checkpoint(folder).weights
    assert weights.head is weights.embed and weights.embed.any()


def test_dtype_is_as_stored_or_as_asked_and_decay_parameters_stay_fp32(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path, dtype="bfloat16")
    assert inspect_checkpoint(folder).dtype == "bfloat16"
    stored, asked = load_checkpoint(folder), load_checkpoint(folder, "float32")
    assert stored.weights.embed.dtype == torch.bfloat16 and stored.dtype == "bfloat16"
    assert asked.weights.embed.dtype == torch.float32 and asked.dtype == "float32"
    mixer = stored.weights.layers[0].mixer
    assert isinstance(mixer, LinearWeights) and mixer.a_log.dtype == mixer.norm.dtype == torch.float32


def test_progress_counts_every_used_byte_once_and_can_stop_the_loading(tmp_path: Path) -> None:
    folder, seen = make_checkpoint(tmp_path), []
    load_checkpoint(folder, progress=lambda done, total: seen.append((done, total)))
    total = inspect_checkpoint(folder).total_bytes
    assert seen[0] == (0, total) and seen[-1] == (total, total)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)

    def stop(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load_checkpoint(folder, progress=stop)


def test_a_config_alone_is_enough_to_plan_but_not_to_load(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path)
    (folder / "model.safetensors").unlink()
    info = inspect_checkpoint(folder / "config.json")
    assert info.config.hidden == 32 and not info.files and info.total_bytes == 0 and info.has_mtp
    with pytest.raises(UserError, match="only a config"):
        load_checkpoint(folder / "config.json")


def test_no_tokenizer_is_no_error(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path, tokenizer=False)
    assert not inspect_checkpoint(folder).has_tokenizer and load_checkpoint(folder).tokenizer is None


def test_the_fingerprint_tells_models_apart_and_not_places(tmp_path: Path) -> None:
    one, copy, other = (inspect_checkpoint(make_checkpoint(tmp_path, seed=s)).fingerprint for s in (0, 0, 1))
    assert one == copy != other and len(one) == 32


def test_looking_at_a_checkpoint_loads_no_torch(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path)
    code = (
        "import sys; from engine.checkpoint import inspect_checkpoint;"
        f"print(inspect_checkpoint({str(folder)!r}).total_bytes, 'torch' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert int(out[0]) > 0 and out[1] == "False"


def test_looking_reads_headers_and_samples_only(tmp_path: Path) -> None:
    """A sparse file of two gigabytes whose data was never written costs no more than a small one."""
    folder = make_checkpoint(tmp_path)
    file = folder / "model.safetensors"
    size = int.from_bytes(file.read_bytes()[:8], "little")
    header = json.loads(file.read_bytes()[8 : 8 + size])
    end = max(entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__")
    header["model.visual.big"] = {"dtype": "U8", "shape": [1 << 31], "data_offsets": [end, end + (1 << 31)]}
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text)
    os.truncate(file, 8 + len(text) + end + (1 << 31))
    assert inspect_checkpoint(folder).skipped == 2
    read = os.stat(file).st_blocks * 512
    assert read < 1 << 20


# ------------------------------------------------------------------------------------------------------ bad files


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.safetensors: there is no such file"):
        inspect_checkpoint(tmp_path / "none.safetensors")
    with pytest.raises(UserError, match=r"there is no \.safetensors file"):
        inspect_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "0 bytes"),
        (b"\x10\x00", "2 bytes"),
        (b"PK\x03\x04" + b"x" * 100, "zip archive"),
        (b"GGUF" + b"x" * 100, "GGUF"),
        (b"\x80\x02}q\x00." + b"x" * 100, "expected a safetensors file"),
        (b"not a model, only text" * 9, "expected a safetensors file"),
        (struct.pack("<Q", 5000) + b"{}", "a header of 5000 bytes in a file of 10"),
        (struct.pack("<Q", 2) + b"\xff\xfe", "bytes that are no text"),
        (struct.pack("<Q", 2) + b"[]", "a JSON list"),
        (struct.pack("<Q", 4) + b'{"a"', "no JSON"),
    ],
)
def test_a_file_that_is_not_safetensors_is_refused(tmp_path: Path, content: bytes, found: str) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(content)
    with pytest.raises(UserError, match=found) as error:
        inspect_checkpoint(file)
    assert str(file) in str(error.value)


def header_of(**entries: Any) -> bytes:
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + bytes(64)


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (header_of(a=entry(), b=entry(offsets=(4, 12))), "'b': found bytes shared with 'a'"),
        (header_of(a=entry(shape=(3,))), r"found 8 bytes, expected 12 for F32 \[3\]"),
        (header_of(a=entry(dtype="F4")), "found dtype 'F4'"),
        (header_of(a=entry(shape=(-1,))), "found shape"),
        (header_of(a=entry(shape=(1.5,))), "found shape"),
        (header_of(a=entry(shape="2")), "found shape"),
        (header_of(a=entry(shape=(1,) * 9)), "found shape"),
        (header_of(a=entry(shape=(1 << 40, 1 << 40), offsets=(0, 1 << 47))), "bytes, expected"),
        (header_of(a=entry(offsets=(8, 0))), "found data_offsets"),
        (header_of(a=entry(offsets=(0, 4, 8))), "found data_offsets"),
        (header_of(a=entry(offsets=(1000, 1008))), "truncated"),
        (header_of(a=7), "an object with dtype"),
        (header_of(__metadata__={"x": 1}), "an object of strings"),
    ],
)
def test_a_header_that_contradicts_itself_or_the_file_is_refused(tmp_path: Path, content: bytes, found: str) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(content)
    with pytest.raises(UserError, match=found) as error:
        read_header(file)
    assert str(file) in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("lost", [1, 5000])
def test_a_truncated_file_is_refused_before_anything_is_loaded(tmp_path: Path, lost: int) -> None:
    folder = make_checkpoint(tmp_path)
    file = folder / "model.safetensors"
    os.truncate(file, file.stat().st_size - lost)
    with pytest.raises(UserError, match="truncated"):
        inspect_checkpoint(folder)


def test_bytes_that_belong_to_no_tensor_are_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    file = make_checkpoint(tmp_path) / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole + bytes(4))
    with pytest.raises(UserError, match="4 bytes after the last tensor"):
        read_header(file)
    entries = header_of(a=entry(offsets=(0, 8)), b=entry(offsets=(16, 24)))
    file.write_bytes(entries + bytes(24))
    with pytest.raises(UserError, match="tensor 'b': found 8 bytes that belong to no tensor"):
        read_header(file)


def test_a_tensor_of_the_wrong_shape_is_named_with_both_shapes(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path)
    name = "model.language_model.layers.1.mlp.down_proj.weight"
    rewritten(folder, lambda tensors: {**tensors, name: torch.zeros(32, 47)})
    with pytest.raises(UserError, match=rf"{name}: found shape \[32, 47\], expected \[32, 48\]"):
        load_checkpoint(folder)


def test_a_tensor_of_the_wrong_dtype_is_named(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path)
    name = "model.language_model.layers.0.linear_attn.out_proj.weight"
    rewritten(folder, lambda tensors: {**tensors, name: tensors[name].to(torch.float8_e4m3fn)})
    with pytest.raises(UserError, match=rf"{name}: found dtype F8_E4M3, expected one of F32, BF16, F16"):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    "name", ["model.language_model.layers.2.linear_attn.A_log", "model.language_model.norm.weight", "mtp.norm.weight"]
)
def test_a_missing_tensor_is_named(tmp_path: Path, name: str) -> None:
    folder = make_checkpoint(tmp_path)
    rewritten(folder, lambda tensors: {n: t for n, t in tensors.items() if n != name})
    with pytest.raises(UserError, match=f"missing tensor {name.removeprefix('model.language_model.')}"):
        load_checkpoint(folder)


def test_an_untied_model_needs_its_output_matrix(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path, tied=False)
    rewritten(folder, lambda tensors: {n: t for n, t in tensors.items() if n != "lm_head.weight"})
    with pytest.raises(UserError, match=r"missing tensor lm_head\.weight"):
        load_checkpoint(folder)


def test_two_tensors_for_one_place_are_refused(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path)
    rewritten(folder, lambda tensors: {**tensors, "model.norm.weight": torch.zeros(32)})
    with pytest.raises(UserError, match=r"both 'model\..*norm\.weight' and"):
        load_checkpoint(folder)


def test_a_missing_shard_and_an_index_that_lies_are_named(tmp_path: Path) -> None:
    folder = shard(make_checkpoint(tmp_path))
    second = folder / "model-00002-of-00002.safetensors"
    kept = second.read_bytes()
    second.unlink()
    with pytest.raises(UserError, match="no file model-00002-of-00002"):
        inspect_checkpoint(folder)
    second.write_bytes(kept)
    index = json.loads((folder / INDEX).read_text())
    index["weight_map"]["extra"] = second.name
    (folder / INDEX).write_text(json.dumps(index))
    with pytest.raises(UserError, match="no tensor 'extra'"):
        inspect_checkpoint(folder)
    index["weight_map"]["extra"] = "../elsewhere.safetensors"
    (folder / INDEX).write_text(json.dumps(index))
    with pytest.raises(UserError, match="a file name in the same folder"):
        inspect_checkpoint(folder)
    (folder / INDEX).write_text('{"weight_map": [1]}')
    with pytest.raises(UserError, match="weight_map"):
        inspect_checkpoint(folder)


def test_weights_without_a_config_say_where_to_put_it(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path)
    (folder / "config.json").unlink()
    with pytest.raises(UserError, match=r"there is no config\.json beside the weights"):
        inspect_checkpoint(folder)


def test_a_tokenizer_with_more_ids_than_embeddings_is_refused(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path, vocab=100)
    with pytest.raises(UserError, match="token ids up to 262, expected ids below 100"):
        load_checkpoint(folder)


def test_a_broken_tokenizer_is_named(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match=r"tokenizer\.json: no tokenizer"):
        load_checkpoint(folder)


def test_nan_weights_are_told_and_loaded_all_the_same(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path)
    name = "model.language_model.layers.1.mlp.down_proj.weight"

    def spoil(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        tensors[name][0, :3] = float("nan")
        tensors[name][1, 0] = float("inf")
        return tensors

    loaded = load_checkpoint(rewritten(folder, spoil))
    assert len(loaded.warnings) == 1 and name in loaded.warnings[0]
    assert "3 NaN and 1 infinite of 1536 values" in loaded.warnings[0]
    bed = make_bed(loaded)
    assert bed.model.prefill([1, 2, 3], bed.pool, 0, bed.table(16), 0).logits.isnan().all()


def test_cuda_without_a_gpu_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="--device: found no usable CUDA device"):
        load_checkpoint(make_checkpoint(tmp_path), device="cuda")


def test_nothing_pickled_is_ever_opened(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path)
    (folder / "model.safetensors").unlink()
    torch.save({"x": torch.zeros(1)}, folder / "pytorch_model.bin")
    with pytest.raises(UserError, match="safetensors"):
        inspect_checkpoint(folder)
    with pytest.raises(UserError, match="pickled files are never opened"):
        inspect_checkpoint(folder / "pytorch_model.bin")
