"""``info``: what a model is and what it takes, without loading it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inspector import cli_options as options
from inspector.cli_options import engine_config

if TYPE_CHECKING:
    from engine.checkpoint import CheckpointInfo
    from engine.config import EngineConfig

POOLS = {
    "ssm_pool": "state pool: live, checkpoint, step planes",
    "decode_ring": "snapshot rings",
    "replay_ring": "recorded verify rows",
    "prefix_pool": "prefix snapshots",
    "kv": "paged KV",
}


def register(app: typer.Typer) -> None:
    app.command("info", help="Architecture and memory of a model, from its headers alone; a bare config.json will do.")(
        _info
    )


def _info(
    model: Annotated[
        Path | None,
        typer.Argument(metavar="[MODEL]", help="A checkpoint or a config.json; the bundled model without it."),
    ] = None,
    drafts: options.Drafts = 3,
    ring: options.Ring = None,
    slots: options.Slots = 4,
    rollback_mode: options.RollbackMode = "snapshot",
    kv_tokens: options.KvTokens = 4096,
    prefix_slots: options.PrefixSlots = 16,
    dtype: options.Dtype = None,
    as_json: Annotated[bool, typer.Option("--json", help="Every figure by name.")] = False,
) -> None:
    from engine.checkpoint import inspect_checkpoint
    from engine.demo import demo_path
    from inspector.opening import sniff

    config = engine_config(
        drafts=drafts, ring=ring, slots=slots, rollback=rollback_mode, kv_tokens=kv_tokens, prefix_slots=prefix_slots,
        dtype=dtype,
    )  # fmt: skip
    if model is not None and sniff(model).kind not in ("model", "config"):
        raise ValueError(f"{model}: this is no model; info is about models, {'dump'} and check are about recordings.")
    info = inspect_checkpoint(model if model is not None else demo_path())
    data = facts(info, config)
    if as_json:
        sys.stdout.write(json.dumps(data, indent=2) + "\n")
    else:
        sys.stdout.write("\n".join(lines(data)) + "\n")


def facts(info: CheckpointInfo, config: EngineConfig) -> dict[str, Any]:
    """All figures: bytes under the names of the functions that allocate, both rollback modes side by side."""
    from dataclasses import replace

    from engine.sizing import plan_memory

    model = info.config
    has_mtp = info.has_mtp if info.files else model.mtp_layers > 0
    dtype = config.dtype or info.dtype or model.dtype or "bfloat16"
    modes = {}
    for mode in ("snapshot", "replay"):
        plan = plan_memory(model, replace(config, rollback=mode), has_mtp=has_mtp, dtype=dtype)
        modes[mode] = {**plan.bytes, "total": plan.total}
    plan = plan_memory(model, config, has_mtp=has_mtp, dtype=dtype)
    geometry = model.geometry
    moe = model.moe
    return {
        "name": info.name,
        "family": model.family,
        "weights_bytes": info.total_bytes,
        "dtype": dtype,
        "stored_dtype": info.dtype,
        "fingerprint": info.fingerprint,
        "tokenizer": info.has_tokenizer,
        "mtp": has_mtp,
        "hidden": model.hidden,
        "vocab": model.vocab,
        "layers": [
            {
                "layer": i,
                "kind": "gated delta net" if kind == "linear" else "attention",
                "ffn": "experts" if i < len(model.sparse) and model.sparse[i] else "dense",
                "h": list(geometry.h_shape) if kind == "linear" else None,
                "conv": list(geometry.conv_shape) if kind == "linear" else None,
            }
            for i, kind in enumerate(model.layer_types)
        ],
        "attention": {"heads": model.heads, "kv_heads": model.kv_heads, "head_dim": model.head_dim},
        "experts": None if moe is None else {"experts": moe.experts, "top_k": moe.top_k, "width": moe.width},
        "drafts": config.drafts,
        "k": config.k,
        "slots": config.slots,
        "ring": plan.ring_depth,
        "ring_reason": plan.ring.reason,
        "prefix_slots": plan.prefix_slots,
        "blocks": plan.blocks,
        "block_size": config.block_size,
        "kv_layers": plan.kv_layers,
        "rollback_mode": config.rollback,
        **plan.bytes,
        "total": plan.total,
        "modes": modes,
    }


def lines(data: dict[str, Any]) -> list[str]:
    """The same for people."""
    from inspector.commands.render import table
    from inspector.text import byte_size, plural, visible

    layers = data["layers"]
    recurrent = [layer for layer in layers if layer["h"] is not None]
    out = [
        f"{visible(data['name'])}: {data['family']}, {plural(len(layers), 'layer')} "
        f"({len(recurrent)} recurrent, {len(layers) - len(recurrent)} attention), hidden {data['hidden']}, "
        f"vocabulary {data['vocab']:,}",
        f"weights {byte_size(data['weights_bytes'])} as {data['stored_dtype'] or '-'}; "
        f"tokenizer {'yes' if data['tokenizer'] else 'no'}; MTP head {'yes' if data['mtp'] else 'no'}",
        "",
    ]
    rows = []
    for first, last, layer in _runs(layers):
        span = f"{first}" if first == last else f"{first}-{last}"
        state = (
            f"h {'x'.join(map(str, layer['h']))}, conv {'x'.join(map(str, layer['conv']))}"
            if layer["h"]
            else "{heads} heads, {kv_heads} KV heads of {head_dim}".format(**data["attention"])
        )
        rows.append((span, layer["kind"], layer["ffn"], state))
    out += table(("layers", "kind", "mlp", "keeps"), rows)
    out += [
        "",
        f"one sequence: {byte_size(data['per_sequence'])} of state "
        f"(per layer h {byte_size(data['per_layer_h'])}, conv {byte_size(data['per_layer_conv'])}, fp32)",
        f"K {data['k']} ({data['drafts']} drafts), {plural(data['slots'], 'slot')}, ring {data['ring']} "
        f"({data['ring_reason']}), {plural(data['blocks'], 'block')} of {data['block_size']} tokens",
        "",
    ]
    modes = data["modes"]
    figures = [
        (about, byte_size(modes["snapshot"][name]), byte_size(modes["replay"][name])) for name, about in POOLS.items()
    ]
    total = ("all pools", byte_size(modes["snapshot"]["total"]), byte_size(modes["replay"]["total"]))
    return out + table(
        ("memory", "snapshot mode", "replay mode"), [*figures, total], right=("snapshot mode", "replay mode")
    )


def _runs(layers: list[dict[str, Any]]) -> list[tuple[int, int, dict[str, Any]]]:
    """Neighbouring layers that are alike, as (first, last, one of them)."""
    runs: list[tuple[int, int, dict[str, Any]]] = []
    for layer in layers:
        if runs and {k: v for k, v in runs[-1][2].items() if k != "layer"} == {
            k: v for k, v in layer.items() if k != "layer"
        }:
            runs[-1] = (runs[-1][0], layer["layer"], runs[-1][2])
        else:
            runs.append((layer["layer"], layer["layer"], layer))
    return runs
