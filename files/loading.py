"""Loading a checkpoint's tokenizer and model with transformers, where parts that do not fit together are errors.

transformers has no error for a BERT without a vocabulary, which gets a tokenizer of five special tokens that reads all
words as [UNK], nor for missing weights, which become random ones.
"""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .checkpoint import BERT_TYPES, Checkpoint, unwrapping_advice, wrapper_prefix
from .errors import named_error, worded
from .processes import only_errors
from .progress import without_loading_bars

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

_VOCABULARIES = ("tokenizer.json", "vocab.txt")
_VOCABULARY_PATTERNS = (*_VOCABULARIES, "vocab.json", "*.model")  # of any kind of tokenizer
_SPECIAL = ("unk_token", "cls_token", "sep_token")  # without which BERT reads no text
_TRIAL = "The cat's 12 \U0001f642.", "one"  # known and unknown characters, and the template of pairs
_PANIC = "PanicException"  # Rust's, which is no Exception; its class cannot be imported
_SPARE_IDS = 128  # embeddings without a token, to which sizes are rounded up; or a fiftieth
# Parts of an encoder that a checkpoint may lack.
_OPTIONAL = ("pooler.", "bilstm.", "position_ids")
# Model types whose first position is the padding token's id + 1, as in fairseq.
_POSITIONS_BEHIND_PADDING = (
    *("roberta", "xlm-roberta", "xlm-roberta-xl", "roberta-prelayernorm", "camembert", "data2vec-text", "ibert"),
    *("longformer", "mpnet", "xmod", "esm", "luke", "lilt", "markuplm"),
)


def longest_sequence(config: Any) -> int | None:
    """Maximum input length of a model in tokens; None if it has no limit."""
    longest = getattr(config, "max_position_embeddings", None)
    if longest is not None and config.model_type in _POSITIONS_BEHIND_PADDING:
        return int(longest - config.pad_token_id - 1)
    return longest if longest and longest > 0 else None  # XLNet has -1


def recorded_length(checkpoint: Checkpoint) -> int | None:
    """Maximum input length in tokens that model and tokenizer record; None if neither has a limit."""
    from transformers.models.auto.tokenization_auto import get_tokenizer_config

    lengths = [longest_sequence(checkpoint.config), get_tokenizer_config(checkpoint.name).get("model_max_length")]
    return min((int(length) for length in lengths if isinstance(length, (int, float)) and length > 0), default=None)


def load_tokenizer(checkpoint: Checkpoint, **settings: Any) -> "PreTrainedTokenizerBase":
    """Load a checkpoint's tokenizer, which has to belong to its model.

    Args:
        checkpoint: A folder or Hub name; a folder without `config.json` has only a tokenizer.
        **settings: As for `AutoTokenizer.from_pretrained`.

    Raises:
        ValueError: If the tokenizer cannot be read, lacks special tokens, or has ids beyond the word embeddings.
        OSError: If there is no vocabulary.
    """
    from transformers import AutoTokenizer

    has_model = not checkpoint.path.exists() or (checkpoint.path / "config.json").is_file()
    config = checkpoint.config if has_model else None
    tokenizer = None
    try:
        tokenizer = AutoTokenizer.from_pretrained(checkpoint.name, config=config, trust_remote_code=False, **settings)
        if (backend := getattr(tokenizer, "backend_tokenizer", None)) is not None:
            backend.encode(*_TRIAL)  # with some broken files this fails, and loading does not
    except BaseException as error:  # values can raise any exception in transformers, and a panic in tokenizers
        if isinstance(error, MemoryError) or (not isinstance(error, Exception) and type(error).__name__ != _PANIC):
            raise
        if tokenizer is not None:
            check_tokenizer(tokenizer, config, checkpoint.name)  # which may explain it
        elif checkpoint.path.is_dir() and not any(map(any, map(checkpoint.path.glob, _VOCABULARY_PATTERNS))):
            raise missing_vocabulary(checkpoint.name) from None
        raise named_error("tokenizer", checkpoint.name, error) from error
    check_tokenizer(tokenizer, config, checkpoint.name)
    return tokenizer


