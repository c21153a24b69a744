"""The life of an engine: a prompt is taken in, tokens come out, and each step is written down."""

import time
from dataclasses import dataclass, field

import torch

from capture.emit import Emitter, now
from engines.commands import Commands
from engines.decoder import CHUNK, Decoder
from engines.device import Runner
from engines.plan import host_row
from engines.pulse import Pulse
from engines.text import Text
from engines.trace import Ledger, Ticks

IDLE_S = 0.02
CALLBACK = host_row("callback")
TOKEN_DECODE = host_row("token_decode")


@dataclass(frozen=True)
class Limits:
    """When to stop: tokens after which a prompt is answered, and what one report holds."""

    steps: int = 0  # 0: until the end token or the end of the context
    tokens_per_report: int = 1
    interactive: bool = False  # wait for further prompts


@dataclass
class Block:
    """Decode steps that are reported as one."""

    start: int
    ticks: list[tuple[Ticks, int]] = field(default_factory=list)


class Engine:
    """Ties a decoder and the runner of its ops to an emitter."""

    def __init__(
        self, decoder: Decoder, text: Text, emitter: Emitter, pulse: Pulse, commands: Commands,
        limits: Limits, runner: Runner,
    ) -> None:  # fmt: skip
        self._decoder, self._text, self._emitter = decoder, text, emitter
        self._pulse, self._commands, self._limits, self._runner = pulse, commands, limits, runner
        self._ledger = Ledger(emitter)
        self._decode_numbers: list[int] = []
        self._device = decoder.state.ids.device
        self._batch = decoder.state.batch
        self._at = 0
        self._step = 0
        self._paused = False
        self._prompts: list[str] = []
        self._quit = False

    def start_at(self, context: int) -> None:
        """A long past, made up: enough for every time and byte to be that of a long context."""
        random = torch.Generator(self._device).manual_seed(0)
        for cache in self._decoder.caches:
            cache.fill(random, context)
        self._at = context

    def run(self, prompt: str) -> None:
        """Answers the prompt, then every one that stdin brings, until it is to end."""
        self._prompts.append(prompt)
        while not self._quit:
            if self._prompts:
                self._answer(self._prompts.pop(0))
            elif not self._limits.interactive or self._commands.closed.is_set():
                return
            else:
                self._idle("waiting for a prompt")

    def warm_up(self) -> None:
        """One step that is not written down: the first of its kind pays for what the others find ready."""
        self._decoder.place(torch.zeros_like(self._decoder.state.ids), self._at)
        self._runner.run(Ticks(now()))

    def _answer(self, prompt: str) -> None:
        ids = self._text.encode(prompt)
        room = self._decoder.capacity - self._at
        if len(ids) >= room:
            self._at, ids = 0, ids[: self._decoder.capacity - 1]
            self._emitter.mark("the context is full: it starts anew", "note")
        self._pulse.status(f"prefill of {len(ids)} tokens")
        token = self._prefill(ids)
        self._pulse.status("capturing")
        self._decode(token)

    def _prefill(self, ids: list[int]) -> int:
        """The prompt in pieces, as one step."""
        begin = ticks = Ticks(now())
        for start in range(0, len(ids), CHUNK):
            piece = torch.tensor(ids[start : start + CHUNK], device=self._device).expand(self._batch, -1)
            planned = self._runner.rows(self._decoder.rows(piece.shape[1], self._at))
            numbers = self._ledger.numbers((*planned, TOKEN_DECODE))
            ticks = Ticks(ticks.end)
            self._decoder.place(piece, self._at)
            self._runner.run(ticks)
            token = self._finish(ticks)
            self._at += piece.shape[1]
            ticks.write(self._emitter, numbers, step=self._step, phase="prefill", context=self._at)
            self._write_device("prefill")
        wall = ticks.end - begin.at[0]
        self._emit_step(begin.at[0], wall, "prefill", len(ids) * self._batch)
        self._step += 1
        return token

    def _decode(self, token: int) -> None:
        """Tokens one by one, in blocks of so many to a report."""
        left = self._limits.steps or self._decoder.capacity
        end = now()
        while left > 0 and not self._over(token):
            block = Block(end)
            for _ in range(min(self._limits.tokens_per_report, left)):
                token = self._one(block, end)
                end = block.ticks[-1][0].end
                left -= 1
                if token in self._decoder.spec.eos or self._at >= self._decoder.capacity:
                    break
            self._report(block, end)
            if self._listen():
                end = now()
        if self._at >= self._decoder.capacity:
            self._emitter.mark("the context is full", "note")

    def _over(self, token: int) -> bool:
        full = self._at >= self._decoder.capacity
        return self._quit or bool(self._prompts) or full or token in self._decoder.spec.eos

    def _one(self, block: Block, start: int) -> int:
        """A step that makes one token of each sequence."""
        ticks = Ticks(start)
        ticks.mark()
        self._decoder.place(self._decoder.sampler.token[:, None], self._at)
        self._runner.run(ticks)
        token = self._finish(ticks)
        self._at += 1
        block.ticks.append((ticks, self._at))
        self._write_device("decode")
        return token

    def _finish(self, ticks: Ticks) -> int:
        """The end of every step: the token is waited for, and becomes text."""
        token = int(self._decoder.sampler.token[0])
        piece = self._text.piece(token)
        if piece:
            self._emitter.mark(piece, "text")
        ticks.mark()
        return token

    def _report(self, block: Block, end: int) -> None:
        if not self._decode_numbers:
            rows = (CALLBACK, *self._runner.rows(self._decoder.rows()), TOKEN_DECODE)
            self._decode_numbers = self._ledger.numbers(rows)
        for ticks, context in block.ticks:
            facts = {"step": self._step, "phase": "decode", "context": context}
            ticks.write(self._emitter, self._decode_numbers, **facts)
        self._emit_step(block.start, end - block.start, "decode", len(block.ticks) * self._batch)
        self._step += 1

    def _emit_step(self, start: int, wall: int, phase: str, tokens: int) -> None:
        self._emitter.step(
            self._step, start, wall, phase=phase, tokens=tokens, context=self._at, batch=self._batch
        )
        self._pulse.touch()

    def _write_device(self, phase: str) -> None:
        facts = {"step": self._step, "phase": phase, "context": self._at}
        self._runner.write(self._emitter, self._ledger.numbers, **facts)

    def _listen(self) -> bool:
        """Does what was asked for; true when the time that it took belongs to no step."""
        self._commands.refresh()
        if not self._commands.waiting and not self._commands.refused:
            return False
        while self._commands.waiting:
            self._obey(self._commands.waiting.popleft())
        while self._commands.refused:
            self._emitter.mark(f"no such command: {self._commands.refused.popleft()}", "log")
        while self._paused and not self._quit:
            self._idle("paused")
        return True

    def _obey(self, command: dict[str, object]) -> None:
        match command["do"]:
            case "quit":
                self._quit = True
            case "pause":
                self._paused = not self._paused
            case "resume":
                self._paused = False
            case "prompt":
                self._prompts.append(str(command.get("text", "")))
            case "mode":
                self._emitter.mark(self._runner.mode(str(command.get("mode"))), "note")

    def _idle(self, why: str) -> None:
        if self._pulse.doing != why:
            self._pulse.status(why)
        time.sleep(IDLE_S)
        self._commands.refresh()
        while self._commands.waiting:
            self._obey(self._commands.waiting.popleft())
