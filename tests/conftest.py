"""Shared settings: no deadlines on a busy machine, the same examples on every run."""

import os

# before torch is imported: two torch processes that spin on the same cores stall each other
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from hypothesis import HealthCheck, settings

settings.register_profile(
    "default",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("default")
