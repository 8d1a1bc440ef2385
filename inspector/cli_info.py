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
    from engine.config import EngineConfig, ModelConfig

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
    all_layers: Annotated[bool, typer.Option("--layers", help="Every layer, also where kinds repeat.")] = False,
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
        sys.stdout.write("\n".join(lines(data, all_layers)) + "\n")


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
    more = plan_memory(model, replace(config, drafts=config.drafts + 1), has_mtp=has_mtp, dtype=dtype)
    pools = ("ssm_pool", "replay_ring")
    geometry = model.geometry
    moe = model.moe
    return {
        "name": info.name,
        "family": model.family,
        "weights_bytes": info.total_bytes,
        "estimated_weights_bytes": 0 if info.files else estimated_weights(model, has_mtp, dtype),
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
        # rows are slots and the dummy; what one more draft adds to each
        "per_draft": sum(more.bytes[name] - plan.bytes[name] for name in pools) // (config.slots + 1),
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


def estimated_weights(model: ModelConfig, has_mtp: bool, dtype: str) -> int:
    """Bytes of the tensors that a config asks for, all of them in ``dtype``."""
    import math

    from engine.config import DTYPES
    from engine.naming import expected
    from engine.safetensors_header import TensorEntry

    router = "mtp.layers.0.mlp.gate.weight"
    wanted = ["mtp.fc.weight", *([router] if model.moe is not None else [])] if has_mtp else []
    names = {name: TensorEntry(name, "", (), 0, 0, Path()) for name in wanted}
    return DTYPES[dtype] * sum(math.prod(shapes[0]) for _, shapes in expected(model, names))


def _weights(data: dict[str, Any]) -> str:
    from inspector.text import byte_size

    if data["weights_bytes"]:
        return f"weights {byte_size(data['weights_bytes'])} as {data['stored_dtype'] or '-'}"
    return f"no weights here (they would take about {byte_size(data['estimated_weights_bytes'])} as {data['dtype']})"


def lines(data: dict[str, Any], all_layers: bool = False) -> list[str]:
    """The same for people. Layers whose kinds repeat strictly are folded unless ``all_layers``."""
    from inspector.commands.render import table
    from inspector.text import byte_size, plural, visible

    layers = data["layers"]
    recurrent = [layer for layer in layers if layer["h"] is not None]
    out = [
        f"{visible(data['name'])}: {data['family']}, {plural(len(layers), 'layer')} "
        f"({len(recurrent)} recurrent, {len(layers) - len(recurrent)} attention), hidden {data['hidden']}, "
        f"vocabulary {data['vocab']:,}",
        f"{_weights(data)}; tokenizer {'yes' if data['tokenizer'] else 'no'}; "
        f"MTP head {'yes' if data['mtp'] else 'no'}",
        "",
    ]
    rows = []
    period = 0 if all_layers else _period(layers)
    for first, last, layer in _runs(layers) if not period else _counted(layers):
        span = f"{last - first + 1} x" if period else f"{first}" if first == last else f"{first}-{last}"
        state = (
            f"h {'x'.join(map(str, layer['h']))}, conv {'x'.join(map(str, layer['conv']))}"
            if layer["h"]
            else "{heads} heads, {kv_heads} KV heads of {head_dim}".format(**data["attention"])
        )
        rows.append((span, layer["kind"], layer["ffn"], state))
    out += table(("layers", "kind", "mlp", "keeps"), rows)
    if period:
        kinds = ", ".join(f"{last - first + 1} x {layer['kind']}" for first, last, layer in _runs(layers[:period]))
        out.append(f"period {period}: {kinds}; --layers lists them")
    out += [
        "",
        f"each sequence: {byte_size(data['per_sequence'])} of state "
        f"(per layer h {byte_size(data['per_layer_h'])}, conv {byte_size(data['per_layer_conv'])}, fp32)",
        f"each draft: {byte_size(data['per_draft'])} more for every sequence ({data['rollback_mode']} mode)",
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


def _alike(layer: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in layer.items() if key != "layer"}


def _period(layers: list[dict[str, Any]]) -> int:
    """The smallest number of layers after which all repeats, at least twice; 0 when nothing does or all are alike."""
    kinds = [_alike(layer) for layer in layers]
    if all(kind == kinds[0] for kind in kinds):
        return 0
    for period in range(2, len(kinds) // 2 + 1):
        if len(kinds) % period == 0 and kinds == kinds[:period] * (len(kinds) // period):
            return period
    return 0


def _counted(layers: list[dict[str, Any]]) -> list[tuple[int, int, dict[str, Any]]]:
    """Kinds of layers in the form of :func:`_runs`, as if those of a kind stood together."""
    kinds: list[tuple[int, int, dict[str, Any]]] = []
    for layer in layers:
        if not any(_alike(layer) == _alike(kind) for _, _, kind in kinds):
            kinds.append((1, sum(_alike(layer) == _alike(other) for other in layers), layer))
    return kinds


def _runs(layers: list[dict[str, Any]]) -> list[tuple[int, int, dict[str, Any]]]:
    """Neighbouring layers that are alike, as (first, last, one of them)."""
    runs: list[tuple[int, int, dict[str, Any]]] = []
    for layer in layers:
        if runs and _alike(runs[-1][2]) == _alike(layer):
            runs[-1] = (runs[-1][0], layer["layer"], runs[-1][2])
        else:
            runs.append((layer["layer"], layer["layer"], layer))
    return runs
