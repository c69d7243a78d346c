"""The bias of a new head: it predicts the frequencies of the training data's labels from the first step on."""

import numpy as np
import torch
from transformers import PreTrainedModel

from ..network.encoder_parts import output_layer
from ..tasks.task import WINDOW_WEIGHT, Task, TaskData
from .samples import label_counts


def set_head_bias(model: PreTrainedModel, task: Task, data: TaskData) -> None:
    """Set the output layer's bias to the classes' log-frequencies, or to the log-odds of independent labels."""
    # A task of a few rare labels otherwise spends its training on learning how rare they are.
    layer, labels = output_layer(model), data.inputs.get("labels")
    if layer is None or layer.bias is None or labels is None or not task.has_classes:
        return
    if task.objective == "labels":
        shares = np.asarray(data.inputs.get(WINDOW_WEIGHT, np.ones(len(labels))))
        rows = np.asarray(labels, dtype=np.float64)  # NaN without labels
        there = ~np.isnan(rows)
        counts = shares @ np.nan_to_num(rows)
        # Each count is one larger, so that a label without examples has a finite bias.
        bias = np.log(counts + 1) - np.log(shares @ there - counts + 1)
    elif task.objective == "classes":
        counts = label_counts(data, layer.out_features) + 1
        bias = np.log(counts / counts.sum())
    else:
        return
    with torch.no_grad():
        layer.bias.copy_(torch.from_numpy(bias))
