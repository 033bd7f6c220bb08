"""Train the demo model on packed rows of stories. AdamW, bfloat16, linear warm-up and linear decay to zero.

The seed determines the weights, the batches and their order; sums on a GPU may still differ in the last bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .model import Llama, ModelConfig, packed_loss


@dataclass(frozen=True)
class TrainConfig:
    seed: int = 1
    steps: int = 12_000
    max_seconds: float = 300.0
    """Time limit: reduces the number of steps after the warm-up if needed, and logs it."""
    batch_rows: int = 128
    learning_rate: float = 2e-3
    weight_decay: float = 0.1
    warmup: int = 200
    clip: float = 1.0
    log_every: int = 100
    save_every: int = 2000
    compile: bool = True


@dataclass
class Progress:
    step: int
    steps: int
    seconds: float
    train_loss: float
    """Mean cross-entropy (nats per token) since the last report."""
    held_out_loss: float | None


def train(
    model_config: ModelConfig,
    config: TrainConfig,
    rows: npt.NDArray[np.uint16],
    held_out: npt.NDArray[np.uint16],
    device: torch.device,
    report: Callable[[Progress, Llama], None],
) -> tuple[Llama, int]:
    """Train; return the model and the number of steps. Calls `report` every `log_every` steps and at the end."""
    torch.manual_seed(config.seed)
    torch.set_float32_matmul_precision("high")
    # CuDNN would need a plan per shape; the other kernels take the mask directly.
    torch.backends.cuda.enable_cudnn_sdp(False)
    model = Llama(model_config).to(device)
    optimizer = _optimizer(model, config, device)
    batches = _Batches(rows, config.batch_rows, config.seed, device)
    loss_of = _loss_function(model, batches.next(peek=True), config.compile)

    steps, warmup = config.steps, min(config.warmup, max(1, config.steps // 10))
    started = warm = time.monotonic()
    total = torch.zeros((), device=device)
    counted = torch.zeros((), device=device)
    for step in range(1, steps + 1):
        if step > steps:
            break
        if step == 20:
            _synchronize(device)
            warm = time.monotonic()
        if step == warmup and warmup > 20:
            _synchronize(device)
            now = time.monotonic()
            per_step = (now - warm) / (step - 20)
            steps = min(steps, step + int((config.max_seconds - (now - started)) / per_step))
        scale = min(step / warmup, (steps - step + 1) / max(1, steps - warmup))
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * scale
        loss, n = loss_of(batches.next())
        torch.autograd.backward(loss / n)
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        total += loss.detach()
        counted += n
        if step % config.log_every == 0 or step == steps:
            evaluate_now = step % config.save_every == 0 or step == steps
            progress = Progress(
                step,
                steps,
                time.monotonic() - started,
                (total / counted).item(),
                mean_loss(model, held_out, device)[0] if evaluate_now else None,
            )
            total.zero_()
            counted.zero_()
            report(progress, model)
    return model, steps


def _optimizer(model: Llama, config: TrainConfig, device: torch.device) -> torch.optim.Optimizer:
    matrices = [p for p in model.parameters() if p.ndim == 2]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.95), fused=device.type == "cuda")


class _Batches:
    """Rows on the device, shuffled every epoch, deterministic for a seed."""

    def __init__(self, rows: npt.NDArray[np.uint16], size: int, seed: int, device: torch.device) -> None:
        self._rows = torch.from_numpy(rows.astype(np.int16)).to(device)
        self._size = min(size, len(rows))
        self._generator = torch.Generator().manual_seed(seed)
        self._order = torch.empty(0, dtype=torch.int64)
        self._device = device

    def next(self, peek: bool = False) -> Tensor:
        """int64 [size, row length]"""
        if peek:
            return self._rows[: self._size].long()
        if len(self._order) < self._size:
            self._order = torch.randperm(len(self._rows), generator=self._generator).to(self._device)
        chosen, self._order = self._order[: self._size], self._order[self._size :]
        return self._rows[chosen].long()


def _loss_function(model: Llama, example: Tensor, use_compile: bool) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    def plain(rows: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast(rows.device.type, torch.bfloat16, enabled=rows.device.type == "cuda"):
            return packed_loss(model, rows)

    if not use_compile:
        return plain
    compiled = torch.compile(plain)
    try:
        loss, _ = compiled(example)
        torch.autograd.backward(loss)
    except Exception as error:  # train without the compiler, only slower
        print(f"not compiled: {type(error).__name__}: {error}".splitlines()[0], flush=True)
        return plain
    finally:
        model.zero_grad(set_to_none=True)
    return compiled


@torch.no_grad()
def mean_loss(
    model: Llama, rows: npt.NDArray[np.uint16], device: torch.device, batch_rows: int = 64
) -> tuple[float, int]:
    """Return the mean float32 cross-entropy (nats) of the predicted tokens of packed rows, and their number."""
    total, counted = 0.0, 0
    for i in range(0, len(rows), batch_rows):
        batch = torch.from_numpy(rows[i : i + batch_rows].astype(np.int64)).to(device)
        loss, n = packed_loss(model, batch)
        total += loss.item()
        counted += int(n)
    return total / counted, counted


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
