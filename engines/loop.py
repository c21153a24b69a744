"""The loop of an engine: take a prompt in, decode tokens, and write every step to the recording."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from capture.native.emit import Emitter, now
from engines.decoder import CHUNK, Decoder
from engines.fused.replay import Replay
from engines.host.commands import Commands, Control
from engines.host.device import Runner
from engines.host.heartbeat import Heartbeat
from engines.host.text import Text
from engines.host.trace import Ledger, Ticks
from engines.plan import host_row

CALLBACK = host_row("callback")
TOKEN_DECODE = host_row("token_decode")
NO_PROMPT = "prefill mode takes no prompt: one that is made up is taken in again and again"


@dataclass(frozen=True)
class Limits:
    """When to stop, and how many tokens one report holds."""

    steps: int = 0  # 0: until the end token or the end of the context
    tokens_per_report: int = 1
    interactive: bool = False  # wait for further prompts


@dataclass
class Block:
    """Decode steps that are reported as one."""

    start: int
    tokens: int = 0  # of each sequence
    ticks: list[tuple[Ticks, int]] = field(default_factory=list)


class Engine:
    """Ties a decoder and the runner of its ops to an emitter."""

    def __init__(
        self,
        decoder: Decoder,
        text: Text,
        emitter: Emitter,
        heartbeat: Heartbeat,
        commands: Commands,
        limits: Limits,
        runner: Runner,
        replay: Replay | None = None,
        rest: Callable[[], bool] = lambda: False,
    ) -> None:
        """Tie them together; `rest` is what is done between two reports, and returns whether it took time."""
        self._decoder, self._text, self._emitter = decoder, text, emitter
        self._heartbeat, self._limits = heartbeat, limits
        self._runner, self._replay, self._rest = runner, replay, rest
        self._control = Control(commands, emitter, heartbeat, (replay or runner).mode, self._queue_prompt)
        self._ledger = Ledger(emitter)
        self._decode_numbers: list[int] = []
        self._device = decoder.state.ids.device
        self._batch = decoder.state.batch
        self._at = 0
        self._step = 0
        self._prompts: list[str] = []

    def start_at(self, context: int) -> None:
        """Start behind a made-up past: times and bytes are then those of a long context."""
        random = torch.Generator(self._device).manual_seed(0)
        for cache in self._decoder.caches:
            cache.fill(random, context)
        self._at = context

    def run(self, prompt: str) -> None:
        """Answer the prompt, then every one that stdin brings, until told to end."""
        self._prompts.append(prompt)
        while not self._control.ended:
            if self._prompts:
                self._answer(self._prompts.pop(0))
            elif not self._limits.interactive or self._control.closed:
                return
            else:
                self._control.idle("waiting for a prompt")

    def warm_up(self) -> None:
        """Run one step unrecorded: the first of its kind pays for what later ones find ready."""
        self._decoder.place(torch.zeros_like(self._decoder.state.ids), self._at)
        self._runner.run(Ticks(now()))
        if self._replay:
            self._replay.warm_up(self._at)

    def prefill(self, length: int) -> None:
        """Take in a made-up prompt from the start again and again; decode nothing."""
        ids = [n % self._decoder.spec.vocab for n in range(length)]
        self._decoder.place(self._piece(ids, 0), 0)
        self._runner.run(Ticks(now()))  # not written down: the first pays for what the others find ready
        self._heartbeat.status(f"prefills of {length} tokens")
        self._control.refuse_prompts(NO_PROMPT)
        self._step = 1
        while not self._control.ended and self._step <= (self._limits.steps or self._step):
            self._at = 0
            self._prefill(ids)
            self._control.obey()

    def _piece(self, ids: list[int], start: int) -> torch.Tensor:
        """Return as much of a prompt as is taken in at once, for every sequence."""
        return torch.tensor(ids[start : start + CHUNK], device=self._device).expand(self._batch, -1)

    def _answer(self, prompt: str) -> None:
        ids = self._text.encode(prompt)
        room = self._decoder.capacity - self._at
        if len(ids) >= room:
            self._at, ids = 0, ids[: self._decoder.capacity - 1]
            self._emitter.mark("the context is full: it starts anew", "note")
        self._heartbeat.status(f"prefill of {len(ids)} tokens")
        token = self._prefill(ids)
        self._heartbeat.status("capturing")
        self._decode(token)
        if self._replay:
            self._replay.settle()

    def _prefill(self, ids: list[int]) -> int:
        """Take in the prompt in pieces, recorded as one step; return the first token."""
        begin = ticks = Ticks(now())
        for start in range(0, len(ids), CHUNK):
            piece = self._piece(ids, start)
            planned = self._runner.rows(self._decoder.rows(piece.shape[1], self._at))
            numbers = self._ledger.numbers((*planned, TOKEN_DECODE))
            ticks = Ticks(ticks.end)
            self._decoder.place(piece, self._at)
            self._runner.run(ticks)
            token = self._take_token(ticks)
            self._at += piece.shape[1]
            ticks.write(self._emitter, numbers, step=self._step, phase="prefill", context=self._at)
            self._write_device("prefill")
        wall = ticks.end - begin.at[0]
        self._emit_step(begin.at[0], wall, "prefill", len(ids) * self._batch)
        self._step += 1
        return token

    def _decode(self, token: int) -> None:
        """Decode tokens one by one or several ahead, in blocks of so many to a report."""
        if self._replay:
            self._replay.place(self._decoder.sampler.token, self._at)
        left = self._limits.steps or self._decoder.capacity
        end = now()
        while left > 0 and not self._is_over(token):
            count = min(self._limits.tokens_per_report, left, self._decoder.capacity - self._at)
            further = left > count and self._at + count < self._decoder.capacity
            if self._replay and self._replay.prepare(self._at, count + further):
                end = now()  # what was compiled belongs to no step
            block = Block(end)
            token = (
                self._decode_ahead(self._replay, block, count, further=further)
                if self._replay
                else self._decode_in_turn(block, count)
            )
            end = block.ticks[-1][0].end
            left -= block.tokens
            self._report(block, end)
            obeyed, rested = self._control.obey(), self._rest()
            if obeyed or rested:
                end = now()
        if self._at >= self._decoder.capacity:
            self._emitter.mark("the context is full", "note")

    def _decode_in_turn(self, block: Block, count: int) -> int:
        """Decode tokens one after the other, up to the end token; return the last one."""
        token, end = 0, block.start
        for _ in range(count):
            token = self._decode_one(block, end)
            end = block.ticks[-1][0].end
            if token in self._decoder.spec.eos:
                break
        return token

    def _decode_ahead(self, replay: Replay, block: Block, count: int, *, further: bool) -> int:
        """Queue all tokens of a block at once; return the last one, and drop those after an end token.

        With `further` the first token of the next block is queued, too.
        """
        ticks = Ticks(block.start)
        ticks.mark()
        tokens = replay.run(ticks, self._at, count, further=further)
        ends = [i for i, token in enumerate(tokens, 1) if token in self._decoder.spec.eos]
        kept = tokens[: ends[0] if ends else count]
        self._at += len(kept)
        self._write_text("".join(map(self._text.piece, kept)))
        ticks.mark()
        block.ticks.append((ticks, self._at))
        block.tokens += len(kept)
        replay.write(self._emitter, self._ledger.numbers, step=self._step, phase="decode", context=self._at)
        return kept[-1]

    def _is_over(self, token: int) -> bool:
        full = self._at >= self._decoder.capacity
        return self._control.ended or bool(self._prompts) or full or token in self._decoder.spec.eos

    def _decode_one(self, block: Block, start: int) -> int:
        """Decode and return one token of each sequence."""
        ticks = Ticks(start)
        self._decoder.place(self._decoder.sampler.token[:, None], self._at)
        ticks.mark()
        self._runner.run(ticks)
        token = self._take_token(ticks)
        self._at += 1
        block.ticks.append((ticks, self._at))
        block.tokens += 1
        self._write_device("decode")
        return token

    def _take_token(self, ticks: Ticks) -> int:
        """Wait for the token of a step, and write its text."""
        token = int(self._decoder.sampler.token[0])
        self._write_text(self._text.piece(token))
        ticks.mark()
        return token

    def _write_text(self, text: str) -> None:
        if text:
            self._emitter.mark(text, "text")

    def _report(self, block: Block, end: int) -> None:
        if not self._decode_numbers:
            rows = (CALLBACK, *self._runner.rows(self._decoder.rows()), TOKEN_DECODE)
            self._decode_numbers = self._ledger.numbers(rows)
        for ticks, context in block.ticks:
            facts = {"step": self._step, "phase": "decode", "context": context}
            ticks.write(self._emitter, self._decode_numbers, **facts)
        self._emit_step(block.start, end - block.start, "decode", block.tokens * self._batch)
        self._step += 1

    def _emit_step(self, start: int, wall: int, phase: str, tokens: int) -> None:
        self._emitter.step(
            self._step, start, wall, phase=phase, tokens=tokens, context=self._at, batch=self._batch
        )
        self._heartbeat.touch()

    def _write_device(self, phase: str) -> None:
        facts = {"step": self._step, "phase": phase, "context": self._at}
        self._runner.write(self._emitter, self._ledger.numbers, **facts)

    def _queue_prompt(self, prompt: str) -> str:
        """Queue a prompt; return nothing to say."""
        self._prompts.append(prompt)
        return ""