def check_tokenizer(tokenizer: Any, config: "PreTrainedConfig | None", name: str) -> None:
    """Check that a loaded tokenizer has a vocabulary, BERT's special tokens, and no id beyond a model's embeddings."""
    from tokenizers.models import WordPiece

    vocabulary = tokenizer.get_vocab()
    if not vocabulary.keys() - tokenizer.get_added_vocab().keys():  # special tokens that transformers has made up
        raise missing_vocabulary(name, tokenizer.vocab_files_names.values())
    special = {attribute: getattr(tokenizer, attribute) for attribute in _SPECIAL}
    own = vocabulary
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None and isinstance(backend.model, WordPiece):
        own = backend.get_vocab(with_added_tokens=False)  # transformers appends those that the vocabulary lacks
    elif getattr(config, "model_type", None) not in BERT_TYPES:
        special = {attribute: token for attribute, token in special.items() if token is not None}
    if missing := [str(token or attribute) for attribute, token in special.items() if token not in own]:
        raise ValueError(
            f"The tokenizer in {name} lacks the special token{'s'[: len(missing) > 1]} {', '.join(missing)}."
        )
    size = getattr(config, "vocab_size", None)
    last = max(vocabulary, key=vocabulary.__getitem__)
    if not isinstance(size, int):
        return
    if vocabulary[last] >= size:
        raise ValueError(
            f"The tokenizer in {name} has the id {vocabulary[last]:,} ({last}), and the model {size:,} word "
            "embeddings; expected the tokenizer that the model was trained with. For added tokens, "
            "model.resize_token_embeddings(len(tokenizer)) makes embeddings."
        )
    if size - vocabulary[last] - 1 > max(_SPARE_IDS, size // 50):
        logger.warning(
            "The tokenizer in %s has %s tokens, and the model %s word embeddings: they may not belong together.",
            *(name, f"{len(vocabulary):,}", f"{size:,}"),
        )


def missing_vocabulary(name: str, files: Iterable[str] = _VOCABULARIES) -> OSError:
    """The error for a model whose tokenizer has no vocabulary in any of these files."""
    misnamed = next((path.name for path in sorted(Path(name).glob("*.txt")) if _looks_like_vocabulary(path)), None)
    advice = f"; {misnamed} looks like its vocabulary: rename it to vocab.txt" if misnamed else ""
    return OSError(
        f"{name} holds neither {' nor '.join(dict.fromkeys((_VOCABULARIES[0], *files)))}; expected the model's "
        f"tokenizer, as its save_pretrained writes it{advice}."
    )


def _looks_like_vocabulary(path: Path) -> bool:
    with path.open("rb") as file:
        return b"[UNK]" in file.read(1 << 20).splitlines()


@without_loading_bars()
def load_model(
    checkpoint: Checkpoint,
    auto_class: Any,
    config: "PreTrainedConfig | None" = None,  # by default the checkpoint's
    advice: str = "",
    needs_head: bool = False,
    **settings: Any,
) -> "tuple[PreTrainedModel, dict[str, Any]]":
    """Load a model, and transformers' loading information; an encoder (or head) that does not fit is an error.

    Args:
        checkpoint: A folder or Hub name.
        auto_class: An Auto class, or a model class.
        config: Its configuration.
        advice: End of the message about missing weights.
        needs_head: Whether missing weights of the head are an error, and those of other shapes, which else are new.
        **settings: As for `from_pretrained`, such as `dtype`.

    Raises:
        ValueError: If weights that are needed are missing or have other shapes.
        OSError: If there are no weights.
    """
    name = checkpoint.name
    with only_errors():
        model, loaded = auto_class.from_pretrained(
            name,
            config=config or checkpoint.config,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            trust_remote_code=False,
            use_safetensors=True,
            **settings,
        )
    prefix = "" if model.base_model is model else f"{model.base_model_prefix}."
    for key, shape, expected in sorted(loaded["mismatched_keys"]):
        if needs_head or key.startswith(prefix):
            raise ValueError(
                f"{key} in {name} has shape {tuple(shape)}; expected {tuple(expected)}, given the sizes in its "
                "config.json."
            )
    missing = sorted(
        key for key in loaded["missing_keys"] if key.startswith(prefix) and not any(part in key for part in _OPTIONAL)
    )
    if missing:
        raise _missing_weights(name, type(model), missing, loaded["unexpected_keys"], advice)
    head = sorted(key for key in loaded["missing_keys"] if not key.endswith("position_ids"))
    if needs_head and prefix and head:  # or a pooler, which only training may begin at random
        raise ValueError(
            f"{name} has no head for this task (it lacks {', '.join(head)}); expected a model that was fine-tuned "
            f"as {type(model).__name__}."
        )
    return model, loaded


def _missing_weights(
    name: str, model_class: Any, missing: Sequence[str], unexpected: Iterable[str], advice: str
) -> ValueError:
    if wrapper := wrapper_prefix(unexpected, model_class.base_model_prefix):
        return ValueError(unwrapping_advice(name, wrapper))
    template = "The weights in {} lack {} of the encoder's, such as {}; expected all that a {} has{}."
    return ValueError(worded(template, name, len(missing), missing[0], model_class.__name__, advice))
