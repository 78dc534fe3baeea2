import subprocess
import sys
from pathlib import Path

import pytest

ATTEMPTS = 20


@pytest.mark.skipif(sys.platform != "linux", reason="two directories are exchanged in one step on Linux only")
@pytest.mark.parametrize("operation", ["build", "add", "delete", "swap"])
def test_a_kill_at_any_moment_leaves_the_old_index_or_the_new_one(tmp_path, operation):
    script = Path(__file__).with_name("kill_operations.py")
    command = [sys.executable, str(script), operation, str(tmp_path), str(ATTEMPTS)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=script.parents[2])
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith(operation)
