"""Critical paths -> Alignment (MUSCLE-style)."""

from critpath.doors import hand_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from critpath.align.multiple import RowGroup, align, choose_rows
else:
    __getattr__ = hand_on(__name__)
