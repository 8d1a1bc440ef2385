#!/usr/bin/env python3
"""Train the bundled demo model: a tiny hybrid (three Gated DeltaNet layers to one of attention) with an MTP head.

    python tools/train_demo_model.py --work FOLDER --out engine/demo/model.safetensors

needs transformers and, for the prose, the Debian package bible-kjv (public domain) or its output as a file (--kjv).

Everything goes by steps: a batch depends on the seed, the stage and the step only, and nothing in the model is random
after its first weights, so a run that was stopped goes on from its last checkpoint as if nothing had happened, and
there is no random state to keep. Two stages: first the whole model with a one-step MTP loss beside the usual one, then
the MTP layer alone, its own output fed back to it, against the frozen model's probabilities. The second is what makes
drafts of more than one token useful. Files are replaced whole or not at all, and hold no pickled objects.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
import torch.nn.functional as F
from safetensors import safe_open
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3_5ForCausalLM, Qwen3_5TextConfig
from transformers.modeling_layers import MtpModel
from transformers.models.qwen3_5 import modeling_qwen3_5

sys.path.insert(0, str(Path(__file__).parent))
from demo_corpus import END_OF_TEXT, END_OF_TURN, SPECIAL_TOKENS, Corpus, king_james
from demo_numerics import ChunkedDeltaRule, Muon, write_atomically

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# The names transformers gives to the parts of an MTP layer, and those of published checkpoints.
MTP_NAMES = {
    "eh_proj.": "mtp.fc.",
    "enorm.": "mtp.pre_fc_norm_embedding.",
    "hnorm.": "mtp.pre_fc_norm_hidden.",
    "post_norm.": "mtp.norm.",
    "mtp_block.": "mtp.layers.0.",
}
KEPT_IN_FP32 = ("linear_attn.A_log", "linear_attn.norm.weight")


@dataclass(frozen=True)
class Recipe:
    """What decides the weights. A checkpoint of another recipe is refused, apart from the numbers of steps."""

    seed: int = 0
    vocabulary: int = 1024
    hidden: int = 128
    feed_forward: int = 384
    layers: int = 8
    width: int = 256
    rows_at_once: int = 8  # of 16 a step: what fits the processor's cache is quicker
    steps: int = 1750
    mtp_steps: int = 280
    learning_rate: float = 5e-3
    mtp_learning_rate: float = 2e-3
    mtp_weight: float = 0.2
    mtp_unroll: int = 3
    mtp_decay: float = 0.7
    prose: bool = True

    def fingerprint(self) -> str:
        fixed = {key: value for key, value in asdict(self).items() if key not in ("steps", "mtp_steps")}
        return json.dumps(fixed, sort_keys=True)


class Trainer:
    """The model, its optimisers and the two stages."""

    def __init__(self, recipe: Recipe, corpus: Corpus, work: Path, compiled: bool = False) -> None:
        self.recipe, self.corpus, self.work = recipe, corpus, work
        self.checkpoint = work / "checkpoint.safetensors"
        modeling_qwen3_5.torch_chunk_gated_delta_rule = ChunkedDeltaRule(compiled)
        if compiled:
            for name in ("Qwen3_5MLP", "Qwen3_5RMSNorm", "Qwen3_5RMSNormGated"):
                part = getattr(modeling_qwen3_5, name)
                part.forward = torch.compile(part.forward, dynamic=False)
        torch.manual_seed(recipe.seed)
        shape: dict[str, Any] = {
            "vocab_size": recipe.vocabulary, "hidden_size": recipe.hidden, "intermediate_size": recipe.feed_forward,
            "num_hidden_layers": recipe.layers, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
            "linear_conv_kernel_dim": 4, "linear_key_head_dim": 32, "linear_value_head_dim": 32,
            "linear_num_key_heads": 2, "linear_num_value_heads": 4, "full_attention_interval": 4,
            "tie_word_embeddings": True, "max_position_embeddings": 4096, "eos_token_id": END_OF_TURN,
            "pad_token_id": END_OF_TEXT,
            # The first is what published configs say; the other two are what transformers' MtpModel asks for.
            "mtp_num_hidden_layers": 1, "num_mtp_layers": 1, "mtp_layer_types": ["full_attention"],
        }  # fmt: skip
        self.config = Qwen3_5TextConfig(**shape)
        self.model: Any = Qwen3_5ForCausalLM(self.config)
        self.mtp: Any = MtpModel(self.model, 1)
        self._slow_decays()
        named: dict[int, tuple[str, nn.Parameter]] = {
            id(p): (name, p) for name, p in [*self.model.named_parameters(), *self.mtp.layers.named_parameters()]
        }
        matrices = [p for n, p in named.values() if p.ndim == 2 and "embed" not in n and min(p.shape) > 8]
        matrix_ids = {id(p) for p in matrices}
        others = [p for _, p in named.values() if id(p) not in matrix_ids]
        self.parameters = matrices + others
        self.muon = Muon(matrices)
        self.adam = torch.optim.AdamW(others, lr=1.0, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
        self.mtp_parameters: list[nn.Parameter] = list(self.mtp.layers.parameters())
        self.mtp_adam = torch.optim.AdamW(self.mtp_parameters, lr=1.0, betas=(0.9, 0.95), weight_decay=0.0, fused=True)

    @torch.no_grad()
    def _slow_decays(self) -> None:
        """Decays slow enough for a state that remembers: the class's own defaults forget nearly all at once."""
        for layer in self.model.model.layers:
            if hasattr(layer, "linear_attn"):
                layer.linear_attn.A_log.uniform_(0.02, 4).log_()
                step = torch.empty_like(layer.linear_attn.dt_bias).uniform_(math.log(0.01), math.log(0.3)).exp()
                layer.linear_attn.dt_bias.copy_(step + torch.log(-torch.expm1(-step)))

    def hidden(self, ids: Tensor) -> Tensor:
        output: Tensor = self.model.model(input_ids=ids, use_cache=False).last_hidden_state
        return output

    def draft_hidden(self, hidden: Tensor, ids: Tensor, first_position: int) -> Tensor:
        positions = (torch.arange(ids.shape[1]) + first_position)[None].expand_as(ids)
        output: Tensor = self.mtp.forward_layer(0, hidden, positions, None, input_ids=ids)
        return output

    def losses(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Next-token loss and one-step MTP loss of rows two tokens longer than the model's input."""

        def loss(hidden: Tensor, targets: Tensor) -> Tensor:
            return F.cross_entropy(self.model.lm_head(hidden).float().flatten(0, 1), targets.flatten())

        width = rows.shape[1] - 2
        hidden = self.hidden(rows[:, :width])
        drafted = self.draft_hidden(hidden, rows[:, 1 : width + 1], 1)
        return loss(hidden, rows[:, 1 : width + 1]), loss(drafted, rows[:, 2:])

    def main_step(self, step: int) -> dict[str, float]:
        """Warm-up, flat, then linear to nearly zero over the last 45 % of the steps."""
        recipe, done = self.recipe, step / self.recipe.steps
        rate = recipe.learning_rate * min(1.0, (step + 1) / 60) * min(1.0, (1 - done) / 0.45 + 0.02)
        rows = self.corpus.batch("main", step, recipe.width, 2)
        token_loss, mtp_loss = 0.0, 0.0
        for part in torch.split(rows, recipe.rows_at_once):
            share = len(part) / len(rows)
            with torch.autocast("cpu", torch.bfloat16):
                token_part, mtp_part = self.losses(part)
            (share * (token_part + recipe.mtp_weight * mtp_part)).backward()  # type: ignore[no-untyped-call]
            token_loss += share * token_part.item()
            mtp_loss += share * mtp_part.item()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.muon.step(rate)
        self._adam_step(self.adam, rate)
        return {"next-token": token_loss, "mtp": mtp_loss}

    def mtp_step(self, step: int) -> dict[str, float]:
        """Draft `mtp_unroll` tokens ahead by recursion and compare each with what the frozen model would say."""
        recipe = self.recipe
        rate = recipe.mtp_learning_rate * min(1.0, (step + 1) / 30) * (1.02 - step / recipe.mtp_steps)
        rows = self.corpus.batch("mtp", step, recipe.width - recipe.mtp_unroll, recipe.mtp_unroll + 1)
        parts: list[Tensor] = []
        with torch.autocast("cpu", torch.bfloat16):
            with torch.no_grad():
                hidden = self.hidden(rows[:, :-1])
                target = self.model.lm_head(hidden).float().softmax(-1)
            for ahead in range(1, recipe.mtp_unroll + 1):
                hidden = hidden[:, :-1]
                length = hidden.shape[1]
                hidden = self.draft_hidden(hidden, rows[:, ahead : ahead + length], ahead)
                logits = self.model.lm_head(hidden).float().log_softmax(-1)
                parts.append(-(target[:, ahead : ahead + length] * logits).sum(-1).mean())
        loss = torch.stack([part * recipe.mtp_decay**i for i, part in enumerate(parts)]).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.mtp_parameters, 1.0)
        self._adam_step(self.mtp_adam, rate)
        return {f"draft {i}": part.item() for i, part in enumerate(parts, 1)}

    @staticmethod
    def _adam_step(adam: torch.optim.AdamW, rate: float) -> None:
        for group in adam.param_groups:
            group["lr"] = rate
        adam.step()
        adam.zero_grad(set_to_none=True)

    @torch.no_grad()
    def evaluate(self) -> dict[str, list[float]]:
        """Held-out next-token and MTP losses in fp32: {"prose": [..., ...], "dialogue": [..., ...]}."""
        shown: dict[str, list[float]] = {}
        for name, rows in self.corpus.held_out_rows(self.recipe.width + 2, 24).items():
            parts = [torch.stack(self.losses(part)) for part in torch.split(rows, 8)]
            shown[name] = [round(x, 3) for x in torch.stack(parts).mean(0).tolist()]
        return shown

    def run(self, save_every: int) -> None:
        stages = {"main": (self.recipe.steps, self.main_step), "mtp": (self.recipe.mtp_steps, self.mtp_step)}
        resumed_stage, resumed_step = self._resume()
        for stage, (steps, do_step) in stages.items():
            first = resumed_step if stage == resumed_stage else 0
            if stage == "main" and resumed_stage == "mtp":
                continue
            if stage == "mtp":
                self.model.requires_grad_(False)
                self.mtp.layers.requires_grad_(True)
            began = time.monotonic()
            for step in range(first, steps):
                losses = do_step(step)
                if not all(math.isfinite(value) for value in losses.values()):
                    raise ArithmeticError(f"the loss of step {step} of stage {stage} is not finite: {losses}")
                done = step + 1
                if done % 20 == 0 or done == steps:
                    seconds = (time.monotonic() - began) / (done - first)
                    tokens = (self.corpus.dialogue_rows + self.corpus.prose_rows) * self.recipe.width
                    shown = ", ".join(f"{name} {value:.3f}" for name, value in losses.items())
                    print(
                        f"{stage} {done}/{steps}, {done * tokens / 1e6:.2f} M tokens, {tokens / seconds:.0f}/s, "
                        f"{shown}, {seconds * (steps - done) / 60:.1f} min left in this stage",
                        flush=True,
                    )
                if done % save_every == 0 and done < steps:
                    self._save_checkpoint(stage, done)
            if stage == "main":
                self._save_checkpoint("mtp", 0)
            print(f"held out after {stage} (next-token, mtp): {self.evaluate()}", flush=True)

    def _adams(self) -> dict[str, torch.optim.AdamW]:
        return {"adam": self.adam, "mtp_adam": self.mtp_adam}

    def _save_checkpoint(self, stage: str, step: int) -> None:
        tensors = {f"model.{key}": value for key, value in self.model.state_dict().items() if key != "lm_head.weight"}
        tensors |= {f"mtp.{key}": value for key, value in self.mtp.layers.state_dict().items()}
        tensors |= {f"muon.{key}": value for key, value in self.muon.state().items()}
        for name, adam in self._adams().items():
            for index, state in adam.state_dict()["state"].items():
                tensors |= {f"{name}.{index}.{key}": value for key, value in state.items()}
        place = {"stage": stage, "step": str(step), "recipe": self.recipe.fingerprint()}
        write_atomically(tensors, self.checkpoint, place | {"tokenizer": self.corpus.tokenizer.to_str()})

    def _resume(self) -> tuple[str, int]:
        if not self.checkpoint.exists():
            self.corpus.train_tokenizer(self.recipe.vocabulary)
            return "main", 0
        with safe_open(self.checkpoint, framework="pt") as file:
            place: dict[str, str] = file.metadata()
            tensors: dict[str, Tensor] = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        if place["recipe"] != self.recipe.fingerprint():
            raise ValueError(f"{self.checkpoint} belongs to another recipe: {place['recipe']}")

        def part(prefix: str) -> dict[str, Tensor]:
            return {key[len(prefix) :]: value for key, value in tensors.items() if key.startswith(prefix)}

        self.model.load_state_dict(part("model."), strict=False)
        self.mtp.layers.load_state_dict(part("mtp."))
        self.muon.load(part("muon."))
        for name, adam in self._adams().items():
            state: dict[int, dict[str, Tensor]] = {}
            for key, value in part(f"{name}.").items():
                index, _, kind = key.partition(".")
                state.setdefault(int(index), {})[kind] = value
            adam.load_state_dict({"state": state, "param_groups": adam.state_dict()["param_groups"]})
        self.corpus.use_tokenizer(Tokenizer.from_str(place["tokenizer"]))
        print(f"going on with stage {place['stage']} at step {place['step']}", flush=True)
        return place["stage"], int(place["step"])

    def export(self, path: Path) -> None:
        """One self-contained file: bf16 weights under published names, config and tokenizer in the metadata."""
        tensors = {key: value for key, value in self.model.state_dict().items() if key != "lm_head.weight"}
        for key, value in self.mtp.layers[0].state_dict().items():
            part = next(part for part in MTP_NAMES if key.startswith(part))
            tensors[MTP_NAMES[part] + key[len(part) :]] = value
        stored = {
            key: value.to(torch.float32 if key.endswith(KEPT_IN_FP32) else torch.bfloat16)
            for key, value in tensors.items()
        }
        self.config.architectures, self.config.dtype = ["Qwen3_5ForCausalLM"], "bfloat16"
        tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
            tokenizer_object=self.corpus.tokenizer,
            eos_token=SPECIAL_TOKENS[END_OF_TURN],
            pad_token=SPECIAL_TOKENS[END_OF_TEXT],
            model_max_length=self.config.max_position_embeddings,
        )
        tokenizer.chat_template = CHAT_TEMPLATE
        with tempfile.TemporaryDirectory() as folder:
            self.config.save_pretrained(folder)
            tokenizer.save_pretrained(folder, save_jinja_files=False)
            GenerationConfig(  # type: ignore[no-untyped-call]
                eos_token_id=[END_OF_TURN, END_OF_TEXT], pad_token_id=END_OF_TEXT, do_sample=True, temperature=0.7
            ).save_pretrained(folder)
            names = ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json")
            files = {name: (Path(folder) / name).read_text(encoding="utf-8") for name in names}
        write_atomically(stored, path, {"format": "pt", **files})
        print(f"wrote {path.name}: {path.stat().st_size} bytes", flush=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Train the bundled demo model.")
    parser.add_argument("--work", type=Path, required=True, help="folder for the training checkpoint")
    parser.add_argument("--out", type=Path, required=True, help="the model file to write")
    parser.add_argument(
        "--kjv", type=Path, help="printed output of `bible -f gen1:1-rev22:21`, in place of the program"
    )
    parser.add_argument("--dialogues-only", action="store_true", help="train without prose")
    parser.add_argument("--steps", type=int, default=Recipe.steps, help="steps of the main stage, of 4096 tokens each")
    parser.add_argument("--mtp-steps", type=int, default=Recipe.mtp_steps, help="steps of the MTP stage")
    parser.add_argument("--seed", type=int, default=Recipe.seed)
    parser.add_argument("--save-every", type=int, default=100, help="steps between two training checkpoints")
    parser.add_argument("--threads", type=int, default=1, help="threads; other numbers may round differently")
    parser.add_argument("--compile", action="store_true", help="needs a C++ compiler; a third faster")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(chosen.threads)
    recipe = Recipe(seed=chosen.seed, steps=chosen.steps, mtp_steps=chosen.mtp_steps, prose=not chosen.dialogues_only)
    corpus = Corpus(king_james(chosen.kjv) if recipe.prose else [], recipe.seed)
    trainer = Trainer(recipe, corpus, chosen.work, chosen.compile)
    trainer.run(chosen.save_every)
    trainer.export(chosen.out)


if __name__ == "__main__":
    main()
