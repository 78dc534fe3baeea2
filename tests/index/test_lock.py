import os

import pytest

from rag_jax.index.lock import changing


@pytest.mark.parametrize("nth", [1, 2])
def test_a_lock_that_its_holder_removes_at_any_moment_is_taken_again(tmp_path, monkeypatch, nth):
    path, stat, calls = tmp_path / ".i.lock", os.stat, []

    def removed_before(place, *args, **options):
        if os.fspath(place) == str(path):
            calls.append(place)
            if len(calls) == nth:
                path.unlink()
        return stat(place, *args, **options)

    monkeypatch.setattr(os, "stat", removed_before)
    with changing(tmp_path / "i"):
        assert os.path.lexists(path)
    assert not os.path.lexists(path)
