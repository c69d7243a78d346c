"""Settings are small parts, made once: few fields and parents, frozen, and none of them transformers' arguments."""

import dataclasses
import importlib
import pkgutil
import typing

import pytest
from torch import nn
from transformers import PreTrainedConfig, TrainingArguments

from mybert import cli
from mybert.files.errors import SettingError
from mybert.files.options import options_of, parts_of, types_of
from mybert.files.settings import Part, Parts, build
from mybert.finetuning.training.plan import FinetunePlan
from mybert.pretraining import PretrainPlan

MAX_FIELDS, MAX_PARENTS, MAX_RULES = 25, 3, 11
ROOTS = [command.load_settings() for command in cli.COMMANDS.values()]


def parts(kind):
    hints = dataclasses.fields(kind)
    types = typing.get_type_hints(kind)
    return {part for each in hints for part in parts_of(types[each.name])}


def own_parents(kind):
    """Its own base classes, without those that check options, which have no fields."""
    return [each for each in kind.__mro__[1:] if each.__module__.startswith("mybert.") and each not in (Part, Parts)]


@pytest.mark.parametrize("root", ROOTS, ids=lambda root: root.__name__)
def test_settings_have_few_fields_and_parents(root):
    assert issubclass(root, Parts)
    for kind in {root, *parts(root)}:
        assert kind.__dataclass_params__.frozen, kind
        assert len(dataclasses.fields(kind)) <= MAX_FIELDS, kind
        assert len(own_parents(kind)) <= MAX_PARENTS, kind


@pytest.mark.parametrize("kind", [*ROOTS, FinetunePlan, PretrainPlan], ids=lambda kind: kind.__name__)
def test_settings_and_plans_are_frozen_and_not_transformers(kind):
    assert kind.__dataclass_params__.frozen and not issubclass(kind, TrainingArguments)


# Counts and sums, which grow, and those with parents in transformers.
CHANGING = {"Training", "LayerLosses", "TextCounts", "FilterReport", "WordCounts", "VocabularyReport"}
CHANGING |= {"MyBertForPreTrainingOutput", "TrainerOptions"}


def test_values_do_not_change_and_parts_are_made_by_name():
    import mybert

    modules = pkgutil.walk_packages(mybert.__path__, "mybert.")
    shipped = [each.name for each in modules if each.name.split(".")[1] in mybert._SUBPACKAGES]
    kinds = [
        kind
        for module in map(importlib.import_module, shipped)
        for kind in vars(module).values()
        if isinstance(kind, type) and "__dataclass_params__" in vars(kind) and kind.__module__ == module.__name__
        if not issubclass(kind, PreTrainedConfig)
    ]
    assert len(kinds) > 200
    assert {kind.__name__ for kind in kinds if not kind.__dataclass_params__.frozen} == CHANGING
    own = [each for kind in kinds if issubclass(kind, Part) for each in dataclasses.fields(kind)]
    assert own and all(each.kw_only for each in own)


def test_settings_of_all_commands_are_imported_without_libraries(run_python):
    """So that flags, files and models are looked at before them."""
    loaded = (
        "import sys; sys.argv = ['mybert']; from mybert import cli; [c.load_settings() for c in cli.COMMANDS.values()]"
    )
    modules = {*run_python("-c", f"{loaded}; print(*sys.modules)").stdout.split()}
    assert "mybert.finetuning.distill_settings" in modules
    assert not modules & {"torch", "transformers", "tokenizers", "numpy", "accelerate", "datasets", "huggingface_hub"}


def test_an_option_belongs_to_one_part_or_to_alternatives():
    for root in ROOTS:
        types = typing.get_type_hints(root)
        owners = {}
        for each in dataclasses.fields(root):
            for name in {item.name for part in parts_of(types[each.name]) for item in dataclasses.fields(part)}:
                owners.setdefault(name, []).append(each.name)
        assert not {name: fields for name, fields in owners.items() if len(fields) > 1}
        assert set(options_of(root)) == set(types_of(root))


@pytest.mark.parametrize("root", ROOTS, ids=lambda root: root.__name__)
def test_build_object_in_place_of_a_path_names_option_and_type(root):
    for name, each in options_of(root).items():
        reads, writes = getattr(each, "reads", None), getattr(each, "writes", None)
        if writes or (reads and reads not in ("examples", "rows", "text")):  # which may be in memory
            with pytest.raises(SettingError, match=f"^{name} is of type Sequential; expected a path or name: "):
                build(root, {name: nn.Sequential(nn.ReLU())})


def test_there_are_few_rules_between_options():
    """Beside the one that an option belongs to alternatives."""
    rules = set()
    for name in ("pretrain", "adapt", "finetune", "distill"):
        options = options_of(cli.COMMANDS[name].load_settings())
        for each in options.values():
            for rule in ("needs", "excludes", "replaces"):
                named = {part.partition("=")[0] for part in (getattr(each, rule, None) or "").split()}
                if named & options.keys():
                    rules.add((each.name, rule))
    assert len(rules) <= MAX_RULES, sorted(rules)
