"""The trainer of pretraining: exact means of both losses, and both losses and accuracies in the log."""

import time
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, Subset
from transformers import TrainingArguments
from transformers.trainer_utils import EvalLoopOutput, has_length

from ..modeling_mybert import IGNORE_INDEX, flat_indices
from ..runs import OPTIMIZERS, ResumableTrainer, linear_schedule, parameter_groups
from ..runs.trainer import temporarily

_SUMS = "mlm_loss mlm_correct mlm_count nsp_loss nsp_correct nsp_count nsp_random tokens mlm_tokens".split()
# Inputs whose length varies from batch to batch; a compiled graph must treat it as dynamic.
_OF_ANY_LENGTH = {"prediction_indices", "cu_seq_lens_q", "cu_seq_lens_k", "next_sentence_label"}


class _WholeBatches(Subset):
    """The data set without its last incomplete batch, so that every step of an epoch has equally many examples."""

    def set_epoch(self, epoch: int) -> None:
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)


class PretrainingTrainer(ResumableTrainer):
    """`Trainer` for `MyBertForPreTraining` and `MyBertForMaskedLM`.

    - Gradients of accumulated or distributed batches are those of one large batch, for the masked-LM loss (a mean over
      masked tokens) and the next-sentence loss (a mean over sequences) alike.
    - The log has `mlm_loss`, `mlm_accuracy`, `mlm_share` (of the tokens, those that are predicted), `nsp_loss`,
      `nsp_accuracy` and `tokens_per_second` (real tokens, padding left out); evaluation has the same with the prefix
      `eval_`, `eval_perplexity` = exp(mlm_loss) and `eval_nsp_majority`, the accuracy of always predicting the more
      frequent answer (by Google's rule more than half of the pairs are random).
    - The optimizer is Google's unless `optim` is set to something other than its default or an optimizer is passed.
      In addition to transformers' names there are "google", "adamw" (with bias correction) and "muon". The
      schedule is Google's if `lr_scheduler_type` is linear.
    - The data comes in the data set's own order (`PretrainingDataset` draws a new one each epoch), in whole batches: a
      last incomplete batch is dropped. A step uses the same examples however its batch is divided among processes and
      micro-batches.
    - Training may be left to right (`is_causal`); evaluation is always in the model's own direction.
    - Layers may be frozen; they stay in the optimizer, so that its checkpoints still fit once they are trained.
    - Checkpoints and divergence: see `ResumableTrainer`.

    Args:
        *args: Arguments of `ResumableTrainer`.
        eval_collator: Makes the batches of evaluation; `data_collator` if None.
        is_causal: Whether attention is causal in training, whatever the model's configuration.
        **kwargs: Arguments of `ResumableTrainer`.

    Raises:
        ValueError: If another loss or other metrics are requested (`label_smoothing_factor`, `compute_loss_func`,
            `compute_metrics`).
    """

    data_collator: Any

    def __init__(self, *args: Any, eval_collator: Any = None, is_causal: bool | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, is_set in (
            ("label_smoothing_factor", self.args.label_smoothing_factor),
            ("compute_loss_func", self.compute_loss_func),
            ("compute_metrics", self.compute_metrics),
        ):
            if is_set:
                raise ValueError(
                    f"{name} is set; PretrainingTrainer learns and measures the model's own losses, and evaluates "
                    "without keeping logits. transformers' Trainer takes these models as well."
                )
        self.eval_collator = eval_collator
        self._evaluation_settings: dict[str, Any] = {"sparse_prediction": True}
        if is_causal is not None:
            self._evaluation_settings["is_decoder"] = self.model.config.is_decoder
            self.model.config.is_decoder = is_causal
        self.label_names = ["labels"]  # otherwise an evaluation of data without pairs would compute no loss
        self.args.remove_unused_columns = False  # the collator needs the column `example` to draw masks
        self.args.train_sampling_strategy = "sequential"  # `PretrainingDataset` draws a new order each epoch
        self._num_sequences_in_batch: torch.Tensor | int | None = None
        self._sums = self._zeros()
        self._since = time.perf_counter()

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """The optimizer that `optim` names, with the arguments' learning rate, betas, epsilon and weight decay.

        Raises:
            ValueError: If it is Muon, which needs whole parameters, with FSDP 1, which splits them.
        """
        name = self.args.optim
        if self.optimization is None and name == TrainingArguments.optim:  # nobody has chosen it
            name = "google"
        if self.optimizer is None and self.optimizer_cls_and_kwargs is None and name in OPTIMIZERS:
            network = self.model if model is None else model
            groups = parameter_groups(network, self.args.weight_decay)
            self.optimizer = self.own_optimizer(name, network, lambda rate: groups)
        return super().create_optimizer(model)

    def schedule(self, num_training_steps: int, optimizer: torch.optim.Optimizer) -> LRScheduler | None:
        """Google's schedule if `lr_scheduler_type` is linear, its default."""
        if self.args.lr_scheduler_type != "linear":
            return None
        position = None if self.budget is None else self.budget.position.item
        warmup_steps = self.args.get_warmup_steps(num_training_steps)
        return linear_schedule(optimizer, warmup_steps, num_training_steps, position)

    def get_train_dataloader(self) -> DataLoader:
        """`Trainer.get_train_dataloader`, of whole batches."""
        data = self.train_dataset
        if has_length(data):
            whole, incomplete = divmod(len(data), self.get_total_train_batch_size(self.args))
            data = _WholeBatches(data, range(len(data) - incomplete)) if whole else data
        with temporarily(self, train_dataset=data):
            return super().get_train_dataloader()

    def count_items(self, batches: list[dict[str, Any]], device: torch.device) -> torch.Tensor | int | None:
        """Count the masked tokens; also counts the sequences."""
        self._num_sequences_in_batch = self.count_labels(batches, device, "next_sentence_label")
        return super().count_items(batches, device)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, Any]:
        """`Trainer.compute_loss` with the counts of masked tokens and sequences; updates the sums for the log."""
        if self.args.n_gpu > 1:  # in one process, which split each tensor among them
            inputs = {name: value for name, value in inputs.items() if not name.endswith("_indices")}
        model_inputs = inputs
        if not model.training:  # `Trainer` counts labels only
            num_items_in_batch = self.count_items([inputs], self.args.device)
        if self.args.torch_compile:
            for name in _OF_ANY_LENGTH & inputs.keys():
                torch._dynamo.maybe_mark_dynamic(inputs[name], 0)
        has_pairs = inputs.get("next_sentence_label") is not None
        if num_items_in_batch is not None and has_pairs:
            model_inputs = {**inputs, "num_sequences_in_batch": self._num_sequences_in_batch}
        loss, outputs = super().compute_loss(
            model, model_inputs, return_outputs=True, num_items_in_batch=num_items_in_batch
        )
        self._add_to_sums(inputs, outputs, num_items_in_batch)
        if model.training and "seq_relationship_logits" in outputs and not has_pairs:
            # Pooler and NSP head are not trained yet, but DDP waits for their gradients, and FSDP for their states.
            loss = loss + 0 * outputs["seq_relationship_logits"].sum()
        return (loss, outputs) if return_outputs else loss

    @torch.no_grad()
    def _add_to_sums(
        self, inputs: dict[str, Any], outputs: Any, num_items_in_batch: torch.Tensor | int | None
    ) -> None:
        sums = self._sums
        if sums["tokens"].device != outputs["loss"].device:
            self._sums = sums = {name: value.to(outputs["loss"].device) for name, value in sums.items()}
        labels = inputs["labels"]
        if "mlm_loss" in outputs:
            loss, logits = outputs["mlm_loss"], outputs["prediction_logits"]
        else:  # only masked LM, whose share `Trainer` has scaled in place for the mean over processes
            scaled = num_items_in_batch is not None and self.args.average_tokens_across_devices
            loss = outputs["loss"] / (self.args.world_size * max(1, self.args.n_gpu) if scaled else 1)
            logits = outputs["logits"]
        indices = inputs.get("prediction_indices")
        if indices is None:
            indices = flat_indices(labels != IGNORE_INDEX)
        if logits.dim() == 3:
            logits = logits.flatten(0, 1).index_select(0, indices)
        predicted = labels.flatten().index_select(0, indices)
        tasks = {"mlm": (loss, labels, num_items_in_batch, logits, predicted)}
        if (labels := inputs.get("next_sentence_label")) is not None:
            logits = outputs["seq_relationship_logits"]
            items = None if num_items_in_batch is None else self._num_sequences_in_batch
            tasks["nsp"] = (outputs["nsp_loss"], labels, items, logits, labels)
            sums["nsp_random"] += (labels == 1).sum()
        for task, (loss, labels, items, logits, predicted) in tasks.items():
            # The sum of the losses, from a batch's mean or its fraction of an optimizer step's mean.
            if items is None:
                # Several GPUs in one process return one loss each, for their part of the rows.
                counts = torch.stack([(part != IGNORE_INDEX).sum() for part in labels.chunk(loss.numel())])
            else:
                loss, counts = loss.sum(), torch.as_tensor(items, device=loss.device).flatten()[:1]
            # the mean over no labels may be NaN
            sums[f"{task}_loss"] += (loss.flatten() * counts).masked_fill(counts == 0, 0).sum()
            sums[f"{task}_correct"] += (logits.argmax(-1) == predicted).sum()
            sums[f"{task}_count"] += (predicted != IGNORE_INDEX).sum()
        mask = inputs.get("attention_mask")
        if mask is None:  # packed rows, which end in padding
            padding = self.model.config.pad_token_id
            mask = inputs["input_ids"] != (-1 if padding is None else padding)
        sums["tokens"] += mask.sum()
        # Rows that only fill up the batches of several processes have no labels.
        sums["mlm_tokens"] += (mask * (inputs["labels"] != IGNORE_INDEX).any(-1, keepdim=True)).sum()

    def _zeros(self) -> dict[str, torch.Tensor]:
        device = self.args.device
        dtype = torch.float32 if device.type == "mps" else torch.float64  # Apple GPUs have no float64
        return {name: torch.zeros((), dtype=dtype, device=device) for name in _SUMS}

    def _take_means(self) -> dict[str, float]:
        """Means since the last call, over all processes."""
        names = list(self._sums)
        total = self.accelerator.reduce(torch.stack([self._sums[name] for name in names]), reduction="sum")
        sums = dict(zip(names, total.tolist(), strict=True))
        now = time.perf_counter()
        means = {"tokens_per_second": round(sums["tokens"] / (now - self._since), 1)}
        for task in ("mlm", "nsp"):
            if count := sums[f"{task}_count"]:
                means[f"{task}_loss"] = sums[f"{task}_loss"] / count
                means[f"{task}_accuracy"] = sums[f"{task}_correct"] / count
        if sums["mlm_count"]:
            means["mlm_share"] = sums["mlm_count"] / sums["mlm_tokens"]
        if count := sums["nsp_count"]:
            means["nsp_majority"] = max(sums["nsp_random"], count - sums["nsp_random"]) / count
        self._sums, self._since = self._zeros(), now
        return means

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add both losses and accuracies to what `Trainer` logs during training."""
        if "loss" in logs:
            means = self._take_means()
            means.pop("nsp_majority", None)  # too few pairs for this to be meaningful
            logs |= {name: round(value, 4) for name, value in means.items()}
        # Trainer computes this from the planned steps
        if self.budget is not None and "train_steps_per_second" in logs:
            rows = self.get_total_train_batch_size(self.args)
            logs["train_samples_per_second"] = round(rows * logs["train_steps_per_second"], 3)
        super().log(logs, start_time)

    def prediction_step(
        self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor | None, Any, Any]:
        """`Trainer.prediction_step`; examples that pad the last batch of several processes are not counted."""
        size, length = inputs["labels"].shape
        if self.args.world_size > 1 and (own := self.count_own_rows(size)) < size:
            inputs["labels"][own:] = IGNORE_INDEX
            if "next_sentence_label" in inputs:
                starts = inputs.get("cu_seq_lens_q")  # packed rows hold several sequences
                sequences = own if starts is None else int((starts < own * length).sum())
                inputs["next_sentence_label"][sequences:] = IGNORE_INDEX
        return super().prediction_step(model, inputs, *args, **kwargs)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader:
        """`Trainer.get_eval_dataloader`, with the collator of evaluation."""
        with temporarily(self, data_collator=self.eval_collator or self.data_collator):
            return super().get_eval_dataloader(eval_dataset)

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> EvalLoopOutput:
        """Evaluate on labeled positions only; the metrics are exact means over the whole data set."""
        prefix = kwargs.get("metric_key_prefix", "eval")
        kwargs["prediction_loss_only"] = True
        now = time.perf_counter()
        with (
            temporarily(self.model.config, **self._evaluation_settings),
            temporarily(self, _sums=self._zeros(), _since=now),
        ):
            output = super().evaluation_loop(*args, **kwargs)
            means = self._take_means()
        self._since += time.perf_counter() - now  # the time of training goes on
        means["loss"] = means.get("mlm_loss", 0.0) + means.get("nsp_loss", 0.0)
        if "mlm_loss" in means:
            means["perplexity"] = float(torch.tensor(means["mlm_loss"]).exp())
        output.metrics.update({f"{prefix}_{name}": value for name, value in means.items()})
        return output
