"""Signatures: counts of what the kernel did, as weighted vectors."""

from critpath.doors import hand_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from critpath.signatures.incidents import find_causes, search
    from critpath.signatures.lookup import check, describe_label, group, make_entry
    from critpath.signatures.signing import SignSettings, read_source, sign
    from critpath.signatures.watching import Watch
else:
    __getattr__ = hand_on(__name__)
