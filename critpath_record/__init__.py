"""a workload -> a recording (CTF trace + manifest)."""

from critpath.doors import hand_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from critpath_record.budget.control import COMMAND as BUDGET_OF_COMMAND
    from critpath_record.budget.control import Budget
    from critpath_record.cleanup import recover
    from critpath_record.counts.counting import COMMAND, MACHINE, Counting
    from critpath_record.flight.conditions import Condition
    from critpath_record.flight.service import PROFILES, Flight, FlightRequest
    from critpath_record.flight.state import STATE, RunningFlight
    from critpath_record.ftrace.marks import MarkRequests
    from critpath_record.output import OutputDirectory
    from critpath_record.preflight import Preflight, doctor
    from critpath_record.recorder import (
        CountsRequest,
        Leftover,
        Outcome,
        Recording,
        RecordRequest,
        Reporter,
        Requirement,
    )
    from critpath_record.rooted import Helper
    from critpath_record.runner import RunResult
    from critpath_record.session import record
    from critpath_record.signals import InheritedState
    from critpath_record.slots import SlotRunner
    from critpath_record.source import Count
    from critpath_record.stacks.sources import AUTO, check_stacks
    from critpath_record.user import User
else:
    __getattr__ = hand_on(__name__)
