"""a workload -> a recording (CTF trace + manifest)."""

from critpath.doors import hand_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from critpath.record.budget.control import COMMAND as BUDGET_OF_COMMAND
    from critpath.record.budget.control import Budget
    from critpath.record.cleanup import clean_up, find_leftovers
    from critpath.record.counts.counting import COMMAND, MACHINE, Counting
    from critpath.record.flight.conditions import Condition
    from critpath.record.flight.service import PROFILES, Flight, FlightRequest
    from critpath.record.flight.state import STATE, RunningFlight
    from critpath.record.ftrace.marks import MarkRequests
    from critpath.record.manifests import read_manifest
    from critpath.record.preflight import Preflight, check_machine
    from critpath.record.recorder import (
        Count,
        CountsRequest,
        Leftover,
        Outcome,
        Recording,
        RecordRequest,
        Reporter,
        Requirement,
    )
    from critpath.record.remote import RemoteRequest
    from critpath.record.runner import RunResult
    from critpath.record.session import record
    from critpath.record.signals import InheritedState
    from critpath.record.slots import SlotRunner
    from critpath.record.stacks.sources import AUTO, check_stacks
    from critpath.record.user import User, mark_users
    from critpath.record.workload import FAULTS as WORKLOAD_FAULTS
    from critpath.record.workload import plan as plan_workload
else:
    __getattr__ = hand_on(__name__)
