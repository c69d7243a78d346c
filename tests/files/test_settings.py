"""What the types of settings say that they may be."""

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from transformers import HfArgumentParser

from mybert.files.settings import AT_LEAST_1, SHARE, check_settings


@dataclass
class Base:
    share: Annotated[float, SHARE] = 0.5


@dataclass
class Settings(Base):
    count: Annotated[int | None, AT_LEAST_1] = None
    kind: Literal["a", "b"] | None = "a"
    mark: Literal["only"] | None = None
    free: float = -7.0


def test_what_is_allowed_passes():
    for values in ({}, {"share": 0}, {"share": 1.0}, {"count": 1}, {"kind": "b", "mark": "only"}, {"free": 9.0}):
        check_settings(Settings(**values))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"share": 1.5}, r"share is 1\.5; expected a share in \[0, 1\]\."),  # an inherited field
        ({"share": float("nan")}, r"share is nan; expected a share"),
        ({"count": 0}, r"count is 0; expected at least 1\."),
        ({"kind": "c"}, r"kind is 'c'; expected one of a, b\."),
        ({"mark": "other"}, r"mark is 'other'; expected only\."),
    ],
)
def test_all_else_is_one_sentence(values, message):
    with pytest.raises(ValueError, match=message):
        check_settings(Settings(**values))


def test_transformers_parser_reads_such_fields():
    (found,) = HfArgumentParser(Settings).parse_args_into_dataclasses(["--share", "0.25", "--count", "3"])
    assert found == Settings(share=0.25, count=3)
