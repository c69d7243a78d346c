"""The BERT tokenizer that agrees with Google's `FullTokenizer` token for token."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, processors
from tokenizers.models import WordPiece
from transformers import BatchEncoding, PreTrainedTokenizerFast

from ..files.checkpoint import read_json_object
from ..files.errors import named_error
from ..files.loading import missing_vocabulary
from ..files.moves import finish_moves
from ..files.output import write_json
from ..files.settings import build
from .characters import build_normalizer, build_pre_tokenizer, read_rules, replace_lone_surrogates
from .learning import FilesOrTexts, Texts, VocabularyReport, learn_vocabulary, read_source
from .settings import SPECIAL_TOKENS, VocabularyBasics, VocabularySettings, reserved_tokens
from .vocab import (
    CONTINUATION_PREFIX,
    build_model,
    index_pieces,
    load_vocab,
    looks_accented,
    looks_cased,
    save_vocab,
)

logger = logging.getLogger(__name__)

_SPECIAL_NAMES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")  # in the order of SPECIAL_TOKENS
# Settings that a new vocabulary does not change.
_KEPT = ("model_max_length", "padding_side", "truncation_side", "split_special_tokens", "clean_up_tokenization_spaces")

Vocabulary = str | Path | Mapping[str, int] | Sequence[str]


class MyBertTokenizer(PreTrainedTokenizerFast):
    """Google's BERT tokenizer as a standard fast tokenizer.

    Everything is composed of parts of the `tokenizers` library and saved in `tokenizer.json`, so `AutoTokenizer`
    gives the same ids where this package is not installed. `vocab.txt` is written next to it. The character classes
    are those of Unicode 14 (Python 3.11); docs/tokenization.md lists the characters on which Python and the library
    disagree.

    Args:
        vocab: A `vocab.txt`, a mapping of piece to id (0 ... n - 1) or a list of pieces.
        do_lower_case: Whether to lower-case.
        unk_token: Replaces words that cannot be built from pieces.
        sep_token: Ends each text.
        pad_token: Pads a batch.
        cls_token: Starts the input.
        mask_token: Replaces tokens to predict.
        tokenize_chinese_chars: Whether every CJK ideograph is a separate word.
        strip_accents: Whether to drop accents; by default Google's rule, the same as `do_lower_case`. False for
            Korean, whose syllables Google's rule splits into jamo.
        vocab_file: Another name for `vocab`, as in older versions of transformers.
        **kwargs: As in `transformers.PreTrainedTokenizerFast`.

    Raises:
        ValueError: There is no vocabulary, it is invalid (see `load_vocab`), a special token is missing, or
            ids have gaps.

    References:
        google-research/bert, `tokenization.py`.
    """

    vocab_files_names = {"vocab_file": "vocab.txt", "tokenizer_file": "tokenizer.json"}
    model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    model = WordPiece
    training_report: VocabularyReport | None = None  # after train_wordpiece

    def __init__(
        self,
        vocab: Vocabulary | None = None,
        do_lower_case: bool = True,
        unk_token: str = "[UNK]",
        sep_token: str = "[SEP]",
        pad_token: str = "[PAD]",
        cls_token: str = "[CLS]",
        mask_token: str = "[MASK]",
        tokenize_chinese_chars: bool = True,
        strip_accents: bool | None = None,
        vocab_file: str | Path | None = None,
        **kwargs: Any,
    ) -> None:
        special = {
            "pad_token": pad_token,
            "unk_token": unk_token,
            "cls_token": cls_token,
            "sep_token": sep_token,
            "mask_token": mask_token,
        }
        if vocab is not None and vocab_file is not None:
            raise ValueError("MyBertTokenizer takes a vocabulary as vocab or as vocab_file, not both.")
        pieces, source = _read_vocabulary(vocab if vocab is not None else vocab_file)
        if missing := [str(token) for token in special.values() if str(token) not in pieces]:
            raise ValueError(f"{source} lacks the special token{'s'[: len(missing) > 1]} {', '.join(missing)}.")

        self._tokenizer = Tokenizer(build_model(pieces, str(unk_token)))
        self._tokenizer.normalizer = build_normalizer(do_lower_case, strip_accents)
        self._tokenizer.pre_tokenizer = build_pre_tokenizer(tokenize_chinese_chars)
        self._tokenizer.decoder = decoders.WordPiece(prefix=CONTINUATION_PREFIX)
        self._tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{cls_token}:0 $A:0 {sep_token}:0",
            pair=f"{cls_token}:0 $A:0 {sep_token}:0 $B:1 {sep_token}:1",
            special_tokens=[(str(cls_token), pieces[str(cls_token)]), (str(sep_token), pieces[str(sep_token)])],
        )
        super().__init__(
            do_lower_case=do_lower_case,
            tokenize_chinese_chars=tokenize_chinese_chars,
            strip_accents=strip_accents,
            **special,
            **kwargs,
        )
        self.do_lower_case = do_lower_case
        self.strip_accents = strip_accents
        self.tokenize_chinese_chars = tokenize_chinese_chars

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, *args: Any, **kwargs: Any) -> Any:
        """Load a tokenizer from a folder, a `vocab.txt` or the Hub, as every class of transformers does.

        Settings that neither the arguments nor `tokenizer_config.json` have follow from the rules in `tokenizer.json`.
        With `strict=True`, rules there that this class does not have are an error; by default, a warning names them.

        Raises:
            ValueError: A file is broken, `tokenizer.json` is not a WordPiece tokenizer, or the vocabulary is not
                valid; the message names the folder or file.
            OSError: The name does not exist, or there is neither `tokenizer.json` nor `vocab.txt` in it.
        """
        name = str(pretrained_model_name_or_path)
        finish_moves(name)
        config = Path(name, "tokenizer_config.json")
        try:
            if config.is_file():
                read_json_object(config)
            tokenizer = super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
            if not isinstance(tokenizer.model_max_length, (int, float)):
                raise TypeError(f"model_max_length is {tokenizer.model_max_length!r}; expected a number.")
        except Exception as error:  # unexpected values can raise any exception in transformers and tokenizers
            raise named_error("tokenizer", name, error) from error
        return tokenizer

    @classmethod
    def _from_pretrained(
        cls, resolved_vocab_files: dict[str, str | None], name: str, *args: Any, **kwargs: Any
    ) -> Any:
        """Check the files before transformers reads them."""
        for file in resolved_vocab_files.values():
            if file is not None and file.endswith(".json"):
                read_json_object(file)
        tokenizer_file = resolved_vocab_files.get("tokenizer_file")
        if tokenizer_file is not None:
            _read_wordpiece_json(tokenizer_file)
        elif resolved_vocab_files.get("vocab_file") is None:
            raise missing_vocabulary(name)
        return super()._from_pretrained(resolved_vocab_files, name, *args, **kwargs)

    @classmethod
    def convert_to_native_format(cls, **kwargs: Any) -> dict[str, Any]:
        """Turn the files that `from_pretrained` found into arguments of `__init__`."""
        tokenizer_file = kwargs.get("tokenizer_file")
        kwargs = super().convert_to_native_format(**kwargs)
        kwargs.pop("vocab_file", None)  # its content is in vocab
        strict = kwargs.pop("strict", False)
        if tokenizer_file:
            rules, differing = read_rules(_read_wordpiece_json(tokenizer_file))
            kwargs = rules | kwargs
            if differing:
                message = (
                    f"{tokenizer_file} has rules that MyBertTokenizer does not have ({', '.join(differing)}), so it "
                    "gives other tokens for some texts"
                )
                if strict:
                    raise ValueError(
                        f"{message}; expected the rules of BertTokenizer. To train with these, save "
                        "MyBertTokenizer.from_pretrained(...) in another folder, and name it as the tokenizer."
                    )
                logger.warning("%s.", message)
        if "do_lower_case" in kwargs:
            return kwargs
        vocab = _read_vocabulary(kwargs["vocab"])[0]
        cased = looks_cased(vocab)
        assumed: dict[str, Any] = {"do_lower_case": not cased}
        if not cased and "strip_accents" not in kwargs and looks_accented(vocab):
            assumed["strip_accents"] = False  # otherwise most pieces of a Hangul vocabulary would never be used
        logger.warning(
            "%s does not say whether it lower-cases; its vocabulary is %s, so %s is assumed.",
            kwargs.get("name_or_path"),
            "cased" if cased else "uncased",
            " and ".join(f"{name}={value}" for name, value in assumed.items()),
        )
        return kwargs | assumed

    def _encode_plus(self, text: Any, text_pair: Any = None, *args: Any, **kwargs: Any) -> BatchEncoding:
        try:
            return super()._encode_plus(text, text_pair, *args, **kwargs)
        except TypeError:
            # The tokenizers library rejects strings with lone surrogates, without a clear message.
            clean, clean_pair = _without_surrogates(text), _without_surrogates(text_pair)
            if (clean, clean_pair) == (text, text_pair):
                raise
            return super()._encode_plus(clean, clean_pair, *args, **kwargs)

    def train_new_from_iterator(
        self,
        text_iterator: Iterable[str] | Iterable[list[str]],
        vocab_size: int,
        length: int | None = None,
        new_special_tokens: Sequence[Any] | None = None,
        special_tokens_map: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> "MyBertTokenizer":
        """Learn a new vocabulary with this tokenizer's settings, with `train_wordpiece`.

        Args:
            text_iterator: Texts, or lists of texts.
            vocab_size: Size of the new vocabulary, all special tokens included.
            length: Number of texts; ignored.
            new_special_tokens: Special tokens in addition to this tokenizer's; they get the last ids.
            special_tokens_map: Not supported: special tokens keep their names.
            **kwargs: Other settings of `train_wordpiece`, such as `algorithm` and `min_frequency`;
                `vocab_layout` is this vocabulary's unless it is given.

        Raises:
            ValueError: As `train_wordpiece`; also for special_tokens_map, or if this tokenizer keeps CJK words.
        """
        if special_tokens_map:
            raise ValueError(f"special_tokens_map is {special_tokens_map}; special tokens keep their names.")
        if not self.tokenize_chinese_chars:
            raise ValueError("tokenize_chinese_chars is False; vocabularies are learned with CJK characters alone.")
        layout = "google" if "[unused0]" in self.get_vocab() else "compact"
        strip_accents = self.do_lower_case if self.strip_accents is None else self.strip_accents
        settings: dict[str, Any] = {
            "vocab_layout": layout,
            "do_lower_case": self.do_lower_case,
            "strip_accents": strip_accents,
        } | kwargs
        added = {token.content: token for token in self.added_tokens_decoder.values()}
        special = {name: added[getattr(self, name)] for name in _SPECIAL_NAMES}
        names = dict(zip(SPECIAL_TOKENS, map(str, special.values()), strict=True))
        extra = {
            str(token): token for token in (*map(added.get, self.extra_special_tokens), *(new_special_tokens or ()))
        }
        extra = {name: token for name, token in extra.items() if name not in names.values()}
        reserved = {names.get(piece, piece) for piece in reserved_tokens(settings["vocab_layout"])}
        learned = train_wordpiece(
            texts=text_iterator, vocab_size=vocab_size - len(extra.keys() - reserved), **settings
        )
        tokenizer = type(self)(
            {names.get(piece, piece): index for piece, index in learned.get_vocab().items()},
            learned.do_lower_case,
            strip_accents=learned.strip_accents,
            extra_special_tokens=[*extra.values()],
            **special,
            **{name: getattr(self, name) for name in _KEPT},
        )
        tokenizer.training_report = learned.training_report
        return tokenizer

    def save_vocabulary(self, save_directory: str, filename_prefix: str | None = None) -> tuple[str]:
        """Write `vocab.txt` (without tokens added later) and return its path."""
        path = Path(save_directory) / f"{filename_prefix + '-' if filename_prefix else ''}vocab.txt"
        save_vocab(self._tokenizer.get_vocab(with_added_tokens=False), path)
        return (str(path),)

    def _save_pretrained(
        self,
        save_directory: str,
        file_names: tuple[str, ...],
        legacy_format: bool | None = None,
        filename_prefix: str | None = None,
    ) -> tuple[str, ...]:
        # Otherwise the last call's truncation and padding would be saved with the tokenizer.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        files = super()._save_pretrained(save_directory, file_names, legacy_format, filename_prefix)
        # A class that all versions of transformers know and that uses tokenizer.json unchanged; it must be told to
        # return token_type_ids. The files' origin is not a setting.
        config = read_json_object(file_names[0])
        config |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": self.model_input_names}
        # transformers stores sides that were set later in the last call's state in tokenizer.json.
        sides = {name: getattr(self, name) for name in ("padding_side", "truncation_side")}
        config |= {name: side for name, side in sides.items() if name in config or side != "right"}
        config = {key: value for key, value in config.items() if key not in ("is_local", "local_files_only")}
        write_json(file_names[0], config, sort_keys=True)
        return files + self.save_vocabulary(save_directory, filename_prefix)


def train_wordpiece(
    files_or_iterator: FilesOrTexts | None = None,
    vocab_size: int = VocabularyBasics.vocab_size,
    *,
    texts: Texts | None = None,
    show_progress: bool = True,
    **settings: Any,
) -> MyBertTokenizer:
    """Learn a WordPiece vocabulary and return its tokenizer.

    The text is split into words as by `MyBertTokenizer`, and words into characters, all but the first with `##`. Then
    adjacent pieces are merged, one pair at a time, until the vocabulary has the requested size:

    * `algorithm="bpe"`: always the most frequent pair, with the highest count(ab), as `WordPieceTrainer` of the
      `tokenizers` library does it.
    * `algorithm="wordpiece"`: always the pair with the highest count(ab) / (count(a) count(b)) among those that
      occur at least `min_frequency` times. It favors rare pieces: give a `min_frequency` in the hundreds.

    Ties go to the older pair: the one whose left piece entered the vocabulary earlier, then the one whose right piece
    did (details in `pair_merging`). So the same text gives the same `vocab.txt`, byte for byte, for any
    order of files or lines, number of processes, hash seed or machine.

    The vocabulary is ordered as reserved tokens, characters by code point, the same with `##`, then learned pieces in
    the order of learning. The alphabet is the most frequent characters that together make up `character_coverage` of
    the text (ties: lower code point first). Words with other characters become [UNK] and are not used for learning;
    nor are words of more than 200 characters, which BERT never splits.

    Args:
        files_or_iterator: Files, by a name or a list of names (plain text; a column of CSV, TSV, JSON lines or
            Parquet; compressed too; folders; patterns; `"-"` for standard input; `"hf:owner/name"`); or texts, by
            an iterator, a generator, a data frame or data set (`text_column`). A list holds names, never texts.
        vocab_size: Size of the vocabulary, reserved tokens included.
        texts: Instead of files: texts or lists of texts, in a list or any other iterable.
        show_progress: Whether to show progress bars.
        **settings: The other options of `VocabularySettings`: `vocab_layout`, `do_lower_case`, `algorithm`,
            `strip_accents`, `character_coverage`, `min_frequency`, `validation_split`, `num_processes`, and of the
            files `encoding`, `text_column` and `join_lines`.

    Returns:
        The tokenizer; its attribute `training_report` is a `VocabularyReport`. If the text has too few pieces for the
        size, the vocabulary is smaller, and a warning says so.

    Raises:
        TypeError: A setting is unknown, or not exactly one of files and texts is given.
        ValueError: A setting is out of range, the text has no words, an item is not text, a file does not have
            the format its name suggests or lacks the column, or reserved tokens and alphabet do not fit into
            `vocab_size`.
        OSError: A file cannot be read.
    """
    chosen = build(VocabularySettings, {"vocab_size": vocab_size, **settings})
    return learn_tokenizer(read_source(files_or_iterator, texts, chosen.reading), chosen, show_progress)


def learn_tokenizer(blocks: Iterator[str], settings: VocabularySettings, show_progress: bool) -> MyBertTokenizer:
    """`train_wordpiece` for a settings object and text in blocks of whole lines."""
    pieces, report = learn_vocabulary(blocks, settings, show_progress)
    tokenizer = MyBertTokenizer(pieces, do_lower_case=settings.do_lower_case, strip_accents=settings.strip_accents)
    tokenizer.training_report = report
    return tokenizer


def _without_surrogates(text: Any) -> Any:
    if isinstance(text, str):
        return replace_lone_surrogates(text)
    return type(text)(map(_without_surrogates, text)) if isinstance(text, (list, tuple)) else text


def _read_vocabulary(vocab: Vocabulary | None) -> tuple[dict[str, int], str]:
    """Return the mapping of piece to id, and the vocabulary's name in messages."""
    if vocab is None:
        raise ValueError("MyBertTokenizer needs a vocabulary: vocab='vocab.txt', or a mapping or list of pieces.")
    if isinstance(vocab, (str, Path)):
        return load_vocab(vocab), str(vocab)
    source = "The vocabulary"
    if isinstance(vocab, Mapping):
        pieces = sorted(vocab, key=vocab.__getitem__)
        if [vocab[piece] for piece in pieces] != list(range(len(pieces))):
            raise ValueError(f"{source}'s ids must be 0 to {len(pieces) - 1}, each once.")
        return index_pieces(pieces, source), source
    return index_pieces(vocab, source), source


def _read_wordpiece_json(path: str | Path) -> dict[str, Any]:
    """Read a `tokenizer.json` that holds a BERT tokenizer."""
    saved = read_json_object(path)
    model = saved.get("model")
    if not isinstance(model, dict):
        raise ValueError(f"{path} is not a tokenizer.json of the tokenizers library: it has no model.")
    kind = model.get("type", "WordPiece" if "max_input_chars_per_word" in model else None)
    if kind != "WordPiece":
        raise ValueError(f"{path} holds a {kind} model; expected WordPiece.")
    prefix = model.get("continuing_subword_prefix", CONTINUATION_PREFIX)
    if prefix != CONTINUATION_PREFIX:
        raise ValueError(f"{path} marks continuations with {prefix!r}; expected {CONTINUATION_PREFIX!r}.")
    return saved
