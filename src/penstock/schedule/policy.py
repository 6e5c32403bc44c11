"""Policy: how a batch is scheduled, as a value.

For now every policy is the fused serial kernel: `adaptive()` chooses it, `serial()` asks for it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    name: str = "adaptive"

    @classmethod
    def adaptive(cls) -> Policy:
        """Let Penstock choose for each batch (the default)."""
        return cls("adaptive")

    @classmethod
    def serial(cls) -> Policy:
        """One fused loop over the batch, on one core."""
        return cls("serial")

    def explain(self) -> str:
        """What a batch under this policy does, and why."""
        if self.name == "serial":
            return "serial: as asked"
        return "serial: it is the one schedule there is so far"
