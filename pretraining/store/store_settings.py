"""The settings of token stores, each stated once: name, type, default and help.

Commands inherit these classes; library functions take their fields by name (see `settings_of`).
"""

from dataclasses import dataclass
from typing import Literal

from ...files.documents import DocumentSettings
from ...files.options import ABOVE_0, AT_LEAST_1, SHARE_ABOVE_0, SHARE_BELOW_1, Group, check_options, option
from ..unicode_scripts import script_names

# Reasons to drop text, in the order in which they are checked.
REASONS = ("symbol_lines", "other_scripts", "many_tokens", "duplicates", "near_duplicates")
_SETTINGS = {  # of a reason
    "symbol_lines": "symbol_share",
    "other_scripts": "scripts",
    "many_tokens": "tokens_per_character",
    "near_duplicates": "near_duplicate_similarity",
}
_OF_ALL_TEXT = ("other_scripts", "duplicates", "near_duplicates")  # the decision depends on other documents
ShardBy = Literal["documents", "files"]


@dataclass
class CorpusSettings(DocumentSettings):
    group = Group.READING
    num_processes: int | None = option(None, "Processes that work on the text; by default one per core.", AT_LEAST_1)
    drop: list[str] = option(
        [],
        f"What to leave out of the text, some of {', '.join(REASONS)}: see `mybert data --dry_run`.",
        decides="if_not_default",
        needs="text",
        idle_with="data",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if unknown := [reason for reason in self.drop if reason not in REASONS]:
            raise ValueError(f"drop has {unknown[0]!r}; expected some of {', '.join(REASONS)}.")


@dataclass(kw_only=True)
class FilterSettings:
    """Which parts of a corpus are dropped: see `CorpusFilter`.

    Raises:
        ValueError: If a script is unknown, or a setting is out of range.
    """

    group = Group.FILTERS
    symbol_share: float = option(
        0.6, "Drop lines in which more than this share is not letters (symbol_lines).", SHARE_BELOW_1
    )
    scripts: list[str] = option(
        [], "Scripts of the corpus, such as Latin Hangul (other_scripts); by default those of its beginning."
    )
    tokens_per_character: float = option(
        0.25, "Drop documents with more tokens per character than this (many_tokens).", ABOVE_0
    )
    near_duplicate_similarity: float = option(
        0.7,
        "Drop documents this similar to an earlier one, in (0, 1]: the share of their five-word sequences that both "
        "contain (near_duplicates).",
        SHARE_ABOVE_0,
    )

    def __post_init__(self) -> None:
        check_options(self)
        known = {name.casefold(): name for name in script_names()} if self.scripts else {}
        if unknown := [name for name in self.scripts if name.casefold() not in known]:
            raise ValueError(f"scripts has {unknown[0]!r}; expected names such as Latin, Cyrillic, Hangul or Han.")
        self.scripts = sorted({known[name.casefold()] for name in self.scripts})


@dataclass
class StoreSettings(FilterSettings, CorpusSettings):
    """How a token store is built from a corpus: see `build_token_store`.

    Raises:
        ValueError: If `shard_index` is out of range; see also `CorpusSettings` and `FilterSettings`.
    """

    group = Group.STORE
    shard_index: int = option(0, "Shard to build here, from 0.")
    num_shards: int = option(1, "Number of shards that the text is divided among.", AT_LEAST_1)
    shard_by: ShardBy = option(
        "documents",
        "How text is divided among shards: documents, each takes every num_shards-th and reads all text; or files, "
        "each reads only its own, equally many.",
    )
    append: bool = option(False, "Append the text to what the store already holds.")

    def __post_init__(self) -> None:
        CorpusSettings.__post_init__(self)
        FilterSettings.__post_init__(self)
        if not 0 <= self.shard_index < self.num_shards:
            raise ValueError(
                f"shard_index is {self.shard_index}; expected 0 to {self.num_shards - 1} (num_shards - 1)."
            )
        asks = [
            reason
            for reason in self.drop
            if reason in _OF_ALL_TEXT and not (reason == "other_scripts" and self.scripts)
        ]
        if self.shard_by == "files" and asks:
            raise ValueError(
                f"shard_by is files and drop has {asks[0]}, for which each shard has to read all text; expected "
                "shard_by documents" + (", or scripts." if asks[0] == "other_scripts" else ".")
            )

    def check_reasons(self) -> None:
        """Reject settings of filters that are not used.

        Raises:
            ValueError: If there are any.
        """
        usual = FilterSettings()
        for reason, name in _SETTINGS.items():
            if reason not in self.drop and (value := getattr(self, name)) != getattr(usual, name):
                raise ValueError(
                    f"{name} is {value} and drop lacks {reason}, so it has no effect; give both or neither."
                )
