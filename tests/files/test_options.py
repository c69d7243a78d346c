"""Options: what is declared of them is what holds."""

from dataclasses import dataclass, fields, replace
from typing import Literal

import pytest
from transformers import HfArgumentParser

from mybert.files.options import (
    AT_LEAST_1,
    SHARE,
    Group,
    check_options,
    contradicting,
    deciding,
    in_lists,
    option,
    value_of_text,
)
from mybert.files.settings import Part


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


@pytest.mark.parametrize(("given", "names"), [("bc", ["bc"]), (["b", "c"], ["b", "c"]), ([], [])])
def test_in_lists_single_text_for_list_becomes_list(given, names):
    values = in_lists(Lists, {"names": given, "others": given, "text_or_texts": given})
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
        (int, "1.5", "expected a number"),
        (float | None, "much", "expected a number"),
        (bool, "maybe", "expected a truth value"),
    ],
)
def test_value_of_text_that_means_none_says_what_is_expected(kind, text, expected):
    with pytest.raises(ValueError, match=f"^{expected}$"):
        value_of_text(kind, text)
