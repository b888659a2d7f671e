"""What should make the reader of an answer careful: the same kinds for every curve, each with its own numbers."""

import dataclasses
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True)
class Caveat:
    """One reason to be careful with the answer for one curve.

    Attributes:
      kind: a few words that are the same for every curve it is true of, e.g. "necking"; a batch is summed up by them.
      text: one sentence with the numbers of this curve, without a full stop.
      advice: what to do about it, the same for every curve of this kind; empty where nothing can be done.
      blocks: the answer must not be used.
    """

    kind: str
    text: str
    advice: str = ""
    blocks: bool = False

    def __str__(self) -> str:
        return f"{self.text}; {self.advice}" if self.advice else self.text


def reasons_not_to_use(caveats: Iterable[Caveat]) -> list[str]:
    """The kinds of those that forbid the use of the answer, each once and in order; empty where it can be used."""
    return list(dict.fromkeys(caveat.kind for caveat in caveats if caveat.blocks))
