"""The engine behind its port: actions in, events out, places read by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch

from engine import image
from engine.actions import HANDLERS
from engine.checkpoint import LoadedModel, load_checkpoint
from engine.config import EngineConfig
from engine.demo import demo_path
from engine.drafters import make_drafters
from engine.events import Action, Computation, Event, RunRound, Start, StateData, TensorData, TensorRef
from engine.model import HybridModel
from engine.oracle import Oracle
from engine.runtime import EngineRefusal, Runtime, Vocabulary
from engine.scheduler import Scheduler
from engine.seams import Seams
from engine.sizing import check_memory, host_memory_free, plan_memory
from engine.state.memory import StateMemory
from engine.state.paged_kv import PagedKv
from engine.state.prefix_cache import PrefixCache
from engine.watchdogs import WatchdogConfig

Progress = Callable[[int, int], None]

SMALL_MODEL = 1 << 25


class Engine:
    """One model with its state memory. Implements :class:`engine.events.EnginePort`."""

    def __init__(self, loaded: LoadedModel, config: EngineConfig) -> None:
        device = torch.device(loaded.device)
        _set_threads(loaded, config)
        self.model = HybridModel(loaded.config, loaded.weights, device)
        plan = plan_memory(loaded.config, config, has_mtp=self.model.has_mtp, dtype=loaded.dtype)
        check_memory(plan, config, _memory_free(device))
        seams = Seams()
        # not the weights: the model keeps them in the form it computes with, a second copy would double the memory
        self.config, self.name, self.fingerprint = loaded.config, loaded.name, loaded.fingerprint
        self.warnings: tuple[str, ...] = tuple(loaded.warnings)  # what is wrong and can be lived with, such as NaN
        kv = PagedKv(
            layers=self.model.kv_layers,
            kv_heads=loaded.config.kv_heads,
            head_dim=loaded.config.head_dim,
            blocks=plan.blocks,
            block_size=config.block_size,
            dtype=self.model.dtype,
            device=device,
        )
        memory = StateMemory(
            self.model.geometry,
            slots=config.slots,
            k=config.k,
            mode=config.rollback,
            ring_depth=plan.ring_depth,
            prefix_slots=plan.prefix_slots,
            act_dtype=self.model.dtype,
            device=device,
            seams=seams,
            kv=kv,
        )
        tokenizer = loaded.tokenizer
        vocabulary = Vocabulary(
            size=loaded.config.vocab,
            boundary=tokenizer.boundary_mask() if tokenizer is not None else (),
            eos=frozenset(loaded.config.eos),
            think_open=tokenizer.think_open if tokenizer is not None else None,
            think_close=tokenizer.think_close if tokenizer is not None else None,
            tool_open=tokenizer.tool_open if tokenizer is not None else None,
            tool_close=tokenizer.tool_close if tokenizer is not None else None,
            tokenizer=tokenizer,
        )
        self.rt = Runtime(
            model=self.model,
            memory=memory,
            kv=kv,
            prefix=PrefixCache(plan.prefix_slots, config.block_size) if plan.prefix_slots else None,
            config=config,
            vocabulary=vocabulary,
            drafters=make_drafters(self.model, seams),
            seams=seams,
            watchdogs=WatchdogConfig(
                enabled=config.watchdogs, loop=config.loop_watchdog, prose_budget=config.prose_budget
            ),
            drafts=config.drafts,
            verify_mode=config.verify,
            digests_on=config.digests,
        )
        self.plan = plan
        self._scheduler = Scheduler(self.rt)
        self._oracle: Oracle | None = None
        self._running: Iterator[Event] | None = None
        self._taken: Action = RunRound()

    def start(self) -> Start:
        """Number 1 of a new run; asked for again it repeats the geometry with the same number."""
        rt, config = self.rt, self.config
        self._number_start()
        geometry = self.model.geometry
        return Start(
            seq=1,
            model=self.name,
            fingerprint=self.fingerprint,
            layers=config.layers,
            recurrent_layers=geometry.recurrent_layers,
            h_shape=geometry.h_shape,
            conv_shape=geometry.conv_shape,
            h_bytes=geometry.h_bytes,
            conv_bytes=geometry.conv_bytes,
            vocab=config.vocab,
            slots=rt.config.slots,
            ring_depth=self.plan.ring_depth,
            k=rt.config.k,
            prefix_slots=self.plan.prefix_slots,
            blocks=self.plan.blocks,
            block_size=rt.config.block_size,
            verify_mode=rt.config.verify,
            rollback_mode=rt.config.rollback,
            dtype=str(self.model.dtype).removeprefix("torch."),
            device=self.model.device.type,
            eos=tuple(sorted(rt.vocabulary.eos)),
            digests=rt.config.digests,
        )

    def _number_start(self) -> None:
        """Number 1 belongs to the start event, whoever asks for it."""
        self.rt.counters.seq = max(1, self.rt.counters.seq)

    def perform(self, action: Action) -> Iterator[Event]:
        """See the port. The checks run here, before the first event is asked for."""
        if self._running is not None:
            raise EngineRefusal("an action is paused: let it run on, or cancel it")
        self._number_start()
        self.rt.answers.clear()
        if isinstance(action, RunRound):
            self._scheduler.check(action)
            steps = self._scheduler.round(action)
        else:
            handler = HANDLERS.get(type(action))
            if handler is None:
                raise EngineRefusal(f"this engine does not know the action {action.kind!r}")
            self._taken = action
            steps = handler(self.rt, action)
        return self._run(action, steps)

    def _run(self, action: Action, steps: Iterator[Event]) -> Iterator[Event]:
        self._running = steps
        try:
            with torch.inference_mode():
                first = next(steps, None)
            while first is not None:
                yield first
                with torch.inference_mode():
                    first = next(steps, None)
        finally:
            if isinstance(action, RunRound):
                self._taken = self._scheduler.taken
            self._running = None
            self.rt.round = 0

    def answer(self, what: str, value: int | tuple[int, ...]) -> None:
        """See the port. Raises EngineRefusal on a value that cannot be."""
        rt = self.rt
        if what == "drafts":
            count = value if isinstance(value, int) else len(value)
            ids = () if isinstance(value, int) else value
            if not 0 <= count <= rt.config.drafts or any(not 0 <= token < rt.vocabulary.size for token in ids):
                raise EngineRefusal(f"0..{rt.config.drafts} drafts of ids below {rt.vocabulary.size} are possible")
        elif what not in ("accept", "boundary") or not isinstance(value, int) or value < 1:
            raise EngineRefusal(f"a decision about {what!r} cannot be answered with {value!r}")
        rt.answers[what] = value

    def taken(self) -> Action:
        return self._scheduler.taken if self._running is not None and self._is_round() else self._taken

    def _is_round(self) -> bool:
        return self.rt.round > 0

    def read(self, ref: TensorRef) -> TensorData:
        """See the port; ``ref.layer`` is a model layer number."""
        layers = self.model.geometry.recurrent_layers
        if ref.layer not in layers:
            raise KeyError(f"layer {ref.layer} keeps no recurrent state; layers that do: {list(layers)}")
        return self.rt.memory.read(ref.place, layers.index(ref.layer), ref.part)

    def save(self) -> dict[str, TensorData]:
        if self._running is not None:
            raise EngineRefusal("an action is paused: an engine can be saved between two actions only")
        return image.save(self.rt)

    def load(self, data: Mapping[str, TensorData]) -> None:
        self.cancel()
        with torch.inference_mode():
            image.load(self.rt, data)

    def tokens(self, text: str) -> tuple[int, ...]:
        tokenizer = self.rt.vocabulary.tokenizer
        if tokenizer is None:
            raise EngineRefusal("this model has no tokenizer: give token ids, for example 1,2,3")
        return tuple(tokenizer.encode(text))

    def text(self, token: int) -> str | None:
        tokenizer = self.rt.vocabulary.tokenizer
        return tokenizer.text(token) if tokenizer is not None else None

    def runnable(self) -> tuple[int, ...]:
        return self._scheduler.runnable()

    def compute(self, computation: Computation) -> tuple[StateData, ...]:
        """See the port."""
        if self._oracle is None:
            self._oracle = Oracle(self.rt)
        return self._oracle.compute(computation)

    def cancel(self) -> None:
        """Drop the paused action. State and requests stay as they are in the middle of it."""
        running, self._running = self._running, None
        if running is not None:
            running.close()  # type: ignore[attr-defined]
        self.rt.round = 0
        self.rt.answers.clear()


def open_engine(path: str | Path | None, config: EngineConfig, progress: Progress | None = None) -> Engine:
    """Load a checkpoint (None: the bundled model) and make an engine of it.

    Raises:
        UserError: the file, its config or the settings cannot be used; the text says what to do.
    """
    file = demo_path() if path is None else path
    device = config.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    loaded = load_checkpoint(file, dtype=config.dtype, device=device, progress=progress)
    return Engine(loaded, config)


def _set_threads(loaded: LoadedModel, config: EngineConfig) -> None:
    """The number asked for; else one for a small model, whose operations are shorter than a barrier between threads."""
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    elif sum(tensor.numel() for _, tensor in loaded.weights.tensors()) < SMALL_MODEL:
        torch.set_num_threads(1)


def _memory_free(device: torch.device) -> int:
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else host_memory_free()
