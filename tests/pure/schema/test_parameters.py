"""Numbers that judge are declared once, read where they are used, and can be given others."""

from __future__ import annotations

import re

import pytest

from critpath.schema.parameters import (
    CORPORA,
    Chosen,
    Group,
    Parameter,
    list_parameters,
    overridden,
)
from critpath.schema.parameters.detect import MACHINE


def test_a_parameter_reads_as_its_number_and_can_be_another_for_a_while():
    assert MACHINE.pace == 2.0
    with overridden("machine.pace", 4.0):
        assert MACHINE.pace == 4.0
        with overridden("machine.pace", 1.0):
            assert MACHINE.pace == 1.0
        assert MACHINE.pace == 4.0
    assert MACHINE.pace == 2.0
    with pytest.raises(ZeroDivisionError), overridden("machine.pace", 0.0):
        1 / MACHINE.pace
    assert MACHINE.pace == 2.0


def test_nobody_sets_one_for_good_by_mistake():
    with pytest.raises(AttributeError, match=r"machine\.pace is declared"):
        MACHINE.pace = 3.0


def test_a_name_that_no_parameter_has_is_an_error():
    with pytest.raises(KeyError), overridden("machine.paces", 1.0):
        pass


@pytest.mark.parametrize("name", sorted(list_parameters()))
def test_every_parameter_says_what_it_is_and_where_it_is_from(name):
    parameter = list_parameters()[name]
    assert re.fullmatch(r"[a-z]+\.[a-z0-9_]+", name)
    assert parameter.value == parameter.declared
    assert parameter.unit
    assert parameter.what
    assert not parameter.what.endswith(".")
    if isinstance(parameter.source, Chosen):
        assert parameter.source.source in CORPORA
    else:
        assert parameter.source.source


def test_no_two_parameters_have_one_name():
    list_parameters()
    names = [
        one.name
        for group in Group.groups
        for one in vars(group).values()
        if isinstance(one, Parameter)
    ]
    assert sorted(names) == sorted({*names})
