"""Shards of a token store built by the workers of a cluster's engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...files.source import rows_of_batch, with_columns
from ...tokenization import MyBertTokenizer
from .store_builder import build_token_store
from .store_format import StoreSummary
from .store_settings import StoreSettings

if TYPE_CHECKING:
    from _typeshed import StrPath

_NUMBER = "id"  # the column in `ray.data.range` and Spark's `range`


class StoreShards:
    """Builds the shards of a token store whose numbers come in batches, on the workers of an engine.

        ray.data.range(8, override_num_blocks=8).map_batches(shards, batch_size=1).take_all()  # Ray Data
        spark.range(0, 8, numPartitions=8).mapInPandas(shards, shards.schema).collect()  # Spark

    Shards are byte for byte those of `build_token_store` with the same `shard_index`, whichever worker builds them. If
    a worker is lost, its tokenized chunks remain next to the shard, and the next worker continues from there.

    Args:
        files: Files, folders, patterns or data sets of the Hub, under names valid on every machine.
        tokenizer: The tokenizer.
        path: The folder of the shards, valid on every machine.
        num_shards: Total number of shards.
        settings: Other settings of `build_token_store`; `num_processes` is 1 unless it is given.

    Raises:
        ValueError: If a setting is out of range, or `append` is set, which would not be safe to repeat.
        TypeError: If a setting does not exist.
    """

    schema = ", ".join(f"{name} long" for name in (_NUMBER, *(item.name for item in fields(StoreSummary))))
    """Schema of the returned batches, for Spark."""

    def __init__(
        self,
        files: StrPath | Iterable[StrPath],
        tokenizer: MyBertTokenizer,
        path: str | Path,
        *,
        num_shards: int,
        **settings: Any,
    ) -> None:
        self.files = files if isinstance(files, (str, PathLike)) else list(files)
        self.tokenizer = tokenizer
        self.path = path
        self.settings = {"num_processes": 1, "num_shards": num_shards} | settings
        if StoreSettings(**self.settings).append:
            raise ValueError(
                "append is set; an engine may build a shard more than once and would append the text each time. "
                "Expected a new store, or build_token_store."
            )

    def __call__(self, batch: Any) -> Any:
        """Build the shards whose numbers are in the column `id`.

        Args:
            batch: Column -> values (a dictionary of NumPy arrays or lists), a `pandas.DataFrame` or a `pyarrow.Table`;
                or an iterator of these.

        Returns:
            The same kind of batch: `id`, and the counts of each shard as columns, see `StoreSummary`.

        Raises:
            ValueError: If there is no such column or shard; see also `build_token_store`.
            OSError, ImportError: See `build_token_store`.
        """
        if isinstance(batch, Iterator):
            return map(self, batch)
        rows = rows_of_batch(batch)
        if rows and _NUMBER not in rows[0]:
            there = ", ".join(map(repr, rows[0]))
            raise ValueError(f"The batch has no column {_NUMBER!r}, the numbers of shards; its columns are {there}.")
        built = [asdict(self._build(row[_NUMBER])) for row in rows]
        columns = {item.name: [summary[item.name] for summary in built] for item in fields(StoreSummary)}
        return with_columns(batch, [_NUMBER], columns)

    def _build(self, number: int) -> StoreSummary:
        settings = self.settings | {"shard_index": number, "show_progress": False}
        return build_token_store(self.files, self.tokenizer, self.path, **settings)
