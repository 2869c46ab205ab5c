"""What every process that reads recordings imports, once: they are forked from one that did.

Importing starts idle threads of OpenBLAS and jemalloc; both prepare for a fork, and nothing
else runs where these processes come from.
"""

# ruff: noqa: F401 - for the processes that are forked
import critpath.executions.find
import critpath.executions.marker
import critpath.graph.critical_path
import critpath.pipeline.extraction
import critpath.pipeline.limits
import critpath.pipeline.recordings
import critpath.read.manifest
import critpath.read.traces
import critpath.store.writing
