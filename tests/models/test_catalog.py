from __future__ import annotations

import dataclasses
import re

import pytest

from mars_core.models import catalog


def test_the_default_is_listed_and_found():
    assert catalog.DEFAULT_MODEL in catalog.names()
    entry = catalog.find(catalog.DEFAULT_MODEL)
    assert entry is not None
    assert entry.licence == "Apache-2.0"
    assert entry.mask_id == 6


def test_an_unknown_name_is_not_found():
    assert catalog.find("smollm2-135M") is None
    assert catalog.find("") is None


def test_names_are_unique_and_make_good_folders():
    assert len(set(catalog.names())) == len(catalog.CATALOG)
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name) for name in catalog.names())


def test_packages_are_pinned_and_hashed():
    for entry in catalog.CATALOG:
        if entry.package is not None:
            assert re.fullmatch(r"[\w.-]+==[\w.]+", entry.package.requirement)
            assert re.fullmatch(r"[0-9a-f]{64}", entry.package.wheel_sha256)
            assert re.fullmatch(r"[0-9a-f]{64}", entry.package.member_sha256)


def test_a_hub_only_entry_needs_no_package():
    entry = catalog.ModelEntry("n", "MIT", "org/name", disk_bytes=1)
    assert entry.package is None
    assert entry.mask_id is None
    with pytest.raises(dataclasses.FrozenInstanceError):
        entry.name = "other"  # type: ignore[misc]
