"""The card of a pretrained model, and the fill-mask examples on it."""

from pathlib import Path

import numpy as np

from ..files import describe_environment
from ..hub_card import CardContent, Example, PipelineCall, TrainingDescription, plain_text, run_pipelines, write_card
from ..tokenization import MyBertTokenizer
from .pretraining_arguments import PretrainingArguments
from .store_format import TokenStore

EXAMPLES = 3  # fill-mask examples on the card
_OBJECTIVES = {
    "mlm+nsp": "masked LM and next sentence prediction",
    "mlm": "masked LM",
    "mlm+sop": "masked LM and sentence order prediction",
    "ltr": "left-to-right LM (causal attention)",
}
_OPTIMIZERS = {"google": "Adam without bias correction", "adamw": "AdamW with bias correction", "lamb": "LAMB"}


def fill_mask_examples(
    output_dir: Path, tokenizer: MyBertTokenizer, store: TokenStore, documents: np.ndarray
) -> list[Example]:
    """Fill-mask on a few sentences of the given documents, a word of each hidden; the code was run."""
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
    return run_pipelines(calls, output_dir, tokenizer=tokenizer)


def write_pretraining_card(
    output_dir: Path,
    arguments: PretrainingArguments,
    store: TokenStore,
    wall_time: float | None,
    examples: list[Example],
) -> None:
    """Write `README.md`; `wall_time` is in seconds, None if it is not known."""
    summary = store.summary
    optimizer = getattr(arguments.optim, "value", arguments.optim)  # transformers' names are of an enumeration
    phases = arguments.phases()
    write_card(
        output_dir,
        CardContent(
            name=output_dir.name,
            summary=f"A BERT model pretrained with {_OBJECTIVES[arguments.objective]}.",
            training=TrainingDescription(
                corpus=", ".join(plain_text(Path(path).name) for path in arguments.text or [str(arguments.data)]),
                documents=summary.documents,
                sentences=summary.sentences,
                tokens=summary.tokens,
                hyperparameters={
                    "optimizer": _OPTIMIZERS.get(optimizer, optimizer),
                    "learning rate": arguments.learning_rate,
                    "batch size": ", then ".join(str(arguments.batch_size(phase)) for phase in phases),
                    "longest sequence": ", then ".join(str(phase.max_length) for phase in phases),
                    "predicted tokens": arguments.mlm_probability,
                },
                seeds=[arguments.seed],
                wall_time=wall_time,
                **describe_environment(),
            ),
            examples=examples,
        ),
    )
