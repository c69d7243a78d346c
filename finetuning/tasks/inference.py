"""Running a fine-tuned model on tokenized data: in batches of similar length, with results in the data's order."""

from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather_object, send_to_device
from tqdm.auto import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ...pipelines.batched_pipeline import batches_by_length
from ..data.labels import LABEL_ARGUMENTS
from .task import WINDOW_WEIGHT, Task, TaskData

_FOR_THE_LOSS = (*LABEL_ARGUMENTS, WINDOW_WEIGHT)


def network_outputs(
    task: Task,
    data: TaskData,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    batch_size: int | None = None,  # sequences; None to choose it for the device
    shared: bool = False,  # whether the processes of a run divide the work; each returns all results
    progress: bool = False,
) -> Any:
    """Run data through a model in eval mode: an array for each sequence, the input of `Task.predict`."""
    collate = task.collator(tokenizer, model)
    lengths = [_tokens(data[place]) for place in range(len(data))]
    batches = list(batches_by_length(lengths, model.device, batch_size))
    if shared:
        state = PartialState()
        batches = batches[state.process_index :: state.num_processes]
    found: list[tuple[int, Any]] = []
    with torch.inference_mode():
        for places in tqdm(batches, desc="Batches", delay=2, disable=not progress):
            rows = [
                {name: value for name, value in data[place].items() if name not in _FOR_THE_LOSS} for place in places
            ]
            batch: Any = send_to_device(collate(rows), model.device)
            kept = [values.float().cpu().numpy() for values in task.kept_outputs(model(**batch), batch)]
            found += zip(places, zip(*kept, strict=True), strict=True)
    if shared:
        found = gather_object(found)
    found.sort(key=lambda item: item[0])
    columns = [list(column) for column in zip(*(values for _, values in found), strict=True)]
    # A tuple of such lists for several outputs.
    return columns[0] if len(columns) == 1 else tuple(columns)


def _tokens(row: dict[str, Any]) -> int:
    """Number of tokens of a row, over all its choices."""
    values = row["input_ids"] if "input_ids" in row else next(iter(row.values()))
    return sum(map(len, values)) if len(values) and isinstance(values[0], list) else len(values)
