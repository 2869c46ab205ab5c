"""Recording through tracefs, without any dependency: raw ring-buffer pages to CTF."""

from critpath.doors import hand_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from critpath_record.ctf.statedump import ThreadState
    from critpath_record.ftrace.convert import ConversionResult
    from critpath_record.ftrace.convert import convert as convert_pages
    from critpath_record.ftrace.formats import EventFormat, PageLayout, parse_format
    from critpath_record.ftrace.raw import describe_raw
    from critpath_record.manifests import write_manifest
else:
    __getattr__ = hand_on(__name__)
