"""Options: what is declared of them is what holds."""

import re
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from pandas import DataFrame
from torch import nn
from transformers import HfArgumentParser

from mybert.files.errors import SettingError
from mybert.files.options import (
    AT_LEAST_1,
    SHARE,
    Group,
    check_options,
    contradicting,
    deciding,
    is_other,
    option,
    typed,
    value_of_text,
)
from mybert.files.settings import Part, build


@dataclass
class Base:
    group, decides = Group.MODEL, True
    share: float = option(0.5, "A share.", SHARE)
    names: list[str] = option(["a"], "Names.", decides="if_not_default")


@dataclass
class Settings(Base):
    share: float = option(0.25)
    count: int | None = option(None, "A number.", AT_LEAST_1, group=Group.TABLE, needs="kind=b")
    kind: Literal["a", "b"] | None = option("a", "A kind.", excludes="mark", why="which is one")
    mark: Literal["only"] | None = option(None, "A mark.")
    free: float = option(-7.0, "Any number.", replaces="flag")
    flag: bool = option(False, "A switch.")
    size: int | None = option(None, "Another number.", needs="kind")
    rows: str | None = option(None, "A file with a column for each number.", reads="rows")
    column: str | None = option(None, "A column.", needs="rows")


@pytest.mark.parametrize("given", [{}, {"share": 0}, {"kind": "b", "count": 1}, {"mark": "only"}, {"free": 9.0}])
def test_values_that_fit(given):
    check_options(Settings(**given))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"share": 1.5}, r"share is 1\.5; expected a fraction in \[0, 1\]\."),  # the range of the base class
        ({"share": float("nan")}, r"share is nan; expected a fraction"),
        ({"free": float("nan")}, r"free is nan; expected a finite number"),
        ({"names": [1.0, float("inf")]}, r"names is inf; expected a finite number"),
        ({"kind": "b", "count": 0}, r"count is 0; expected at least 1\."),
        ({"kind": "c"}, r"kind is 'c'; expected one of a, b\."),
        ({"mark": "other"}, r"mark is 'other'; expected only\."),
        ({"count": 2}, "count is 2 without kind 'b', so it has no effect; give both or neither"),
        ({"column": "n"}, r"column is 'n' without rows; expected: A file with a column for each number\."),
        ({"kind": "b", "mark": "only"}, "mark is 'only' and kind is 'b', which is one; use either mark or kind"),
    ],
)
def test_values_that_do_not_fit(given, message):
    with pytest.raises(ValueError, match=message):
        check_options(Settings(**given))


@dataclass
class Lists:
    names: list[str]
    others: list[str] | None
    text_or_texts: str | list[str] | None


@dataclass(frozen=True, kw_only=True)
class Typed(Part):
    rate: float = option(0.5, "A rate.", SHARE)
    count: int | None = option(1, "A number.", AT_LEAST_1)
    flag: bool = option(False, "A switch.")
    precision: Literal[True, False, "auto"] = option("auto", "A choice.")
    sizes: list[int] = option([8], "Sizes.")
    names: list[str] | None = option(None, "Names.")
    name: str = option("", "A name.")
    output: str = option("", "A file.", writes=True)
    rows: list[str] = option([], "Data.", reads="rows")
    nested: dict[str, int] | str | None = option(None, "An object.")
    model: str | None = option(None, "Model folder. It is read.", reads="model")
    corpus: list[str] = option([], "Text.", reads="text file")
    when: str = option("epoch", "A time.", choices=("no", "epoch"))
    level: Literal[1, 2] = option(1, "A level.")


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"rate": "3e-5"}, 3e-5),  # which PyYAML reads as a text
        ({"rate": np.float32(0.25)}, 0.25),
        ({"rate": torch.tensor(0.25)}, 0.25),
        ({"rate": 1}, 1),
        ({"count": np.int64(3)}, 3),
        ({"count": "3"}, 3),
        ({"count": None}, None),
        ({"flag": "false"}, False),
        ({"flag": 1}, True),
        ({"flag": np.True_}, True),
        ({"flag": None}, False),  # the default, where None is no value
        ({"precision": "True"}, True),
        ({"sizes": np.array([8, 16])}, [8, 16]),
        ({"sizes": ("8", np.int64(16))}, [8, 16]),
        ({"sizes": 8}, [8]),
        ({"names": [0, 1]}, ["0", "1"]),
        ({"name": 7}, "7"),
        ({"name": "~/x"}, "~/x"),
        ({"name": Path("x")}, "x"),
        ({"output": "~/x"}, "/home/me/x"),
        ({"output": Path("~/x")}, "/home/me/x"),
        ({"output": "~$x"}, "~$x"),
        ({"rows": [0, 1]}, [0, 1]),
        ({"level": "2"}, 2),
        ({"nested": {"a": 1}}, {"a": 1}),
    ],
)
def test_build_reads_values_of_other_types_as_flags(given, found, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    (name,) = given
    for settings in (build(Typed, given), Typed(**given)) if given[name] is not None else (build(Typed, given),):
        value = getattr(settings, name)
        assert value == found and type(value) is type(found)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rate": "much"}, "rate is 'much'; expected a number."),
        ({"rate": True}, "rate is True; expected a number."),
        ({"rate": [0.5]}, "rate is [0.5]; expected a number."),
        ({"count": 30.0}, "count is 30.0; expected a whole number."),
        ({"flag": "perhaps"}, "flag is 'perhaps'; expected a truth value."),
        ({"flag": 2}, "flag is 2; expected a truth value."),
        ({"sizes": ["8", "many"]}, "sizes is 'many'; expected a whole number."),
        ({"names": [False, True]}, "names is False; expected a text."),  # PyYAML's no and yes
        ({"precision": "half"}, "precision is 'half'; expected one of True, False, auto."),
        ({"name": nn.Sequential(nn.ReLU())}, "name is of type Sequential; expected a text: A name."),
        ({"model": nn.Sequential(nn.ReLU())}, "model is of type Sequential; expected a path or name: Model folder."),
        ({"model": ["a", "b"]}, "model is ['a', 'b']; expected a path or name."),
        ({"model": True}, "model is True; expected a path or name."),
        ({"when": "epochs"}, "when is 'epochs'; expected one of no, epoch."),
        ({"output": nn.Sequential(nn.ReLU())}, "output is of type Sequential; expected a path or name: A file."),
        ({"corpus": DataFrame({"text": [""]})}, "corpus is of type DataFrame; expected a path or name: Text."),
    ],
)
def test_build_value_of_another_type_raises(given, message):
    with pytest.raises(SettingError, match=f"^{re.escape(message)}$"):
        build(Typed, given)


