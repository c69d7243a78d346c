"""What is declared of the options of every command holds: ranges, choices, rules, and what decides a run's result."""

import math
import re
import typing
from dataclasses import fields

import pytest
import torch

from mybert import MyBertConfig, MyBertForSequenceClassification, cli
from mybert.command_line.flags import is_as_transformers_has_it
from mybert.files.options import Group, contradicting
from mybert.finetuning.training.finetuning_arguments import _DECISIVE as ALWAYS_OF_FINETUNING
from mybert.pretraining.training.pretraining_arguments import _DECISIVE_IF_OTHER

RUN = {"output_dir": "out", "use_cpu": True}
# Settings with which the arguments of a command can be created; TEACHER is a fine-tuned model.
BASES = {
    "vocab": {"text": ["t.txt"], "output_dir": "out"},
    "data": {"text": ["t.txt"], "tokenizer": "t", "output": "store"},
    "pretrain": {"text": ["t.txt"], "max_steps": 100, **RUN},
    "adapt": {"text": ["t.txt"], "model": "m", "new_pieces": 0, "max_steps": 100, **RUN},
    "finetune": {"model": "m", "train_file": "t.tsv", **RUN},
    "distill": {"teacher": "TEACHER", "student": "tiny", "train_file": "t.tsv", **RUN},
    "evaluate": {"model": "owner/name", "data": ["t.tsv"]},
    "predict": {"model": "owner/name", "data": ["t.tsv"]},
    "prune": {"model": "owner/name", "data": ["t.tsv"]},
    "features": {"model": "owner/name", "text": ["t.txt"], "output": "f.jsonl"},
    "attention": {"model": "m", "text": ["a"]},
    "completion": {"shell": "bash"},
}
KINDS = {name: command.load()[0] for name, command in cli.COMMANDS.items()}
VALUES = {"drop": ["duplicates"], "relations": ["vv"], "keep_heads": [1], "keep_layers": [1], "drop_layers": ["1"]}
# Options that `distill` and a new student do not have at all.
REFUSED = "(but distillation has no such setting|but a new student .* is a plain MyBERT); leave it out"


def options(name):
    """The options of a command, those of transformers too, and their types."""
    hints = typing.get_type_hints(KINDS[name])
    return [(each, hints[each.name]) for each in fields(KINDS[name]) if each.init]


def words_of(hint):
    parts = (hint, *typing.get_args(hint))
    return [word for part in parts if typing.get_origin(part) is typing.Literal for word in typing.get_args(part)]


def value_of(name, each, hint):
    """A value of an option that is not its default."""
    if each.name in VALUES:
        return VALUES[each.name]
    if each.name in BASES.get(name, {}):
        return BASES[name][each.name]
    words, parts = words_of(hint), (hint, *typing.get_args(hint))
    if bool in parts:
        return not each.default
    holds = each.range.holds if getattr(each, "range", None) else lambda value: True
    numbers = [3, 2, 0.5] if int in parts else [0.5, 0.25, 2.0] if float in parts else []
    candidates = [*words, *filter(holds, numbers), ["x"] if "list[str]" in str(hint) else "x"]
    return next(value for value in candidates if value != each.default)


