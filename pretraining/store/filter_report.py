"""What a corpus contains and what filters remove from it, in numbers and examples."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Amount:
    """Numbers of documents, lines and characters (line breaks not counted)."""

    documents: int = 0
    lines: int = 0
    characters: int = 0

    def add(self, lines: list[str], whole: bool) -> None:
        """Count lines, and one document if they are a whole document."""
        self.documents += whole
        self.lines += len(lines)
        self.characters += sum(map(len, lines))


@dataclass
class FilterReport:
    """What a corpus, or a shard of it, contains and what filters remove from it.

    Attributes:
        read: Everything that was read.
        dropped: What is removed, by reason, for each reason that was checked.
        examples: Examples of it, by reason: the number of the document (from 1) and the beginning of the text.
        scripts: Number of letters of each script, if counted.
        token_shares: Number of documents by tokens per character, in hundredths, if counted.
    """

    read: Amount = field(default_factory=Amount)
    dropped: dict[str, Amount] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)
    scripts: Counter[str] = field(default_factory=Counter)
    token_shares: Counter[int] = field(default_factory=Counter)

    def kept(self) -> Amount:
        """What is kept."""
        kept = Amount(**vars(self.read))
        for amount in self.dropped.values():
            kept.documents -= amount.documents
            kept.lines -= amount.lines
            kept.characters -= amount.characters
        return kept

    def counts(self) -> dict[str, dict[str, int]]:
        """What was read, and what is removed for each reason, as JSON values."""
        return {name: dict(vars(amount)) for name, amount in {"read": self.read, **self.dropped}.items()}

    def __str__(self) -> str:
        """Return a table of the amounts, and the measurements."""
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
                f"Tokens per character: up to {half:.2f} in half of the documents, {most:.2f} in 90 %, "
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
        """Return the number of tokens per character that this fraction of the documents does not exceed."""
        seen, wanted = 0, share * self.token_shares.total()
        for hundredths, count in sorted(self.token_shares.items()):
            seen += count
            if seen >= wanted:
                return hundredths / 100
        raise AssertionError(share)
