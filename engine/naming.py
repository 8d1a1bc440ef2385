"""Which tensors a model of a given config must have, under which names and in which shapes. No torch.

Canonical names are those of a text-only Qwen3-Next file without its ``model.`` prefix: ``embed_tokens.weight``,
``layers.3.self_attn.q_proj.weight``, ``lm_head.weight``, ``mtp.fc.weight``. Published files put them under ``model.``
or ``model.language_model.``; conversions also use ``language_model.model.`` and ``language_model.``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from engine.config import ModelConfig
from engine.errors import UserError
from engine.safetensors_header import TensorEntry

Names = Mapping[str, TensorEntry]
Shape = tuple[int, ...]

PREFIXES = ("model.language_model.", "language_model.model.", "language_model.", "model.")
SKIPPED = ("visual.", "vision_tower.", "vision_model.", "multi_modal_projector.")
FLOATS = ("F32", "BF16", "F16", "F64")
SPLIT_LAYOUT = ("in_proj_qkv.weight", "in_proj_z.weight", "in_proj_b.weight", "in_proj_a.weight")
INTERLEAVED_LAYOUT = ("in_proj_qkvz.weight", "in_proj_ba.weight")


def canonical(name: str) -> str | None:
    """The canonical name of a stored tensor, None for one that a text model does not use (vision)."""
    for prefix in PREFIXES:
        if name.startswith(prefix):
            name = name[len(prefix) :]
            break
    return None if name.startswith(SKIPPED) else name


def by_canonical_name(entries: Mapping[str, TensorEntry]) -> dict[str, TensorEntry]:
    """Entries under canonical names. Raises UserError when two tensors claim the same place."""
    names: dict[str, TensorEntry] = {}
    for entry in entries.values():
        name = canonical(entry.name)
        if name is None:
            continue
        if name in names:
            raise UserError.about(
                f"{entry.file}: tensor {name}", f"both {names[name].name!r} and {entry.name!r}", "only one of them"
            )
        names[name] = entry
    return names


def has_mtp(names: Names) -> bool:
    """The multi-token-prediction head is there when its tensors are, whatever the config says."""
    return "mtp.fc.weight" in names


def linear_layout(names: Names, prefix: str) -> tuple[str, ...]:
    """Names of the input projections of one linear layer, in the order of their rows: split (q|k|v, z, b, a), or
    interleaved by key head."""
    return INTERLEAVED_LAYOUT if prefix + INTERLEAVED_LAYOUT[0] in names else SPLIT_LAYOUT


def expected(config: ModelConfig, names: Names) -> Iterator[tuple[str, tuple[Shape, ...]]]:
    """Every needed tensor with its accepted shapes. ``names`` decides between the published layouts."""
    d = config.hidden
    yield "embed_tokens.weight", ((config.vocab, d),)
    for i, kind in enumerate(config.layer_types):
        yield from _layer(config, names, f"layers.{i}.", kind, config.sparse[i])
    yield "norm.weight", ((d,),)
    if not config.tied:
        yield "lm_head.weight", ((config.vocab, d),)
    if has_mtp(names):
        yield "mtp.fc.weight", ((d, 2 * d),)
        for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
            yield f"mtp.{name}.weight", ((d,),)
        yield from _layer(config, names, "mtp.layers.0.", "full", mtp_is_sparse(config, names))


def mtp_is_sparse(config: ModelConfig, names: Names) -> bool:
    """Whether the MTP layer has experts, told by its router."""
    return config.moe is not None and "mtp.layers.0.mlp.gate.weight" in names


def _layer(
    config: ModelConfig, names: Names, prefix: str, kind: str, sparse: bool
) -> Iterator[tuple[str, tuple[Shape, ...]]]:
    yield f"{prefix}input_layernorm.weight", ((config.hidden,),)
    yield from (_linear if kind == "linear" else _attention)(config, names, prefix)
    yield f"{prefix}post_attention_layernorm.weight", ((config.hidden,),)
    yield from _moe(config, names, f"{prefix}mlp.") if sparse else _mlp(f"{prefix}mlp.", config.hidden, config.ffn)


def _linear(config: ModelConfig, names: Names, layer: str) -> Iterator[tuple[str, tuple[Shape, ...]]]:
    prefix, d, heads = f"{layer}linear_attn.", config.hidden, config.value_heads
    values = heads * config.value_dim
    rows = {
        "in_proj_qkvz.weight": config.qkvz_elems,
        "in_proj_ba.weight": 2 * heads,
        "in_proj_qkv.weight": config.channels,
        "in_proj_z.weight": values,
        "in_proj_b.weight": heads,
        "in_proj_a.weight": heads,
    }
    for name in linear_layout(names, prefix):
        yield prefix + name, ((rows[name], d),)
    channels, kernel = config.channels, config.conv_kernel
    yield f"{prefix}conv1d.weight", ((channels, 1, kernel), (channels, kernel, 1))
    yield f"{prefix}A_log", ((heads,),)
    yield f"{prefix}dt_bias", ((heads,),)
    yield f"{prefix}norm.weight", ((config.value_dim,),)
    yield f"{prefix}out_proj.weight", ((d, values),)


def _attention(config: ModelConfig, names: Names, layer: str) -> Iterator[tuple[str, tuple[Shape, ...]]]:
    prefix, d = f"{layer}self_attn.", config.hidden
    q, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    yield f"{prefix}q_proj.weight", ((2 * q, d),)
    yield f"{prefix}k_proj.weight", ((kv, d),)
    yield f"{prefix}v_proj.weight", ((kv, d),)
    yield f"{prefix}o_proj.weight", ((d, q),)
    yield f"{prefix}q_norm.weight", ((config.head_dim,),)
    yield f"{prefix}k_norm.weight", ((config.head_dim,),)


def _mlp(prefix: str, d: int, width: int) -> Iterator[tuple[str, tuple[Shape, ...]]]:
    yield f"{prefix}gate_proj.weight", ((width, d),)
    yield f"{prefix}up_proj.weight", ((width, d),)
    yield f"{prefix}down_proj.weight", ((d, width),)


def _moe(config: ModelConfig, names: Names, prefix: str) -> Iterator[tuple[str, tuple[Shape, ...]]]:
    moe, d = config.moe, config.hidden
    if moe is None:
        return
    yield f"{prefix}gate.weight", ((moe.experts, d),)
    if f"{prefix}experts.gate_up_proj" in names:
        yield f"{prefix}experts.gate_up_proj", ((moe.experts, 2 * moe.width, d),)
        yield f"{prefix}experts.down_proj", ((moe.experts, d, moe.width),)
    else:
        for expert in range(moe.experts):
            yield from _mlp(f"{prefix}experts.{expert}.", d, moe.width)
    yield from _mlp(f"{prefix}shared_expert.", d, moe.shared_width)
    yield f"{prefix}shared_expert_gate.weight", ((1, d),)


def used_tensors(config: ModelConfig, names: Names, where: str) -> dict[str, TensorEntry]:
    """The tensors that the model is made of: each is there, with an accepted shape and a floating-point dtype.

    Raises:
        UserError: naming tensor, found and expected.
    """
    missing, used = [], {}
    for name, shapes in expected(config, names):
        entry = names.get(name)
        if entry is None:
            missing.append(name)
            continue
        used[name] = entry
        if entry.shape not in shapes:
            wanted = " or ".join(str(list(shape)) for shape in shapes)
            raise UserError.about(
                f"{entry.file}: tensor {entry.name}",
                f"shape {list(entry.shape)}",
                f"{wanted} by its config.json",
                "File and config do not belong together.",
            )
        if entry.dtype not in FLOATS:
            raise UserError.about(
                f"{entry.file}: tensor {entry.name}",
                f"dtype {entry.dtype}",
                f"one of {', '.join(FLOATS)}",
                "Quantised checkpoints are not supported: use the original one.",
            )
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        prefixes = ", ".join(f"'{prefix}'" for prefix in PREFIXES)
        raise UserError(
            f"{where}: missing tensor {', '.join(missing[:3])}{more}, found {len(names)} others; looked under the "
            f"prefixes {prefixes} and none. The file is incomplete or its config.json describes another model."
        )
    return used
