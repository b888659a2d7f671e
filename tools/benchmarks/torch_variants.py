"""The same network in PyTorch with its fused Adam: eager, and compiled."""

import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from benchmarks.step import LEARNING_RATE, Data, Timing, endless_rows

# On a GPU where PyTorch sees one, as TensorFlow and JAX do by themselves.
_DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Torch:
    """A plain PyTorch loop; the data is one tensor, channels first as PyTorch wants it, batches picked by index.

    Args:
      compiled: by `torch.compile`: forward and backward pass as code that it generates.
    """

    least_steps = 2

    def __init__(self, data: Data, batch_size: int, compiled: bool = False):
        torch.manual_seed(0)
        self._batch_size = self.work_a_step = batch_size
        self._scale = data.scale
        self._features = self._tensor(data.features)
        self._labels = torch.from_numpy(data.labels).to(_DEVICE)
        points = data.features.shape[1]
        self._model = nn.Sequential(
            nn.Conv1d(3, 16, 7, padding=3),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(16, 24, 7, padding=3),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Flatten(),
            nn.Linear(24 * (points // 4), 125),
            nn.ReLU(),
            nn.Linear(125, data.labels.shape[1]),
        ).to(_DEVICE)
        self._loss = nn.MSELoss()
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=LEARNING_RATE, fused=True)
        self._rows = endless_rows(len(data.labels), batch_size)
        self._forward: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = self._loss_of
        if compiled:
            self._forward = torch.compile(self._loss_of, dynamic=False)

    def _loss_of(self, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return self._loss(self._model(features), labels)

    def run(self, steps: int) -> Timing:
        """Trains for that many steps."""
        started = time.perf_counter()
        for _ in range(steps):
            rows = torch.from_numpy(next(self._rows)).to(_DEVICE).long()
            self._optimizer.zero_grad(set_to_none=True)
            loss = self._forward(self._features[rows], self._labels[rows])
            loss.backward()
            self._optimizer.step()
        loss.item()
        return Timing(steps * self._batch_size, time.perf_counter() - started)

    def loss(self, features: np.ndarray, labels: np.ndarray) -> float:
        """Mean squared error."""
        with torch.no_grad():
            outputs = self._model(self._tensor(features))
            return float(self._loss(outputs, torch.from_numpy(labels).to(_DEVICE)))

    def _tensor(self, features: np.ndarray) -> torch.Tensor:
        scaled = np.ascontiguousarray((features / self._scale).transpose(0, 2, 1))
        return torch.from_numpy(scaled.astype(np.float32)).to(_DEVICE)