@pytest.mark.parametrize(("given", "names"), [("bc", ["bc"]), (["b", "c"], ["b", "c"]), ([], [])])
def test_typed_single_text_for_list_becomes_list(given, names):
    values = typed(Lists, {"names": given, "others": given, "text_or_texts": given})
    assert values == {"names": names, "others": names, "text_or_texts": given}


@dataclass(frozen=True, kw_only=True)
class Rates(Part):
    mask: float = option(0.8, "A fraction.", SHARE)
    random: float = option(0.1, "A fraction.", SHARE)

    def check(self):
        if self.mask + self.random > 1:
            raise ValueError("too many")


@pytest.mark.parametrize(("given", "message"), [({"mask": 2.0}, "--mask"), ({"mask": 0.95}, "too many")])
def test_part_invalid_value_raises_when_made(given, message, user_error):
    with user_error(message):
        Rates(**given)
    with user_error(message):
        replace(Rates(), **given)


def test_option_without_attributes_inherits_them():
    named = {each.name: each for each in fields(Settings)}
    assert (named["share"].group, named["share"].metadata["help"]) == (Group.MODEL, "A share.")
    assert (named["share"].decides, named["count"].decides) == (True, None)
    assert (Settings().share, Base().share, Base().names) == (0.25, 0.5, ["a"])
    assert Base().names is not Base().names


def test_records_name_what_decides():
    assert deciding(Settings()) == {"share": 0.25}
    assert deciding(Settings(names=["b"], flag=True)) == {"share": 0.25, "names": ["b"]}


@pytest.mark.parametrize(
    ("given", "gone"),
    [
        ({"kind": "b"}, {"mark"}),
        ({"kind": "a"}, {"mark", "count"}),
        ({"mark": "only"}, {"kind", "count", "size"}),  # with what it needs
        ({"free": 1.0}, {"flag"}),
        ({"flag": True}, {"free"}),
        ({"flag": False}, set()),
        ({"kind": None}, {"count", "size"}),  # turned off, which they need
        ({"flag": True, "free": 1.0}, set()),
    ],
)
def test_contradicting_returns_replaced_options(given, gone):
    assert contradicting(Settings, given) == gone


def test_transformers_parser_reads_options():
    (found,) = HfArgumentParser(Settings).parse_args_into_dataclasses(["--share", "0.25", "--count", "3"])
    assert found == Settings(share=0.25, count=3)


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (Literal["mean", "cls"], "max", "expected one of mean, cls"),
        (int, "1.5", "expected a whole number"),
        (float | None, "much", "expected a number"),
        (bool, "maybe", "expected a truth value"),
    ],
)
def test_value_of_text_that_means_none_says_what_is_expected(kind, text, expected):
    with pytest.raises(ValueError, match=f"^{expected}$"):
        value_of_text(kind, text)


@pytest.mark.parametrize(
    ("default", "value", "other"),
    [(None, 0, True), (None, False, False), (None, 1.5, True), (None, "", False), (3, 0, True), (True, False, True)],
)
def test_zero_is_another_value_than_none_and_false_is_not(default, value, other):
    assert is_other(value, field(default=default)) is other