def made(name, folder, **settings):
    base = {key: folder if value == "TEACHER" else value for key, value in BASES.get(name, {}).items()}
    gone = contradicting(KINDS[name], settings)
    return KINDS[name](**{key: value for key, value in base.items() if key not in gone} | settings)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory, tokenizer):
    folder = tmp_path_factory.mktemp("teacher")
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    MyBertForSequenceClassification(MyBertConfig(vocab_size=len(tokenizer), **size)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("name", BASES)
def test_bases_can_be_made(name, teacher):
    made(name, teacher)


def out_of_range():
    for name in KINDS:
        for each, hint in options(name):
            if limits := getattr(each, "range", None):
                bad = next(value for value in (-2, 0, 1.5, 7, math.nan) if not limits.holds(value))
                yield name, each.name, bad, limits.expected
            elif words := [word for word in words_of(hint) if word != each.default]:
                yield name, each.name, "?", str(words[0])


@pytest.mark.parametrize(("name", "option", "value", "expected"), out_of_range())
def test_values_out_of_range_are_refused(name, option, value, expected, teacher):
    found = f"^{option} is {re.escape(repr(value))}"
    with pytest.raises(ValueError, match=f"{found}(; expected .*{re.escape(expected)}| {REFUSED})"):
        made(name, teacher, **{option: value})


def rules(*kinds):
    for name in KINDS:
        known = {each.name: (each, hint) for each, hint in options(name)}
        for each, hint in known.values():
            for kind in kinds:
                for part in (getattr(each, kind, None) or "").split():
                    other, _, value = part.partition("=")
                    if other in known:
                        yield (
                            name,
                            kind,
                            each.name,
                            value_of(name, each, hint),
                            other,
                            value or value_of(name, *known[other]),
                        )


@pytest.mark.parametrize(("name", "kind", "option", "value", "other", "its"), rules("excludes", "idle_with"))
def test_options_that_contradict_each_other_are_refused(name, kind, option, value, other, its, teacher):
    one, two = f"{option} is .*", f"{other}( is)? ?.*"
    joined = f"({one} and {two}|{two} and {one})" if kind == "excludes" else f"{one} with {two}"
    with pytest.raises(ValueError, match=f"^({joined}; (expected one of the two|leave it out)|.* {REFUSED})"):
        made(name, teacher, **{option: value, other: its})
    # a flag replaces what a settings file says
    assert option in contradicting(KINDS[name], {other: its})
    assert (other in contradicting(KINDS[name], {option: value})) is (
        kind == "excludes" or rules_back(name, option, other)
    )


def rules_back(name, option, other):
    back = KINDS[name].__dataclass_fields__[other]
    return option in f"{back.idle_with or ''} {back.excludes or ''}".replace("=", " ").split()


@pytest.mark.parametrize(("name", "kind", "option", "value", "other", "its"), rules("needs"))
def test_options_without_what_they_need_are_refused(name, kind, option, value, other, its, teacher):
    if other in BASES[name] or option in contradicting(KINDS[name], BASES[name]):
        pytest.skip("it is always there, or the option never is")
    with pytest.raises(ValueError, match=f"^{option} is .* without {other}"):
        made(name, teacher, **{option: value})


@pytest.mark.parametrize(("name", "kind", "option", "value", "other", "its"), rules("replaces"))
def test_flags_replace_what_counts_the_same(name, kind, option, value, other, its):
    assert other in contradicting(KINDS[name], {option: value})
    assert option in contradicting(KINDS[name], {other: its})


@pytest.mark.parametrize("name", ["pretrain", "adapt", "finetune", "distill"])
def test_records_hold_what_decides_the_result(name, teacher):
    usual = made(name, teacher).decisive()
    if_other = _DECISIVE_IF_OTHER if name in ("pretrain", "adapt") else ()
    also = () if if_other else ALWAYS_OF_FINETUNING
    for each, hint in options(name):
        decides = "if_not_default" if each.name in if_other else getattr(each, "decides", None) or each.name in also
        changed = made(name, teacher)
        if each.name not in BASES[name]:
            setattr(changed, each.name, value_of(name, each, hint))
        assert (each.name in usual) is (decides is True or (decides and getattr(changed, each.name) == each.default))
        assert (each.name in changed.decisive()) is bool(decides), each.name
        if decides:
            assert changed.decisive()[each.name] == getattr(changed, each.name), each.name


def test_rules_name_options():
    known = {each.name for name in KINDS for each, _ in options(name)}
    for name in KINDS:
        for each, _ in options(name):
            for kind in ("needs", "excludes", "idle_with", "replaces"):
                named = {part.partition("=")[0] for part in (getattr(each, kind, None) or "").split()}
                assert named <= known, (each.name, named - known)


@pytest.mark.parametrize("name", KINDS)
def test_options_of_our_own_are_in_a_group_of_the_help(name):
    for each, _ in options(name):
        assert is_as_transformers_has_it(each) or isinstance(each.group, Group), each.name
