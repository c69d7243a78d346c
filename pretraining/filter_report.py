"""What a corpus holds, and which parts of it are left out, in numbers and examples."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Amount:
    """Numbers of documents, lines and characters (line breaks not counted)."""

    documents: int = 0
    lines: int = 0
    characters: int = 0

    def add(self, lines: list[str], whole: bool) -> None:
        """Count lines, and a document if they are a whole one."""
        self.documents += whole
        self.lines += len(lines)
        self.characters += sum(map(len, lines))


@dataclass
class FilterReport:
    """What a corpus, or a shard of it, holds, and which parts of it are left out.

    Attributes:
        read: All that was read.
        dropped: What goes, for each reason that was looked for.
        examples: Some of it, for each reason: the number of the document (from 1) and how the text begins.
        scripts: Letters of each script, where that was looked at.
        token_shares: Documents by their tokens a character, in hundredths, where that was looked at.
    """

    read: Amount = field(default_factory=Amount)
    dropped: dict[str, Amount] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)
    scripts: Counter[str] = field(default_factory=Counter)
    token_shares: Counter[int] = field(default_factory=Counter)

    def kept(self) -> Amount:
        """What stays."""
        kept = Amount(**vars(self.read))
        for amount in self.dropped.values():
            kept.documents -= amount.documents
            kept.lines -= amount.lines
            kept.characters -= amount.characters
        return kept

    def counts(self) -> dict[str, dict[str, int]]:
        """What was read, and what goes for each reason, as JSON values."""
        return {name: dict(vars(amount)) for name, amount in {"read": self.read, **self.dropped}.items()}

    def __str__(self) -> str:
        """Give a table, and what was measured."""
        amounts = {"read": self.read, **self.dropped, "kept": self.kept()}
        rows = [["", *vars(self.read)]]
        rows += [[name, *(f"{value:,}" for value in vars(amount).values())] for name, amount in amounts.items()]
        lines = [f"{name:<16}" + "".join(f"{figure:>15}" for figure in figures) for name, *figures in rows]
        if letters := self.scripts.total():
            shares = [f"{script} {count / letters:.1%}" for script, count in self.scripts.most_common(5)]
            lines.append(f"Letters: {', '.join(shares)}.")
        if self.token_shares:
            half, most, nearly_all = (self._token_share(share) for share in (0.5, 0.9, 0.99))
            lines.append(
                f"Tokens a character: up to {half:.2f} in half of the documents, {most:.2f} in 90 %, "
                f"{nearly_all:.2f} in 99 %."
            )
        return "\n".join(lines)

    def shown_examples(self) -> str:
        """The examples, one per line."""
        lines: list[str] = []
        for reason in self.dropped:
            if texts := self.examples.get(reason):
                lines += [f"{reason}:", *(f"  {text}" for text in texts)]
        return "\n".join(lines)

    def _token_share(self, share: float) -> float:
        """Tokens per character that a share of the documents does not exceed."""
        seen, wanted = 0, share * self.token_shares.total()
        for hundredths, count in sorted(self.token_shares.items()):
            seen += count
            if seen >= wanted:
                return hundredths / 100
        raise AssertionError(share)
