"""Settings from YAML: they mean the same as on the command line."""

import json
from argparse import Action, ArgumentError, ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..files import refuse_address
from ..files.options import may_be_none
from .spelling import did_you_mean

_RECIPES = Path(__file__).parents[1] / "pretraining" / "recipes"


def read_settings(
    path: str, parser: ArgumentParser, other: Callable[[], ArgumentParser] | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read a file's or recipe's settings: the command's, and those that only the `other` command's parser knows."""
    import yaml

    from ..files.yaml_keys import refuse_repeated_keys

    own, nullable = _settable(parser), _nullable(parser)
    others: dict[str, Action] = {}
    settings: dict[str, Any] = {}
    of_other: dict[str, Any] = {}
    try:
        root = yaml.compose(_config_file(path).read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        if not isinstance(root, yaml.MappingNode):
            raise ValueError("holds no settings; expected lines of the form 'flag: value'")
        refuse_repeated_keys(root)
        nodes = {str(key.value).replace("-", "_"): node for key, node in root.value}
        if len(nodes) < len(root.value):
            raise ValueError("names a setting twice")
        if other is not None and not nodes.keys() <= own.keys():
            of_that = other()
            others = _settable(of_that)
            nullable = nullable - others.keys() | _nullable(of_that)
        if unknown := sorted(nodes.keys() - own.keys() - others.keys()):
            guess = did_you_mean(unknown[0], [*own, *others])
            raise ValueError(f"has unknown settings: {', '.join(unknown)}.{guess}")
        for name, node in nodes.items():
            is_null = node.tag == "tag:yaml.org,2002:null"
            # a setting that cannot be None: as if the file did not name it
            if is_null and name not in nullable:
                continue
            action = others.get(name) or own[name]
            value = None if is_null else parser._get_values(action, _strings(node, action))
            (of_other if name in others else settings)[name] = value
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not YAML: {' '.join(str(error).split())}.") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: bad byte at offset {error.start}.") from error
    except RecursionError as error:
        raise ValueError(f"{path} is nested too deeply; expected lines of the form 'flag: value'.") from error
    except (ArgumentError, ValueError) as error:
        text = " ".join(str(error).split())
        raise ValueError(f"{path} {text}{'' if text.endswith(('.', '?')) else '.'}") from error
    return settings, of_other


def _settable(parser: ArgumentParser) -> dict[str, Action]:
    """Return the action of each setting; for `--pack` and `--no_pack`, the first, which takes a value."""
    unsettable = ("help", "help_all", "config")
    return {action.dest: action for action in reversed(parser._actions) if action.dest not in unsettable}


def _nullable(parser: ArgumentParser) -> frozenset[str]:
    return frozenset().union(*map(may_be_none, getattr(parser, "dataclass_types", ())))


def _config_file(path: str) -> Path:
    refuse_address(path, "a file or the name of a recipe")
    file = Path(path)
    if not file.exists() and file.name == path:
        file = _RECIPES / f"{path}.yaml"
    if not file.exists():
        recipes = sorted(recipe.stem for recipe in _RECIPES.glob("*.yaml"))
        raise FileNotFoundError(
            f"There is no file or recipe {path}; the recipes are {', '.join(recipes)}.{did_you_mean(path, recipes)}"
        )
    return file


def _strings(node: Any, action: Action) -> list[str]:
    """Return the words that the command line would have for a YAML node."""
    from yaml import SafeLoader, ScalarNode, SequenceNode

    takes_several = action.nargs in ("+", "*")
    parts = node.value if takes_several and isinstance(node, SequenceNode) else [node]
    if all(isinstance(part, ScalarNode) for part in parts):
        return [part.value for part in parts]
    content = SafeLoader("").construct_document(node)
    if isinstance(content, dict) and not takes_several:
        return [json.dumps(content, default=str)]  # as `TrainingArguments` takes it; dates stay texts
    raise ValueError(f"{action.dest} is {content}; expected {'single values' if takes_several else 'a single value'}")
