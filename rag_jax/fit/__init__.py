"""HOST. Whether a configuration fits a TPU slice, and how fast it can go there, found out without the slice."""

from rag_jax.fit.plan import WIKIPEDIA, Plan, make_plan, make_plans, topology_devices
from rag_jax.fit.report import Report, make_report
from rag_jax.fit.text import to_dict, to_text

__all__ = [
    "WIKIPEDIA",
    "Plan",
    "Report",
    "make_plan",
    "make_plans",
    "make_report",
    "to_dict",
    "to_text",
    "topology_devices",
]
