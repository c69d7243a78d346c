"""The card of a pretrained model, and the fill-mask examples on it."""

from itertools import groupby
from typing import Any

import numpy as np

from ..cards import (
    CardContent,
    Example,
    PipelineCall,
    TrainingDescription,
    describe_model,
    plain_text,
    run_pipelines,
    taken_from_hub,
    write_card,
)
from ..files.checkpoint import Checkpoint
from ..files.machine import describe_environment
from ..files.options import Group, options_on_card
from ..files.source import HUB, HubSplit, Source
from ..tokenization import MyBertTokenizer
from .plan import PretrainPlan
from .settings import OBJECTIVES
from .token_store import TokenStore

EXAMPLES = 3  # fill-mask examples on the card
_OPTIMIZERS = {
    "google": "Adam without bias correction",
    "adamw": "AdamW with bias correction",
    "muon": "Muon for the layers' matrices, AdamW for the rest",
}
_FILES_NAMED = 8  # of a corpus, named on the card
# Options on the card, if they are not at their defaults, and those that it says in other words.
_GROUPS = {
    *(Group.READING, Group.MODEL, Group.SEQUENCES, Group.OBJECTIVE, Group.TRAINING, Group.RECORDS, Group.FURTHER),
}
_SAID_OTHERWISE = {
    *("optim", "learning_rate", "muon_learning_rate", "num_train_epochs", "max_steps", "max_hours", "seed"),
    *("objective", "embedding_init", "causal_share"),
    *("model_size", "num_hidden_layers", "hidden_size", "num_attention_heads"),  # of the model, which is described
    *("greater_is_better", "save_only_model", "ignore_data_skip"),
}


def fill_mask_examples(
    checkpoint: Checkpoint, tokenizer: MyBertTokenizer, store: TokenStore, documents: np.ndarray
) -> list[Example]:
    """Return fill-mask results for a few sentences of the documents, with one word of each masked."""
    generator = np.random.default_rng(0)
    calls: list[PipelineCall] = []
    for document in generator.permutation(documents)[:200]:
        if len(calls) == EXAMPLES:
            break
        sentence = int(generator.integers(store.document_starts[document], store.document_starts[document + 1]))
        tokens = store.tokens[slice(*store.sentence_starts[sentence : sentence + 2])].astype(int).tolist()
        pieces = tokenizer.convert_ids_to_tokens(tokens)
        words = [
            position
            for position, (piece, following) in enumerate(zip(pieces, [*pieces[1:], ""], strict=True))
            if piece.isalpha() and len(piece) > 3 and not following.startswith("##")
        ]
        if not 8 <= len(tokens) <= 30 or not words:
            continue
        hidden = int(generator.choice(words))
        word, tokens[hidden] = pieces[hidden], tokenizer.mask_token_id
        code = (
            f"for answer in run({tokenizer.decode(tokens)!r}, top_k=5):\n"
            "    print(f\"{answer['score']:.3f}  {answer['token_str']}\")"
        )
        calls.append(PipelineCall(f"Fill-mask (the text has: {word})", "fill-mask", code))
    return run_pipelines(calls, checkpoint, tokenizer=tokenizer)


def write_pretraining_card(
    checkpoint: Checkpoint,
    plan: PretrainPlan,
    store: TokenStore,
    wall_time: float | None,
    examples: list[Example],
) -> None:
    """Write `README.md`; `wall_time` is in seconds, None if unknown."""
    settings, summary = plan.settings, store.summary
    sources = [
        HubSplit.named(source) if str(source).startswith(HUB) else Source.of(source)
        for source in settings.text or [str(settings.token_store)]
    ]
    names = [plain_text(source.described) for source in sources]
    rest = len(names) - _FILES_NAMED
    write_card(
        checkpoint.path,
        CardContent(
            name=checkpoint.path.resolve().name,
            model=describe_model(checkpoint),
            summary=f"A BERT model pretrained with {OBJECTIVES[settings.objective].described}.",
            training=TrainingDescription(
                corpus=", ".join(names[:_FILES_NAMED]) + (f" and {rest} more" if rest > 0 else ""),
                documents=summary.documents,
                sentences=summary.sentences,
                tokens=summary.tokens,
                hyperparameters=_hyperparameters(plan),
                seeds=[settings.seed],
                wall_time=wall_time,
                **describe_environment(plan.training.device.type == "cuda"),
            ),
            examples=examples,
            **taken_from_hub(settings.model, sources),
        ),
    )


def _hyperparameters(plan: PretrainPlan) -> dict[str, Any]:
    """Return the settings that determined the result, in words; for those that changed, the first and later values."""
    settings, phases = plan.settings, plan.phases
    optimizer = getattr(settings.optim, "value", settings.optim)  # transformers' names are an enumeration

    rate, unread = "mlm_probability", set[str]() if settings.causal_share else {"ltr_probability"}
    if OBJECTIVES[settings.objective].is_causal:  # nothing is masked
        rate, unread = "ltr_probability", set(vars(settings.masking))
    found: dict[str, Any] = {
        "optimizer": _OPTIMIZERS.get(optimizer, optimizer),
        "learning rate": settings.learning_rate,
        "batch size": ", then ".join(str(size) for size, _ in groupby(map(plan.batch_size, phases))),
        "longest sequence": ", then ".join(str(length) for length, _ in groupby(phase.max_length for phase in phases)),
        "fraction of predicted tokens": str(getattr(settings, rate)),
    }
    if optimizer == "muon":
        found["learning rate"] = f"{settings.muon_learning_rate} (Muon), {settings.learning_rate} (AdamW)"
    if settings.embedding_init == "cooccurrence":
        found["word embeddings"] = "from a count of neighbors"
    if settings.causal_share:
        found["left to right at first"] = f"{100 * settings.causal_share:g} % of the steps"
    if settings.max_hours is not None:
        found["length"] = f"{settings.max_hours:g} hour{'' if settings.max_hours == 1 else 's'}"
    elif settings.max_steps > 0:
        found["steps"] = f"{settings.max_steps:,}"
    else:
        found["epochs"] = settings.num_train_epochs
    return found | options_on_card(settings, _GROUPS, _SAID_OTHERWISE | unread | {rate})
