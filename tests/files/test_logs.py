"""Other libraries' messages are silenced only temporarily."""

import logging as python_logging
import warnings

import pytest
from transformers.utils import logging

from mybert.files import no_warnings, only_errors


def test_only_errors_for_a_while():
    verbosity = logging.get_verbosity()
    with pytest.raises(ValueError, match="inside"), only_errors():
        assert logging.get_verbosity() == logging.ERROR
        raise ValueError("inside")
    assert logging.get_verbosity() == verbosity < logging.ERROR


def test_no_warnings_for_a_while(caplog):
    with pytest.raises(ValueError, match="inside"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with no_warnings():
            warnings.warn("unheard", stacklevel=1)
            python_logging.getLogger("exporter").warning("unheard")
            python_logging.getLogger("exporter").error("heard")
            raise ValueError("inside")
    assert not caught and [record.message for record in caplog.records] == ["heard"]
    python_logging.getLogger("exporter").warning("heard again")
    assert caplog.records[-1].message == "heard again"
